// SPDX-License-Identifier: Apache-2.0
// A graph on memory of the caller's: other frameworks call it with tensors of their own.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "paoding/graph.h"
#include "paoding/program.h"

namespace paoding {

struct PlacedOptions {
  std::vector<std::string> fetches = {};  // names of graph fetches; all when empty
  bool allow_tf32 = false;                // as in CompileOptions
  /// On a GPU: ops that check positions while they run (gather, scatter) are allowed, and leave a position that is
  /// outside in PlacedGraph::fault_words(). They are cleared by every run.
  bool reports_faults = false;
  /// On a GPU: a run whose addresses have come before is one launch of a CUDA graph, of which the last few sets of
  /// addresses have one each. For callers whose addresses come back, as an allocator's do. A graph with loops that are
  /// decided while they run, or with branches that hold much, is run so in any case.
  bool uses_graph = false;
};

/// A graph that writes no parameter, compiled once for a device, whose inputs are read and whose results are written
/// where the caller has them: nothing is copied in or out. Its parameters are a store's; values that follow from them
/// alone, such as weights in the order that a kernel wants, are made once and again when a parameter was written. On a
/// GPU everything goes into the caller's stream, and nothing is waited for, so that a call may be captured into a CUDA
/// graph; the device decides loops and branches, by conditional nodes of a graph. One thread uses it at a time, as
/// Program; on a GPU in one stream, or in streams that wait for each other. A run that is captured writes nothing but
/// the memory that it was given: such graphs may run at the same time, and beside other runs, as long as they have
/// workspaces of their own, and the PlacedGraph is there.
class PlacedGraph {
 public:
  /// Errors: as Program's; (argument) the graph has parameters and none are given; (unsupported) it writes parameters,
  /// has prints, results that are Variants, or on a GPU ops that are to run on the CPU, or one that checks positions
  /// while it runs, unless faults are reported.
  PlacedGraph(const Graph& graph, const Device& device, const PlacedOptions& options = {},
              const Parameters* parameters = nullptr);
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

  /// The changes that passes made to the graph, and those that they declined, with the reason: "reroll_loops: 64 turns
  /// of 12 nodes are one loop, which carries 2 values". PAODING_EXPLAIN=1 prints the same and more.
  std::vector<std::string> notes() const;

  /// The bytes of the workspace in which a run leaves its faults, with PlacedOptions::reports_faults on a GPU; none
  /// where it cannot have one. (On a CPU run() throws.) A run that has a fault writes nothing but its results, and
  /// these are not to be used.
  struct FaultWords {
    std::int64_t offset = 0, bytes = 0;
  };
  FaultWords fault_words() const;
  /// Throws the error that a run has left in its fault words, copied to the host after it. Nothing where there is none.
  /// Errors: those that Program::run throws for such values.
  void check(const void* fault_words) const;
  /// For callers who do not wait for their runs. follow_faults(), called behind a run in its stream, which must not be
  /// captured, has its words read without waiting; raise_faults() throws the error of the oldest followed run that has
  /// one, of those that have ended or, with `waits`, of all, once. Of more than 64 runs under way the oldest is waited
  /// for, and its error is follow_faults()'s. Errors: as check().
  void follow_faults(const void* workspace, void* stream);
  void raise_faults(bool waits = false);

  /// Makes the values that follow from parameters written since, and waits until runs may be captured: a capture cannot
  /// wait for those who write parameters. A graph that was captured reads the parameters that are there when it is
  /// launched, and the values that were made of them last; nobody orders it with runs that write them.
  void prepare();

  /// Dense memory of the device, aligned to 64 bytes on a CPU and to 256 on a GPU, as their allocators align it; null
  /// for a tensor without elements. `stream`: a cudaStream_t or CUstream of the device; not looked at on a CPU, where
  /// the call returns when it is done. No two may overlap. Error (argument) when one is null or not aligned, or there
  /// are too few or too many, and where the stream is captured and parameters were written since prepare().
  void run(std::span<const void* const> inputs, std::span<void* const> results, void* workspace,
           void* stream = nullptr);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace paoding
