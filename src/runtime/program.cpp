// SPDX-License-Identifier: Apache-2.0
// Compiling: select fetches, run the passes, plan, make an executor. And the calls on the result.
#include "paoding/program.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <new>
#include <optional>
#include <set>
#include <shared_mutex>
#include <utility>

#include "base/check.h"
#include "base/memory.h"
#include "base/one_line.h"
#include "paoding/cancellation.h"
#include "paoding/op.h"
#include "profile/recorder.h"
#include "runtime/compile.h"
#include "runtime/compile_environment.h"
#include "runtime/executor.h"
#include "runtime/fetched.h"
#include "runtime/held_memory.h"
#include "runtime/one_at_a_time.h"
#include "runtime/parameter_store.h"

namespace paoding {
namespace {

// Marks a program, or the memory that it shares with others, as in use.
struct ProgramUse : OneAtATime {
  ProgramUse(std::atomic<bool>& is_in_use, const char* call)
      : OneAtATime(is_in_use, call, "of this program, or of one that shares its memory,",
                   "threads need programs of their own, and not from Program::bind") {}
};

// Memory for the largest alternative of a Variant; none for another fetch.
std::shared_ptr<std::byte> room_for_any(const std::vector<Operand>& alternatives) {
  if (alternatives.empty()) return nullptr;
  const auto bytes = [](const Operand& alternative) { return size_bytes(alternative.layout.type); };
  const auto largest = std::make_shared<Tensor>(std::ranges::max(alternatives, {}, bytes).layout.type);
  return {largest, largest->bytes()};
}

std::uint64_t next_number() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

}  // namespace

// The members that run() reads stand first: after a long run caches are cold.
struct alignas(64) Program::Compiled {
  std::atomic<bool> is_in_use{false};
  bool is_ready = false;       // every input has been set
  std::uint32_t next_run = 0;  // its number; 0: has none yet
  bool writes_parameters = false;
  enum class Last : std::uint8_t { none, threw, ended } last = Last::none;  // run
  profile::SiteId run_site = 0;
  std::uint64_t memory_told = 0;  // to this recording
  std::shared_ptr<Parameters::Store> parameters;
  Arena* arena = nullptr;                      // the executor's
  const std::uint64_t number = next_number();  // of all programs
  std::vector<Printed> printed;
  profile::HeldSites sites;  // of the executor
  std::unique_ptr<Executor> executor;
  std::unique_ptr<Compiled> itself;  // where its Program is gone, and a call of it under way
  Plan plan;
  std::string name;
  CompileOptions options;
  CompileReport report;
  std::vector<std::string> inputs, fetches;
  NameIndex input_index, fetch_index;
  std::vector<Type> input_types;
  std::vector<std::shared_ptr<std::byte>> rooms;  // of fetches, while a call goes
  std::vector<char> is_given;
  std::vector<char> is_set;
  std::size_t set_count = 0;
  std::vector<Shadow*> shadows;                          // that it reads
  Shadows::Outdated outdated;                            // shadows, when it has run
  PreprocessedSet* preprocessed = nullptr;               // the part of it that this program reads
  std::unique_lock<std::shared_mutex>* alone = nullptr;  // of the store, while a run that writes has it

  // A call of the program. A callback may destroy the program: its members go when the call is over.
  class Call {
   public:
    Call(Compiled& compiled, const char* call) : compiled_(compiled), use_(compiled.is_in_use, call) {}
    ~Call() { gone_ = std::move(compiled_.itself); }
    Call(const Call&) = delete;
    Call& operator=(const Call&) = delete;

   private:
    Compiled& compiled_;
    std::unique_ptr<Compiled> gone_;  // freed after use_
    ProgramUse use_;
  };

  ~Compiled() {
    if (parameters && executor) parameters->forget(executor.get());
    executor = nullptr;  // it reads the plan
  }

  [[gnu::hot]] void run() {
    if (!is_ready) [[unlikely]] {
      const auto missing = std::find(is_set.begin(), is_set.end(), 0) - is_set.begin();
      fail(ErrorKind::argument, "run: input '{}' was never set", one_line(inputs[static_cast<std::size_t>(missing)]));
    }
    const bool is_inside = parameters && UnderWayHere::is_around(parameters.get());
    if (is_inside && writes_parameters) {
      fail(ErrorKind::argument, "run: it writes Parameters, in a callback of a run that reads them");
    }
    const ProgramUse use(arena->is_in_use, "run");
    CancelScope::poll();
    last = Last::threw;
    arena->holder = 0;
    printed.clear();
    profile::Recorder::before_run();
    const std::uint32_t execution = profile::Recorder::active() ? next_execution() : 0;
    next_run = 0;
    const profile::LongSpanScope seen(run_site, execution);
    if (execution != 0 && memory_told != profile::Recorder::session()) [[unlikely]]
      tell_memory();
    run_in_order(execution);
    last = Last::ended;
    arena->holder = number;
  }

  // Feeds belong to the run that comes next.
  std::uint32_t next_execution() {
    if (next_run == 0) next_run = profile::Recorder::next_run();
    return next_run;
  }

  void tell_memory() {
    memory_told = profile::Recorder::session();
    record_memory(plan, name, options.device);
  }

  // Runs that share a store: together when all only read, else one after the other.
  [[gnu::hot]] void run_in_order(std::uint32_t run) {
    if (!parameters || plan.parameters.empty()) return executor->run(run);
    const bool is_inside = UnderWayHere::is_around(parameters.get());
    const UnderWayHere here(parameters.get());
    if (!writes_parameters) {
      std::shared_lock<std::shared_mutex> shared(parameters->running, std::defer_lock);
      if (!is_inside) shared.lock();  // else the run around it has it
      return run_on_device(run);
    }
    const std::lock_guard writer(parameters->writing);
    std::unique_lock<std::shared_mutex> lock(parameters->running);
    alone = &lock;
    try {
      run_on_device(run);
    } catch (...) {
      alone = nullptr;
      outdate();
      throw;
    }
    alone = nullptr;
    outdate();
  }

  void outdate() {
    outdated.mark(parameters->shadows);
    ++parameters->preprocessed.written;
  }

  void run_on_device(std::uint32_t run) {
    if (!shadows.empty()) parameters->refresh(shadows);
    if (preprocessed != nullptr) parameters->refresh(*preprocessed);
    come_behind_others();
    executor->run(run);
  }
  void come_behind_others() const {
    if (options.device.kind == DeviceKind::cuda) parameters->enqueue(executor.get(), writes_parameters);
  }

  // Nothing has been written yet: while the listener has it others may read the parameters, as those that it waits for.
  void hand_over(const Printed& value) {
    struct ForReaders {
      explicit ForReaders(std::unique_lock<std::shared_mutex>* held) : lock(held) {
        if (lock != nullptr) lock->unlock();
      }
      ~ForReaders() {
        if (lock != nullptr) lock->lock();
      }
      std::unique_lock<std::shared_mutex>* lock;
    };
    {
      const ForReaders open(alone);
      options.on_print(value);
    }
    if (alone != nullptr) come_behind_others();  // the listener's work reads values that are written next
  }

  // An error that waiting throws is the run's.
  void wait() {
    static const profile::SiteId site = profile::Recorder::add_site({.name = "wait", .kind = profile::SpanKind::wait});
    std::optional<profile::SpanScope> seen;  // on a CPU there is nothing to wait for
    if (options.device.kind == DeviceKind::cuda) seen.emplace(site);
    try {
      executor->wait();
    } catch (...) {
      last = Last::threw;
      throw;
    }
  }

  Tensor fetch(std::size_t index) {
    const Plan::Fetch& fetch = plan.fetches[index];
    Tensor tensor(fetch.operand.layout.type);
    fetch_into(index, &tensor, room_for_any(fetch.alternatives));
    return tensor;
  }

  // Into a tensor of the fetch's type, which of a Variant is that of its index. Takes no memory.
  void fetch_into(std::size_t index, Tensor* to, std::shared_ptr<std::byte> alternative) {
    static const profile::SiteId site =
        profile::Recorder::add_site({.name = "fetch", .kind = profile::SpanKind::fetch});
    const profile::SpanScope seen(site);
    const Plan::Fetch& fetch = plan.fetches[index];
    const ProgramUse use(arena->is_in_use, "fetch");
    check_results(fetch.name);
    wait();
    executor->read(fetch.operand, to);
    if (fetch.alternatives.empty()) return;
    const Operand& taken = fetch.alternatives[chosen_of(*to, fetch.alternatives.size())];
    *to = Tensor(taken.layout.type, std::move(alternative));
    executor->read(taken, to);
  }

  DeviceTensor keep(std::size_t index) {
    const Plan::Fetch& fetch = plan.fetches[index];
    const ProgramUse use(arena->is_in_use, "fetch_on_device");
    check_results(fetch.name);
    return executor->keep(fetch.operand);
  }

  // Whether the result can be had on the device.
  void check_stays(std::size_t at) const {
    if (options.device.kind != DeviceKind::cuda) {
      fail(ErrorKind::argument, "fetch '{}' on the device: the program is on the CPU, whose memory is the host's",
           one_line(fetches[at]));
    }
    if (plan.fetches[at].alternatives.empty()) return;
    fail(ErrorKind::argument, "fetch '{}' on the device: it is a Variant, of which only a run tells how large it is",
         one_line(fetches[at]));
  }

  std::shared_ptr<Fetched::State> fetch_later(std::size_t index) {
    const Plan::Fetch& fetch = plan.fetches[index];
    const ProgramUse use(arena->is_in_use, "fetch_later");
    check_results(fetch.name);
    std::vector<const Operand*> all{&fetch.operand};
    for (const Operand& alternative : fetch.alternatives) all.push_back(&alternative);
    return std::make_shared<Fetched::State>(executor->read_later(all));
  }

  // Error (argument) when the arena does not hold the results of a run of this program.
  void check_results(const std::string& name) const {
    if (last == Last::ended && arena->holder == number) return;
    fail(ErrorKind::argument, "fetch: '{}' is not there: {}", one_line(name),
         last == Last::none    ? "the program has not run"
         : last == Last::threw ? "the program's last run threw"
                               : "another program has run in the same memory since (Program::bind, Programs)");
  }

  void check_input(std::size_t at, const Type& type) const {
    if (type == input_types[at]) return;
    fail(type.dtype == input_types[at].dtype ? ErrorKind::shape : ErrorKind::dtype, "input '{}' is {}, not {}",
         one_line(inputs[at]), to_string(input_types[at]), to_string(type));
  }
  void check_input(std::size_t at, const Tensor& tensor) const { check_input(at, tensor.type()); }
  void check_input(std::size_t at, const DeviceTensor& tensor) const {
    check_input(at, tensor.type());
    if (tensor.device() == options.device) return;
    fail(ErrorKind::argument, "input '{}' is on {}, the program on {}{}", one_line(inputs[at]),
         to_string(tensor.device()), to_string(options.device),
         options.device.kind == DeviceKind::cpu ? "\nhint: a copy in the host's memory (to_host(), in Python cpu())"
                                                : "");
  }

  // Once it is checked: a Tensor, or a DeviceTensor and the stream that goes on after it.
  template <class... Value>
  void set_input(std::size_t at, const Value&... value) {
    static const profile::SiteId site = profile::Recorder::add_site({.name = "feed", .kind = profile::SpanKind::feed});
    const profile::SpanScope seen(site, profile::Recorder::active() ? next_execution() : 0);
    executor->write(plan.inputs[at].second, value...);
    if (std::exchange(is_set[at], 1) == 0) is_ready = ++set_count == is_set.size();
  }

  void check_given(std::span<const Feed> feeds) {
    is_given.assign(inputs.size(), 0);
    std::size_t count = 0;
    for (const Feed& feed : feeds) {
      if (std::exchange(is_given[static_cast<std::size_t>(feed.input)], 1) == 0) ++count;
    }
    if (count == inputs.size()) return;
    std::vector<std::string> missing;
    for (std::size_t at = 0; at < inputs.size(); ++at) {
      if (is_given[at] == 0) missing.push_back("'" + one_line(inputs[at]) + "'");
    }
    fail(ErrorKind::argument,
         "run: no value is given for {}\n"
         "hint: LeftOut::keep (in Python keep=True) runs with the value that it had last",
         fmt::join(missing, ", "));
  }

  std::vector<AnyTensor> run_with(std::span<const Feed> feeds, LeftOut left_out, Results wanted);
};

// After a run that has written there is nothing left that the host's memory could be missing for.
std::vector<AnyTensor> Program::Compiled::run_with(std::span<const Feed> feeds, LeftOut left_out, Results wanted) {
  for (const Feed& feed : feeds) {
    std::visit([&](const auto& value) { check_input(static_cast<std::size_t>(feed.input), value); }, feed.value);
  }
  if (left_out == LeftOut::error) check_given(feeds);
  for (const Feed& feed : feeds) {
    const auto at = static_cast<std::size_t>(feed.input);
    if (const Tensor* of_host = std::get_if<Tensor>(&feed.value)) {
      set_input(at, *of_host);
    } else {
      set_input(at, std::get<DeviceTensor>(feed.value), feed.stream);
    }
  }
  const bool stay = wanted == Results::on_device;
  std::vector<AnyTensor> results;
  results.reserve(plan.fetches.size());
  rooms.clear();
  for (const Plan::Fetch& fetch : plan.fetches) {
    results.emplace_back(stay ? Tensor() : Tensor(fetch.operand.layout.type));
    rooms.push_back(room_for_any(fetch.alternatives));
  }
  run();
  for (std::size_t i = 0; i < results.size(); ++i) {
    if (stay) {
      results[i] = keep(i);
    } else {
      fetch_into(i, &std::get<Tensor>(results[i]), std::move(rooms[i]));
    }
  }
  return results;
}

namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// A program has no name of its own: its results name it.
std::string name_of(const Plan& plan) {
  constexpr std::size_t kMost = 3;
  std::string name = "program";
  for (std::size_t i = 0; i < plan.fetches.size() && i <= kMost; ++i) {
    name += i == kMost ? ", .." : (i == 0 ? " of " : ", ") + one_line(plan.fetches[i].name);
  }
  return name;
}

std::size_t checked(int index, const std::vector<std::string>& names, const char* what) {
  if (index < 0 || static_cast<std::size_t>(index) >= names.size()) {
    fail(ErrorKind::argument, "{}: there is no number {}; there are {}", what, index, names.size());
  }
  return static_cast<std::size_t>(index);
}

}  // namespace

Program::Program(std::unique_ptr<Compiled> compiled) : compiled_(std::move(compiled)) {}
Program::Program(Program&&) noexcept = default;
Program::~Program() {
  Compiled* mine = compiled_.get();
  if (mine != nullptr && mine->is_in_use) mine->itself = std::move(compiled_);
}
Program& Program::operator=(Program&& other) noexcept {
  Program taken(std::move(other));
  std::swap(compiled_, taken.compiled_);
  return *this;
}

Program::Program(const Graph& graph, const CompileOptions& options, const Parameters* parameters)
    : Program(graph, options, parameters, nullptr) {}

Program::Program(const Graph& graph, const CompileOptions& options, const Parameters* parameters, CompiledPlan* plan)
    : compiled_(std::make_unique<Compiled>()) {
  if (parameters != nullptr) {
    parameters->store();  // there is one
    compiled_->parameters = parameters->store_;
  }
  compiled_->options = options;
  *this = bind(graph, plan);
}

Program Program::bind(const Graph& graph) const { return bind(graph, nullptr); }

Program Program::bind(const Graph& graph, CompiledPlan* plan) const {
  Compiled& mine = compiled();
  const Compiled::Call use(mine, "bind");
  std::optional<ProgramUse> memory;  // that the new program shares, and which may grow
  if (mine.arena != nullptr) memory.emplace(mine.arena->is_in_use, "bind");
  try {
    return compile(graph, plan);
  } catch (const std::bad_alloc&) {
    fail(ErrorKind::device, "compile: a graph of {} nodes needs more memory than there is: {}", graph.size(),
         memory_left());
  }
}

Program Program::compile(const Graph& source, CompiledPlan* plan) const {
  static const profile::SiteId site =
      profile::Recorder::add_site({.name = "Program::compile", .kind = profile::SpanKind::compile});
  const profile::LongSpanScope seen(site);
  const auto start = Clock::now();
  const Compiled& like = *compiled_;  // which stays, also when a callback destroys this
  auto made = std::make_unique<Compiled>();
  made->options = with_environment(like.options);
  made->parameters = like.parameters;
  const CompileOptions& options = made->options;

  CompiledPlan compiled = plan != nullptr ? std::move(*plan)
                                          : compile_timed(source, options, target_of(options.device),
                                                          preprocess_of(options, made->parameters != nullptr));
  const std::unique_ptr<Graph>& graph = compiled.graph;
  made->writes_parameters = !graph->assigns().empty();
  std::set<std::string> written;
  for (NodeId id : graph->assigns()) written.insert(graph->node(graph->node(id).inputs[0].node).name.str());
  made->outdated = Shadows::Outdated(std::move(written));
  for (PassRecord& record : compiled.passes) {
    made->report.passes.push_back(
        {record.name, record.milliseconds, record.nodes_before, record.nodes_after, std::move(record.notes)});
  }
  made->plan = std::move(compiled.plan);

  if (options.repeats < 1) fail(ErrorKind::argument, "compile: repeats = {}; it must be at least 1", options.repeats);
  ExecutorOptions executor_options;
  executor_options.device = options.device;
  executor_options.name = made->name = name_of(made->plan);
  executor_options.execution = options.execution;
  executor_options.repeats = options.repeats;
  executor_options.fuses_launches = options.fuses_launches;
  executor_options.on_print = [compiled = made.get()](Printed&& printed) {
    if (compiled->options.on_print) return compiled->hand_over(printed);
    compiled->printed.push_back(std::move(printed));
  };
  if (options.execution == Execution::stepwise) executor_options.on_step = options.on_step;
  executor_options.stream = options.stream;
  executor_options.graph_bytes = options.graph_bytes;
  if (like.executor) executor_options.arena = like.executor->arena();
  if (made->parameters && !made->plan.parameters.empty()) executor_options.failure = made->parameters->failure;
  if (!made->plan.parameters.empty()) {
    if (!made->parameters) {
      fail(ErrorKind::argument, "compile: the graph has parameter '{}', but no Parameters were given",
           one_line(made->plan.parameters[0].first));
    }
    PlannedParameters found = made->parameters->find(made->plan, &compiled, options);
    executor_options.parameters = std::move(found.addresses);
    made->shadows = std::move(found.shadows), made->preprocessed = found.preprocessed;
  }
  {
    static const profile::SiteId kernels =
        profile::Recorder::add_site({.name = "kernels and memory", .kind = profile::SpanKind::host});
    const profile::SpanScope making(kernels);
    const profile::HeldSites::Scope held(&made->sites);
    made->executor = options.device.kind == DeviceKind::cpu ? make_cpu_executor(made->plan, executor_options)
                                                            : make_gpu_executor(made->plan, executor_options);
  }
  made->arena = made->executor->arena().get();

  for (const auto& [slot, tensor] : made->plan.constants) made->executor->write(slot, tensor);

  made->run_site = profile::Recorder::add_site({.name = "Program::run", .kind = profile::SpanKind::run});
  for (const auto& [name, slot] : made->plan.inputs) made->inputs.push_back(name);
  for (NodeId id : graph->inputs()) made->input_types.push_back(graph->node(id).types[0]);
  for (const Plan::Fetch& fetch : made->plan.fetches) made->fetches.push_back(fetch.name);
  made->input_index = NameIndex(made->inputs);
  made->fetch_index = NameIndex(made->fetches);
  made->is_set.assign(made->inputs.size(), 0);
  made->is_ready = made->inputs.empty();
  CompileReport& report = made->report;
  report.plan_notes = made->plan.notes;
  for (const std::string& note : made->executor->kernel_cost().notes) report.plan_notes.push_back(note);
  report.kernels_compiled = made->executor->kernel_cost().compiled;
  report.kernel_milliseconds = made->executor->kernel_cost().milliseconds;
  report.launches = made->executor->launches();
  report.arena_bytes = made->plan.arena_bytes;
  report.peak_live_bytes = made->plan.peak_live_bytes;
  report.milliseconds = milliseconds_since(start);
  return Program(std::move(made));
}

[[gnu::hot]] Program::Compiled& Program::compiled() const {
  if (compiled_ == nullptr) fail(ErrorKind::argument, "program: it was moved to another Program; use that");
  return *compiled_;
}

const std::vector<std::string>& Program::input_names() const { return compiled().inputs; }
const std::vector<std::string>& Program::fetch_names() const { return compiled().fetches; }
int Program::input_index(std::string_view name) const { return compiled().input_index.at(name, "input"); }
int Program::fetch_index(std::string_view name) const { return compiled().fetch_index.at(name, "fetch"); }
const Type& Program::input_type(int index) const {
  return compiled().input_types[checked(index, compiled().inputs, "input")];
}
const Type& Program::fetch_type(int index) const {
  const Plan::Fetch& fetch = compiled().plan.fetches[checked(index, compiled().fetches, "fetch")];
  if (!fetch.alternatives.empty()) {
    fail(ErrorKind::argument, "fetch '{}' is a Variant of {} alternatives: its type is known after a run",
         one_line(fetch.name), fetch.alternatives.size());
  }
  return fetch.operand.layout.type;
}

void Program::set_input(int index, const Tensor& tensor) {
  Compiled& mine = compiled();
  const Compiled::Call use(mine, "set_input");
  const std::size_t at = checked(index, mine.inputs, "input");
  mine.check_input(at, tensor);
  mine.set_input(at, tensor);
}

void Program::set_input(int index, const DeviceTensor& tensor, void* stream) {
  Compiled& mine = compiled();
  const Compiled::Call use(mine, "set_input");
  const std::size_t at = checked(index, mine.inputs, "input");
  mine.check_input(at, tensor);
  mine.set_input(at, tensor, stream);
}

std::vector<AnyTensor> Program::call(std::span<const Feed> feeds, LeftOut left_out, Results results) {
  Compiled& mine = compiled();
  const Compiled::Call use(mine, "run");
  for (const Feed& feed : feeds) checked(feed.input, mine.inputs, "input");
  if (results == Results::on_device) {
    for (std::size_t i = 0; i < mine.fetches.size(); ++i) mine.check_stays(i);
  }
  return mine.run_with(feeds, left_out, results);
}

void* Program::stream() const { return compiled().executor->stream(); }

[[gnu::hot]] void Program::run() {
  Compiled& mine = compiled();
  const Compiled::Call use(mine, "run");
  mine.run();
}

void Program::wait() {
  Compiled& mine = compiled();
  const Compiled::Call use(mine, "wait");
  mine.wait();
}

Tensor Program::fetch(int index) {
  Compiled& mine = compiled();
  const Compiled::Call use(mine, "fetch");
  return mine.fetch(checked(index, mine.fetches, "fetch"));
}

DeviceTensor Program::fetch_on_device(int index) {
  Compiled& mine = compiled();
  const Compiled::Call use(mine, "fetch_on_device");
  const std::size_t at = checked(index, mine.fetches, "fetch");
  mine.check_stays(at);
  return mine.keep(at);
}

Fetched Program::fetch_later(int index) {
  Compiled& mine = compiled();
  const Compiled::Call use(mine, "fetch_later");
  return Fetched(mine.fetch_later(checked(index, mine.fetches, "fetch")));
}

std::map<std::string, Tensor> Program::run(const std::map<std::string, Tensor>& feeds, LeftOut left_out) {
  Compiled& mine = compiled();
  const Compiled::Call use(mine, "run");
  std::vector<Feed> given;
  given.reserve(feeds.size());
  for (const auto& [name, tensor] : feeds) given.push_back({mine.input_index.at(name, "input"), tensor});
  std::vector<AnyTensor> made = mine.run_with(given, left_out, Results::on_host);
  std::map<std::string, Tensor> results;
  for (std::size_t i = 0; i < made.size(); ++i) {
    results.emplace(mine.fetches[i], std::get<Tensor>(std::move(made[i])));
  }
  return results;
}

const std::vector<Printed>& Program::printed() const {
  const ProgramUse use(compiled().is_in_use, "printed");
  return compiled().printed;
}
const CompileReport& Program::report() const { return compiled().report; }
std::string Program::plan_text() const { return to_string(compiled().plan); }
std::string Program::kernel_text() const { return compiled().executor->kernel_text(); }

}  // namespace paoding
