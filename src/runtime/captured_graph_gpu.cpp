// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
#include "gpu/cupti_collector.h"
#include "runtime/captured_graph.h"

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

// What each node was captured for, given the node that was the last one behind each i = first, first + 1, ..
std::vector<CapturedGraph::Node> matched(const std::vector<CUgraphNode>& nodes, const std::vector<CUgraphNode>& lasts,
                                         std::size_t first) {
  std::vector<CapturedGraph::Node> made;
  made.reserve(nodes.size());
  for (std::size_t i = 0; i < lasts.size(); ++i) {
    if (lasts[i] == nullptr || (!made.empty() && made.back().node == lasts[i])) continue;
    do {
      PD_ASSERT(made.size() < nodes.size(), "the nodes of a captured graph are listed in the order of their capture");
      made.push_back({nodes[made.size()], first + i});
    } while (made.back().node != lasts[i]);
  }
  return made;
}

}  // namespace

CapturedGraph::CapturedGraph(const gpu::GpuDevice& device, GraphBudget& budget, std::size_t first, std::size_t end,
                             const std::function<void(std::size_t, CUstream)>& start)
    : driver_(gpu::required_driver()), budget_(budget) {
  const gpu::Stream stream(device);  // a caller's may not be one that captures
  try {
    capture(stream.get(), first, end, start);
    budget_.use(this, bytes_);
    instantiate(stream.get());
    stream.wait_idle();
  } catch (...) {
    release();
    throw;
  }
}

CapturedGraph::~CapturedGraph() { release(); }

void CapturedGraph::release() {
  drop();
  budget_.forget(this);
  if (graph_ != nullptr) driver_.cuGraphDestroy(graph_);
}

void CapturedGraph::capture(CUstream stream, std::size_t first, std::size_t end,
                            const std::function<void(std::size_t, CUstream)>& start) {
  std::vector<CUgraphNode> lasts;
  lasts.reserve(end - first);
  PD_CUDA(driver_.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  try {
    for (std::size_t i = first; i < end; ++i) {
      start(i, stream);
      lasts.push_back(last_node(driver_, stream));
    }
  } catch (...) {
    driver_.cuStreamEndCapture(stream, &graph_);
    throw;
  }
  PD_CUDA(driver_.cuStreamEndCapture(stream, &graph_));
  nodes_ = matched(nodes_of(driver_, graph_), lasts, first);
  bytes_ = static_cast<std::int64_t>(std::max<std::size_t>(nodes_.size(), 1)) * kGraphNodeBytes;
}

void CapturedGraph::instantiate(CUstream stream) {
  CUresult result = driver_.cuGraphInstantiate(&exec_, graph_, 0);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    budget_.drop_others();
    result = driver_.cuGraphInstantiate(&exec_, graph_, 0);
  }
  gpu::check(result, "cuGraphInstantiate");
  PD_CUDA(driver_.cuGraphUpload(exec_, stream));
}

std::shared_ptr<const CapturedGraph::Numbers> CapturedGraph::numbers(CUstream stream) {
  budget_.use(this, bytes_);
  if (numbers_ != nullptr) return numbers_;
  drop();
  const gpu::ClonedNodes cloned;
  instantiate(stream);
  std::vector<CUgraphNode> nodes;
  for (const Node& node : nodes_) nodes.push_back(node.node);
  auto numbers = std::make_shared<Numbers>();
  for (const auto& [number, position] : cloned.positions(nodes)) numbers->emplace(number, nodes_[position].of);
  return numbers_ = std::move(numbers);
}

void CapturedGraph::launch(CUstream stream) {
  budget_.use(this, bytes_);
  if (exec_ == nullptr) instantiate(stream);
  PD_CUDA(driver_.cuGraphLaunch(exec_, stream));
}

void CapturedGraph::drop() {
  if (exec_ != nullptr) driver_.cuGraphExecDestroy(exec_);
  exec_ = nullptr;
  numbers_ = nullptr;
}

}  // namespace paoding
