// SPDX-License-Identifier: Apache-2.0
// Declares passes, and the order in which they run.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "base/target.h"
#include "ops/decision.h"
#include "paoding/graph.h"

namespace paoding {

/// How one pass went, for `paoding dump` and PAODING_EXPLAIN=1.
struct PassRecord {
  std::string name;
  double milliseconds = 0;
  NodeId nodes_before = 0;
  NodeId nodes_after = 0;
  std::vector<std::string> notes = {};  // its changes and the ones it declined, with the reason
};

struct PassOptions {
  std::vector<std::string> disabled;                    // names of passes to skip; Error (argument) on an unknown one
  TargetPtr target = std::make_shared<const Target>();  // the machine that the program is for
  DType precision = DType::f32;                         // CompileOptions::precision
  bool allow_tf32 = false;                              // f32 products may round their operands to TF32
  KernelEnvironmentPtr environment = no_environment();  // decides with the target which kernels there are
  bool preprocesses = false;                            // PassNotes::preprocesses()
  std::int64_t bucket_bytes = 0;                        // CompileOptions::bucket_bytes
  bool verifies_each = true;                            // the IR is checked after every pass, else after the last
  /// Called after each pass that ran; `dump --after` prints the graph here.
  std::function<void(const std::string& pass, const Graph& graph)> after = {};
};

/// Given to a pass besides the graph: the target of the program, and a place to note its changes or why it declined.
class PassNotes {
 public:
  explicit PassNotes(TargetPtr target = std::make_shared<const Target>(), DType precision = DType::f32,
                     bool allow_tf32 = false)
      : PassNotes({.target = std::move(target), .allow_tf32 = allow_tf32}, precision, true, false) {}
  PassNotes(KernelSetting kernels, DType precision, bool has_claims, bool preprocesses, std::int64_t bucket_bytes = 0)
      : kernels_(std::move(kernels)),
        precision_(precision),
        has_claims_(has_claims),
        preprocesses_(preprocesses),
        bucket_bytes_(bucket_bytes) {}
  const Target& target() const { return *kernels_.target; }
  /// These decide, beside the graph, which kernel runs a node.
  const KernelSetting& kernel_setting() const { return kernels_; }
  /// In which products of f32 are computed: f16 and bf16 are mixed precision.
  DType precision() const { return precision_; }
  bool allow_tf32() const { return kernels_.allow_tf32; }
  /// Whether kernels may run composed ops as a whole.
  bool has_claims() const { return has_claims_; }
  /// Whether values that follow from parameters alone are made when they change, not in every run
  /// (runtime/parameter_preprocessing.h).
  bool preprocesses() const { return preprocesses_; }
  /// CompileOptions::bucket_bytes.
  std::int64_t bucket_bytes() const { return bucket_bytes_; }
  void add(std::string note) { notes_.push_back(std::move(note)); }
  std::vector<std::string>& list() { return notes_; }

 private:
  KernelSetting kernels_;
  DType precision_;
  bool has_claims_, preprocesses_;
  std::int64_t bucket_bytes_ = 0;
  std::vector<std::string> notes_;
};

/// One pass: rewrites `graph` and the bodies in it; leaves it compacted and legal.
struct Pass {
  const char* name;
  const char* reason;  // one line: why it runs, and why here
  void (*run)(Graph& graph, PassNotes& notes);
};

/// Every pass in the order it runs (pipeline.cpp: the compiler's table of contents). A pass may appear twice.
const std::vector<Pass>& pipeline();

/// Replaces composed ops that waited as nodes for gradients to be taken, except those that a kernel claims;
/// run_passes() begins with it, whatever is disabled, since to other passes such a node is one that a kernel runs.
void expand_composed_ops(Graph& graph, PassNotes& notes);

/// The first of all, unless that pass is disabled: see reroll_loops.cpp.
void reroll_loops(Graph& graph, PassNotes& notes);

/// Before that, whatever is disabled, since gradients have seen scans so: see recognize_recurrences.cpp.
void recognize_recurrences(Graph& graph, PassNotes& notes);

/// The first of all, whatever is disabled, since kernels run none of the ops that it removes: see
/// lower_collectives.cpp.
void lower_collectives(Graph& graph, PassNotes& notes);

/// Between the two, in mixed precision and unless that pass is disabled: see narrow_composed.cpp.
void narrow_composed(Graph& graph, PassNotes& notes);

/// A part of add_in_loops: see sum_in_recurrences.cpp.
void sum_in_recurrences(Graph& graph, PassNotes& notes);

/// Runs the pipeline. Error (argument) when `options.disabled` names no pass.
std::vector<PassRecord> run_passes(Graph& graph, const PassOptions& options);

// ---- the passes, one file each ----

void inline_checkpoints(Graph& graph, PassNotes& notes);
void merge_duplicates(Graph& graph, PassNotes& notes);
void fold_identities(Graph& graph, PassNotes& notes);
void simplify_views(Graph& graph, PassNotes& notes);
void split_products(Graph& graph, PassNotes& notes);
void combine_matmul_inner(Graph& graph, PassNotes& notes);
void sum_gradients(Graph& graph, PassNotes& notes);
void push_slices(Graph& graph, PassNotes& notes);
void sort_indices(Graph& graph, PassNotes& notes);
void stack_carries(Graph& graph, PassNotes& notes);
void add_in_loops(Graph& graph, PassNotes& notes);
void hoist_products(Graph& graph, PassNotes& notes);
void sum_over_time(Graph& graph, PassNotes& notes);
void sink_products(Graph& graph, PassNotes& notes);
void combine_matmul_columns(Graph& graph, PassNotes& notes);
void rematerialize_saved(Graph& graph, PassNotes& notes);
void stack_sources(Graph& graph, PassNotes& notes);
void merge_products(Graph& graph, PassNotes& notes);
void drop_unused(Graph& graph, PassNotes& notes);
void mixed_precision(Graph& graph, PassNotes& notes);
void widen_products(Graph& graph, PassNotes& notes);
void combine_matmul_rows(Graph& graph, PassNotes& notes);
void align_products(Graph& graph, PassNotes& notes);
void fold_norms(Graph& graph, PassNotes& notes);
void fuse_convolutions(Graph& graph, PassNotes& notes);
void pool_convolutions(Graph& graph, PassNotes& notes);
void add_to_convolutions(Graph& graph, PassNotes& notes);
void bucket_collectives(Graph& graph, PassNotes& notes);
void rematerialize_casts(Graph& graph, PassNotes& notes);
void rematerialize_images(Graph& graph, PassNotes& notes);
void rematerialize_masks(Graph& graph, PassNotes& notes);
void keep_reduced_axes(Graph& graph, PassNotes& notes);
void fuse_groups(Graph& graph, PassNotes& notes);
void pack_weights(Graph& graph, PassNotes& notes);

/// Calls `rewrite` on every body in `graph`, innermost first, then on `graph`.
void for_each_graph(Graph& graph, const std::function<void(Graph&)>& rewrite);

}  // namespace paoding
