// SPDX-License-Identifier: Apache-2.0
#include "runtime/captured_graph.h"

namespace paoding {
namespace {

std::size_t captured_nodes(const gpu::Driver& driver, CUstream stream) {
  CUstreamCaptureStatus status;
  CUgraph graph = nullptr;
  PD_CUDA(driver.cuStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr));
  std::size_t count = 0;
  PD_CUDA(driver.cuGraphGetNodes(graph, nullptr, &count));
  return count;
}

}  // namespace

CapturedGraph::CapturedGraph(const gpu::GpuDevice& device, GraphBudget& budget, std::size_t count,
                             const std::function<void(std::size_t, CUstream)>& start)
    : device_(device), driver_(gpu::required_driver()), budget_(budget) {
  const gpu::Stream stream(device);  // a caller's may not be one that captures
  PD_CUDA(driver_.cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  std::size_t nodes = 0;
  try {
    for (std::size_t i = 0; i < count; ++i) {
      start(i, stream.get());
      const std::size_t now = captured_nodes(driver_, stream.get());
      nodes_.push_back(static_cast<int>(now - nodes));
      nodes = now;
    }
  } catch (...) {
    driver_.cuStreamEndCapture(stream.get(), &graph_);
    if (graph_ != nullptr) driver_.cuGraphDestroy(graph_);
    throw;
  }
  PD_CUDA(driver_.cuStreamEndCapture(stream.get(), &graph_));
  bytes_ = static_cast<std::int64_t>(nodes) * kGraphNodeBytes;
  budget_.use(this, bytes_);
  instantiate(stream.get());
  stream.wait_idle();
}

CapturedGraph::~CapturedGraph() {
  drop();
  budget_.forget(this);
  driver_.cuGraphDestroy(graph_);
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
