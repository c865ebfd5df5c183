// SPDX-License-Identifier: Apache-2.0
#include "findings/steps.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "findings/operand_text.h"
#include "findings/steps_builder.h"
#include "profile/step_times.h"

namespace paoding::findings {

using namespace profile;

namespace {

constexpr int kMostEnclosing = 256;  // spans within each other

// The span that made it happen: the launch of a GPU's work, else the span around it.
SpanId outer(const Trace& trace, SpanId i) {
  return trace.on_gpu(i) && trace.cause(i) != kNone ? trace.cause(i) : trace.parent(i);
}

// How much of an interval others cover, which are united.
std::int64_t covered(const std::vector<Interval>& united, Interval of) {
  std::int64_t sum = 0;
  auto next = std::ranges::upper_bound(united, of.start, {}, &Interval::end);
  for (; next != united.end() && next->start < of.end; ++next) {
    sum += std::min(next->end, of.end) - std::max(next->start, of.start);
  }
  return sum;
}

// A frame of Python as PyTorch names it, "src/model.py(12): forward", or as XLA does, "model.py:12 forward". Those of
// frameworks are not the user's: XLA's have no folders, and are known by the names of JAX's own files.
std::string line_of_frame(std::string_view name) {
  static constexpr std::string_view kFrameworks[] = {
      "api.py",  "api_util.py",  "array.py",          "contextlib.py",  "compiler.py", "config.py",
      "core.py", "dispatch.py",  "functools.py",      "linear_util.py", "pjit.py",     "profiler.py",
      "pxla.py", "threading.py", "traceback_util.py", "tree_util.py",   "util.py",     "xla_bridge.py"};
  const std::size_t end = name.find(".py");
  if (end == name.npos || end + 4 >= name.size()) return "";
  const std::string_view file = name.substr(0, end + 3), rest = name.substr(end + 4);
  const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
  const bool is_pytorchs = name[end + 3] == '(' && rest.substr(digits).starts_with("): ");
  const bool is_xlas = name[end + 3] == ':' && rest.substr(digits).starts_with(" ");
  const std::string_view bare = file.substr(file.rfind('/') + 1);  // npos + 1 is 0
  if (digits == 0 || !(is_pytorchs || is_xlas) || file.starts_with("torch/") || bare == "contextlib.py" ||
      file.find("site-packages") != file.npos || file.find("dist-packages") != file.npos ||
      (is_xlas && std::ranges::find(kFrameworks, bare) != std::end(kFrameworks))) {
    return "";
  }
  return fmt::format("{}:{}", file, rest.substr(0, digits));
}

// "264x1x1"
std::array<std::int64_t, 3> extents_of(std::string_view text) {
  std::array<std::int64_t, 3> extents{};
  const char *at = text.data(), *end = at + text.size();
  for (std::int64_t& extent : extents) {
    const auto [next, problem] = std::from_chars(at, end, extent);
    if (problem != std::errc{} || extent < 0 || extent > std::int64_t{1} << 31) return {};
    at = next == end ? next : next + 1;
  }
  constexpr double kMost = 1e12;  // a broken file may name any, and rules multiply them
  const double all =
      static_cast<double>(extents[0]) * static_cast<double>(extents[1]) * static_cast<double>(extents[2]);
  if (all > kMost) return {};
  return extents;
}

}  // namespace

std::vector<std::int64_t> lengths_of(const std::vector<Interval>& steps, const std::vector<std::int64_t>& work_ends) {
  std::vector<std::int64_t> lengths;
  std::int64_t before = 0;
  for (std::size_t k = 0; k < steps.size(); ++k) {
    const Interval step = steps[k];
    // The last mark may stand behind a wait for all that was launched.
    const bool counts_on_host = k + 1 < steps.size() || k == 0 || work_ends[k] == 0;
    const std::int64_t host = counts_on_host ? step.end - step.start : 0;
    const std::int64_t gpu = k > 0 && work_ends[k] > 0 ? work_ends[k] - std::max(before, step.start) : 0;
    lengths.push_back(std::max(host, gpu));
    before = std::max(before, work_ends[k]);
  }
  return lengths;
}

std::int64_t all_steps_ns(const std::vector<Interval>& steps, const std::vector<std::int64_t>& work_ends) {
  std::int64_t sum = 0;
  for (std::size_t k = 0; k < steps.size(); ++k) {
    std::int64_t end = std::max(steps[k].end, work_ends[k]);
    if (k + 1 < steps.size()) end = std::min(end, std::max(steps[k].end, steps[k + 1].start));
    sum += end - steps[k].start;
  }
  return sum;
}

Steps::Steps(const Trace& trace, SharedThreadTimes times) : trace_(trace), thread_times_(std::move(times)) {
  StepsBuilder(trace, this).build();
}

std::int64_t Steps::host_median_ns() const {
  std::vector<std::int64_t> ns;
  for (const Interval& step : steps_) ns.push_back(step.end - step.start);
  return ns.empty() ? 0 : median(std::move(ns));
}

std::int64_t Steps::host_average_ns() const {
  std::int64_t sum = 0;
  for (const Interval& step : steps_) sum += step.end - step.start;
  return steps_.empty() ? 0 : sum / static_cast<std::int64_t>(steps_.size());
}

std::size_t Steps::at(std::int64_t ns) const {
  const auto next = std::ranges::upper_bound(steps_, ns, {}, &Interval::end);
  return next == steps_.end() || next->start > ns ? kOutside : static_cast<std::size_t>(next - steps_.begin());
}

std::size_t Steps::step_of(SpanId i) const {
  const SpanId cause = trace_.on_gpu(i) ? trace_.cause(i) : kNone;
  return at(trace_.start(cause != kNone ? cause : i));
}

SpanRange Steps::spans(TrackId track, std::size_t step) const {
  const SpanRange all = tracks_[track];
  const auto behind = [&](std::int64_t ns) {
    SpanId low = all.begin, high = all.end;
    while (low < high) {
      const SpanId middle = low + (high - low) / 2;
      trace_.start(middle) < ns ? low = middle + 1 : high = middle;
    }
    return low;
  };
  return {behind(steps_[step].start), behind(steps_[step].end)};
}

std::span<const SpanId> Steps::launched_by(SpanId host) const {
  const std::uint32_t from = launched_from_[host], to = launched_from_[host + 1];
  return {launched_.data() + from, launched_.data() + to};
}

std::int64_t Steps::idle_in(std::int64_t start, std::int64_t end) const { return covered(all_idle_, {start, end}); }

std::int64_t Steps::exposed_ns(SpanId copy) const {
  const SpanKind kind = trace_.kind(copy);
  if (kind != SpanKind::memcpy && kind != SpanKind::memset) return 0;
  const auto found = std::ranges::find(devices_, trace_.track(copy).device);
  if (found == devices_.end()) return 0;
  const std::vector<Interval>& busy = busy_kernels_[static_cast<std::size_t>(found - devices_.begin())];
  return trace_.duration(copy) - covered(busy, {trace_.start(copy), trace_.end(copy)});
}

SpanId Steps::op_of(SpanId i) const {
  for (int further = 0; i != kNone && further < kMostEnclosing; ++further, i = outer(trace_, i)) {
    if (trace_.site(i).op != 0) return i;
  }
  return kNone;
}

SpanId Steps::outermost_op_of(SpanId i) const {
  SpanId found = kNone;
  for (int further = 0; i != kNone && further < kMostEnclosing; ++further, i = outer(trace_, i)) {
    // Since 2021 a step is no op any more.
    if (trace_.site(i).op != 0 && !trace_.text(trace_.site(i).op).starts_with("ProfilerStep#")) found = i;
  }
  return found;
}

Where Steps::where(SpanId i) const {
  Where found{.operands = operands_of(i)};
  const SpanId op = outermost_op_of(i);
  if (op != kNone) found.op = trace_.text(trace_.site(op).op);
  const ArgumentColumn* source = nullptr;
  for (const ArgumentColumn& column : trace_.columns()) {
    if (column.type == ArgumentType::text && trace_.text(column.name) == "source") source = &column;
  }
  for (int further = 0; i != kNone && further < kMostEnclosing; ++further, i = outer(trace_, i)) {
    if (found.scope.empty() && trace_.site(i).scope != 0) found.scope = trace_.text(trace_.site(i).scope);
    if (found.line.empty() && source != nullptr) {
      const auto line = std::ranges::lower_bound(source->of, i);
      if (line != source->of.end() && *line == i) {
        found.line = trace_.text(source->text(static_cast<std::size_t>(line - source->of.begin())));
      }
    }
    if (found.line.empty() && trace_.kind(i) == SpanKind::frame) found.line = line_of_frame(trace_.name(i));
  }
  return found;
}

std::string Steps::operands_of(SpanId i) const {
  const ArgumentColumn *shapes = nullptr, *types = nullptr;
  for (const ArgumentColumn& column : trace_.columns()) {
    if (column.type != ArgumentType::text) continue;
    if (trace_.text(column.name) == "shapes") shapes = &column;
    if (trace_.text(column.name) == "types") types = &column;
  }
  const auto text = [&](const ArgumentColumn* column, SpanId of) -> std::string_view {
    if (column == nullptr) return {};
    const auto found = std::ranges::lower_bound(column->of, of);
    if (found == column->of.end() || *found != of) return {};
    return trace_.text(column->text(static_cast<std::size_t>(found - column->of.begin())));
  };
  for (int further = 0; i != kNone && further < kMostEnclosing; ++further, i = outer(trace_, i)) {
    const Site& site = trace_.site(i);
    if (site.shapes != 0) return operands_text(trace_.text(site.op), trace_.text(site.shapes), {});
    const std::string found = operands_text(trace_.text(site.op), text(shapes, i), text(types, i));
    if (!found.empty()) return found;
  }
  return "";
}

DeviceLimit Steps::limit(int device) const {
  DeviceLimit found;
  for (const Limit& limit : trace_.limits()) {
    if (limit.device == device) found.bytes_per_ns = limit.bytes_per_ns, found.flops_per_ns = limit.flops_per_ns;
  }
  return found;
}

bool FactReader::Column::find(SpanId i, std::size_t* place) {
  if (column == nullptr) return false;
  const std::vector<SpanId>& of = column->of;
  constexpr std::size_t kNear = 4;
  const std::size_t near = std::min(of.size(), at + kNear);
  while (at < near && of[at] < i) ++at;
  if (at >= of.size() || of[at] < i || (at > 0 && of[at - 1] >= i)) {
    at = static_cast<std::size_t>(std::ranges::lower_bound(of, i) - of.begin());
  }
  *place = at;
  return at < of.size() && of[at] == i;
}

FactReader::FactReader(const Steps& steps) : steps_(steps) {
  const std::pair<std::string_view, Column*> all[] = {{"grid", &grid_},
                                                      {"block", &block_},
                                                      {"registers", &registers_},
                                                      {"shared memory", &shared_},
                                                      {"memory", &memory_},
                                                      {"shapes", &shapes_},
                                                      {"types", &types_},
                                                      {"collective", &collective_},
                                                      {"CTAs", &ctas_},
                                                      {"threads", &threads_},
                                                      {"shared bytes", &shared_bytes_},
                                                      {"occupancy %", &occupancy_}};
  for (const ArgumentColumn& column : steps.trace().columns()) {
    for (const auto& [name, to] : all) {
      const bool is_real = to == &occupancy_, is_number = to == &registers_ || to == &shared_ || to == &ctas_ ||
                                                          to == &threads_ || to == &shared_bytes_;
      const ArgumentType type = is_number ? ArgumentType::integer : is_real ? ArgumentType::real : ArgumentType::text;
      if (column.type == type && steps.trace().text(column.name) == name) to->column = &column;
    }
  }
}

std::string_view FactReader::text(Column& column, SpanId i) {
  std::size_t at = 0;
  return column.find(i, &at) ? steps_.trace().text(column.column->text(at)) : std::string_view();
}

std::int64_t FactReader::integer(Column& column, SpanId i) {
  std::size_t at = 0;
  return column.find(i, &at) ? column.column->integer(at) : 0;
}

// The trace has it of the span, or a program of ours has said it of its kernel.
void FactReader::read_launch(SpanId i, KernelFacts* facts) {
  facts->grid = extents_of(text(grid_, i)), facts->block = extents_of(text(block_, i));
  facts->registers = integer(registers_, i), facts->shared_bytes = integer(shared_, i);
  if (facts->ctas() > 0) return;
  if (const std::int64_t ctas = integer(ctas_, i); ctas > 0 && ctas < std::int64_t{1} << 40) {
    facts->grid = {ctas, 1, 1};
    facts->block = {std::clamp<std::int64_t>(integer(threads_, i), 0, 1 << 16), 1, 1};
    facts->shared_bytes = integer(shared_bytes_, i);
  } else if (const LaunchShape& launch = steps_.trace().site(i).launch; launch.is_known()) {
    facts->grid = launch.grid;
    facts->block = {launch.threads, 1, 1};
    facts->registers = launch.registers, facts->shared_bytes = launch.shared_bytes;
  }
}

KernelFacts FactReader::of(SpanId i) {
  const Trace& trace = steps_.trace();
  KernelFacts facts;
  read_launch(i, &facts);
  facts.memory = text(memory_, i), facts.collective = text(collective_, i);
  // Our own copies that nobody waits for go by memory that we have pinned; the others use the caller's.
  const Copy way = trace.site(i).copy;
  const bool is_ours = trace.source(i) == Source::paoding && trace.kind(i) == SpanKind::memcpy;
  if (is_ours && facts.memory.empty() && (way == Copy::host_to_device || way == Copy::device_to_host)) {
    facts.memory = trace.site(i).async ? "pinned" : "pageable";
  }
  std::size_t at = 0;
  if (occupancy_.find(i, &at)) facts.occupancy = occupancy_.column->real(at);
  facts.bytes = trace.bytes(i), facts.flops = trace.flops(i), facts.unit = trace.site(i).unit;
  // The innermost op around it that has shapes.
  for (SpanId op = i; op != kNone && facts.shapes.empty(); op = outer(trace, op)) {
    if (trace.site(op).op == 0) continue;
    facts.shapes = text(shapes_, op), facts.types = text(types_, op);
    const bool is_alone = trace.on_gpu(i) && trace.cause(i) != kNone && steps_.launched_by(trace.cause(i)).size() == 1;
    if (op != i && is_alone && facts.bytes == 0) facts.bytes = trace.bytes(op);
    if (op != i && is_alone && facts.flops == 0) facts.flops = trace.flops(op), facts.unit = trace.site(op).unit;
  }
  return facts;
}

}  // namespace paoding::findings
