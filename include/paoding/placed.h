// SPDX-License-Identifier: Apache-2.0
// A graph on memory of the caller's: other frameworks call it with tensors of their own.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "paoding/graph.h"

namespace paoding {

struct PlacedOptions {
  std::vector<std::string> fetches = {};  // names of graph fetches; all when empty
  bool allow_tf32 = false;                // as in CompileOptions
};

/// A graph without parameters, compiled once for a device, whose inputs are read and whose results are written where
/// the caller has them: nothing is copied in or out. On a GPU everything goes into the caller's stream, and nothing is
/// allocated or waited for, so that a call may be captured into a CUDA graph.
/// One thread uses it at a time, as Program; on a GPU in one stream, or in streams that wait for each other.
/// A run that is captured writes nothing but the memory that it was given: such graphs may run at the same time, and
/// beside other runs, as long as they have workspaces of their own, and the PlacedGraph is there.
class PlacedGraph {
 public:
  /// Errors: as Program's; (argument) the graph has parameters; (unsupported) it has loops or branches that are decided
  /// while they run, prints, results that are Variants, or on a GPU an op that checks positions while it runs.
  PlacedGraph(const Graph& graph, const Device& device, const PlacedOptions& options = {});
  ~PlacedGraph();
  PlacedGraph(PlacedGraph&&) noexcept;
  PlacedGraph& operator=(PlacedGraph&&) noexcept;

  struct Place {
    std::string name;
    Type type;
    std::int64_t size_bytes() const { return paoding::size_bytes(type); }
  };
  /// In the order of the graph; so are the results.
  const std::vector<Place>& inputs() const;
  const std::vector<Place>& results() const;
  /// The bytes of device memory that a run needs besides its inputs and results.
  std::int64_t workspace_bytes() const;

  /// Dense memory of the device, aligned to 64 bytes on a CPU and to 256 on a GPU, as their allocators align it; null
  /// for a tensor without elements. `stream`: a cudaStream_t or CUstream of the device; not looked at on a CPU, where
  /// the call returns when it is done. No two may overlap. Error (argument) when one is null or not aligned, or there
  /// are too few or too many.
  void run(std::span<const void* const> inputs, std::span<void* const> results, void* workspace,
           void* stream = nullptr);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace paoding
