// SPDX-License-Identifier: Apache-2.0
// find_nonfinite(): the graph compiled as for the run, with parameters of its own, run step by step under a
// NonfiniteTrail; and once more without fusion where the finding is several ops in one kernel.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/one_line.h"
#include "debug/nonfinite_trail.h"
#include "paoding/debug.h"
#include "paoding/range.h"
#include "runtime/compile.h"
#include "runtime/shadows.h"

namespace paoding {
namespace {

constexpr std::string_view kSkipped = "/skipped";  // behind an optimizer's name

std::unique_ptr<DeviceBuffer> make_buffer(std::int64_t bytes, const Device& device) {
  return device.kind == DeviceKind::cpu ? make_cpu_buffer(bytes) : make_gpu_buffer(bytes, device);
}

// One run of the graph that leaves the store alone.
class Replay {
 public:
  Replay(const Graph& graph, const Parameters& parameters, const std::map<std::string, Tensor>& feeds,
         const CompileOptions& compile, const FindNonfiniteOptions& options)
      : compiled_(compile_plan(graph, compile, target_of(compile.device))), trail_(compiled_.plan) {
    const Plan& plan = compiled_.plan;
    ExecutorOptions executor_options;
    executor_options.device = compile.device;
    executor_options.execution = Execution::stepwise;
    executor_options.on_step = compile.on_step;
    executor_options.on_print = [](Printed&&) {};
    executor_options.watcher = &trail_;
    for (const auto& [name, slot] : plan.parameters) {
      const Type& needed = compiled_.graph->find(name).type();
      Tensor value;
      if (const auto shadow = compiled_.shadows.find(name); shadow != compiled_.shadows.end()) {
        value = rounded_shadow(parameters.get(shadow->second), needed.dtype);
      } else {
        value = parameters.get(name);
        if (graph.role(name) == ParameterRole::random) value = rewound(value, options.rewind_random);
      }
      check_type("parameter", name, value.type(), needed);
      stored_.push_back({name, slot, value, make_buffer(value.size_bytes(), compile.device),
                         graph.role(name) == ParameterRole::optimizer});
      stored_.back().buffer->write(value);
      executor_options.parameters.push_back(stored_.back().buffer->address());
      trail_.add_start(slot, NonfiniteValue::Kind::parameter, name, value);
    }
    executor_ = compile.device.kind == DeviceKind::cpu ? make_cpu_executor(plan, executor_options)
                                                       : make_gpu_executor(plan, executor_options);
    for (const auto& [slot, tensor] : plan.constants) {
      executor_->write(slot, tensor);
      trail_.add_start(slot, NonfiniteValue::Kind::input, "", tensor);
    }
    feed(feeds);
  }

  // The values that are followed back, with the finding; nothing when all is finite.
  struct Outcome {
    std::string followed;
    NonfiniteTrail::Found found;
  };
  std::optional<Outcome> run() {
    executor_->run(0);
    executor_->wait();
    for (const Plan::Fetch& fetch : compiled_.plan.fetches) {
      const Operand& operand = taken(fetch);
      const Tensor value = executor_->read(operand);
      if (finiteness_of(value).is_finite()) continue;
      return Outcome{fmt::format("fetch '{}'", one_line(fetch.name)), trail_.follow(operand, value)};
    }
    std::string skipped_by;
    for (const Stored& stored : stored_) {
      const Tensor value = stored.buffer->read(stored.before.type());
      if (stored.is_of_optimizer && stored.name.ends_with(kSkipped) &&
          value.to_doubles() != stored.before.to_doubles()) {
        skipped_by = stored.name.substr(0, stored.name.size() - kSkipped.size());
      }
      if (finiteness_of(value).is_finite() || !finiteness_of(stored.before).is_finite()) continue;
      const Operand operand{stored.slot, 0, {}, Layout::dense(value.type())};
      return Outcome{fmt::format("parameter '{}' after the run", one_line(stored.name)), trail_.follow(operand, value)};
    }
    if (skipped_by.empty()) return std::nullopt;
    const auto found = trail_.follow_last_of(skipped_by);
    if (!found) return std::nullopt;
    return Outcome{"the gradients, for which the update was skipped", *found};
  }

  std::vector<NonfiniteValue> starts() const { return trail_.starts(); }

 private:
  struct Stored {
    std::string name;
    int slot;
    Tensor before;
    std::unique_ptr<DeviceBuffer> buffer;
    bool is_of_optimizer;
  };

  static Tensor rewound(const Tensor& state, std::int64_t runs) {
    Tensor earlier(state.type());
    std::copy_n(state.data<std::int64_t>(), 2, earlier.data<std::int64_t>());
    earlier.data<std::int64_t>()[1] -= runs;
    return earlier;
  }

  static void check_type(const char* what, const std::string& name, const Type& given, const Type& needed) {
    if (given == needed) return;
    fail(given.dtype == needed.dtype ? ErrorKind::shape : ErrorKind::dtype, "find_nonfinite: {} '{}' is {}, not {}",
         what, one_line(name), to_string(needed), to_string(given));
  }

  void feed(const std::map<std::string, Tensor>& feeds) {
    const Plan& plan = compiled_.plan;
    std::vector<std::string> names;
    for (const auto& input : plan.inputs) names.push_back(input.first);
    const NameIndex index(names);
    for (const auto& feed : feeds) index.at(feed.first, "input");
    for (const auto& [name, slot] : plan.inputs) {
      const auto given = feeds.find(name);
      if (given == feeds.end()) fail(ErrorKind::argument, "find_nonfinite: input '{}' is not fed", one_line(name));
      check_type("input", name, given->second.type(), compiled_.graph->find(name).type());
      executor_->write(slot, given->second);
      trail_.add_start(slot, NonfiniteValue::Kind::input, name, given->second);
    }
  }

  // A Variant is read at the alternative that the run took.
  const Operand& taken(const Plan::Fetch& fetch) {
    if (fetch.alternatives.empty()) return fetch.operand;
    const auto chosen = static_cast<std::int64_t>(executor_->read(fetch.operand).to_doubles()[0]);
    const auto count = static_cast<std::int64_t>(fetch.alternatives.size());
    return fetch.alternatives[static_cast<std::size_t>(chosen >= 0 && chosen < count ? chosen : count - 1)];
  }

  CompiledPlan compiled_;
  NonfiniteTrail trail_;
  std::vector<Stored> stored_;
  std::unique_ptr<Executor> executor_;
};

// ---- text ----

std::string elements_text(const Type& type, std::int64_t nans, std::int64_t infinities) {
  return fmt::format("{} NaN and {} infinite of the {} elements of {}", nans, infinities, type.shape.elements(),
                     to_string(type));
}

std::string value_text(const NonfiniteValue& value) {
  std::string text;
  switch (value.kind) {
    case NonfiniteValue::Kind::input: text = fmt::format("input '{}', as it was fed", one_line(value.name)); break;
    case NonfiniteValue::Kind::parameter:
      text = fmt::format("parameter '{}', before the run", one_line(value.name));
      break;
    case NonfiniteValue::Kind::step:
      text = one_line(value.name);
      if (!value.members.empty()) text += " of " + one_line(value.members);
      if (!value.scope.empty()) text += " in " + one_line(value.scope);
      if (value.time_step >= 0) text += fmt::format(", time step {}", value.time_step);
      if (value.time_steps > 0) text += fmt::format(" of {}", value.time_steps);
      if (value.results > 1) text += fmt::format(", result {} of {}", value.result, value.results);
  }
  const char* number = std::isnan(value.value) ? "NaN" : value.value > 0 ? "inf" : "-inf";
  return fmt::format("{}, element [{}] = {} ({})", text, fmt::join(value.index, ", "), number,
                     elements_text(value.type, value.nans, value.infinities));
}

std::string reads_text(const NonfiniteValue& value) {
  std::string text;
  for (const ValueRead& read : value.reads) {
    text += fmt::format("\n  it read: {} {}", read.name, to_string(read.type));
    if (read.at) text += fmt::format(" = {:.6g} there", *read.at);
    if (!std::isnan(read.min)) text += fmt::format(", from {:.6g} to {:.6g}", read.min, read.max);
    if (read.nans + read.infinities > 0) text += fmt::format(", {} NaN, {} infinite", read.nans, read.infinities);
  }
  return text;
}

}  // namespace

std::optional<NonfiniteReport> find_nonfinite(const Graph& graph, const Parameters& parameters,
                                              const std::map<std::string, Tensor>& feeds, const CompileOptions& compile,
                                              const FindNonfiniteOptions& options) {
  check_range("find_nonfinite", "rewind_random", static_cast<double>(options.rewind_random), Range::at_least(0));
  if (!(parameters.device() == compile.device)) {
    fail(ErrorKind::argument, "find_nonfinite: the Parameters are on {}, the run was on {}",
         to_string(parameters.device()), to_string(compile.device));
  }
  NonfiniteReport report;
  {
    Replay replay(graph, parameters, feeds, compile, options);
    const auto outcome = replay.run();
    if (!outcome) return std::nullopt;
    report.followed = outcome->followed;
    report.first = outcome->found.first;
    report.became_nan = outcome->found.became_nan;
    for (NonfiniteValue& start : replay.starts()) {
      const bool is_first = report.first.kind == start.kind && report.first.name == start.name;
      if (!is_first) report.others.push_back(std::move(start));
    }
  }
  if (report.first.members.size() < 2) return report;
  CompileOptions apart = compile;
  apart.disabled_passes.emplace_back("fuse_groups");
  report.was_unfused = true;
  if (const auto outcome = Replay(graph, parameters, feeds, apart, options).run()) {
    report.unfused = outcome->found.first;
    report.became_nan = outcome->found.became_nan;
  }
  return report;
}

std::string to_text(const NonfiniteReport& report) {
  const NonfiniteValue& first = report.unfused ? *report.unfused : report.first;
  std::string text = "the first non-finite value: " + value_text(first) + reads_text(first);
  if (report.unfused) {
    text += "\n  the run computed it in one kernel: " + value_text(report.first);
  } else if (report.was_unfused) {
    text += "\n  with a kernel for each op of this group all results are finite";
  }
  if (report.became_nan) {
    text += "\n  it became NaN in: " + value_text(*report.became_nan) + reads_text(*report.became_nan);
  }
  text += "\n  followed back from: " + report.followed;
  for (const NonfiniteValue& other : report.others) {
    text += "\n  non-finite to begin with either: " + value_text(other);
  }
  return text + "\n";
}

}  // namespace paoding
