// SPDX-License-Identifier: Apache-2.0
#include "findings/kernel_work.h"

#include <algorithm>

#include "findings/cpu_limits.h"
#include "findings/hlo_work.h"
#include "findings/own_work.h"
#include "profile/step_times.h"

namespace paoding::findings {

using namespace profile;

namespace {

std::string_view text_in(const Trace& trace, const ArgumentColumn* column, SpanId i) {
  if (column == nullptr) return {};
  const auto found = std::ranges::lower_bound(column->of, i);
  if (found == column->of.end() || *found != i) return {};
  return trace.text(column->text(static_cast<std::size_t>(found - column->of.begin())));
}

}  // namespace

KernelWorks::KernelWorks(const Steps& steps) : steps_(steps), op_kinds_(steps.trace(), kind_of_op) {
  const Trace& trace = steps.trace();
  for (const ArgumentColumn& column : trace.columns()) {
    if (column.type != ArgumentType::text) continue;
    const std::string_view name = trace.text(column.name);
    if (name == "shapes") shapes_ = &column;
    if (name == "types") types_ = &column;
    if (name == "concrete inputs") concrete_ = &column;
  }
  has_shapes_ = shapes_ != nullptr && !shapes_->of.empty();
  no_call_.work = &works_.emplace_back();
  add_all();
  std::ranges::stable_sort(all_, {}, [&](const KernelWork& one) { return trace.start(one.span); });
  share_work_of_calls();
  if (steps.source() == Source::paoding) find_sizes_of_casts(trace, &all_);
  if (are_on_cpu_) find_usual();
  find_floor();
}

void KernelWorks::find_usual() {
  std::unordered_map<SiteId, std::vector<std::int64_t>> times;
  for (const KernelWork& kernel : all_) times[steps_.trace().site_id(kernel.span)].push_back(kernel.ns);
  for (auto& [site, ns] : times) usual_ns_[site] = median(std::move(ns));
}

std::int64_t KernelWorks::usual_ns(const KernelWork& kernel) const {
  return are_on_cpu_ ? usual_ns_.at(steps_.trace().site_id(kernel.span)) : kernel.ns;
}

void KernelWorks::add_all() {
  are_on_cpu_ = steps_.device_spans().empty() && steps_.source() == Source::paoding;
  if (are_on_cpu_) return add_ops_of_cpu();
  std::vector<SpanId> order = steps_.device_spans();
  std::ranges::sort(order);  // facts are read fastest so
  FactReader facts(steps_);
  all_.reserve(order.size());
  for (const SpanId i : order) add(i, facts);
}

// The innermost ops: others are branches and loops around them.
void KernelWorks::add_ops_of_cpu() {
  const Trace& trace = steps_.trace();
  const SpanRange own = steps_.spans(steps_.track());
  const auto is_op = [&](SpanId i) { return trace.kind(i) == SpanKind::op && trace.source(i) == Source::paoding; };
  for (SpanId i = own.begin; i < own.end; ++i) {
    const std::size_t step = steps_.at(trace.start(i));
    if (step == Steps::kOutside || !is_op(i)) continue;
    const auto is_inside = [&](SpanId other) { return other < own.end && trace.end(other) <= trace.end(i); };
    SpanId inside = i + 1;
    while (is_inside(inside) && !is_op(inside)) ++inside;
    if (is_inside(inside)) continue;
    const Site& site = trace.site(i);
    KernelWork kernel{.span = i, .call = static_cast<std::uint32_t>(calls_.size())};
    kernel.step = static_cast<std::uint32_t>(step);
    kernel.is_kernel = true;
    kernel.device = kCpu;
    kernel.ns = trace.duration(i);
    kernel.kind = known(trace.site_id(i), site.op).kind;
    kernel.arithmetic = {Arithmetic::By::ordinary_lanes, site.unit};
    kernel.bytes = std::max<std::int64_t>(trace.bytes(i), 0);
    kernel.flops = sound_flops(trace.flops(i));
    const bool is_product = kernel.kind == KernelKind::product || kernel.kind == KernelKind::convolution;
    calls_.push_back({.op = i,
                      .kernels = 1,
                      .products = is_product ? 1u : 0u,
                      .ns = kernel.ns,
                      .product_ns = is_product ? kernel.ns : 0,
                      .work = work_of(i, i)});
    all_.push_back(kernel);
  }
}

// An op's only kernel does all of the op's work.
void KernelWorks::share_work_of_calls() {
  for (KernelWork& kernel : all_) {
    const OpCall& call = call_of(kernel);
    const bool is_product = kernel.kind == KernelKind::product || kernel.kind == KernelKind::convolution;
    if (is_product && kernel.arithmetic.unit == Unit::none) {
      const bool is_rounded = kernel.arithmetic.by == Arithmetic::By::tensor_cores && call.work->unit == Unit::f32;
      kernel.arithmetic.unit = is_rounded ? Unit::tf32 : call.work->unit;
    }
    if (is_product ? call.products == 1 : kernel.is_kernel && call.kernels == 1) {
      if (kernel.bytes == 0 && kernel.is_kernel && call.work->read + call.work->written > 0) {
        kernel.bytes = call.work->bytes();
        kernel.is_by_grid = false;
      }
      if (kernel.flops == 0) kernel.flops = call.work->flops;
      if (call.work->element_bytes > 0) kernel.element_bytes = call.work->element_bytes;
      if (kernel.kind == KernelKind::other && call.work->is_users) kernel.kind = KernelKind::pointwise;
      if (kernel.elements == 0 || call.work->elements > 0)
        kernel.elements = std::max(call.work->elements, std::int64_t{0});
    }
  }
}

void KernelWorks::add(SpanId span, FactReader& facts) {
  const Trace& trace = steps_.trace();
  const SpanKind kind = trace.kind(span);
  if (kind == SpanKind::replay) return;  // its kernels are not known
  KernelWork kernel{.span = span};
  const std::size_t step = steps_.step_of(span);
  kernel.step = static_cast<std::uint32_t>(step == Steps::kOutside ? steps_.at(trace.start(span)) : step);
  kernel.is_kernel = kind == SpanKind::kernel;
  kernel.ns = trace.duration(span);
  kernel.device = trace.track(span).device;
  const SpanId op = steps_.op_of(span);
  if (op != kNone) {
    const auto [found, is_new] = call_of_op_.try_emplace(op, static_cast<std::uint32_t>(calls_.size()));
    if (is_new) calls_.push_back({.op = op, .work = work_of(op, span)});
    kernel.call = found->second;
  }
  if (kernel.is_kernel) {
    const Known& own = known(trace.site_id(span), op_text(kernel));
    kernel.kind = own.kind;
    kernel.arithmetic = own.arithmetic;
    const KernelFacts all = facts.of(span);
    kernel.ctas = all.ctas();
    kernel.threads = all.block[0] * std::max<std::int64_t>(all.block[1], 1) * std::max<std::int64_t>(all.block[2], 1);
    kernel.registers = all.registers;
    kernel.element_bytes = own.element_bytes;
    kernel.shared = all.shared_bytes;
    has_grids_ = has_grids_ || kernel.ctas > 0;
    kernel.bytes = std::max<std::int64_t>(trace.bytes(span), 0);
    kernel.flops = sound_flops(trace.flops(span));
    if (trace.site(span).unit != Unit::none && kernel.arithmetic.unit == Unit::none) {
      kernel.arithmetic.unit = trace.site(span).unit;
    }
    const bool is_product = kernel.kind == KernelKind::product || kernel.kind == KernelKind::convolution;
    if (is_product && trace.source(span) == Source::paoding && own.arithmetic.by == Arithmetic::By::unknown) {
      kernel.arithmetic = own_arithmetic(trace.site(span).unit);
    }
    if (own.form.elements_of_thread > 0 && kernel.ctas > 0) {
      kernel.elements = kernel.ctas * kernel.threads * own.form.elements_of_thread;
      if (own.form.arrays > 0 && own.element_bytes > 0 && kernel.bytes == 0) {
        kernel.bytes = kernel.elements * own.form.arrays * own.element_bytes;
        kernel.is_by_grid = true;
      }
    }
  } else {
    kernel.kind = kind == SpanKind::memset ? KernelKind::fill : KernelKind::copy;
    kernel.bytes = std::max<std::int64_t>(trace.bytes(span), 0);
  }
  if (kernel.call != kNone) {
    OpCall& call = calls_[kernel.call];
    if (kernel.is_kernel) ++call.kernels;
    call.ns += kernel.ns;
    const bool is_product = kernel.kind == KernelKind::product || kernel.kind == KernelKind::convolution;
    if (is_product) ++call.products;
    if (is_product || kernel.kind == KernelKind::product_part) call.product_ns += kernel.ns;
    // Sizes by the op's shapes are exact; those of the grid are rounded up.
    if (kernel.is_by_grid && call.work->bytes() > 0) kernel.bytes = 0;
  }
  all_.push_back(kernel);
}

const KernelWorks::Known& KernelWorks::known(SiteId site, StringId op) {
  const auto [found, is_new] = known_.try_emplace(std::uint64_t{site} << 32 | op);
  if (is_new) {
    const Trace& trace = steps_.trace();
    const Site& own = trace.sites()[site];
    const std::string_view name = trace.text(own.kernel != 0 ? own.kernel : own.name);
    Known& known = found->second;
    const KernelKind of_ours = steps_.source() == Source::paoding ? own_kind(trace, own) : KernelKind::other;
    known.kind = of_ours != KernelKind::other ? of_ours : kind_of_kernel(name, trace.text(op));
    known.arithmetic = arithmetic_of(name);
    known.element_bytes = known.kind == KernelKind::cast ? 0 : element_bytes(name);
    known.form = elementwise_form(name);
  }
  return found->second;
}

const OpWork* KernelWorks::work_of(SpanId op, SpanId kernel) {
  const Trace& trace = steps_.trace();
  if (trace.source(op) == Source::paoding) {
    const auto [found, is_new] = work_by_site_.try_emplace(trace.site_id(op), no_call_.work);
    if (is_new) found->second = &works_.emplace_back(own_work(trace, trace.site(op)));
    return found->second;
  }
  const std::string_view shapes = text_in(trace, shapes_, op);
  if (shapes.empty()) return no_call_.work;
  const std::string_view types = text_in(trace, types_, op), concrete = text_in(trace, concrete_, op);
  const std::string_view name = trace.text(trace.site(op).op);
  const bool is_hlo = shapes.front() != '[';
  std::string key(name);
  for (const std::string_view part : {shapes, types, concrete}) key += '\n', key += part;
  if (is_hlo) key += '\n', key += std::to_string(trace.flops(op));
  if (const auto known = work_by_text_.find(key); known != work_by_text_.end()) return known->second;
  OpWork work;
  if (is_hlo) {
    const KernelKind kind = kind_of_kernel(trace.text(trace.site(kernel).kernel), name);
    work = work_of_hlo(shapes, kind, sound_flops(trace.flops(op)));
  } else {
    work = op_work(name, operands_of_kineto(shapes, types), concrete);
  }
  return work_by_text_.emplace(std::move(key), &works_.emplace_back(std::move(work))).first->second;
}

StringId KernelWorks::op_text(const KernelWork& kernel) const {
  return kernel.call == kNone ? 0 : trace().site(calls_[kernel.call].op).op;
}

StringId KernelWorks::kernel_text(const KernelWork& kernel) const {
  const Site& site = trace().site(kernel.span);
  return site.kernel != 0 ? site.kernel : site.name;
}

const DeviceLimits& KernelWorks::limits(int device) const {
  static const DeviceLimits kNothing;
  const auto found = limits_.find(device);
  return found == limits_.end() ? kNothing : found->second;
}

double KernelWorks::all_steps_ns() const {
  double work = 0;
  for (const KernelWork& kernel : all_) work += static_cast<double>(kernel.ns);
  return std::max({1.0, work, static_cast<double>(steps_.median_ns()) * static_cast<double>(steps_.count())});
}

int KernelWorks::ctas_of_sm(const KernelWork& kernel) const {
  const DeviceLimits& limits = this->limits(kernel.device);
  constexpr std::int64_t kMostCtas = 32, kWarp = 32;
  if (kernel.threads <= 0 || limits.threads_of_sm <= 0) return 0;
  const std::int64_t threads = (kernel.threads + kWarp - 1) / kWarp * kWarp;
  std::int64_t most = std::min(kMostCtas, limits.threads_of_sm / threads);
  if (kernel.registers > 0) {
    // A warp gets registers in units of 256.
    const std::int64_t of_warp = (kernel.registers * kWarp + 255) / 256 * 256;
    most = std::min(most, limits.registers_of_sm / of_warp / (threads / kWarp));
  }
  constexpr std::int64_t kReserved = 1 << 10;  // of the driver's, of each CTA
  if (limits.shared_of_sm > 0 && kernel.shared > 0)
    most = std::min(most, limits.shared_of_sm / (kernel.shared + kReserved));
  return static_cast<int>(std::max<std::int64_t>(most, 1));
}

void KernelWorks::find_floor() {
  std::vector<std::int64_t> ns;
  for (const KernelWork& kernel : all_) {
    if (kernel.is_kernel) ns.push_back(kernel.ns);
    if (!limits_.contains(kernel.device) && !are_on_cpu_) {
      limits_[kernel.device] = limits_of_device(steps_.trace(), kernel.device);
    }
  }
  if (ns.empty()) return;
  if (are_on_cpu_) limits_[kCpu] = limits_of_cpu(steps_.trace(), all_);
  const auto tenth = ns.begin() + static_cast<std::ptrdiff_t>(ns.size() / 10);
  std::ranges::nth_element(ns, tenth);
  constexpr std::int64_t kMostFloor = 3'000;  // where all kernels are large they say nothing of small ones
  floor_ns_ = std::min(*tenth, kMostFloor);
}

}  // namespace paoding::findings
