// SPDX-License-Identifier: Apache-2.0
// Products in f32 by ordinary lanes, on a GPU whose tensor cores would do them many times faster with rounded factors.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "findings/kernel_group.h"
#include "findings/kernel_rules.h"
#include "findings/product_time.h"

namespace paoding::findings {

using namespace profile;

namespace {

// The kernels that read one factor once are bound by memory.
bool is_of_vector(std::string_view kernel) {
  for (const std::string_view word : {"gemv", "gemmk1", "gemmSN", "dot_kernel"}) {
    if (kernel.find(word) != kernel.npos) return true;
  }
  return false;
}

struct Times {
  double least = 0, most = 0;  // ns
};

// The shorter side of a kernel's tile by its name: 64 of "tilesize64x256x8" and "sgemm_128x64_nt"; 0 where none is
// said.
int shorter_side(std::string_view kernel) {
  for (std::size_t x = kernel.find('x'); x != kernel.npos; x = kernel.find('x', x + 1)) {
    std::size_t begin = x, end = x + 1;
    while (begin > 0 && kernel[begin - 1] >= '0' && kernel[begin - 1] <= '9') --begin;
    while (end < kernel.size() && kernel[end] >= '0' && kernel[end] <= '9') ++end;
    if (begin == x || end == x + 1 || x - begin > 4 || end - x > 5) continue;
    int sides[2] = {0, 0};
    for (std::size_t i = begin; i < x; ++i) sides[0] = sides[0] * 10 + (kernel[i] - '0');
    for (std::size_t i = x + 1; i < end; ++i) sides[1] = sides[1] * 10 + (kernel[i] - '0');
    return std::min(sides[0], sides[1]);
  }
  return 0;
}

// cuDNN's LSTM (100 steps, batch 64, width 512) took 1905 us in f32 and 903 in TF32 (benchmarks/results/h200.json), its
// cells and all.
constexpr double kMeasuredShare = 903.0 / 1905.0;

// Sizes give the time of such a product on tensor cores. Without them it is the ratio of the rates at best, and at
// least as measured where tiles and grid are so large that arithmetic takes the time; others may wait for memory.
Times on_tensor_cores(const KernelWorks& works, const KernelWork& kernel, Unit unit) {
  const DeviceLimits& limits = works.limits(kernel.device);
  const auto ns = static_cast<double>(kernel.ns);
  const auto floor = 2 * static_cast<double>(works.floor_ns());
  if (kernel.flops > 0) {
    Times times;
    times.most =
        std::max({kernel.flops / limits.rate(unit), static_cast<double>(kernel.bytes) / limits.bytes_per_ns, floor});
    const OpWork& work = *works.call_of(kernel).work;
    const double measured = work.product ? product_ns(limits, unit, *work.product) : 0;
    times.least = std::max(times.most, measured > 0 ? measured * kProductSpread : ns * kMeasuredShare);
    return times;
  }
  constexpr int kLargeTile = 64;
  const bool is_large = kernel.ctas >= limits.sms && shorter_side(works.kernel_name(kernel)) >= kLargeTile;
  const double most = std::max(ns * limits.rate(Unit::f32) / limits.rate(unit), floor);
  return {is_large ? std::max(ns * kMeasuredShare, most) : ns, most};
}

void add(const KernelWorks& works, KernelKind kind, Candidates* out) {
  Candidate candidate{.kind = Kind::exact_f32_product};
  KernelGroup group(works);
  double flops = 0, sized_ns = 0;
  Unit unit = Unit::tf32;
  const DeviceLimits* limits = nullptr;
  for (const KernelWork& kernel : works.all()) {
    if (kernel.kind != kind || kernel.arithmetic != Arithmetic{Arithmetic::By::ordinary_lanes, Unit::f32}) continue;
    const DeviceLimits& own = works.limits(kernel.device);
    const bool has_tf32 = own.rate(Unit::tf32) > 0;
    const Unit instead = has_tf32 ? Unit::tf32 : Unit::half;
    if (own.rate(instead) <= 0 || own.rate(Unit::f32) <= 0) continue;  // not known, or no tensor cores
    constexpr std::int64_t kFloors = 3;
    if (works.kernel_name(kernel).find("fft2d") != std::string_view::npos) continue;  // part of more
    if (kernel.ns < kFloors * works.floor_ns() || is_of_vector(works.kernel_name(kernel))) continue;
    const Times times = on_tensor_cores(works, kernel, instead);
    const auto ns = static_cast<double>(kernel.ns);
    if (times.most >= ns) continue;
    unit = instead;
    limits = &own;
    group.add(kernel, ns - times.most);
    candidate.most.push_back(Edit::duration(kernel.span, static_cast<std::int64_t>(times.most)));
    if (times.least < ns)
      candidate.least.push_back(Edit::duration(kernel.span, static_cast<std::int64_t>(times.least)));
    if (kernel.flops > 0) {
      flops += kernel.flops;
      sized_ns += ns;
    }
  }
  if (group.is_empty()) return;
  const bool is_product = kind == KernelKind::product;
  const std::string_view one = is_product ? "product" : "convolution", many = is_product ? "products" : "convolutions";
  candidate.title = fmt::format("{} in f32 without tensor cores", many);
  candidate.text =
      group.in_steps() +
      fmt::format(
          "{} a step ({}) multiply f32 by ordinary lanes{}; tensor cores of the {} do {:.0f} TFLOP/s in {}, ordinary "
          "lanes "
          "{:.0f}{}. "
          "Mostly {}.",
          count_text(group.per_step(static_cast<double>(group.count())), one, many),
          time_text(group.per_step(group.ns())),
          sized_ns > 0 ? fmt::format(", at {:.1f} TFLOP/s", flops / sized_ns / 1e3) : "", limits->name,
          limits->rate(unit) / 1e3, unit == Unit::tf32 ? "TF32" : "f16", limits->rate(Unit::f32) / 1e3,
          limits->is_measured ? "" : " (the vendor's numbers, times the share that an H200 reaches)", group.ops());
  candidate.where = group.where();
  candidate.evidence = group.examples();
  candidate.lost_is = "what it would take less";
  const Source source = works.steps().source();
  if (unit == Unit::tf32) {
    candidate.change = change_for(
        source,
        {is_product ? "torch.set_float32_matmul_precision('high')  # TF32: factors keep 10 bits; or "
                      "torch.autocast('cuda', torch.bfloat16)"
                    : "torch.backends.cudnn.allow_tf32 = True (the default), channels_last, or torch.autocast('cuda', "
                      "torch.bfloat16)",
         "jax.config.update('jax_default_matmul_precision', 'tensorfloat32'), or bfloat16", "--tf32, or --mixed bf16"});
  } else {
    candidate.change = change_for(
        source, {"torch.autocast('cuda', torch.float16) with a GradScaler", "float16 factors", "--mixed f16"});
  }
  if (source == Source::paoding) candidate.verify = "tf32";
  out->add(std::move(candidate));
}

// Algorithms of several kernels (by FFT, by Winograd) are judged together, by their call: exact where none of it is by
// tensor cores. One kernel that takes the time of the convolution stands for all of them.
void add_convolutions_of_parts(const KernelWorks& works, Candidates* out) {
  struct Parts {
    std::vector<const KernelWork*> kernels;
    bool has_tensor_cores = false, is_of_parts = false;
  };
  std::map<std::uint32_t, Parts> calls;
  for (const KernelWork& kernel : works.all()) {
    if (kernel.call == kNone || works.op_kind(kernel) != KernelKind::convolution) continue;
    Parts& parts = calls[kernel.call];
    parts.kernels.push_back(&kernel);
    parts.has_tensor_cores = parts.has_tensor_cores || kernel.arithmetic.by == Arithmetic::By::tensor_cores;
    parts.is_of_parts = parts.is_of_parts || works.kernel_name(kernel).find("fft2d") != std::string_view::npos;
  }
  Candidate candidate{.kind = Kind::exact_f32_product};
  KernelGroup group(works);
  std::size_t convolutions = 0;
  for (const auto& [call, parts] : calls) {
    const OpWork& work = *works.calls()[call].work;
    const KernelWork& first = *parts.kernels.front();
    const DeviceLimits& limits = works.limits(first.device);
    const Unit unit = limits.rate(Unit::tf32) > 0 ? Unit::tf32 : Unit::half;
    // Algorithms by FFT are for a stride of 1: the sizes say enough where the trace does not have the stride.
    const double flops = work.flops > 0 ? work.flops : work.dense_flops;
    if (parts.has_tensor_cores || !parts.is_of_parts || work.unit != Unit::f32 || flops <= 0) continue;
    if (limits.rate(unit) <= 0 || !limits.is_known()) continue;
    double ns = 0;
    for (const KernelWork* kernel : parts.kernels) ns += static_cast<double>(kernel->ns);
    const double most = std::max({flops / limits.rate(unit), static_cast<double>(work.bytes()) / limits.bytes_per_ns,
                                  2 * static_cast<double>(works.floor_ns())});
    const double least = std::max(most, ns * kMeasuredShare);
    if (most >= ns) continue;
    ++convolutions;
    candidate.most.push_back(Edit::duration(first.span, static_cast<std::int64_t>(most)));
    candidate.least.push_back(Edit::duration(first.span, static_cast<std::int64_t>(least)));
    for (const KernelWork* kernel : parts.kernels) {
      group.add(*kernel, static_cast<double>(kernel->ns) * (1 - most / ns));
      if (kernel == &first) continue;
      candidate.most.push_back(Edit::remove(kernel->span));
      candidate.least.push_back(Edit::remove(kernel->span));
    }
  }
  if (group.is_empty()) return;
  candidate.title = "convolutions in f32 by Fourier transforms";
  candidate.text =
      group.in_steps() +
      fmt::format("{} a step take {} by transforms in f32, without tensor cores. Mostly {}.",
                  count_text(group.per_step(static_cast<double>(convolutions)), "convolution", "convolutions"),
                  time_text(group.per_step(group.ns())), group.ops());
  candidate.where = group.where();
  candidate.evidence = group.examples();
  candidate.lost_is = "what it would take less";
  candidate.change =
      change_for(works.steps().source(),
                 {"torch.backends.cudnn.allow_tf32 = True (the default), channels_last, or torch.autocast('cuda', "
                  "torch.bfloat16)",
                  "jax.config.update('jax_default_matmul_precision', 'tensorfloat32'), or bfloat16", "--tf32"});
  out->add(std::move(candidate));
}

}  // namespace

void find_exact_f32_product(const KernelWorks& works, Candidates* out) {
  bool has_exact = false, is_known = false;
  for (const KernelWork& kernel : works.all()) {
    const bool is_exact = kernel.arithmetic == Arithmetic{Arithmetic::By::ordinary_lanes, Unit::f32};
    const bool is_product = kernel.kind == KernelKind::product || kernel.kind == KernelKind::convolution;
    has_exact = has_exact || (is_exact && is_product);
    is_known = is_known || works.limits(kernel.device).rate(Unit::f32) > 0;
  }
  if (has_exact && !is_known) {
    out->say_nothing(Kind::exact_f32_product,
                     "there are products in f32 by ordinary lanes, but what the GPU's tensor cores "
                     "do is not known: the trace does not say which GPU it is");
    return;
  }
  add(works, KernelKind::product, out);
  add(works, KernelKind::convolution, out);
  add_convolutions_of_parts(works, out);
}

}  // namespace paoding::findings
