// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "base/check.h"
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

// How many nodes each start has captured, given the node that was the last one behind it.
std::vector<int> counts_between(const std::vector<CUgraphNode>& nodes, const std::vector<CUgraphNode>& lasts) {
  std::vector<int> counts;
  std::size_t done = 0;
  for (CUgraphNode last : lasts) {
    const std::size_t begin = done;
    if (last != nullptr && (done == 0 || nodes[done - 1] != last)) {
      while (done < nodes.size() && nodes[done] != last) ++done;
      PD_ASSERT(done < nodes.size(), "the nodes of a captured graph are listed in another order than that of capture");
      ++done;
    }
    counts.push_back(static_cast<int>(done - begin));
  }
  return counts;
}

}  // namespace

CapturedGraph::CapturedGraph(const gpu::GpuDevice& device, GraphBudget& budget, std::size_t count,
                             const std::function<void(std::size_t, CUstream)>& start)
    : driver_(gpu::required_driver()), budget_(budget) {
  const gpu::Stream stream(device);  // a caller's may not be one that captures
  try {
    capture(stream.get(), count, start);
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

void CapturedGraph::capture(CUstream stream, std::size_t count,
                            const std::function<void(std::size_t, CUstream)>& start) {
  std::vector<CUgraphNode> lasts;
  lasts.reserve(count);
  PD_CUDA(driver_.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  try {
    for (std::size_t i = 0; i < count; ++i) {
      start(i, stream);
      lasts.push_back(last_node(driver_, stream));
    }
  } catch (...) {
    driver_.cuStreamEndCapture(stream, &graph_);
    throw;
  }
  PD_CUDA(driver_.cuStreamEndCapture(stream, &graph_));
  const std::vector<CUgraphNode> nodes = nodes_of(driver_, graph_);
  nodes_ = counts_between(nodes, lasts);
  bytes_ = static_cast<std::int64_t>(std::max<std::size_t>(nodes.size(), 1)) * kGraphNodeBytes;
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

void CapturedGraph::launch(CUstream stream) {
  budget_.use(this, bytes_);
  if (exec_ == nullptr) instantiate(stream);
  PD_CUDA(driver_.cuGraphLaunch(exec_, stream));
}

void CapturedGraph::drop() {
  if (exec_ != nullptr) driver_.cuGraphExecDestroy(exec_);
  exec_ = nullptr;
}

}  // namespace paoding
