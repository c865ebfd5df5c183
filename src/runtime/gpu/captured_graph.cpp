// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/captured_graph.h"

#include <algorithm>
#include <span>

#include "base/check.h"
#include "gpu/profile/cupti_collector.h"
#include "runtime/gpu/capture.h"
#include "runtime/live_set.h"

namespace paoding {
namespace {

// In the order of their capture.
std::vector<CUgraphNode> nodes_of(const gpu::Driver& driver, CUgraph graph) {
  std::size_t count = 0;
  PD_CUDA(driver.cuGraphGetNodes(graph, nullptr, &count));
  std::vector<CUgraphNode> nodes(count);
  if (count != 0) PD_CUDA(driver.cuGraphGetNodes(graph, nodes.data(), &count));
  return nodes;
}

}  // namespace

// The nodes that a capture has made, each with its entry.
class CapturedGraph::Listing {
 public:
  explicit Listing(CapturedGraph* made) : made_(*made), driver_(made->driver_) {}

  void list(const EntryCapture& capture, const EntryCapture::Lasts& lasts) {
    counts_.resize(capture.body_count() + 1, 0);
    for (const EntryCapture::Body& body : capture.bodies()) add_nodes(body.graph, body.lasts, body.number);
    add_nodes(made_.graph_, lasts, 0);
    number_nodes();
  }

 private:
  // Nodes are listed in the order of their capture; body 0 stands for entries in no body.
  void add_nodes(CUgraph graph, const EntryCapture::Lasts& lasts, std::size_t body) {
    const std::vector<CUgraphNode> nodes = nodes_of(driver_, graph);
    counts_[body] = static_cast<std::uint32_t>(nodes.size());
    std::size_t next = 0;
    CUgraphNode before = nullptr;
    for (std::size_t i = 0; i < lasts.size(); ++i) {
      const auto& [k, last] = lasts[i];
      if (last == before) continue;
      const bool is_choice = i > 0 && lasts[i - 1].first == k;  // the conditional node itself
      do {
        PD_ASSERT(next < nodes.size(), "the nodes of a captured graph are listed in the order of their capture");
        made_.nodes_.push_back({nodes[next], k, body == 0 && !is_choice, static_cast<std::uint32_t>(next)});
        body_of_.push_back(body);
      } while (nodes[next++] != last);
      before = last;
    }
  }

  // From their places in their own graphs.
  void number_nodes() {
    std::vector<std::uint32_t> first{0};  // of each body
    for (const std::uint32_t count : counts_) first.push_back(first.back() + count);
    for (std::size_t i = 0; i < made_.nodes_.size(); ++i) made_.nodes_[i].number += first[body_of_[i]];
  }

  CapturedGraph& made_;
  const gpu::Driver& driver_;
  std::vector<std::uint32_t> counts_;  // nodes of each body
  std::vector<std::size_t> body_of_;   // per node that was made
};

void CapturedGraph::capture(EntryCapture* entries, const Start& start, const std::function<void(CUstream)>& behind,
                            CUstream stream) {
  PD_CUDA(driver_.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  EntryCapture::Lasts lasts;
  capture_to_end(stream, &graph_, [&] {
    entries->run(stream, start, &lasts);
    if (behind) behind(stream);
  });
  Listing(this).list(*entries, lasts);
}

CapturedGraph::CapturedGraph(const gpu::GpuDevice& device, GraphBudget& budget, const Schedule& schedule,
                             std::size_t first, std::size_t end, const Start& start,
                             const std::function<void(CUstream)>& behind)
    : driver_(gpu::required_driver()), budget_(budget) {
  const gpu::Stream stream(device);  // a caller's may not be one that captures
  const auto entries_here = std::span(schedule.entries).subspan(first, end - first);
  has_priorities_ = std::ranges::any_of(entries_here, [](const LaunchEntry& each) { return each.stream != 0; });
  try {
    EntryCapture entries(device, schedule, first, end);
    capture(&entries, start, behind, stream.get());
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
  const unsigned long long flags = has_priorities_ ? CUDA_GRAPH_INSTANTIATE_FLAG_USE_NODE_PRIORITY : 0;
  CUresult result = driver_.cuGraphInstantiate(made, graph_, flags);
  if (result == CUDA_ERROR_OUT_OF_MEMORY) {
    budget_.drop_others();
    result = driver_.cuGraphInstantiate(made, graph_, flags);
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
