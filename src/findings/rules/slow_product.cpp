// SPDX-License-Identifier: Apache-2.0
// Products that take far longer than products of their size took where they were measured.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "findings/kernel_group.h"
#include "findings/kernel_rules.h"
#include "findings/product_time.h"

namespace paoding::findings {

using namespace profile;

namespace {

// The batch seems to move more than memory can: one of its factors is the same for all, and lies there once.
bool is_of_one_factor(const DeviceLimits& limits, const ProductShape& shape, double ns) {
  constexpr double kMoreThanCan = 1.5;
  return shape.batch > 1 && limits.bytes_per_ns > 0 && shape.bytes() / ns > kMoreThanCan * limits.bytes_per_ns &&
         shape.bytes() > 4.0 * static_cast<double>(limits.cache_bytes);
}

// Products that are slow, and the one that would save most.
struct SlowOnes {
  explicit SlowOnes(const KernelWorks& works) : group(works) {}
  void add(const KernelWork& kernel, double least, double most, double flops_of_it) {
    group.add(kernel, static_cast<double>(kernel.ns) - most);
    flops += flops_of_it;
    candidate.most.push_back(Edit::duration(kernel.span, static_cast<std::int64_t>(most)));
    candidate.least.push_back(
        Edit::duration(kernel.span, static_cast<std::int64_t>(std::min(least, static_cast<double>(kernel.ns)))));
  }
  bool is_worst(double saved) {
    if (saved <= worst_saved) return false;
    worst_saved = saved;
    return true;
  }
  KernelGroup group;
  Candidate candidate{.kind = Kind::slow_product};
  double flops = 0, worst_saved = 0;
  std::string worst = {};
};

}  // namespace

void find_slow_product(const KernelWorks& works, Candidates* out) {
  SlowOnes slow(works);
  bool has_products = false, has_sizes = false, is_measured = false;
  for (const KernelWork& kernel : works.all()) {
    if (kernel.kind != KernelKind::product) continue;
    has_products = true;
    const OpCall& call = works.call_of(kernel);
    if (!call.work->product || call.products != 1) continue;
    has_sizes = true;
    const DeviceLimits& limits = works.limits(kernel.device);
    is_measured = is_measured || limits.has_measured_products;
    if (kernel.arithmetic.by == Arithmetic::By::ordinary_lanes && call.work->unit != Unit::half) continue;
    ProductShape shape = *call.work->product;
    const bool has_one_factor = is_of_one_factor(limits, shape, static_cast<double>(call.product_ns));
    // The larger one, as a rule: the others are then the rows, or columns, of one matrix.
    if (has_one_factor) (shape.m < shape.n ? shape.m : shape.n) *= std::exchange(shape.batch, 1);
    // XLA's own products of f32 have the precision that the program asks for, which the trace does not say.
    const bool is_of_unknown = works.kernel_name(kernel).find("gemm_fusion") != std::string_view::npos;
    if (is_of_unknown && call.work->unit == Unit::f32) continue;
    if (!has_one_factor && !is_aligned(shape)) continue;  // those are another finding
    const Unit unit = kernel.arithmetic.unit != Unit::none ? kernel.arithmetic.unit : Unit::tf32;
    const bool is_half = call.work->unit == Unit::half;
    const double expected = product_ns(limits, is_half ? Unit::half : unit, shape);
    const auto ns = static_cast<double>(call.product_ns);  // with the sums of a split product
    if (expected <= 0 || ns < expected * kProductSpread + kProductSpreadNs) continue;
    // The call's other kernels stay.
    const double others = ns - static_cast<double>(kernel.ns);
    const double most = std::max(0.0, expected - others),
                 least = std::max(0.0, expected * kProductSpread + kProductSpreadNs - others);
    if (most >= static_cast<double>(kernel.ns)) continue;
    slow.add(kernel, least, most, shape.flops());
    if (slow.is_worst(ns - expected)) {
      const ProductShape& own = *call.work->product;
      slow.worst =
          fmt::format("{}{} [{} x {}] by [{} x {}] takes {}, {} is usual{}", kernel_title(works, kernel),
                      own.batch > 1 ? fmt::format(" of {}", own.batch) : "", own.m, own.k, own.k, own.n, time_text(ns),
                      time_text(expected),
                      has_one_factor ? " for one product, since all of the batch have a factor in common" : "");
    }
  }
  if (has_products && !has_sizes) {
    out->say_nothing(Kind::slow_product,
                     "the trace does not say the shapes of products: " + how_to_record_shapes(works.steps().source()));
  } else if (has_products && !is_measured) {
    out->say_nothing(Kind::slow_product, "products were measured on H100 and H200 only");
  }
  const KernelGroup& group = slow.group;
  Candidate& candidate = slow.candidate;
  if (group.is_empty()) return;
  candidate.title = "products take longer than their size explains";
  const double rate = slow.flops / group.ns();  // GFLOP/s
  candidate.text =
      group.in_steps() +
      fmt::format("{} a step ({}) reach {}: {}. Mostly {}.",
                  count_text(group.per_step(static_cast<double>(group.count())), "product", "products"),
                  time_text(group.per_step(group.ns())),
                  rate < 1e3 ? fmt::format("{:.0f} GFLOP/s", rate) : fmt::format("{:.0f} TFLOP/s", rate / 1e3),
                  slow.worst, group.ops());
  candidate.where = group.where();
  candidate.evidence = group.examples();
  candidate.lost_is = "what it would take less";
  candidate.change = change_for(
      works.steps().source(), {"torch.compile(model, mode='max-autotune'), or another order of operands (a transposed "
                               "weight); torch.backends.cudnn.benchmark = True for convolutions",
                               "XLA_FLAGS=--xla_gpu_autotune_level=4", "--tune"});
  if (works.steps().source() == Source::paoding) candidate.verify = "tune";
  out->add(std::move(candidate));
}

}  // namespace paoding::findings
