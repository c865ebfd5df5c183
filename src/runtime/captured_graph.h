// SPDX-License-Identifier: Apache-2.0
// A stretch of a run as one CUDA graph: captured when its program is made, instantiated when it is needed.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>
#include <vector>

#include "gpu/driver.h"
#include "runtime/gpu_order.h"
#include "runtime/graph_budget.h"

namespace paoding {

/// What a node of an executable graph costs; measured, of 2,000 nodes up to 8 MB.
inline constexpr std::int64_t kGraphNodeBytes = 4096;

class CapturedGraph : public GraphBudget::Graph {
 public:
  /// Enqueues an entry of the order; `node` is the conditional node that a choice is for, else 0.
  using Start = std::function<void(std::size_t, CUstream, CUgraphConditionalHandle node)>;
  /// Captures what the entries first .. end-1 start, none of which is in a body without the others, and what `behind`
  /// enqueues. `budget` must outlive it.
  CapturedGraph(const gpu::GpuDevice& device, GraphBudget& budget, const std::vector<Started>& order, std::size_t first,
                std::size_t end, const Start& start, const std::function<void(CUstream)>& behind = {});
  ~CapturedGraph() override;
  CapturedGraph(const CapturedGraph&) = delete;
  CapturedGraph& operator=(const CapturedGraph&) = delete;

  /// A node of the graph, and the entry of the order that it was captured for.
  struct Node {
    CUgraphNode node;
    std::size_t of;
    bool runs_always;  // not so: in a conditional node, or one
  };
  /// Those that entries made, in the order of their capture, those of bodies before those around them.
  const std::vector<Node>& nodes() const { return nodes_; }
  /// What records of CUPTI call the nodes of the executable graph, and the entry of each. That was made while nobody
  /// looked: it is made again, in a recording's first launch.
  using Numbers = std::unordered_map<std::uint64_t, std::size_t>;
  std::shared_ptr<const Numbers> numbers(CUstream stream);
  void launch(CUstream stream);
  /// What is under way goes on to its end.
  void drop() override;
  /// Not launched for some time: it takes nothing of the budget.
  void rest();

 private:
  class Capture;
  void instantiate(CUstream stream);
  void release();
  // What a launch reads, first.
  const gpu::Driver& driver_;
  GraphBudget& budget_;
  CUgraphExec exec_ = nullptr;
  std::int64_t bytes_ = 0;
  CUgraph graph_ = nullptr;
  std::vector<Node> nodes_;
  std::shared_ptr<const Numbers> numbers_;  // of exec_
};

}  // namespace paoding
