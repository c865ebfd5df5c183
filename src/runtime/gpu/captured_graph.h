// SPDX-License-Identifier: Apache-2.0
// A segment of a run as one CUDA graph: captured when its program is made, instantiated when it is needed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "gpu/driver/driver.h"
#include "runtime/gpu/entry_capture.h"
#include "runtime/graph_budget.h"
#include "schedule/schedule.h"

namespace paoding {

/// The cost of a node of an executable graph; measured, of 2,000 nodes up to 8 MB.
inline constexpr std::int64_t kGraphNodeBytes = 4096;

class CapturedGraph : public GraphBudget::Graph {
 public:
  using Start = EntryCapture::Start;
  /// Captures the launches of entries first .. end-1, where a body is in the range whole or not at all, and those of
  /// `behind`. A graph with `behind` may be launched in another's place, and so drops none of the budget. `budget` must
  /// outlive it.
  CapturedGraph(const gpu::GpuDevice& device, GraphBudget& budget, const Schedule& schedule, std::size_t first,
                std::size_t end, const Start& start, const std::function<void(CUstream)>& behind = {});
  ~CapturedGraph() override;
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  /// A node of the graph, and the entry of the schedule that it was captured for.
  struct Node {
    CUgraphNode node;
    std::size_t of;
    bool runs_always;      // not so: in a conditional node, or one
    std::uint32_t number;  // in the order of their capture, those of bodies after all others
  };
  /// Those that entries made, in the order of their capture, those of bodies before those around them.
  const std::vector<Node>& nodes() const { return nodes_; }
  /// Maps the numbers that CUPTI's records give the twin's nodes to the entries.
  using Numbers = std::unordered_map<std::uint64_t, std::size_t>;
  /// While CUPTI looks, a twin is launched in place of the executable graph: a graph that was launched then must not be
  /// launched again when CUPTI has gone. drop_twins() lets go of those of all graphs, which have ended.
  std::shared_ptr<const Numbers> make_twin(CUstream stream);
  void launch_twin(CUstream stream);
  static void drop_twins();
  void launch(CUstream stream);
  /// Launches under way go on to their end.
  void drop() override;
  /// Not launched for some time: it takes nothing of the budget.
  void rest();

 private:
  class Listing;
  void capture(EntryCapture* entries, const Start& start, const std::function<void(CUstream)>& behind, CUstream stream);
  void instantiate(CUgraphExec* made, CUstream stream);
  void drop_twin();
  void destroy_twin();
  void release();
  // The members that a launch reads stand first.
  const gpu::Driver& driver_;
  GraphBudget& budget_;
  CUgraphExec exec_ = nullptr;
  std::int64_t bytes_ = 0;
  bool has_priorities_ = false;  // of its nodes: collectives go first
  CUgraph graph_ = nullptr;
  CUgraphExec twin_ = nullptr;
  std::vector<Node> nodes_;
  std::shared_ptr<const Numbers> numbers_;  // of the twin
};

}  // namespace paoding
