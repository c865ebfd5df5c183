// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <mutex>
#include <shared_mutex>

#include "base/check.h"
#include "base/one_line.h"
#include "base/slot_alignment.h"
#include "paoding/placed.h"
#include "runtime/parameter_store.h"
#include "runtime/placed/placed_plan.h"

namespace paoding {

struct PlacedGraph::State {
  Device device;
  std::unique_ptr<PlacedPlan> plan;
  std::vector<Place> inputs, results;
  std::vector<std::size_t> read_order;  // per read of the plan, the position of the input
  std::vector<const void*> reads;
  std::atomic_flag is_running = ATOMIC_FLAG_INIT;

  // ---- where it has parameters ----
  std::shared_ptr<Parameters::Store> store;
  std::vector<Shadow*> shadows;
  PreprocessedSet* preprocessed = nullptr;
  std::uint64_t prepared = 0;  // PreprocessedParameters::written when prepare() was called last

  ~State() {
    if (store && plan) store->forget(plan.get());
  }

  std::vector<void*> find_parameters(CompiledPlan* compiled, const CompileOptions& options) {
    PlannedParameters found = store->find(compiled->plan, compiled, options);
    shadows = std::move(found.shadows), preprocessed = found.preprocessed;
    return std::move(found.addresses);
  }

  void refresh() const {
    if (!shadows.empty()) store->refresh(shadows);
    if (preprocessed != nullptr) store->refresh(*preprocessed);
  }

  // Calls `work` while nobody writes the parameters; a callback of a run that reads them is in such a time.
  template <class Work>
  void with_parameters(const Work& work) const {
    const bool is_inside = UnderWayHere::is_around(store.get());
    const UnderWayHere here(store.get());
    std::shared_lock<std::shared_mutex> shared(store->running, std::defer_lock);
    if (!is_inside) shared.lock();
    work();
  }

  void run(std::span<void* const> results, void* workspace, void* stream) {
    if (!store) return plan->run(reads, results, workspace, stream);
    with_parameters([&] {
      if (!plan->is_captured(stream)) {
        refresh();
        plan->use_stream(stream);
        if (device.kind == DeviceKind::cuda) store->enqueue(plan.get(), false);
      } else if (prepared != store->preprocessed.written) {
        fail(
            ErrorKind::argument,
            "placed graph: parameters were written, and what follows from them cannot be made in a capture\nhint: call "
            "prepare() in front of it");
      }
      plan->run(reads, results, workspace, stream);
    });
  }
};

PlacedGraph::PlacedGraph(const Graph& graph, const Device& device, const PlacedOptions& options,
                         const Parameters* parameters)
    : state_(std::make_unique<State>()) {
  State& s = *state_;
  s.device = device;
  PlacedPlan::FindParameters find;
  if (!graph.parameters().empty()) {
    if (parameters == nullptr) {
      fail(ErrorKind::argument,
           "placed graph: it has the parameter '{}', but no Parameters were given\nhint: or make it an input",
           one_line(graph.node(graph.parameters()[0]).name.str()));
    }
    for (const NodeId id : graph.assigns()) {
      fail(
          ErrorKind::unsupported,
          "placed graph: it writes the parameter '{}', which only a Program does\nhint: a graph without random ops and "
          "optimizer evaluates",
          one_line(graph.node(graph.node(id).inputs[0].node).name.str()));
    }
    parameters->store();  // there is one
    s.store = parameters->store_;
    find = [&s](CompiledPlan* compiled, const CompileOptions& compile) { return s.find_parameters(compiled, compile); };
  }
  for (const NodeId id : graph.inputs()) s.inputs.push_back({graph.node(id).name.str(), graph.type({id, 0})});
  s.plan = PlacedPlan::make("PlacedGraph::run", graph, device, options, find);
  for (const auto& [name, slot] : s.plan->reads()) {
    std::size_t at = 0;
    while (s.inputs[at].name != name) ++at;
    s.read_order.push_back(at);
  }
  s.reads.resize(s.read_order.size());
  for (const Plan::Fetch& fetch : s.plan->plan().fetches) {
    if (!fetch.alternatives.empty()) {
      fail(ErrorKind::unsupported, "placed graph: the result '{}' is a Variant", fetch.name);
    }
    s.results.push_back({fetch.name, fetch.operand.layout.type});
  }
  prepare();
}

PlacedGraph::~PlacedGraph() = default;
PlacedGraph::PlacedGraph(PlacedGraph&&) noexcept = default;
PlacedGraph& PlacedGraph::operator=(PlacedGraph&&) noexcept = default;

const std::vector<PlacedGraph::Place>& PlacedGraph::inputs() const { return state_->inputs; }
const std::vector<PlacedGraph::Place>& PlacedGraph::results() const { return state_->results; }
std::vector<std::string> PlacedGraph::notes() const {
  std::vector<std::string> notes;
  for (const PassRecord& pass : state_->plan->passes()) {
    for (const std::string& note : pass.notes) notes.push_back(pass.name + ": " + note);
  }
  return notes;
}

std::int64_t PlacedGraph::workspace_bytes() const { return state_->plan->workspace_bytes(); }
PlacedGraph::FaultWords PlacedGraph::fault_words() const {
  return {state_->plan->fault_offset(), state_->plan->fault_bytes()};
}
void PlacedGraph::check(const void* fault_words) const {
  state_->plan->check(static_cast<const std::uint64_t*>(fault_words));
}

void PlacedGraph::follow_faults(const void* workspace, void* stream) { state_->plan->follow_faults(workspace, stream); }
void PlacedGraph::raise_faults(bool waits) { state_->plan->raise_faults(waits); }

void PlacedGraph::prepare() {
  State& s = *state_;
  if (!s.store) return;
  s.with_parameters([&] {
    const std::uint64_t now = s.store->preprocessed.written;
    s.refresh();
    s.store->finish_runs(false);
    s.prepared = now;
  });
}

void PlacedGraph::run(std::span<const void* const> inputs, std::span<void* const> results, void* workspace,
                      void* stream) {
  State& s = *state_;
  const std::uintptr_t alignment = s.device.kind == DeviceKind::cuda ? kSlotAlignment : 64;
  const auto check = [&](const std::string& name, const void* address, std::int64_t bytes) {
    if (address == nullptr && bytes > 0) {
      fail(ErrorKind::argument, "placed graph: {} is null, needed are {} bytes", name, bytes);
    }
    if (reinterpret_cast<std::uintptr_t>(address) % alignment != 0) {
      fail(ErrorKind::argument, "placed graph: {} is at {}, needs to be aligned to {} bytes", name, fmt::ptr(address),
           alignment);
    }
  };
  const auto check_all = [&](const char* what, const std::vector<Place>& places, const auto& given) {
    if (given.size() != places.size()) {
      fail(ErrorKind::argument, "placed graph: {} {} are given, there are {}", given.size(), what, places.size());
    }
    for (std::size_t i = 0; i < places.size(); ++i) check(places[i].name, given[i], places[i].size_bytes());
  };
  check_all("inputs", s.inputs, inputs);
  check_all("results", s.results, results);
  check("the workspace", workspace, workspace_bytes());
  if (s.is_running.test_and_set()) {
    fail(ErrorKind::argument, "placed graph: another run of it is under way\nhint: one for each thread");
  }
  const struct Done {
    std::atomic_flag& flag;
    ~Done() { flag.clear(); }
  } done{s.is_running};
  for (std::size_t i = 0; i < s.reads.size(); ++i) s.reads[i] = inputs[s.read_order[i]];
  s.run(results, workspace, stream);
}

}  // namespace paoding
