// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/address_graphs.h"

#include <algorithm>

#include "base/hash.h"
#include "runtime/gpu/capture.h"
#include "runtime/gpu/captured_graph.h"

namespace paoding {
namespace {

constexpr std::size_t kMostSeen = 32;

std::uint64_t hash_of(std::span<void* const> addresses) {
  std::uint64_t hash = kFnvStart;
  for (const void* address : addresses) hash = fnv1a(hash, reinterpret_cast<std::uintptr_t>(address));
  return hash;
}

}  // namespace

AddressGraphs::AddressGraphs(const gpu::GpuDevice& device, Makes makes)
    : device_(device),
      driver_(gpu::required_driver()),
      makes_(makes),
      stream_(device),
      held_(profile::HeldFor::graphs, device.index(), 0) {
  seen_.reserve(kMostSeen);
}

AddressGraphs::~AddressGraphs() {
  try {
    device_.make_current();
    for (const Graph& graph : graphs_) release(graph);
  } catch (...) {  // the device is gone, and its graphs with it
  }
}

void AddressGraphs::release(const Graph& graph) const {
  if (graph.exec != nullptr) driver_.cuGraphExecDestroy(graph.exec);  // launches under way go on to their end
  if (graph.graph != nullptr) driver_.cuGraphDestroy(graph.graph);
}

[[gnu::hot]] bool AddressGraphs::launch(std::span<void* const> addresses, const std::function<void(CUstream)>& enqueue,
                                        CUstream stream) {
  auto found =
      std::ranges::find_if(graphs_, [&](const Graph& graph) { return std::ranges::equal(graph.addresses, addresses); });
  if (found == graphs_.end()) {
    if (!is_wanted(addresses)) return false;
    make(addresses, enqueue);
    found = graphs_.begin();
  }
  graphs_.splice(graphs_.begin(), graphs_, found);
  ++found->launches;
  PD_CUDA(driver_.cuGraphLaunch(found->exec, stream));
  return true;
}

// Two sets with one hash count as one, which makes the graph of the second sooner.
bool AddressGraphs::is_wanted(std::span<void* const> addresses) {
  if (makes_ == Makes::at_once) return true;
  if (pause_ > 0) return --pause_, false;
  const std::uint64_t hash = hash_of(addresses);
  if (std::ranges::find(seen_, hash) != seen_.end()) return true;
  if (seen_.size() < kMostSeen) {
    seen_.push_back(hash);
  } else {
    seen_[next_seen_] = hash;
    next_seen_ = (next_seen_ + 1) % kMostSeen;
  }
  return false;
}

void AddressGraphs::make(std::span<void* const> addresses, const std::function<void(CUstream)>& enqueue) {
  while (graphs_.size() >= kMost) {
    wasted_ = graphs_.back().launches < kWorthMaking ? wasted_ + 1 : 0;
    drop_last();
  }
  if (wasted_ >= kMost) {
    pause_ = kPause;
    wasted_ = 0;
    seen_.clear();
    next_seen_ = 0;
  }
  Graph made{{addresses.begin(), addresses.end()}};
  try {
    PD_CUDA(driver_.cuStreamBeginCapture(stream_.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    capture_to_end(stream_.get(), &made.graph, [&] { enqueue(stream_.get()); });
    std::size_t nodes = 0;
    PD_CUDA(driver_.cuGraphGetNodes(made.graph, nullptr, &nodes));
    CUresult result = driver_.cuGraphInstantiate(&made.exec, made.graph, 0);
    while (result == CUDA_ERROR_OUT_OF_MEMORY && !graphs_.empty()) {
      drop_last();
      result = driver_.cuGraphInstantiate(&made.exec, made.graph, 0);
    }
    gpu::check(result, "cuGraphInstantiate");
    made.bytes = static_cast<std::int64_t>(nodes) * kGraphNodeBytes;
  } catch (...) {
    release(made);
    throw;
  }
  held_.set(bytes_ += made.bytes);
  graphs_.push_front(std::move(made));
}

void AddressGraphs::drop_last() {
  release(graphs_.back());
  held_.set(bytes_ -= graphs_.back().bytes);
  graphs_.pop_back();
}

}  // namespace paoding
