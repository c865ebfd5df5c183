// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/captured_graph.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "gpu/profile/cupti_collector.h"
#include "runtime/live_set.h"

namespace paoding {
namespace {

// The node captured last, which the next one will wait for; null before the first.
CUgraphNode last_node(const gpu::Driver& driver, CUstream stream) {
  CUstreamCaptureStatus status;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;  // asked for: launches that overlap are edges that need more than a pair
  std::size_t count = 0;
  PD_CUDA(driver.cuStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, &edges, &count));
  return count == 0 ? nullptr : nodes[count - 1];
}

// In the order of their capture.
std::vector<CUgraphNode> nodes_of(const gpu::Driver& driver, CUgraph graph) {
  std::size_t count = 0;
  PD_CUDA(driver.cuGraphGetNodes(graph, nullptr, &count));
  std::vector<CUgraphNode> nodes(count);
  if (count != 0) PD_CUDA(driver.cuGraphGetNodes(graph, nodes.data(), &count));
  return nodes;
}

}  // namespace

// A capture under way. Bodies of conditional nodes are captured in streams of their own, one for each depth.
class CapturedGraph::Capture {
 public:
  Capture(const gpu::GpuDevice& device, const Schedule& schedule, const Start& start,
          const std::function<void(CUstream)>& behind, CapturedGraph* made)
      : device_(device),
        driver_(gpu::required_driver()),
        schedule_(schedule),
        start_(start),
        behind_(behind),
        made_(*made) {}

  void run(CUstream stream, std::size_t first, std::size_t end) {
    add_streams(first, end, 0);
    PD_CUDA(driver_.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    Lasts lasts;
    try {
      start_all(stream, first, end, 0, &lasts);
      if (behind_) behind_(stream);
    } catch (...) {
      driver_.cuStreamEndCapture(stream, &made_.graph_);
      throw;
    }
    PD_CUDA(driver_.cuStreamEndCapture(stream, &made_.graph_));
    add_nodes(made_.graph_, lasts, true, 0);
    number_nodes();
  }

 private:
  // The node that was the last one after each entry.
  using Lasts = std::vector<std::pair<std::size_t, CUgraphNode>>;

  // Before the capture, in which not everything can be made.
  void add_streams(std::size_t first, std::size_t end, std::size_t depth) {
    for (std::size_t k = first; k < end; ++k) {
      const LaunchEntry& entry = schedule_.entries[k];
      if (!schedule_.holds_bodies(entry)) continue;
      if (streams_.size() == depth) streams_.emplace_back(device_);
      const Choice& choice = schedule_.choice_of(entry);
      for (const auto& [begin, behind] : choice.bodies) add_streams(begin, behind, depth + 1);
      k = choice.end - 1;
    }
  }

  void start_all(CUstream stream, std::size_t first, std::size_t end, std::size_t depth, Lasts* lasts) {
    for (std::size_t k = first; k < end; ++k) {
      const LaunchEntry& entry = schedule_.entries[k];
      if (!schedule_.holds_bodies(entry)) {
        start_(k, stream, entry.kind == LaunchEntry::Kind::again ? handles_.at(entry.choice) : 0);
        lasts->emplace_back(k, last_node(driver_, stream));
        continue;
      }
      start_(k, stream, handles_[entry.choice] = new_handle(stream));
      lasts->emplace_back(k, last_node(driver_, stream));
      add_conditional(stream, entry.choice, depth);
      lasts->emplace_back(k, last_node(driver_, stream));
      k = schedule_.choice_of(entry).end - 1;
    }
  }

  CUgraph graph_of(CUstream stream) const {
    CUstreamCaptureStatus status;
    CUgraph graph = nullptr;
    PD_CUDA(driver_.cuStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr));
    return graph;
  }

  CUgraphConditionalHandle new_handle(CUstream stream) {
    if (root_ == nullptr) root_ = graph_of(stream);
    CUgraphConditionalHandle handle = 0;
    CUcontext context = nullptr;
    PD_CUDA(driver_.cuCtxGetCurrent(&context));
    PD_CUDA(driver_.cuGraphConditionalHandleCreate(&handle, root_, context, 0, 0));
    return handle;
  }

  void add_conditional(CUstream stream, int number, std::size_t depth) {
    const Choice& choice = schedule_.choices[static_cast<std::size_t>(number)];
    CUgraphNodeParams params{};
    params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
    params.conditional.handle = handles_.at(number);
    params.conditional.type = choice.is_loop ? CU_GRAPH_COND_TYPE_WHILE : CU_GRAPH_COND_TYPE_SWITCH;
    params.conditional.size = static_cast<unsigned>(choice.bodies.size());
    PD_CUDA(driver_.cuCtxGetCurrent(&params.conditional.ctx));
    CUgraphNode node = nullptr, before = last_node(driver_, stream);
    PD_CUDA(driver_.cuGraphAddNode(&node, graph_of(stream), &before, nullptr, 1, &params));
    PD_CUDA(driver_.cuStreamUpdateCaptureDependencies(stream, &node, nullptr, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    for (std::size_t b = 0; b < choice.bodies.size(); ++b) {
      bodies_.push_back(0);
      add_body(params.conditional.phGraph_out[b], choice.bodies[b], depth, bodies_.size());
    }
  }

  // `number` counts bodies in the order in which they were made; 0 stands for entries in no body.
  void add_body(CUgraph graph, const std::pair<std::size_t, std::size_t>& body, std::size_t depth, std::size_t number) {
    if (body.first == body.second) return;
    const CUstream stream = streams_.at(depth).get();
    PD_CUDA(
        driver_.cuStreamBeginCaptureToGraph(stream, graph, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    Lasts lasts;
    CUgraph same = nullptr;
    try {
      start_all(stream, body.first, body.second, depth + 1, &lasts);
    } catch (...) {
      driver_.cuStreamEndCapture(stream, &same);
      throw;
    }
    PD_CUDA(driver_.cuStreamEndCapture(stream, &same));
    add_nodes(graph, lasts, false, number);
  }

  // Nodes are listed in the order of their capture.
  void add_nodes(CUgraph graph, const Lasts& lasts, bool is_root, std::size_t body) {
    const std::vector<CUgraphNode> nodes = nodes_of(driver_, graph);
    (is_root ? root_count_ : bodies_[body - 1]) = static_cast<std::uint32_t>(nodes.size());
    std::size_t next = 0;
    CUgraphNode before = nullptr;
    for (std::size_t i = 0; i < lasts.size(); ++i) {
      const auto& [k, last] = lasts[i];
      if (last == before) continue;
      const bool is_choice = i > 0 && lasts[i - 1].first == k;  // the conditional node itself
      do {
        PD_ASSERT(next < nodes.size(), "the nodes of a captured graph are listed in the order of their capture");
        made_.nodes_.push_back({nodes[next], k, is_root && !is_choice, static_cast<std::uint32_t>(next)});
        body_of_.push_back(body);
      } while (nodes[next++] != last);
      before = last;
    }
  }

  // From their places in their own graphs.
  void number_nodes() {
    std::vector<std::uint32_t> first{0, root_count_};  // of each body
    for (const std::uint32_t count : bodies_) first.push_back(first.back() + count);
    for (std::size_t i = 0; i < made_.nodes_.size(); ++i) made_.nodes_[i].number += first[body_of_[i]];
  }

  const gpu::GpuDevice& device_;
  const gpu::Driver& driver_;
  const Schedule& schedule_;
  const Start& start_;
  const std::function<void(CUstream)>& behind_;
  CapturedGraph& made_;
  CUgraph root_ = nullptr;
  std::vector<gpu::Stream> streams_;
  std::map<int, CUgraphConditionalHandle> handles_;  // by the numbers of choices
  std::uint32_t root_count_ = 0;                     // nodes in no body
  std::vector<std::uint32_t> bodies_;                // nodes of each body
  std::vector<std::size_t> body_of_;                 // per node that was made
};

CapturedGraph::CapturedGraph(const gpu::GpuDevice& device, GraphBudget& budget, const Schedule& schedule,
                             std::size_t first, std::size_t end, const Start& start,
                             const std::function<void(CUstream)>& behind)
    : driver_(gpu::required_driver()), budget_(budget) {
  const gpu::Stream stream(device);  // a caller's may not be one that captures
  try {
    Capture(device, schedule, start, behind, this).run(stream.get(), first, end);
    bytes_ = static_cast<std::int64_t>(std::max<std::size_t>(nodes_.size(), 1)) * kGraphNodeBytes;
    if (!behind || budget_.has_room(bytes_)) {
      budget_.use(this, bytes_);
      instantiate(&exec_, stream.get());
      stream.wait_idle();
    }
  } catch (...) {
    release();
    throw;
  }
  LiveSet<CapturedGraph>::get().insert(this);
}

CapturedGraph::~CapturedGraph() {
  LiveSet<CapturedGraph>::get().erase(this);
  release();
}

void CapturedGraph::rest() {
  drop();
  budget_.forget(this);
}

void CapturedGraph::release() {
  rest();
  if (graph_ != nullptr) driver_.cuGraphDestroy(graph_);
}

void CapturedGraph::instantiate(CUgraphExec* made, CUstream stream) {
  CUresult result = driver_.cuGraphInstantiate(made, graph_, 0);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    budget_.drop_others();
    result = driver_.cuGraphInstantiate(made, graph_, 0);
  }
  gpu::check(result, "cuGraphInstantiate");
  PD_CUDA(driver_.cuGraphUpload(*made, stream));
}

std::shared_ptr<const CapturedGraph::Numbers> CapturedGraph::make_twin(CUstream stream) {
  budget_.use(this, bytes_);
  if (twin_ != nullptr) return numbers_;
  // A graph with a conditional node may have one executable graph at a time.
  if (exec_ != nullptr) driver_.cuGraphExecDestroy(std::exchange(exec_, nullptr));
  instantiate(&twin_, stream);
  auto numbers = std::make_shared<Numbers>();
  for (const Node& node : nodes_) numbers->emplace(gpu::node_number(twin_, node.number), node.of);
  return numbers_ = std::move(numbers);
}

void CapturedGraph::launch_twin(CUstream stream) { PD_CUDA(driver_.cuGraphLaunch(twin_, stream)); }

void CapturedGraph::drop_twins() {
  LiveSet<CapturedGraph>::get().for_each([](CapturedGraph& graph) { graph.destroy_twin(); });
}

void CapturedGraph::drop_twin() {
  LiveSet<CapturedGraph>::get().between_visits([&] { destroy_twin(); });
}

void CapturedGraph::destroy_twin() {
  if (twin_ != nullptr) driver_.cuGraphExecDestroy(std::exchange(twin_, nullptr));
  numbers_ = nullptr;
}

[[gnu::hot]] void CapturedGraph::launch(CUstream stream) {
  budget_.use(this, bytes_);
  if (exec_ == nullptr) [[unlikely]]
    instantiate(&exec_, stream);
  PD_CUDA(driver_.cuGraphLaunch(exec_, stream));
}

void CapturedGraph::drop() {
  if (exec_ != nullptr) driver_.cuGraphExecDestroy(std::exchange(exec_, nullptr));
  drop_twin();
}

}  // namespace paoding
