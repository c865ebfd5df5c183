// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/measure.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "cli/numbers.h"
#include "paoding/error.h"
#include "paoding/ops.h"

namespace paoding::cli::bench {
namespace {

constexpr std::int64_t kLeastRotated = 180'000'000;  // three times the L2 of an H200
constexpr double kHotBytes = 50e6;                   // beyond, hot and cold are the same
constexpr int kHotRepeats = 20;
constexpr double kTimesMoved = 2;  // that rounded products may move a result

std::string base_name(const std::string& name) { return name.substr(0, name.find('@')); }
std::string suffix_of(int set) { return set == 0 ? "" : fmt::format("@{}", set); }

using Build = std::function<void(Graph&, DType, const std::string&)>;

// The same values for every set.
Feeds make_feeds(const Case& work, const Build& build, DType dtype) {
  Graph graph;
  build(graph, dtype, "");
  Feeds feeds;
  const auto value_of = [&](NodeId id, bool is_input) {
    const Node& node = graph.node(id);
    Tensor value = work.feed ? work.feed(node.name.str(), node.types[0]) : Tensor();
    if (value.shape().elements() == 0 && is_input) value = random_tensor(node.types[0], 1, node.name.str());
    if (value.shape().elements() != 0) feeds[node.name.str()] = value;
  };
  for (const NodeId id : graph.inputs()) value_of(id, true);
  if (work.feed) {
    for (const NodeId id : graph.parameters()) value_of(id, false);
  }
  return feeds;
}

Tensor as_type(const Tensor& tensor, const Type& type) {
  return tensor.dtype() == type.dtype ? tensor : Tensor::from(type.dtype, type.shape, tensor.to_doubles());
}

void set_all(Program& program, Parameters& parameters, const Graph& graph, const Feeds& feeds) {
  for (const std::string& name : program.input_names()) {
    const int index = program.input_index(name);
    program.set_input(index, as_type(feeds.at(base_name(name)), program.input_type(index)));
  }
  for (const NodeId id : graph.parameters()) {
    const Node& node = graph.node(id);
    const auto found = feeds.find(base_name(node.name.str()));
    if (found != feeds.end()) parameters.set(node.name.str(), as_type(found->second, node.types[0]));
  }
}

void run_and_wait(Program& program) {
  program.run();
  program.wait();
}

// Results of a first run on nothing but NaN: an element that a later run leaves out stays NaN and is found.
void poison(Program& program, Parameters& parameters, const Graph& graph, const Feeds& feeds) {
  for (const std::string& name : program.input_names()) {
    const int index = program.input_index(name);
    const Type type = program.input_type(index);
    program.set_input(index, filled_tensor(type, is_float(type.dtype) ? std::nan("") : 0));
  }
  for (const NodeId id : graph.parameters()) {
    const Node& node = graph.node(id);
    const bool is_fed = feeds.contains(base_name(node.name.str()));  // others would stay NaN
    if (is_fed && is_float(node.types[0].dtype)) {
      parameters.set(node.name.str(), filled_tensor(node.types[0], std::nan("")));
    }
  }
  run_and_wait(program);
}

// Fetches, and the parameters that the run wrote.
std::map<std::string, Tensor> results_of(Program& program, const Parameters& parameters, const Graph& graph) {
  std::map<std::string, Tensor> results;
  for (const std::string& name : program.fetch_names()) results[name] = program.fetch(program.fetch_index(name));
  for (const NodeId id : graph.assigns()) {
    const Node& target = graph.node(graph.node(id).inputs[0].node);
    if (is_float(target.types[0].dtype)) results[target.name.str()] = parameters.get(target.name.str());
  }
  return results;
}

// The reference: the same graph in f64 with every pass off, on the CPU, which runs it as plain loops.
Expected expect_by_plain_loops(const Build& build, const Feeds& feeds) {
  Graph graph;
  build(graph, f64, "");
  Parameters parameters(graph, Device::cpu());
  CompileOptions options;
  options.disabled_passes = {"fuse_convolutions", "choose_layouts", "fuse_groups"};
  Program program(graph, options, &parameters);
  set_all(program, parameters, graph, feeds);
  run_and_wait(program);
  Expected expected;
  for (const auto& [name, tensor] : results_of(program, parameters, graph)) expected[name] = tensor.to_doubles();
  return expected;
}

// `tensor` with so many binary digits.
Tensor rounded(const Tensor& tensor, int digits) {
  if (!is_float(tensor.dtype())) return tensor;
  std::vector<double> values = tensor.to_doubles();
  for (double& value : values) {
    const double unit = value == 0 ? 1 : std::exp2(std::floor(std::log2(std::abs(value))) + 1 - digits);
    value = std::round(value / unit) * unit;
  }
  return Tensor::from(tensor.dtype(), tensor.shape(), values);
}

// How far results of float64 move at the most, over the largest of each, when the feeds have as few digits as products
// in `dtype` have, and one or two less: where a choice is close, some decide it otherwise.
std::map<std::string, double> moved_by_rounding(const Build& build, const Feeds& feeds, DType dtype,
                                                const Expected& exact) {
  const int digits = dtype == bf16 ? 8 : 11;  // 11 of f16 and of TF32
  std::map<std::string, double> moved;
  for (int fewer = 0; fewer <= 2; ++fewer) {
    Feeds all = feeds;
    for (auto& [name, value] : all) value = rounded(value, digits - fewer);
    for (const auto& [name, values] : expect_by_plain_loops(build, all)) {
      const Tensor made = Tensor::from(f64, {static_cast<std::int64_t>(values.size())}, values);
      moved[name] = std::max(moved[name], max_relative_error(made, exact.at(name)));
    }
  }
  return moved;
}

bool same_bits(const Tensor& a, const Tensor& b) {
  return std::memcmp(a.bytes(), b.bytes(), static_cast<std::size_t>(a.size_bytes())) == 0;
}

// Sets whose buffers exceed three times the cache; fewer when memory does not allow them, 0 when not one fits.
int cold_sets(const Case& work, std::int64_t rotated, const Device& device, const MachineFacts& machine) {
  const double room = static_cast<double>(machine.free_bytes) / (device.kind == DeviceKind::cpu ? 3 : 2);
  const double own = work.need.footprint();
  if (own > room) return 0;
  if (!work.rotates) return 1;
  return static_cast<int>(std::clamp(std::min(static_cast<double>(rotated) / own + 1, room / own), 1.0, 4096.0));
}

}  // namespace

PreparedCase::Loaded::Loaded(const Case& work, int sets, const CompileOptions& options, const Feeds& feeds)
    : graph([&] {
        auto made = std::make_unique<Graph>();
        for (int i = 0; i < sets; ++i) work.build(*made, work.dtype, suffix_of(i));
        return made;
      }()),
      parameters(*graph, options.device, {.seed = 7}),
      program(*graph, options, &parameters) {
  set_all(program, parameters, *graph, feeds);
}

// How sets are compiled that are timed in one run. They do not need each other's results, so on a GPU their kernels
// would run side by side, sharing launches; one set alone has nothing beside it.
CompileOptions PreparedCase::for_sets(const Feeds& feeds) const {
  CompileOptions options = options_.compile;
  if (options.device.kind != DeviceKind::cuda) return options;
  const auto launches = [&] { return Loaded(work_, 1, options, feeds).program.report().launches; };
  const std::int64_t shared = single_ ? single_->program.report().launches : launches();
  options.fuses_launches = false;
  if (launches() > shared) options.fuses_launches = true;  // a set's own
  return options;
}

PreparedCase::PreparedCase(const Case& work, const MeasureOptions& options, const MachineFacts& machine, Floors* floors)
    : work_(work), options_(options), machine_(machine), floors_(floors) {
  options_.compile.allow_tf32 = options.compile.allow_tf32 || work.tf32;
  if (work.precision != DType::f32) options_.compile.precision = work.precision;
  effort_ = options.is_quick ? Effort::quick() : Effort{};
  if (work.need.footprint() > 1e9) effort_.least = options.is_quick ? 3 : 10;
  known_.work = work;
  known_.waits_for = work.waits_for;
  if (!work.build || !work.waits_for.empty()) return;
  const CompileOptions& compile = options_.compile;
  const std::int64_t rotated = std::max<std::int64_t>(3 * machine.cache_bytes, kLeastRotated);
  single_is_cold_ = work.need.footprint() > static_cast<double>(rotated);
  sets_ = cold_sets(work, rotated, compile.device, machine);
  if (sets_ == 0) {
    known_.waits_for = fmt::format("memory: it needs {:.1f} GB and {:.1f} GB are free", work.need.footprint() / 1e9,
                                   static_cast<double>(machine.free_bytes) / 1e9);
    return;
  }
  try {
    const Feeds feeds = make_feeds(work, work.build, work.dtype);
    const bool is_small = work.need.footprint() < kHotBytes;
    if (sets_ == 1 || is_small) single_ = std::make_unique<Loaded>(work, 1, compile, feeds);
    if (sets_ > 1) rotating_ = std::make_unique<Loaded>(work, sets_, for_sets(feeds), feeds);
    const CompileReport& report = program()->report();
    if (options_.on_compiled) options_.on_compiled(report);
    known_.launches = static_cast<double>(report.launches) / (single_ ? 1 : sets_);
    known_.compile_ms = report.milliseconds;
    known_.arena_bytes = report.arena_bytes;
    if (!options_.skips_check) check(feeds);
    // Hot on a GPU: the plan many times in one graph, or the time between graph launches would be measured too.
    if (compile.device.kind == DeviceKind::cuda && work.rotates && sets_ > 1 && is_small) {
      CompileOptions repeated = compile;
      repeats_ = repeated.repeats = kHotRepeats;
      repeated_ = std::make_unique<Loaded>(work, 1, repeated, feeds);
    }
    // Work that cannot be built several times in one graph is made cold by reading other memory before each run. A CPU
    // would have to read a gigabyte for that, which takes longer than the work itself.
    const bool is_gpu = compile.device.kind == DeviceKind::cuda;
    if (!work.rotates && is_small && work.need.bytes() > 0 && is_gpu) make_sweep(rotated);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::unsupported) throw;
    known_.waits_for = error.what();
    single_ = nullptr;
    rotating_ = nullptr;
    repeated_ = nullptr;
    sweep_ = nullptr;
  }
}

void PreparedCase::make_sweep(std::int64_t bytes) {
  Graph graph;
  const Type type{f32, {bytes / 4}};
  graph.fetch("sum", sum(graph.input("a", type.dtype, type.shape)));
  sweep_ = std::make_unique<Program>(graph, options_.compile);
  sweep_->set_input(0, filled_tensor(type, 1));
  run_and_wait(*sweep_);
}

void PreparedCase::check(const Feeds& own_feeds) {
  const bool is_small = static_cast<bool>(work_.build_small);
  Case checked = work_;
  if (is_small) checked.build = work_.build_small;
  const Feeds feeds = is_small ? make_feeds(work_, work_.build_small, work_.dtype) : own_feeds;
  std::unique_ptr<Loaded> small;
  if (is_small) small = std::make_unique<Loaded>(checked, 1, options_.compile, feeds);
  Loaded& loaded = is_small ? *small : rotating_ ? *rotating_ : *single_;
  poison(loaded.program, loaded.parameters, *loaded.graph, feeds);
  set_all(loaded.program, loaded.parameters, *loaded.graph, feeds);
  run_and_wait(loaded.program);
  const std::map<std::string, Tensor> results = results_of(loaded.program, loaded.parameters, *loaded.graph);
  const Expected expected = work_.expected ? work_.expected(feeds) : expect_by_plain_loops(checked.build, feeds);
  std::map<std::string, double> moved;
  const DType precision = work_.precision != f32 ? work_.precision : work_.dtype;
  if (work_.has_choices && (precision != f32 || options_.compile.allow_tf32)) {
    moved = moved_by_rounding(checked.build, feeds, precision, expected);
  }
  const double tolerated = work_.tolerance > 0 ? work_.tolerance : tolerance(work_.dtype);
  double error = 0;
  bool is_right = true;
  for (const auto& [name, wanted] : expected) {
    const auto found = results.find(name);
    if (found == results.end()) continue;  // an optimizer's own, which a master value stands for
    const double found_error = max_relative_error(found->second, wanted);
    error = std::max(error, found_error);
    is_right = is_right && found_error <= tolerated + kTimesMoved * moved[name];
    const auto last = results.find(name + suffix_of(sets_ - 1));
    if (last != results.end()) is_right = is_right && same_bits(found->second, last->second);
  }
  known_.error = error;
  known_.is_right = is_right;
  if (!is_small) set_all(loaded.program, loaded.parameters, *loaded.graph, feeds);  // as before the runs
}

Row PreparedCase::row(bool is_cold, bool is_wall, const Samples& time, int sets) {
  Row row = known_;
  row.is_cold = is_cold;
  row.is_wall = is_wall;
  row.time = time;
  row.sets = sets;
  const bool is_cpu = options_.compile.device.kind == DeviceKind::cpu;
  row.floor = floors_->of(work_, is_cold, is_wall, sets, effort_);
  if (!is_cpu) row.goal_us = is_wall ? work_.goal.wall : is_cold ? work_.goal.cold : work_.goal.hot;
  if (is_cpu && work_.measure) row.goal_us = work_.goal.wall;
  if (is_cpu && work_.cpu_goal.copies > 0) row.goal_us = work_.cpu_goal.copies * row.floor.us;
  return row;
}

std::vector<Row> PreparedCase::time() {
  if (!known_.waits_for.empty()) return {known_};
  const bool is_cpu = options_.compile.device.kind == DeviceKind::cpu;
  if (work_.measure) return {row(false, true, work_.measure({options_.compile, effort_}), 1)};
  std::vector<Row> rows;
  if (rotating_) {
    const Samples time = is_cpu ? time_waiting(rotating_->program, sets_, effort_)
                                : time_back_to_back(rotating_->program, sets_, effort_);
    rows.push_back(row(true, is_cpu, time, sets_));
  }
  if (!single_) return rows;
  if (!is_cpu) {
    Program& timed = repeated_ ? repeated_->program : single_->program;
    rows.push_back(row(single_is_cold_, false, time_back_to_back(timed, repeats_, effort_), 1));
  }
  if (sweep_) {
    Effort few = effort_;
    few.most = 50;
    rows.push_back(
        row(true, true, time_work([&] { run_and_wait(single_->program); }, 1, few, [&] { run_and_wait(*sweep_); }), 1));
    rows.back().is_swept = true;
  }
  rows.push_back(row(single_is_cold_, true, time_waiting(single_->program, 1, effort_), 1));
  return rows;
}

}  // namespace paoding::cli::bench
