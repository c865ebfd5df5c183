// SPDX-License-Identifier: Apache-2.0
// A PlacedGraph on a GPU with memory for its inputs and results, for tests.
#pragma once

#include <vector>

#include "gpu/driver/driver.h"
#include "gpu/driver/write_memory.h"
#include "paoding/placed.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {

/// Memory of one caller: inputs, results and a workspace full of dirt. Of inputs and results there may be several sets.
class PlacedOnGpu {
 public:
  explicit PlacedOnGpu(PlacedGraph& placed)
      : placed_(placed), workspace_(gpu::GpuDevice::get(0), static_cast<std::size_t>(placed.workspace_bytes() + 256)) {
    const std::vector<std::byte> dirt(workspace_.size_bytes(), std::byte{0x5a});
    gpu::write_memory(workspace_.address(), dirt.data(), dirt.size());
    for (const PlacedGraph::Place& place : placed.inputs()) inputs_.push_back(memory(place));
    for (const PlacedGraph::Place& place : placed.results()) results_.push_back(memory(place));
  }

  void feed(const Tensors& feeds) {
    for (std::size_t i = 0; i < inputs_.size(); ++i) {
      const Tensor& tensor = feeds.at(placed_.inputs()[i].name);
      const auto bytes = static_cast<std::size_t>(tensor.size_bytes());
      if (bytes > 0) gpu::write_memory(inputs_[i].address(), tensor.bytes(), bytes);
    }
  }

  void run(const gpu::Stream& stream) {
    std::vector<const void*> inputs;
    std::vector<void*> results;
    for (const auto& each : inputs_) inputs.push_back(each.pointer());
    for (const auto& each : results_) results.push_back(each.pointer());
    placed_.run(inputs, results, workspace_.pointer(), stream.get());
  }

  /// When all that was enqueued is done; the memory of results is dirty again.
  Tensors take(const gpu::Stream& stream) {
    PD_CUDA(driver().cuStreamSynchronize(stream.get()));
    Tensors made;
    for (std::size_t i = 0; i < results_.size(); ++i) {
      const PlacedGraph::Place& place = placed_.results()[i];
      const auto bytes = static_cast<std::size_t>(place.size_bytes());
      Tensor& tensor = made.emplace(place.name, Tensor(place.type)).first->second;
      const std::vector<std::byte> dirt(bytes, std::byte{0x5a});
      if (bytes == 0) continue;
      PD_CUDA(driver().cuMemcpyDtoH(tensor.bytes(), results_[i].address(), bytes));
      gpu::write_memory(results_[i].address(), dirt.data(), bytes);
    }
    return made;
  }

  Tensors run_with(const Tensors& feeds, const gpu::Stream& stream) {
    feed(feeds);
    run(stream);
    return take(stream);
  }

  std::vector<std::byte> fault_words() const {
    const PlacedGraph::FaultWords words = placed_.fault_words();
    std::vector<std::byte> copied(static_cast<std::size_t>(words.bytes));
    const CUdeviceptr at = workspace_.address() + static_cast<CUdeviceptr>(words.offset);
    if (!copied.empty()) PD_CUDA(driver().cuMemcpyDtoH(copied.data(), at, copied.size()));
    return copied;
  }

 private:
  static const gpu::Driver& driver() { return gpu::required_driver(); }
  static gpu::DeviceMemory memory(const PlacedGraph::Place& place) {
    return {gpu::GpuDevice::get(0), static_cast<std::size_t>(std::max<std::int64_t>(place.size_bytes(), 1))};
  }

  PlacedGraph& placed_;
  gpu::DeviceMemory workspace_;
  std::vector<gpu::DeviceMemory> inputs_, results_;
};

/// A graph that captures `work` in the stream; launched as often as wanted.
class CallersGraph {
 public:
  template <class Work>
  CallersGraph(const gpu::Stream& stream, const Work& work) : stream_(stream), driver_(gpu::required_driver()) {
    PD_CUDA(driver_.cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    work();
    PD_CUDA(driver_.cuStreamEndCapture(stream.get(), &graph_));
    PD_CUDA(driver_.cuGraphInstantiate(&exec_, graph_, 0));
  }
  ~CallersGraph() {
    driver_.cuGraphExecDestroy(exec_);
    driver_.cuGraphDestroy(graph_);
  }
  CallersGraph(const CallersGraph&) = delete;
  CallersGraph& operator=(const CallersGraph&) = delete;
  void launch() { PD_CUDA(driver_.cuGraphLaunch(exec_, stream_.get())); }

 private:
  const gpu::Stream& stream_;
  const gpu::Driver& driver_;
  CUgraph graph_ = nullptr;
  CUgraphExec exec_ = nullptr;
};

}  // namespace paoding::testing_program
