// SPDX-License-Identifier: Apache-2.0
#include <atomic>

#include "base/check.h"
#include "base/slot_alignment.h"
#include "paoding/placed.h"
#include "runtime/placed/placed_plan.h"

namespace paoding {

struct PlacedGraph::State {
  Device device;
  std::unique_ptr<PlacedPlan> plan;
  std::vector<Place> inputs, results;
  std::vector<std::size_t> read_order;  // per read of the plan, the position of the input
  std::vector<const void*> reads;
  std::atomic_flag is_running = ATOMIC_FLAG_INIT;
};

PlacedGraph::PlacedGraph(const Graph& graph, const Device& device, const PlacedOptions& options)
    : state_(std::make_unique<State>()) {
  if (!graph.parameters().empty()) {
    fail(ErrorKind::argument, "placed graph: it has the parameter '{}'\nhint: make it an input",
         graph.node(graph.parameters()[0]).name.str());
  }
  State& s = *state_;
  s.device = device;
  for (const NodeId id : graph.inputs()) s.inputs.push_back({graph.node(id).name.str(), graph.type({id, 0})});
  s.plan = PlacedPlan::make("PlacedGraph::run", graph, device, options);
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
}

PlacedGraph::~PlacedGraph() = default;
PlacedGraph::PlacedGraph(PlacedGraph&&) noexcept = default;
PlacedGraph& PlacedGraph::operator=(PlacedGraph&&) noexcept = default;

const std::vector<PlacedGraph::Place>& PlacedGraph::inputs() const { return state_->inputs; }
const std::vector<PlacedGraph::Place>& PlacedGraph::results() const { return state_->results; }
std::int64_t PlacedGraph::workspace_bytes() const { return state_->plan->workspace_bytes(); }
PlacedGraph::FaultWords PlacedGraph::fault_words() const {
  return {state_->plan->fault_offset(), state_->plan->fault_bytes()};
}
void PlacedGraph::check(const void* fault_words) const {
  state_->plan->check(static_cast<const std::uint64_t*>(fault_words));
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
  s.plan->run(s.reads, results, workspace, stream);
}

}  // namespace paoding
