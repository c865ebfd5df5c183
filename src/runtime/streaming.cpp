// SPDX-License-Identifier: Apache-2.0
#include "paoding/streaming.h"

#include <algorithm>

#include "base/check.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

Shape behind(const Shape& first, const Shape& rest) {
  std::vector<std::int64_t> dims(first.begin(), first.end());
  dims.insert(dims.end(), rest.begin(), rest.end());
  return Shape(dims);
}

std::string state_name(std::size_t i) { return fmt::format("streaming/state{}", i); }

}  // namespace

Streaming::Streaming(StreamingOptions options, Build build) : options_(std::move(options)), build_(std::move(build)) {
  constexpr std::int64_t kMost = 1 << 20;
  if (options_.capacity < 1 || options_.capacity > kMost) {
    fail(ErrorKind::argument, "Streaming: capacity is {}, needs to be from 1 to {}", options_.capacity, kMost);
  }
  const auto count = static_cast<std::size_t>(options_.capacity);
  is_there_.assign(count, false), is_new_.assign(count, false);
  parameters_ = std::make_unique<Parameters>(*graph_for(1), options_.compile.device, options_.parameters);
  programs_ = std::make_unique<Programs>(
      Extents({{"steps"}}), [this](const Programs::Key& sizes) { return graph_for(sizes[0]); }, options_.compile,
      parameters_.get());
}

// A sequence that is new begins with 0, whatever the one before it has left.
std::unique_ptr<Graph> Streaming::graph_for(std::int64_t steps) const {
  auto graph = std::make_unique<Graph>();
  const std::int64_t capacity = options_.capacity;
  const Value xs = graph->input("xs", options_.input.dtype, behind({steps, capacity}, options_.input.shape));
  const Value lengths = graph->input("lengths", i32, {capacity}), is_new = graph->input("is_new", i32, {capacity});
  Values kept, states;
  for (std::size_t i = 0; i < options_.states.size(); ++i) {
    const auto& [dtype, shape] = options_.states[i];
    kept.push_back(graph->parameter(state_name(i), dtype, behind({capacity}, shape)));
    std::vector<std::int64_t> of_row(static_cast<std::size_t>(shape.rank() + 1), 1);
    of_row[0] = capacity;
    const Value starts = not_equal(reshape(is_new, of_row), 0);
    states.push_back(select(starts, full(*graph, {}, 0, dtype), kept.back()));
  }
  const StepResult made = build_(*graph, xs, lengths, states);
  if (made.carries.size() != kept.size()) {
    fail(ErrorKind::argument, "Streaming: the model gives {} states, has {}", made.carries.size(), kept.size());
  }
  for (std::size_t i = 0; i < kept.size(); ++i) {
    if (!(made.carries[i].type() == kept[i].type())) {
      fail(ErrorKind::shape, "Streaming: the model gives {} for state {}, needed is {}",
           to_string(made.carries[i].type()), i, to_string(kept[i].type()));
    }
    graph->assign(kept[i], made.carries[i]);
  }
  for (std::size_t i = 0; i < made.outputs.size(); ++i) graph->fetch(fmt::format("output{}", i), made.outputs[i]);
  return graph;
}

Program& Streaming::program_for(std::int64_t steps) {
  if (steps < 1) fail(ErrorKind::argument, "Streaming: a call of {} steps", steps);
  return programs_->at({{"steps", steps}});
}

int Streaming::join() {
  const auto free = std::find(is_there_.begin(), is_there_.end(), false);
  if (free == is_there_.end()) {
    fail(ErrorKind::argument, "Streaming: {} sequences are there, as many as there may be", options_.capacity);
  }
  const auto sequence = free - is_there_.begin();
  is_there_[static_cast<std::size_t>(sequence)] = is_new_[static_cast<std::size_t>(sequence)] = true;
  return static_cast<int>(sequence);
}

void Streaming::leave(int sequence) {
  if (sequence < 0 || sequence >= options_.capacity || !is_there_[static_cast<std::size_t>(sequence)]) {
    fail(ErrorKind::argument, "Streaming: there is no sequence {}", sequence);
  }
  is_there_[static_cast<std::size_t>(sequence)] = false;
}

std::int64_t Streaming::sequences() const { return std::count(is_there_.begin(), is_there_.end(), true); }

void Streaming::check(const Tensor& xs, std::span<const std::int32_t> lengths) const {
  const std::int64_t steps = xs.shape().rank() > 0 ? xs.shape()[0] : 0;
  if (steps < 1 || !(xs.shape() == behind({steps, options_.capacity}, options_.input.shape))) {
    fail(ErrorKind::shape, "Streaming: xs has shape {}, needed is [T, {}] with {} after it, T > 0",
         to_string(xs.shape()), options_.capacity, to_string(options_.input.shape));
  }
  if (static_cast<std::int64_t>(lengths.size()) != options_.capacity) {
    fail(ErrorKind::argument, "Streaming: there are {} lengths, needed are {}", lengths.size(), options_.capacity);
  }
  for (std::size_t s = 0; s < lengths.size(); ++s) {
    if (lengths[s] < 0 || lengths[s] > steps) {
      fail(ErrorKind::argument, "Streaming: sequence {} has {} steps, needed are 0 to {}", s, lengths[s], steps);
    }
    if (lengths[s] > 0 && !is_there_[s]) fail(ErrorKind::argument, "Streaming: there is no sequence {}", s);
  }
}

void Streaming::run(const Tensor& xs, std::span<const std::int32_t> lengths) {
  check(xs, lengths);
  Program& program = program_for(xs.shape()[0]);
  Tensor counts(i32, {options_.capacity}), starts(i32, {options_.capacity});
  auto* count = reinterpret_cast<std::int32_t*>(counts.bytes());
  auto* start = reinterpret_cast<std::int32_t*>(starts.bytes());
  for (std::size_t s = 0; s < lengths.size(); ++s) count[s] = lengths[s], start[s] = is_new_[s] ? 1 : 0;
  program.set_input(program.input_index("xs"), xs);
  program.set_input(program.input_index("lengths"), counts);
  program.set_input(program.input_index("is_new"), starts);
  program.run();
  last_ = &program;
  std::fill(is_new_.begin(), is_new_.end(), false);
}

Program& Streaming::last() const {
  if (last_ == nullptr) fail(ErrorKind::argument, "Streaming: nothing has run yet");
  return *last_;
}

Tensor Streaming::output(int index) { return last().fetch(index); }
Fetched Streaming::output_later(int index) { return last().fetch_later(index); }

}  // namespace paoding
