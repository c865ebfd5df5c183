// SPDX-License-Identifier: Apache-2.0
// Kernels that compute nothing: layouts that convolutions turn for themselves, casts, copies into other orders.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_set>

#include "findings/kernel_group.h"
#include "findings/kernel_rules.h"
#include "findings/own_work.h"

namespace paoding::findings {

using namespace profile;

namespace {

enum class Reason : std::uint8_t { none, convolution, cast, bucket, copy };

bool is_ours(const KernelWorks& works) { return works.steps().source() == Source::paoding; }

// Why kernels that only cast, copy or transpose are there.
class Reasons {
 public:
  explicit Reasons(const KernelWorks& works) : works_(works) {}
  Reason of(const KernelWork& kernel) const;

 private:
  // DistributedDataParallel copies gradients into its buckets and back.
  bool is_of_bucket(const KernelWork& kernel) const {
    const Trace& trace = works_.trace();
    constexpr int kFurthest = 16;
    SpanId i = kernel.call == kNone ? kNone : works_.call_of(kernel).op;
    for (int out = 0; i != kNone && out < kFurthest; ++out, i = trace.parent(i)) {
      if (of_reducer_(trace.site(i).op)) return true;
    }
    return false;
  }

  const KernelWorks& works_;
  const TextsWith pads_ = texts_with(works_.trace(), "AddPadding"), from_rows_ = texts_with(works_.trace(), "chwToN"),
                  to_rows_ = texts_with(works_.trace(), "hwcToN"), of_rocm_ = texts_with(works_.trace(), "rocclr"),
                  of_reducer_ = texts_with(works_.trace(), "reducer::");
};

Reason Reasons::of(const KernelWork& kernel) const {
  const bool is_layout = kernel.kind == KernelKind::layout;
  const StringId name = works_.kernel_text(kernel);
  if (pads_(name)) return Reason::none;  // of odd channels
  if (is_layout && is_ours(works_)) {    // the planner makes others only where a kernel needs them
    return is_copied_view(works_.trace(), works_.trace().site(kernel.span)) ? Reason::copy : Reason::none;
  }
  const bool is_conversion = from_rows_(name) || to_rows_(name);
  if (is_layout && (is_conversion || works_.op_kind(kernel) == KernelKind::convolution)) return Reason::convolution;
  if (kernel.is_kernel && kernel.kind == KernelKind::cast) return Reason::cast;
  // The driver's copies within a GPU are copies of whole tensors; ROCm's run as kernels, which do not say from where.
  const bool is_copy = kernel.kind == KernelKind::copy;
  const bool is_driver_copy =
      !kernel.is_kernel && is_copy && works_.trace().site(kernel.span).copy == Copy::same_device;
  const bool is_kernel_copy = kernel.is_kernel && is_copy && !of_rocm_(name);
  if (!is_layout && !is_driver_copy && !is_kernel_copy) return Reason::none;
  return is_of_bucket(kernel) ? Reason::bucket : Reason::copy;
}

bool computes_elementwise(const KernelWork* kernel) {
  if (kernel == nullptr || !kernel->is_kernel) return false;
  switch (kernel->kind) {
    case KernelKind::pointwise:
    case KernelKind::cast:
    case KernelKind::random:
    case KernelKind::reduction:
    case KernelKind::softmax:
    case KernelKind::normalization: return true;
    default: return false;
  }
}

void add_conversions(const KernelWorks& works, Candidates* out) {
  // Each call keeps the longest of its conversions in the conservative case: somewhere the layout is entered and left.
  std::map<std::uint32_t, std::vector<const KernelWork*>> by_call;
  std::unordered_set<std::uint32_t> transformed;
  const Reasons reasons(works);
  const TextsWith fft = texts_with(works.trace(), "fft2d");
  for (const KernelWork& kernel : works.all()) {
    if (reasons.of(kernel) == Reason::convolution) by_call[kernel.call].push_back(&kernel);
    // Fourier transforms go with their layout.
    if (fft(works.kernel_text(kernel))) transformed.insert(kernel.call);
  }
  std::erase_if(by_call, [&](const auto& one) { return one.first != kNone && transformed.contains(one.first); });
  // Some convolutions have kernels in one layout only: where a few convert, that is not the model's layout.
  std::size_t conversions = 0, convolutions = 0;
  for (const KernelWork& kernel : works.all()) {
    convolutions += kernel.kind == KernelKind::convolution ? 1 : 0;
    conversions += reasons.of(kernel) == Reason::convolution ? 1 : 0;
  }
  if (by_call.empty() || conversions * 2 < convolutions) return;
  Candidate candidate{.kind = Kind::layout_kernels};
  KernelGroup group(works);
  for (const auto& [call, kernels] : by_call) {
    const KernelWork* longest = *std::ranges::max_element(kernels, {}, &KernelWork::ns);
    for (const KernelWork* kernel : kernels) {
      group.add(*kernel, static_cast<double>(kernel->ns));
      candidate.most.push_back(Edit::remove(kernel->span));
      if (kernel != longest) candidate.least.push_back(Edit::remove(kernel->span));
    }
  }
  candidate.title = "convolutions change the layout of their tensors";
  candidate.text =
      group.in_steps() +
      fmt::format(
          "{} a step turn tensors between NCHW and NHWC before and after convolutions, whose kernels for tensor "
          "cores "
          "take NHWC: {} of the step.",
          count_text(group.per_step(static_cast<double>(group.count())), "kernel", "kernels"),
          time_text(group.per_step(group.ns())));
  candidate.where = group.where();
  candidate.evidence = group.examples();
  candidate.lost_is = "its own time";
  candidate.change =
      change_for(works.steps().source(),
                 {"model = model.to(memory_format=torch.channels_last); x = x.to(memory_format=torch.channels_last)",
                  "dimension_numbers=('NHWC', 'HWIO', 'NHWC') in jax.lax.conv_general_dilated",
                  "keep the pass that lays convolutions out in NHWC: no --no-pass for it"});
  out->add(std::move(candidate));
}

// Casts and copies: those beside an elementwise kernel on the same stream could be part of it.
void add_others(const KernelWorks& works, Reason reason, Candidates* out) {
  const Trace& trace = works.trace();
  std::unordered_set<SpanId> in_chains;
  Candidate candidate{.kind = Kind::layout_kernels};
  if (reason == Reason::cast) {
    for (const PointwiseChain& chain : pointwise_chains(works)) {
      for (const KernelWork* kernel : chain.kernels) {
        if (!chain.is_of_casts()) in_chains.insert(kernel->span);
        // Between casts to a wider type and back, without them half of the bytes move.
        if (chain.is_of_casts() && kernel->kind != KernelKind::cast && kernel->element_bytes == 4) {
          candidate.most.push_back(
              Edit::duration(kernel->span, std::max(kernel->ns / 2, std::min(kernel->ns, works.floor_ns()))));
        }
      }
    }
  }
  std::map<TrackId, std::vector<const KernelWork*>> streams;
  for (const KernelWork& kernel : works.all()) streams[trace.track_id(kernel.span)].push_back(&kernel);
  KernelGroup group(works);
  const Reasons reasons(works);
  double bytes = 0, sized_ns = 0, taken_ns = 0;
  for (const auto& [track, kernels] : streams) {
    for (std::size_t i = 0; i < kernels.size(); ++i) {
      const KernelWork& kernel = *kernels[i];
      if (reasons.of(kernel) != reason || in_chains.contains(kernel.span)) continue;
      group.add(kernel, static_cast<double>(kernel.ns));
      if (kernel.bytes > 0) {
        bytes += static_cast<double>(kernel.bytes);
        sized_ns += static_cast<double>(kernel.ns);
      }
      candidate.most.push_back(Edit::remove(kernel.span));
      const KernelWork* before = i > 0 && kernels[i - 1]->step == kernel.step ? kernels[i - 1] : nullptr;
      const KernelWork* after =
          i + 1 < kernels.size() && kernels[i + 1]->step == kernel.step ? kernels[i + 1] : nullptr;
      // The bucket's view makes all of it needless, and a view of ours is read where it lies.
      const bool is_view = reason == Reason::copy && kernel.kind == KernelKind::layout && is_ours(works);
      if (reason == Reason::bucket || is_view || computes_elementwise(before) || computes_elementwise(after)) {
        // On a CPU the copy has brought its values into caches; without it they are read where they lay.
        candidate.least.push_back(works.are_on_cpu() ? Edit::duration(kernel.span, kernel.ns / 2)
                                                     : Edit::remove(kernel.span));
        taken_ns += static_cast<double>(kernel.ns);
      }
    }
  }
  if (group.is_empty()) return;
  // Where kernels beside them would take over next to none, only much of it is worth another way to write the model.
  constexpr double kLeastAlone = 0.2, kLeastTaken = 0.01;
  const bool is_taken = taken_ns >= kLeastTaken * works.all_steps_ns();
  if (!is_taken && group.ns() < kLeastAlone * works.all_steps_ns()) return;
  const bool is_cast = reason == Reason::cast, is_bucket = reason == Reason::bucket;
  const std::string casts = is_cast ? group.casts() : "";
  candidate.title = is_bucket ? "gradients are copied into buckets and back"
                    : is_cast ? "kernels that only convert types"
                              : "kernels that only copy tensors into another order or place";
  candidate.text =
      group.in_steps() +
      fmt::format("{} a step compute nothing and take {}: {}.{}{}",
                  count_text(group.per_step(static_cast<double>(group.count())), is_cast ? "cast" : "copy",
                             is_cast ? "casts" : "copies"),
                  time_text(group.per_step(group.ns())), group.ops(), casts.empty() ? "" : " From " + casts + ".",
                  sized_ns * 2 > group.ns() ? fmt::format(" They move {:.1f} MB a step at {}.",
                                                          group.per_step(bytes) / 1e6, rate_text(bytes / sized_ns))
                                            : "");
  candidate.where = group.where();
  candidate.evidence = group.examples();
  candidate.lost_is = "its own time";
  candidate.change =
      is_bucket ? "DistributedDataParallel(model, gradient_as_bucket_view=True): gradients lie in the buckets"
      : is_cast
          ? change_for(works.steps().source(),
                       {"keep one type along the way (model.to(torch.bfloat16) in front of the loop), or "
                        "torch.compile(model), which makes casts part of the kernels around them",
                        "keep parameters in the type that products use, or cast them once outside of the step",
                        "choose the precision of the whole part at once (--mixed), not op by op"})
          : change_for(works.steps().source(),
                       {"avoid .contiguous(), permute and cat between kernels: write results where they are read, or "
                        "torch.compile(model)",
                        "avoid transposes and concatenations between products: jnp.einsum with the axes as they lie",
                        "let views be read where they lie: no --no-pass alias_views; paoding dump --plan says why one "
                        "is copied"});
  if (is_ours(works) && !is_cast) candidate.verify = "pass alias_views";
  out->add(std::move(candidate));
}

}  // namespace

void find_layout_kernels(const KernelWorks& works, Candidates* out) {
  add_conversions(works, out);
  add_others(works, Reason::cast, out);
  add_others(works, Reason::bucket, out);
  add_others(works, Reason::copy, out);
}

}  // namespace paoding::findings
