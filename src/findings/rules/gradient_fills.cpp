// SPDX-License-Identifier: Apache-2.0
// Gradients that are filled with zeros, and added to afterwards, where they could be written.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_set>
#include <vector>

#include "findings/kernel_group.h"
#include "findings/kernel_rules.h"

namespace paoding::findings {

using namespace profile;

namespace {

constexpr int kFurthestOut = 64;

// Whether a span with that word in its name is around the kernel's launch.
bool lies_in(const Trace& trace, SpanId i, const TextsWith& word) {
  for (int out = 0; i != kNone && out < kFurthestOut; ++out) {
    const Site& site = trace.site(i);
    for (const StringId text : {site.name, site.op}) {
      if (word(text)) return true;
    }
    i = trace.on_gpu(i) && trace.cause(i) != kNone ? trace.cause(i) : trace.parent(i);
  }
  return false;
}

// A loss's gradient begins as one number that is filled with 1: as often as a step goes backward.
double passes_of_step(const KernelWorks& works) {
  std::size_t begins = 0;
  const TextsWith ones_like = texts_with(works.trace(), "ones_like");
  for (const KernelWork& kernel : works.all()) {
    const bool is_one = works.op_name(kernel) == "aten::fill_" && works.call_of(kernel).work->elements == 1;
    if (is_one && lies_in(works.trace(), kernel.span, ones_like)) ++begins;
  }
  return static_cast<double>(begins) / static_cast<double>(std::max<std::size_t>(works.steps().count(), 1));
}

constexpr std::int64_t kLeastBytes = 1 << 20;

// With the kernel goes the host's time for the op that launches it. One that the user's code calls costs that code
// about as much again, until it calls the next.
void remove_with_op(const KernelWorks& works, const KernelWork& kernel, std::vector<Edit>* edits) {
  const Trace& trace = works.trace();
  edits->push_back(Edit::remove(kernel.span));
  const SpanId op = kernel.call == kNone ? kNone : works.call_of(kernel).op;
  if (op == kNone || trace.on_gpu(op)) return;
  const TrackId track = trace.track_id(op);
  std::int64_t end = trace.end(op);
  if (works.steps().outermost_op_of(op) == op) {
    SpanId next = op + 1;
    while (next < works.steps().spans(track).end && (trace.start(next) < end || trace.kind(next) != SpanKind::op))
      ++next;
    const std::int64_t until = next < works.steps().spans(track).end ? trace.start(next) : end;
    end = std::min(until, end + trace.duration(op));
  }
  edits->push_back(Edit::host(track, trace.start(op), end, 0));
}

// The call of an optimizer that sets gradients to zero; None in their place takes it next to nothing.
SpanId zeroing_call(const Trace& trace, SpanId i) {
  for (int out = 0; i != kNone && out < kFurthestOut; ++out) {
    if (trace.kind(i) == SpanKind::range && trace.name(i).find("zero_grad") != std::string_view::npos) return i;
    i = trace.on_gpu(i) && trace.cause(i) != kNone ? trace.cause(i) : trace.parent(i);
  }
  return kNone;
}

bool is_add_in_place(const KernelWorks& works, const KernelWork& kernel) {
  return kernel.is_kernel && works.op_name(kernel) == "aten::add_";
}

}  // namespace

void find_gradient_fills(const KernelWorks& works, Candidates* out) {
  const Source source = works.steps().source();
  if (source == Source::jax || source == Source::tensorflow || source == Source::paoding)
    return;  // gradients are values
  const Trace& trace = works.trace();
  Candidate candidate{.kind = Kind::gradient_fills};
  KernelGroup fills(works), sums(works);
  std::unordered_set<SpanId> seen;
  const TextsWith zero_grad = texts_with(trace, "zero_grad"), zeros = texts_with(trace, "zeros"),
                  evaluates = texts_with(trace, "evaluate_function"), accumulates = texts_with(trace, "AccumulateGrad"),
                  sets_lists = texts_with(trace, "ZeroFunctor"), adds = texts_with(trace, "CUDAFunctor_add<");
  // Their names tell, or the functor that a replayed graph applies to lists.
  for (const KernelWork& kernel : works.all()) {
    const bool is_list = works.op_name(kernel) == "aten::_foreach_zero_" || sets_lists(works.kernel_text(kernel));
    const bool is_fill = kernel.kind == KernelKind::fill && lies_in(trace, kernel.span, zero_grad);
    if (!is_list && !is_fill) continue;
    fills.add(kernel, static_cast<double>(kernel.ns));
    seen.insert(kernel.span);
    remove_with_op(works, kernel, &candidate.least);
    if (const SpanId call = zeroing_call(trace, kernel.span); call != kNone) {
      candidate.most.push_back(Edit::host(trace.track_id(call), trace.start(call), trace.end(call), 0));
    }
  }
  // A buffer is filled and then added to in the same step: the first sum could be a plain result.
  std::map<std::pair<std::uint32_t, std::int64_t>, std::vector<const KernelWork*>> open;
  for (const KernelWork& kernel : works.all()) {
    const std::int64_t bytes = works.call_of(kernel).work->elements * works.call_of(kernel).work->element_bytes;
    if (bytes < kLeastBytes) continue;
    // Ops of the backward pass fill buffers of their own.
    const auto is_zero = [&] {
      return (works.op_name(kernel) == "aten::zero_" || lies_in(trace, kernel.span, zeros)) &&
             !lies_in(trace, kernel.span, evaluates);
    };
    if (kernel.kind == KernelKind::fill && !seen.contains(kernel.span) && is_zero()) {
      open[{kernel.step, bytes}].push_back(&kernel);
    } else if (is_add_in_place(works, kernel) && !lies_in(trace, kernel.span, accumulates)) {
      std::vector<const KernelWork*>& before = open[{kernel.step, bytes}];
      if (before.empty()) continue;
      fills.add(*before.back(), static_cast<double>(before.back()->ns));
      sums.add(kernel, static_cast<double>(kernel.ns));
      remove_with_op(works, *before.back(), &candidate.least);
      remove_with_op(works, kernel, &candidate.most);
      before.pop_back();
    }
  }
  // Fewer fills than steps belong to something that is not of every step.
  if (fills.is_empty() || fills.count() < works.steps().count()) return;
  // Where there are several passes backward only the sums of the first are for nothing.
  constexpr double kOnePass = 1.5;
  if (!seen.empty() && passes_of_step(works) < kOnePass) {
    for (const KernelWork& kernel : works.all()) {
      if (!is_add_in_place(works, kernel) || !lies_in(trace, kernel.span, accumulates)) continue;
      sums.add(kernel, static_cast<double>(kernel.ns));
      remove_with_op(works, kernel, &candidate.most);
    }
  }
  // A replayed graph has no ops: sums right behind products may be those of their gradients.
  const KernelWork* before = nullptr;
  for (const KernelWork& kernel : works.all()) {
    const bool is_sum = kernel.call == kNone && adds(works.kernel_text(kernel));
    const bool is_behind = before != nullptr && before->call == kNone && before->step == kernel.step &&
                           (before->kind == KernelKind::product || before->kind == KernelKind::product_part);
    if (!seen.empty() && is_sum && is_behind) {
      sums.add(kernel, static_cast<double>(kernel.ns));
      candidate.most.push_back(Edit::remove(kernel.span));
    }
    before = &kernel;
  }
  candidate.most.insert(candidate.most.end(), candidate.least.begin(), candidate.least.end());
  candidate.title = "gradients are filled with zeros and added to";
  candidate.text =
      fills.in_steps() +
      fmt::format(
          "{} a step fill gradients with zeros ({}){}. A gradient that is None is written by the first that has one.",
          count_text(fills.per_step(static_cast<double>(fills.count())), "kernel", "kernels"),
          time_text(fills.per_step(fills.ns())),
          sums.is_empty()
              ? ""
              : fmt::format(", and {} then add to them ({})",
                            count_text(sums.per_step(static_cast<double>(sums.count())), "kernel", "kernels"),
                            time_text(sums.per_step(sums.ns()))));
  candidate.where = fills.where();
  Evidence lost = fills.lost();
  lost.add(sums.lost());
  candidate.evidence = lost.examples(works.steps());
  candidate.lost_is = "its own time";
  candidate.change = "optimizer.zero_grad(set_to_none=True), and no buffers of zeros to add gradients to";
  out->add(std::move(candidate));
}

}  // namespace paoding::findings
