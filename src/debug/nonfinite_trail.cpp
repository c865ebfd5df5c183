// SPDX-License-Identifier: Apache-2.0
// How a trail is followed: from a non-finite element to the launch that wrote it last, from that launch's operands to
// their writers, and so on. A NaN that was read explains a NaN; only where none was read are infinities followed.
// Trails end where a launch read only finite values, or at a fed value. The answer is the earliest of those ends that
// is no mask: a mask is an infinity that the formula has as a constant.
#include "debug/nonfinite_trail.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "base/check.h"
#include "base/half.h"
#include "base/one_line.h"

namespace paoding {
namespace {

template <class T, class Convert>
void look_at(const Tensor& tensor, Convert to_real, Finiteness* seen) {
  const T* elements = tensor.data<T>();
  const std::int64_t count = tensor.shape().elements();
  double min = std::numeric_limits<double>::infinity(), max = -min;
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(to_real(elements[i]));
    if (std::isfinite(value)) {
      min = std::min(min, value);
      max = std::max(max, value);
      continue;
    }
    ++(std::isnan(value) ? seen->nans : seen->infinities);
    if (seen->first < 0) seen->first = i;
    if (seen->first_nan < 0 && std::isnan(value)) seen->first_nan = i;
  }
  const bool has_finite = min <= max;
  seen->min = has_finite ? min : std::nan("");
  seen->max = has_finite ? max : std::nan("");
}

// Element `number` as a double.
double element_of(const Tensor& tensor, std::int64_t number) {
  const std::int64_t size = size_bytes(tensor.dtype());
  const Type one{tensor.dtype(), Shape{1}};
  auto* at = const_cast<std::byte*>(tensor.bytes()) + number * size;
  return Tensor(one, std::shared_ptr<std::byte>(std::shared_ptr<void>(), at)).to_doubles()[0];
}

// The position of element `number` of a dense value.
std::vector<std::int64_t> index_of_element(const Shape& shape, std::int64_t number) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(shape.rank()));
  for (std::size_t axis = index.size(); axis-- > 0;) {
    index[axis] = number % shape[static_cast<int>(axis)];
    number /= shape[static_cast<int>(axis)];
  }
  return index;
}

// Bytes from the start of a value to element `number` of it.
std::int64_t offset_of(const Layout& layout, std::int64_t number) {
  std::int64_t offset = 0;
  const std::vector<std::int64_t> index = index_of_element(layout.type.shape, number);
  for (std::size_t axis = 0; axis < index.size(); ++axis) offset += index[axis] * layout.strides[axis];
  return offset * size_bytes(layout.type.dtype);
}

// Whether an element lies `offset` bytes from the start of a value. Values that steps write do not overlap themselves,
// so of two axes the one of the longer stride goes over all of the other.
bool covers(const Layout& layout, std::int64_t offset) {
  const std::int64_t size = size_bytes(layout.type.dtype);
  const Shape& shape = layout.type.shape;
  if (shape.elements() == 0 || offset % size != 0) return false;
  std::int64_t rest = offset / size;
  std::vector<std::pair<std::int64_t, std::int64_t>> axes;  // stride, extent
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const std::int64_t stride = layout.strides[static_cast<std::size_t>(axis)];
    if (stride < 0) rest -= (shape[axis] - 1) * stride;
    if (stride != 0) axes.emplace_back(std::abs(stride), shape[axis]);
  }
  std::sort(axes.rbegin(), axes.rend());
  if (rest < 0) return false;
  for (const auto& [stride, extent] : axes) rest -= std::min(rest / stride, extent - 1) * stride;
  return rest == 0;
}

bool has_infinite_constant(const Step& step) {
  if (step.kind != Step::Kind::group) return false;
  const auto& nodes = step.group.expr.nodes();
  return std::any_of(nodes.begin(), nodes.end(),
                     [](const ExprNode& node) { return node.prim == Prim::constant && std::isinf(node.value); });
}

// The element of a read value that goes with an element of a result, where the step works element by element.
std::optional<std::int64_t> partner_of(const Step& step, const Shape& read, const Shape& result,
                                       const std::vector<std::int64_t>& index) {
  Shape whole;
  if (step.kind != Step::Kind::group || !step.group.reductions.empty()) return std::nullopt;
  for (const GroupOutput& output : step.group.outputs) {
    if (output.reduce_mask != 0) return std::nullopt;
  }
  if (!broadcast(read, result, &whole) || !(whole == result)) return std::nullopt;
  std::int64_t number = 0;
  for (int axis = 0; axis < read.rank(); ++axis) {
    const std::int64_t at = index[static_cast<std::size_t>(axis + result.rank() - read.rank())];
    number = number * read[axis] + (read[axis] == 1 ? 0 : at);
  }
  return number;
}

}  // namespace

Finiteness finiteness_of(const Tensor& tensor) {
  Finiteness seen;
  switch (tensor.dtype()) {
    case DType::f64:
      look_at<double>(
          tensor, [](double x) { return x; }, &seen);
      break;
    case DType::f32:
      look_at<float>(
          tensor, [](float x) { return x; }, &seen);
      break;
    case DType::f16: look_at<std::uint16_t>(tensor, f16_to_float, &seen); break;
    case DType::bf16: look_at<std::uint16_t>(tensor, bf16_to_float, &seen); break;
    default: break;
  }
  return seen;
}

bool NonfiniteTrail::Event::reads_nan() const {
  return std::any_of(reads.begin(), reads.end(), [](const Bad& bad) { return bad.nans != 0; });
}

NonfiniteTrail::NonfiniteTrail(const Plan& plan) : plan_(plan) { add_loops(plan.steps, {}); }

void NonfiniteTrail::add_loops(const std::vector<Step>& steps, const Loop& around) {
  for (const Step& step : steps) {
    if (around.length > 0) loops_[&step] = around;
    const Loop inside = step.kind == Step::Kind::loop ? Loop{step.length, step.is_reverse} : around;
    for (const auto* body : step.bodies()) add_loops(*body, inside);
  }
}

void NonfiniteTrail::add_start(int slot, NonfiniteValue::Kind kind, const std::string& name, const Tensor& tensor) {
  const Finiteness seen = finiteness_of(tensor);
  if (seen.is_finite()) return;
  bad_slots_.insert(slot);
  Start start{slot, name.empty(), {}};
  start.value = described(tensor, seen);
  start.value.kind = kind;
  start.value.name = name;
  starts_.push_back(std::move(start));
}

NonfiniteValue NonfiniteTrail::described(const Tensor& tensor, const Finiteness& seen) {
  NonfiniteValue value;
  value.type = tensor.type();
  value.nans = seen.nans;
  value.infinities = seen.infinities;
  const std::int64_t number = seen.first_nan >= 0 ? seen.first_nan : seen.first;
  value.index = index_of_element(tensor.shape(), number);
  value.value = element_of(tensor, number);
  return value;
}

NonfiniteTrail::Bad NonfiniteTrail::bad_of(const Launch& launch, std::size_t operand, const Finiteness& seen) {
  const auto& [slot, offset] = launch.addresses[operand];
  const std::int64_t number = seen.first_nan >= 0 ? seen.first_nan : seen.first;
  return {operand, seen.nans, slot, offset + offset_of(launch.step->operands[operand].layout, number)};
}

void NonfiniteTrail::before(const Launch& launch, const Read& read) {
  const Step& step = *launch.step;
  reads_.clear();
  kept_.clear();
  for (std::size_t k = 0; k < step.reads; ++k) {
    const int slot = launch.addresses[k].first;
    bool is_written = false;
    for (std::size_t w = step.reads; w < step.operands.size(); ++w) is_written |= launch.addresses[w].first == slot;
    if (!is_written && !bad_slots_.contains(slot)) continue;
    const Tensor tensor = read(k);
    if (is_written) kept_.emplace(k, tensor);
    const Finiteness seen = finiteness_of(tensor);
    if (!seen.is_finite()) reads_.push_back(bad_of(launch, k, seen));
  }
}

void NonfiniteTrail::after(const Launch& launch, const Read& read) {
  const Step& step = *launch.step;
  Event event{&launch, reads_, {}, has_infinite_constant(step), {}};
  // The library's order has room that nothing is written to.
  const bool has_padding = step.kind == Step::Kind::kernel && step.call.op->has_unused_room;
  for (std::size_t k = step.reads; k < step.operands.size() && !(has_padding && reads_.empty()); ++k) {
    const Tensor tensor = read(k);
    const Finiteness seen = finiteness_of(tensor);
    if (seen.is_finite()) continue;
    event.writes.push_back(bad_of(launch, k, seen));
    bad_slots_.insert(event.writes.back().slot);
    writers_[event.writes.back().slot].push_back(events_.size());
    NonfiniteValue value = described(tensor, seen);
    name(launch, k, &value);
    const bool is_explained = seen.nans != 0 ? event.reads_nan() : !event.reads.empty();
    if (!is_explained) add_reads(launch, read, &value);
    event.values.push_back(std::move(value));
  }
  if (!event.reads.empty() || !event.writes.empty()) events_.push_back(std::move(event));
  for (std::size_t k = step.reads; k < step.operands.size(); ++k) {
    const int slot = launch.addresses[k].first;
    if (plan_.slots[static_cast<std::size_t>(slot)].is_aliased) last_writer_[slot] = step.label.op;
  }
}

void NonfiniteTrail::name(const Launch& launch, std::size_t operand, NonfiniteValue* value) const {
  const Step& step = *launch.step;
  value->name = step.label.op;
  value->scope = step.label.scope;
  value->members = step.label.members;
  value->result = static_cast<int>(operand - step.reads);
  value->results = static_cast<int>(step.operands.size() - step.reads);
  if (const auto loop = loops_.find(&step); loop != loops_.end()) {
    value->time_steps = loop->second.length;
    value->time_step = loop->second.is_reverse ? value->time_steps - 1 - launch.instance : launch.instance;
  }
}

void NonfiniteTrail::add_reads(const Launch& launch, const Read& read, NonfiniteValue* value) const {
  const Step& step = *launch.step;
  for (std::size_t k = 0; k < step.reads; ++k) {
    const auto kept = kept_.find(k);
    const Tensor tensor = kept == kept_.end() ? read(k) : kept->second;
    const Slot& slot = plan_.slots[static_cast<std::size_t>(launch.addresses[k].first)];
    ValueRead seen;
    const auto writer = last_writer_.find(launch.addresses[k].first);
    seen.name = one_line(writer != last_writer_.end() ? writer->second : slot.name);
    if (slot.kind == SlotKind::parameter) seen.name = fmt::format("parameter '{}'", seen.name);
    const auto is_this = [&](const auto& input) { return input.second == launch.addresses[k].first; };
    if (std::any_of(plan_.inputs.begin(), plan_.inputs.end(), is_this))
      seen.name = fmt::format("input '{}'", one_line(slot.name));
    seen.type = tensor.type();
    if (is_float(tensor.dtype())) {
      const Finiteness finiteness = finiteness_of(tensor);
      seen.nans = finiteness.nans;
      seen.infinities = finiteness.infinities;
      seen.min = finiteness.min;
      seen.max = finiteness.max;
    } else {
      const std::vector<double> elements = tensor.to_doubles();
      const auto [min, max] = std::minmax_element(elements.begin(), elements.end());
      seen.min = elements.empty() ? std::nan("") : *min;
      seen.max = elements.empty() ? std::nan("") : *max;
    }
    if (const auto number = partner_of(step, tensor.shape(), value->type.shape, value->index)) {
      seen.at = element_of(tensor, *number);
    }
    value->reads.push_back(std::move(seen));
  }
}

// The last write of the element before event number `before`.
std::optional<NonfiniteTrail::Written> NonfiniteTrail::writer_of(const Bad& bad, std::size_t before) const {
  const auto written = writers_.find(bad.slot);
  if (written == writers_.end()) return std::nullopt;
  const auto& numbers = written->second;
  for (auto it = std::lower_bound(numbers.begin(), numbers.end(), before); it != numbers.begin();) {
    const Event& event = events_[*--it];
    for (std::size_t k = 0; k < event.writes.size(); ++k) {
      const Bad& write = event.writes[k];
      if (write.slot != bad.slot) continue;
      const Layout& layout = event.launch->step->operands[write.operand].layout;
      if (covers(layout, bad.address - event.launch->addresses[write.operand].second)) return Written{*it, k};
    }
  }
  return std::nullopt;
}

const NonfiniteTrail::Start* NonfiniteTrail::start_of(int slot) const {
  const auto found =
      std::find_if(starts_.begin(), starts_.end(), [&](const Start& start) { return start.slot == slot; });
  return found == starts_.end() ? nullptr : &*found;
}

NonfiniteTrail::Found NonfiniteTrail::follow(std::vector<Bad> wanted, std::size_t before) const {
  std::optional<Written> origin, mask, birth, reached;
  const auto keep_earlier = [](std::optional<Written>& kept, const Written& end) {
    if (!kept || end.event < kept->event) kept = end;
  };
  const Start* start = nullptr;
  std::vector<std::pair<Bad, std::size_t>> open;
  for (const Bad& bad : wanted) open.emplace_back(bad, before);
  std::set<Written> seen;
  while (!open.empty()) {
    const auto [bad, position] = open.back();
    open.pop_back();
    const std::optional<Written> written = writer_of(bad, position);
    if (!written) {
      const Start* there = start_of(bad.slot);
      if (there != nullptr && !there->is_constant && start == nullptr) start = there;
      continue;
    }
    if (!seen.insert(*written).second) continue;
    const Event& event = events_[written->event];
    const bool is_nan = event.writes[written->write].nans != 0, has_nan = event.reads_nan();
    if (!reached) reached = written;
    if (is_nan && !has_nan && !event.reads.empty()) keep_earlier(birth, *written);
    if (event.reads.empty()) keep_earlier(!is_nan && event.has_constant_infinity ? mask : origin, *written);
    for (const Bad& read : event.reads) {
      if (read.nans != 0 || !(is_nan && has_nan)) open.emplace_back(read, written->event);
    }
  }
  Found found;
  if (start != nullptr) {
    found.first = start->value;
  } else if (const auto& end = origin ? origin : birth ? birth : mask ? mask : reached; end) {
    found.first = value_of(*end);
  }
  const bool is_later = birth && (start != nullptr || (origin && origin->event < birth->event));
  if (is_later && found.first.nans == 0) found.became_nan = value_of(*birth);
  return found;
}

NonfiniteTrail::Found NonfiniteTrail::follow(const Operand& dense, const Tensor& value) const {
  const Finiteness seen = finiteness_of(value);
  PD_ASSERT(!seen.is_finite(), "what is followed has to be non-finite");
  const std::int64_t number = seen.first_nan >= 0 ? seen.first_nan : seen.first;
  const Bad bad{0, seen.nans, dense.slot, dense.offset + number * size_bytes(value.dtype())};
  return follow({bad}, events_.size());
}

std::optional<NonfiniteTrail::Found> NonfiniteTrail::follow_last_of(const std::string& scope) const {
  const auto is_within = [&](const std::string& name) {
    return ("/" + name + "/").find("/" + scope + "/") != std::string::npos;
  };
  for (std::size_t i = events_.size(); i-- > 0;) {
    const Event& event = events_[i];
    if (event.reads.empty() || !is_within(event.launch->step->label.scope)) continue;
    std::vector<Bad> wanted;
    for (const Bad& read : event.reads) {
      if (read.nans != 0 || !event.reads_nan()) wanted.push_back(read);
    }
    return follow(std::move(wanted), i);
  }
  return std::nullopt;
}

std::vector<NonfiniteValue> NonfiniteTrail::starts() const {
  std::vector<NonfiniteValue> values;
  for (const Start& start : starts_) {
    if (!start.is_constant) values.push_back(start.value);
  }
  return values;
}

}  // namespace paoding
