// SPDX-License-Identifier: Apache-2.0
// Products whose rows do not begin at multiples of 16 bytes: libraries have slow kernels for them.
#include <fmt/format.h>

#include <algorithm>

#include "findings/kernel_group.h"
#include "findings/kernel_rules.h"
#include "findings/own_work.h"
#include "findings/product_time.h"

namespace paoding::findings {

using namespace profile;

namespace {

// From benchmarks/results/2026-11-24-aligned-products.txt (H200): whole runs of products of 2,048 rows and more took
// 0.22 to 0.61 of their time once their rows were aligned; those of 512 rows as long as before.
constexpr double kBestRatio = 0.22, kWorstRatio = 0.61;
constexpr std::int64_t kLeastNs = 20'000;

std::string extents_text(const ProductShape& shape) {
  return fmt::format("[{} x {}] by [{} x {}]", shape.m, shape.k, shape.k, shape.n);
}

// cuDNN pads tensors whose channels are no multiples of 8, in every call.
void add_padded_convolutions(const KernelWorks& works, Candidates* out) {
  std::vector<bool> pads(works.calls().size());
  const TextsWith pads_tensors = texts_with(works.trace(), "AddPadding");
  const auto is_pad = [&](const KernelWork& kernel) { return pads_tensors(works.kernel_text(kernel)); };
  // Images have three channels: where only the first convolution pads, that is not the model's width.
  std::size_t padding = 0, convolutions = 0;
  for (const KernelWork& kernel : works.all()) {
    if (kernel.call != kNone && is_pad(kernel)) pads[kernel.call] = true;
    padding += is_pad(kernel) ? 1 : 0;
    convolutions += kernel.kind == KernelKind::convolution ? 1 : 0;
  }
  if (padding * 2 < convolutions) return;
  Candidate candidate{.kind = Kind::odd_dimensions};
  KernelGroup group(works);
  for (const KernelWork& kernel : works.all()) {
    const bool is_fill =
        !kernel.is_kernel && kernel.kind == KernelKind::fill && kernel.call != kNone && pads[kernel.call];
    if (!is_pad(kernel) && !is_fill) continue;
    candidate.most.push_back(Edit::remove(kernel.span));
    if (!is_fill) {
      group.add(kernel, static_cast<double>(kernel.ns));
      candidate.least.push_back(Edit::remove(kernel.span));
    }
  }
  if (group.is_empty()) return;
  candidate.title = "channels of convolutions are no multiples of 8";
  candidate.text = group.in_steps() +
                   fmt::format("cuDNN copies tensors into padded ones around convolutions: {} a step, {}. Mostly {}.",
                               count_text(group.per_step(static_cast<double>(group.count())), "kernel", "kernels"),
                               time_text(group.per_step(group.ns())), group.ops());
  candidate.where = group.where();
  candidate.evidence = group.examples();
  candidate.lost_is = "what it would take less";
  candidate.change =
      change_for(works.steps().source(), {"make channels multiples of 8: nn.Conv2d(-(-c // 8) * 8, ...)",
                                          "make channels multiples of 8", "make channels multiples of 8"});
  out->add(std::move(candidate));
}

// The pass align_products pads factors, which takes copies of those that nothing in the program computes, and fills.
void add_padded_factors(const KernelWorks& works, Candidates* out) {
  if (works.steps().source() != Source::paoding) return;
  const Trace& trace = works.trace();
  Candidate candidate{.kind = Kind::odd_dimensions};
  KernelGroup group(works);
  const KernelWork* largest = nullptr;
  for (const KernelWork& kernel : works.all()) {
    const Site& site = trace.site(kernel.span);
    if (kernel.kind == KernelKind::fill) candidate.most.push_back(Edit::remove(kernel.span));
    if (!is_alignment(trace, site)) continue;
    group.add(kernel, static_cast<double>(kernel.ns));
    if (largest == nullptr || kernel.ns > largest->ns) largest = &kernel;
    candidate.most.push_back(Edit::remove(kernel.span));
    candidate.least.push_back(Edit::remove(kernel.span));
  }
  if (group.is_empty()) return;
  candidate.title = "factors of products are copied into padded ones";
  candidate.text =
      group.in_steps() +
      fmt::format(
          "{} a step ({}) copy factors whose rows are no multiples of 16 bytes between rows of zeros, as fast products "
          "need them; the longest is {}.",
          count_text(group.per_step(static_cast<double>(group.count())), "kernel", "kernels"),
          time_text(group.per_step(group.ns())), trace.text(trace.site(largest->span).shapes));
  candidate.where = group.where();
  candidate.evidence = group.examples();
  candidate.lost_is = "what it would take less";
  candidate.change = "make widths multiples of 8 (16 bits) or 4 (TF32): then no factor is copied";
  out->add(std::move(candidate));
}

}  // namespace

void find_odd_dimensions(const KernelWorks& works, Candidates* out) {
  add_padded_convolutions(works, out);
  add_padded_factors(works, out);
  Candidate candidate{.kind = Kind::odd_dimensions};
  KernelGroup group(works);
  std::string worst;
  double worst_saved = 0;
  int by_16_bytes = 8;
  bool has_products = false, can_tell = false;
  const OfTexts alignments(works.trace(), alignment_of);
  for (const KernelWork& kernel : works.all()) {
    if (kernel.kind != KernelKind::product) continue;
    has_products = true;
    const bool is_exact = kernel.arithmetic.by == Arithmetic::By::ordinary_lanes;
    const int bytes = kernel.arithmetic.unit == Unit::half ? 2 : kernel.arithmetic.unit == Unit::tf32 ? 4 : 0;
    const int alignment = alignments(works.kernel_text(kernel));
    const OpWork& work = *works.call_of(kernel).work;
    can_tell = can_tell || alignment > 0 || work.product.has_value();
    if (is_exact || bytes == 0 || kernel.ns < kLeastNs) continue;
    // The name tells which kernel ran; shapes alone would accuse products whose kernels were found for them.
    const bool is_odd = alignment > 0 ? alignment * bytes < 16
                                      : work.product && !work.has_aligned_rows.value_or(is_aligned(*work.product));
    if (!is_odd) continue;
    const auto ns = static_cast<double>(kernel.ns);
    double most = ns * kBestRatio, least = ns * kWorstRatio;
    if (work.product) {
      // The time of the padded product where it was measured; the pads themselves are copies beside it.
      const DeviceLimits& limits = works.limits(kernel.device);
      ProductShape padded = aligned(*work.product);
      padded.element_bytes = bytes;
      if (const double measured = product_ns(limits, kernel.arithmetic.unit, padded); measured > 0) {
        most = measured;
        least = measured * kProductSpread + kProductSpreadNs;
      }
    }
    if (least >= ns) continue;  // not slow for its size
    group.add(kernel, ns - most);
    candidate.most.push_back(Edit::duration(kernel.span, static_cast<std::int64_t>(most)));
    candidate.least.push_back(Edit::duration(kernel.span, static_cast<std::int64_t>(least)));
    if (ns - most > worst_saved) {
      worst_saved = ns - most;
      by_16_bytes = 16 / bytes;
      worst = kernel_title(works, kernel);
      if (work.product) worst += " " + extents_text(*work.product);
    }
  }
  if (has_products && !can_tell) {
    out->say_nothing(Kind::odd_dimensions,
                     "the trace says neither shapes of products nor the alignment of their kernels");
  }
  if (group.is_empty()) return;
  candidate.title = fmt::format("extents of products are no multiples of {}", by_16_bytes);
  candidate.text =
      group.in_steps() + fmt::format(
                             "{} a step ({}) run by kernels for rows that do not begin at multiples of 16 bytes; the "
                             "largest is {}. Padded "
                             "ones of "
                             "2,048 rows and more took 0.22 to 0.61 of the time where it was measured.",
                             count_text(group.per_step(static_cast<double>(group.count())), "product", "products"),
                             time_text(group.per_step(group.ns())), worst);
  candidate.where = group.where();
  candidate.evidence = group.examples();
  candidate.lost_is = "what it would take less";
  candidate.change = change_for(
      works.steps().source(),
      {fmt::format("pad the width to a multiple of {} (vocabulary, hidden size): nn.Linear(..., -(-n // {}) * {})",
                   by_16_bytes, by_16_bytes, by_16_bytes),
       fmt::format("pad the width to a multiple of {}", by_16_bytes),
       "keep the pass align_products: no --no-pass for it"});
  if (works.steps().source() == Source::paoding) candidate.verify = "pass align_products";
  out->add(std::move(candidate));
}

}  // namespace paoding::findings
