// SPDX-License-Identifier: Apache-2.0
// Compiling: select fetches, run the passes, plan, make an executor. And the calls on what came out.
#include "paoding/program.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <new>
#include <optional>
#include <shared_mutex>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/memory.h"
#include "base/one_line.h"
#include "paoding/cancellation.h"
#include "paoding/op.h"
#include "profile/recorder.h"
#include "runtime/compile.h"
#include "runtime/executor.h"
#include "runtime/use_order.h"

namespace paoding {

// ---- Parameters ----

struct Parameters::Store {
  struct Entry {
    Type type;
    std::unique_ptr<DeviceBuffer> buffer;
  };
  Device device;
  std::shared_ptr<SharedFailure> failure;  // on a GPU
  std::vector<std::string> order;
  std::map<std::string, Entry, std::less<>> entries;
  // Runs that write hold it alone. A GPU's run goes on after Program::run() has returned: the next comes behind it
  // there.
  std::shared_mutex running;
  std::mutex order_lock;
  UseOrder<Executor> order_on_gpu;

  // Before the host reads or writes the values. Under `running`.
  void finish_runs(bool writes) {
    const std::lock_guard lock(order_lock);
    for (Executor* executor : order_on_gpu.before(writes)) {
      order_on_gpu.forget(executor);  // what it throws is told once
      executor->finish();
    }
  }
  // Before a run is enqueued. One that cannot be called off on the device waits here for those that may fail.
  void enqueue(Executor* next, bool writes) {
    const std::lock_guard lock(order_lock);
    if (writes && !next->can_fail()) {
      for (Executor* other : order_on_gpu.before(true)) {
        if (other != next && other->can_fail()) other->finish();
      }
    }
    order_on_gpu.use(next, writes, [&](Executor& other) { next->follow(other); });
  }
  void forget(const Executor* executor) {
    const std::lock_guard lock(order_lock);
    order_on_gpu.forget(executor);
  }

  Entry& at(std::string_view name) {
    const auto it = entries.find(name);
    if (it == entries.end()) {
      fail(ErrorKind::argument, "parameters: there is none named '{}'; there are: {}", one_line(name), one_line(order));
    }
    return it->second;
  }
};

namespace {

// A run that the calling thread is in: it holds the lock of its store while callbacks are called.
struct UnderWay {
  const void* store;
  const UnderWay* outer;
};
thread_local const UnderWay* under_way = nullptr;

const UnderWay* run_around(const void* store) {
  const UnderWay* run = under_way;
  while (run != nullptr && run->store != store) run = run->outer;
  return run;
}

// The seed of one parameter: what others there are and their order must not matter. Hashing carries upwards only, and
// random ops take the lower 48 bits: the upper ones are folded in.
std::uint64_t seed_of(std::uint64_t seed, std::string_view name) {
  return fnv1a(name, kFnvStart ^ seed ^ (seed >> 48));
}

}  // namespace

Parameters::Parameters(const Graph& graph, const Device& device, const ParametersOptions& options)
    : store_(std::make_shared<Store>()) {
  store_->device = device;
  if (device.kind == DeviceKind::cuda) store_->failure = make_gpu_failure(device);
  for (NodeId id : graph.parameters()) {
    const Node& node = graph.node(id);
    const std::int64_t bytes = size_bytes(node.types[0]);
    auto buffer = device.kind == DeviceKind::cpu ? make_cpu_buffer(bytes) : make_gpu_buffer(bytes, device);
    store_->entries.emplace(node.name.str(), Store::Entry{node.types[0], std::move(buffer)});
    store_->order.push_back(node.name.str());
    if (const auto it = graph.initializers().find(node.name.str()); it != graph.initializers().end()) {
      set(node.name.str(), it->second(node.types[0], seed_of(options.seed, node.name.str())));
    }
  }
}

Parameters::~Parameters() = default;
Parameters::Parameters(Parameters&&) noexcept = default;
Parameters& Parameters::operator=(Parameters&&) noexcept = default;

Parameters::Store& Parameters::store() const {
  if (store_ == nullptr) fail(ErrorKind::argument, "parameters: they were moved to other Parameters; use those");
  return *store_;
}

const Device& Parameters::device() const { return store().device; }
std::vector<std::string> Parameters::names() const { return store().order; }

void Parameters::set(std::string_view name, const Tensor& tensor) {
  Store::Entry& entry = store().at(name);
  if (!(tensor.type() == entry.type)) {
    fail(tensor.dtype() == entry.type.dtype ? ErrorKind::shape : ErrorKind::dtype, "parameter '{}' is {}, not {}",
         one_line(name), to_string(entry.type), to_string(tensor.type()));
  }
  if (run_around(store_.get()) != nullptr) {
    fail(ErrorKind::argument, "parameter '{}' is set in a callback of a run that reads it; set it when run() is over",
         one_line(name));
  }
  const std::unique_lock lock(store_->running);
  store_->finish_runs(true);
  entry.buffer->write(tensor);
}

Tensor Parameters::get(std::string_view name) const {
  const Store::Entry& entry = store().at(name);
  std::shared_lock<std::shared_mutex> lock(store_->running, std::defer_lock);
  if (run_around(store_.get()) == nullptr) lock.lock();  // else the run has it
  store_->finish_runs(false);
  return entry.buffer->read(entry.type);
}

// ---- Program ----

namespace {

// While it lives nobody else has what `is_in_use` stands for.
class OneAtATime {
 public:
  OneAtATime(std::atomic<bool>& is_in_use, const char* call) : is_in_use_(is_in_use) {
    if (is_in_use.exchange(true, std::memory_order_acquire)) fail_in_use(call);
  }
  ~OneAtATime() { is_in_use_.store(false, std::memory_order_release); }
  OneAtATime(const OneAtATime&) = delete;
  OneAtATime& operator=(const OneAtATime&) = delete;

 private:
  [[noreturn]] static void fail_in_use(const char* call) {
    fail(ErrorKind::argument,
         "{}: a call of this program, or of one that shares its memory, is under way, on another thread or around this "
         "callback\nhint: threads need programs of their own, and not from Program::bind",
         call);
  }
  std::atomic<bool>& is_in_use_;
};

// Puts a run in front of those that the thread is in.
class UnderWayHere {
 public:
  explicit UnderWayHere(const void* store) : run_{store, under_way} { under_way = &run_; }
  ~UnderWayHere() { under_way = run_.outer; }
  UnderWayHere(const UnderWayHere&) = delete;
  UnderWayHere& operator=(const UnderWayHere&) = delete;

 private:
  const UnderWay run_;
};

// Which alternative of a Variant was taken; the last where there is none of that number.
std::size_t chosen_of(const Tensor& index, std::size_t count) {
  const std::int64_t chosen = index.dtype() == DType::i64   ? *index.data<std::int64_t>()
                              : index.dtype() == DType::i32 ? *index.data<std::int32_t>()
                                                            : *index.data<std::uint8_t>();
  return chosen >= 0 && chosen < static_cast<std::int64_t>(count) ? static_cast<std::size_t>(chosen) : count - 1;
}

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

struct Fetched::State {
  explicit State(std::unique_ptr<LaterRead> started) : read(std::move(started)) {}
  std::unique_ptr<LaterRead> read;
  std::optional<Tensor> value;
  std::exception_ptr error;
};

struct Program::Compiled {
  CompileOptions options;
  std::shared_ptr<Parameters::Store> parameters;
  Plan plan;
  std::unique_ptr<Executor> executor;
  CompileReport report;
  std::vector<std::string> inputs, fetches;
  NameIndex input_index, fetch_index;
  std::vector<Type> input_types;
  std::vector<std::pair<Tensor*, std::shared_ptr<std::byte>>> rooms;  // of fetches, while run(feeds) goes
  std::vector<char> is_set;
  std::size_t set_count = 0;
  profile::SiteId run_site = 0;
  bool is_ready = false;  // every input has been set
  bool writes_parameters = false;
  std::vector<Printed> printed;
  std::atomic<bool> is_in_use{false};
  enum class Last : std::uint8_t { none, threw, ended } last = Last::none;  // run
  Arena* arena = nullptr;                                                   // the executor's
  const std::uint64_t number = next_number();                               // of all programs

  ~Compiled() {
    if (parameters && executor) parameters->forget(executor.get());
  }

  void run() {
    if (!is_ready) {
      const auto missing = std::find(is_set.begin(), is_set.end(), 0) - is_set.begin();
      fail(ErrorKind::argument, "run: input '{}' was never set", one_line(inputs[static_cast<std::size_t>(missing)]));
    }
    const bool is_inside = parameters && run_around(parameters.get()) != nullptr;
    if (is_inside && writes_parameters) {
      fail(ErrorKind::argument, "run: it writes Parameters, in a callback of a run that reads them");
    }
    const OneAtATime use(arena->is_in_use, "run");
    CancelScope::poll();
    last = Last::threw;
    arena->holder = 0;
    printed.clear();
    if (profile::Recorder::active()) {
      const std::uint32_t run = profile::Recorder::next_run();
      const profile::SpanScope seen(run_site, run);
      run_in_order(run);
    } else {
      run_in_order(0);
    }
    last = Last::ended;
    arena->holder = number;
  }

  // Runs that share a store: together when all only read, else one after the other.
  void run_in_order(std::uint32_t run) {
    if (!parameters || plan.parameters.empty()) return executor->run(run);
    std::shared_lock<std::shared_mutex> shared(parameters->running, std::defer_lock);
    std::unique_lock<std::shared_mutex> alone(parameters->running, std::defer_lock);
    if (run_around(parameters.get()) == nullptr) writes_parameters ? alone.lock() : shared.lock();
    const UnderWayHere here(parameters.get());
    if (options.device.kind == DeviceKind::cuda) parameters->enqueue(executor.get(), writes_parameters);
    executor->run(run);
  }

  // What waiting throws is what the run met.
  void wait() {
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
    const OneAtATime use(arena->is_in_use, "fetch");
    check_results(fetch.name);
    wait();
    executor->read(fetch.operand, to);
    if (fetch.alternatives.empty()) return;
    const Operand& taken = fetch.alternatives[chosen_of(*to, fetch.alternatives.size())];
    *to = Tensor(taken.layout.type, std::move(alternative));
    executor->read(taken, to);
  }

  std::shared_ptr<Fetched::State> fetch_later(std::size_t index) {
    const Plan::Fetch& fetch = plan.fetches[index];
    const OneAtATime use(arena->is_in_use, "fetch_later");
    check_results(fetch.name);
    std::vector<const Operand*> all{&fetch.operand};
    for (const Operand& alternative : fetch.alternatives) all.push_back(&alternative);
    return std::make_shared<Fetched::State>(executor->read_later(all));
  }

  // Error (argument) when the arena does not hold what a run of this program left.
  void check_results(const std::string& name) const {
    if (last == Last::ended && arena->holder == number) return;
    fail(ErrorKind::argument, "fetch: '{}' is not there: {}", one_line(name),
         last == Last::none    ? "the program has not run"
         : last == Last::threw ? "the program's last run threw"
                               : "another program has run in the same memory since (Program::bind, Programs)");
  }

  void check_input(int index, const Tensor& tensor) const {
    const auto at = static_cast<std::size_t>(index);
    if (tensor.type() == input_types[at]) return;
    fail(tensor.dtype() == input_types[at].dtype ? ErrorKind::shape : ErrorKind::dtype, "input '{}' is {}, not {}",
         one_line(inputs[at]), to_string(input_types[at]), to_string(tensor.type()));
  }

  void set_input(int index, const Tensor& tensor) {
    static const profile::SiteId site = profile::Recorder::add_site({.name = "feed", .kind = profile::SpanKind::feed});
    const profile::SpanScope seen(site);
    const auto at = static_cast<std::size_t>(index);
    check_input(index, tensor);
    executor->write(plan.inputs[at].second, tensor);
    if (std::exchange(is_set[at], 1) == 0) is_ready = ++set_count == is_set.size();
  }
};

namespace {

using Clock = std::chrono::steady_clock;

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// A program has no name of its own: what it is for says which it is.
std::string name_of(const Plan& plan) {
  constexpr std::size_t kMost = 3;
  std::string name = "program";
  for (std::size_t i = 0; i < plan.fetches.size() && i <= kMost; ++i) {
    name += i == kMost ? ", .." : (i == 0 ? " of " : ", ") + plan.fetches[i].name;
  }
  return name;
}

void check_feeds(const std::vector<std::string>& inputs, const std::map<std::string, Tensor>& feeds) {
  std::vector<std::string> missing;
  for (const std::string& input : inputs) {
    if (!feeds.contains(input)) missing.push_back("'" + input + "'");
  }
  if (missing.empty()) return;
  fail(ErrorKind::argument, "run: no value is given for {}\nhint: LeftOut::keep runs with the value that it had last",
       fmt::join(missing, ", "));
}

std::size_t checked(int index, const std::vector<std::string>& names, const char* what) {
  if (index < 0 || static_cast<std::size_t>(index) >= names.size()) {
    fail(ErrorKind::argument, "{}: there is no number {}; there are {}", what, index, names.size());
  }
  return static_cast<std::size_t>(index);
}

}  // namespace

Program::Program(std::unique_ptr<Compiled> compiled) : compiled_(std::move(compiled)) {}
Program::~Program() = default;
Program::Program(Program&&) noexcept = default;
Program& Program::operator=(Program&&) noexcept = default;

Program::Program(const Graph& graph, const CompileOptions& options, const Parameters* parameters)
    : compiled_(std::make_unique<Compiled>()) {
  if (parameters != nullptr) {
    parameters->store();  // there is one
    compiled_->parameters = parameters->store_;
  }
  compiled_->options = options;
  *this = bind(graph);
}

Program Program::bind(const Graph& graph) const {
  const OneAtATime use(compiled().is_in_use, "bind");
  std::optional<OneAtATime> memory;  // that the new program shares, and which may grow
  if (compiled().arena != nullptr) memory.emplace(compiled().arena->is_in_use, "bind");
  try {
    return compile(graph);
  } catch (const std::bad_alloc&) {
    fail(ErrorKind::device, "compile: a graph of {} nodes needs more memory than there is: {}", graph.size(),
         memory_left());
  }
}

Program Program::compile(const Graph& source) const {
  static const profile::SiteId site =
      profile::Recorder::add_site({.name = "Program::compile", .kind = profile::SpanKind::compile});
  const profile::SpanScope seen(site);
  const auto start = Clock::now();
  auto made = std::make_unique<Compiled>();
  made->options = compiled_->options;
  made->parameters = compiled_->parameters;
  const CompileOptions& options = made->options;

  CompiledPlan compiled = compile_plan(source, options, target_of(options.device));
  const std::unique_ptr<Graph>& graph = compiled.graph;
  made->writes_parameters = !graph->assigns().empty();
  for (PassRecord& record : compiled.passes) {
    made->report.passes.push_back(
        {record.name, record.milliseconds, record.nodes_before, record.nodes_after, std::move(record.notes)});
  }
  made->plan = std::move(compiled.plan);

  if (options.repeats < 1) fail(ErrorKind::argument, "compile: repeats = {}; it must be at least 1", options.repeats);
  ExecutorOptions executor_options;
  executor_options.device = options.device;
  executor_options.name = name_of(made->plan);
  executor_options.execution = options.execution;
  executor_options.repeats = options.repeats;
  executor_options.on_print = [compiled = made.get()](Printed&& printed) {
    if (compiled->options.on_print) return compiled->options.on_print(printed);
    compiled->printed.push_back(std::move(printed));
  };
  if (options.execution == Execution::stepwise) executor_options.on_step = options.on_step;
  executor_options.stream = options.stream;
  executor_options.graph_bytes = options.graph_bytes;
  if (compiled_->executor) executor_options.arena = compiled_->executor->arena();
  if (made->parameters && !made->plan.parameters.empty()) executor_options.failure = made->parameters->failure;
  for (const auto& [name, unused] : made->plan.parameters) {
    if (!made->parameters) {
      fail(ErrorKind::argument, "compile: the graph has parameter '{}', but no Parameters were given", one_line(name));
    }
    if (!(made->parameters->device == options.device)) {
      fail(ErrorKind::argument, "compile: the Parameters are on {}, the program on {}",
           to_string(made->parameters->device), to_string(options.device));
    }
    const Parameters::Store::Entry& entry = made->parameters->at(name);
    const Type& needed = graph->find(name).type();
    if (!(entry.type == needed)) {
      fail(entry.type.dtype == needed.dtype ? ErrorKind::shape : ErrorKind::dtype,
           "compile: parameter '{}' is {} in the graph, but {} in the Parameters", one_line(name), to_string(needed),
           to_string(entry.type));
    }
    executor_options.parameters.push_back(entry.buffer->address());
  }
  made->executor = options.device.kind == DeviceKind::cpu ? make_cpu_executor(made->plan, executor_options)
                                                          : make_gpu_executor(made->plan, executor_options);
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

Program::Compiled& Program::compiled() const {
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
  const OneAtATime use(mine.is_in_use, "set_input");
  checked(index, mine.inputs, "input");
  mine.set_input(index, tensor);
}

void Program::run() {
  Compiled& mine = compiled();
  const OneAtATime use(mine.is_in_use, "run");
  mine.run();
}

void Program::wait() {
  Compiled& mine = compiled();
  const OneAtATime use(mine.is_in_use, "wait");
  mine.wait();
}

Tensor Program::fetch(int index) {
  Compiled& mine = compiled();
  const OneAtATime use(mine.is_in_use, "fetch");
  return mine.fetch(checked(index, mine.fetches, "fetch"));
}

Fetched Program::fetch_later(int index) {
  Compiled& mine = compiled();
  const OneAtATime use(mine.is_in_use, "fetch_later");
  return Fetched(mine.fetch_later(checked(index, mine.fetches, "fetch")));
}

bool Fetched::is_there() const { return state_->read == nullptr || state_->read->is_there(); }

const Tensor& Fetched::value() const {
  if (const auto read = std::exchange(state_->read, nullptr)) {
    try {
      std::vector<Tensor> all = read->values();
      const std::size_t taken = all.size() == 1 ? 0 : 1 + chosen_of(all[0], all.size() - 1);
      state_->value = std::move(all[taken]);
    } catch (...) {
      state_->error = std::current_exception();
    }
  }
  if (state_->error) std::rethrow_exception(state_->error);
  return *state_->value;
}

std::map<std::string, Tensor> Program::run(const std::map<std::string, Tensor>& feeds, LeftOut left_out) {
  Compiled& mine = compiled();
  const OneAtATime use(mine.is_in_use, "run");
  for (const auto& [name, tensor] : feeds) mine.check_input(mine.input_index.at(name, "input"), tensor);
  if (left_out == LeftOut::error) check_feeds(mine.inputs, feeds);
  for (const auto& [name, tensor] : feeds) mine.set_input(mine.input_index.at(name, "input"), tensor);
  // Behind a run that has written there is nothing left that memory could be missing for.
  std::map<std::string, Tensor> results;
  auto& rooms = mine.rooms;
  rooms.clear();
  for (const Plan::Fetch& fetch : mine.plan.fetches) {
    Tensor& result = results.emplace(fetch.name, Tensor(fetch.operand.layout.type)).first->second;
    rooms.emplace_back(&result, room_for_any(fetch.alternatives));
  }
  mine.run();
  for (std::size_t i = 0; i < rooms.size(); ++i) mine.fetch_into(i, rooms[i].first, std::move(rooms[i].second));
  return results;
}

const std::vector<Printed>& Program::printed() const {
  const OneAtATime use(compiled().is_in_use, "printed");
  return compiled().printed;
}
const CompileReport& Program::report() const { return compiled().report; }
std::string Program::plan_text() const { return to_string(compiled().plan); }
std::string Program::kernel_text() const { return compiled().executor->kernel_text(); }

}  // namespace paoding
