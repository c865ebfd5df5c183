// SPDX-License-Identifier: Apache-2.0
// Runs on a caller's memory as CUDA graphs. A graph has addresses in it, so there is one for each set of them; callers
// who allocate their results anew come back to the same few sets, since allocators give the same memory again.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <span>
#include <vector>

#include "gpu/driver/driver.h"
#include "profile/held_bytes.h"

namespace paoding {

class AddressGraphs {
 public:
  /// So many graphs are kept: the least recently launched ones go. Where as many have gone one after the other that
  /// were launched too seldom to be worth making, none is made for the next kPause calls.
  static constexpr std::size_t kMost = 8;
  static constexpr std::int64_t kWorthMaking = 16, kPause = 1000;
  enum class Makes : std::uint8_t {
    when_they_return,  // a graph is made for addresses that come again: one launch of a graph costs less than making it
    at_once,           // the run cannot be but a graph
  };
  AddressGraphs(const gpu::GpuDevice& device, Makes makes);
  ~AddressGraphs();
  AddressGraphs(const AddressGraphs&) = delete;
  AddressGraphs& operator=(const AddressGraphs&) = delete;

  /// Launches the graph of these addresses in the stream; where there is none and it is to be made, `enqueue` is
  /// captured for it. False where it is not: nothing was launched.
  bool launch(std::span<void* const> addresses, const std::function<void(CUstream)>& enqueue, CUstream stream);

 private:
  struct Graph {
    std::vector<void*> addresses;
    CUgraph graph = nullptr;
    CUgraphExec exec = nullptr;
    std::int64_t bytes = 0;
    std::int64_t launches = 0;
  };

  bool is_wanted(std::span<void* const> addresses);
  void make(std::span<void* const> addresses, const std::function<void(CUstream)>& enqueue);
  void drop_last();
  void release(const Graph& graph) const;

  const gpu::GpuDevice& device_;
  const gpu::Driver& driver_;
  const Makes makes_;
  const gpu::Stream stream_;         // for captures
  std::list<Graph> graphs_;          // the one launched last first
  std::vector<std::uint64_t> seen_;  // hashes of addresses that have come and have no graph, in a ring
  std::size_t next_seen_ = 0;
  std::size_t wasted_ = 0;  // graphs that were launched too seldom, since the last that was not
  std::int64_t pause_ = 0;  // calls for which no graph is made
  std::int64_t bytes_ = 0;  // of the graphs, without those of bodies
  profile::HeldBytes held_;
};

}  // namespace paoding
