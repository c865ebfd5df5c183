// SPDX-License-Identifier: Apache-2.0
// The compiler's table of contents: which passes run, in which order, and why.
#include <algorithm>
#include <chrono>
#include <span>

#include "base/cancel_poll.h"
#include "base/check.h"
#include "base/one_line.h"
#include "graph/verify.h"
#include "paoding/op.h"
#include "passes/pass.h"

namespace paoding {

namespace {
// For entries that are listed so that they can be switched off, but are done elsewhere.
void leave_alone(Graph&, PassNotes&) {}
}  // namespace

const std::vector<Pass>& pipeline() {
  static const std::vector<Pass> passes = {
      {"reroll_loops", "a loop that came unrolled is a scan; before all others, which know how to make those fast",
       reroll_loops},
      {"claim_composed", "a kernel may run a composed op as a whole; before all others, where such ops are taken apart",
       leave_alone},
      {"stack_carries", "what the steps of a loop began with is what they carry, not a second copy of what they made",
       stack_carries},
      {"add_in_loops",
       "what is added to a product in front of a loop is added in its steps, whose kernels do it for free",
       add_in_loops},
      {"merge_duplicates", "equal nodes become one, so that later passes see one of each", merge_duplicates},
      {"fold_identities", "x * 1 and the like, which derivatives make many of, are x", fold_identities},
      {"simplify_views", "reshapes, slices and sums of each other become one, or nothing", simplify_views},
      {"split_products",
       "a product of a concatenation becomes a sum of products, so that only the part that depends "
       "on the carried state stays in a loop",
       split_products},
      {"combine_matmul_inner",
       "what is left in a loop of a sum of products is one product, on a GPU, for the same reason",
       combine_matmul_inner},
      {"sum_gradients", "sums of padded slices become one concatenation: gradients are written where they belong",
       sum_gradients},
      {"push_slices", "slices move up through elementwise ops, so that gates share one iteration space", push_slices},
      {"sort_indices", "many indices of a scatter_add are sorted first, on a GPU; what is in a loop may leave it then",
       sort_indices},
      {"hoist_products", "products that do not depend on the carried state leave the loop as one large product",
       hoist_products},
      {"sum_over_time", "sums carried through a loop become sums of stacked values after it", sum_over_time},
      {"sink_products", "products that only feed stacked results move after the loop as one large product",
       sink_products},
      {"combine_matmul_columns",
       "products of a loop with one operand are one product: on a GPU few rows are bound by launches",
       combine_matmul_columns},
      {"rematerialize_saved", "what a loop stacks for another is made again there, where both see what it follows from",
       rematerialize_saved},
      {"stack_sources",
       "loops keep what their kernels write, not parts and concatenations of it, which would be copies", stack_sources},
      {"merge_products", "a sum of products over time becomes one product with time in its inner extent",
       merge_products},
      {"merge_duplicates", "hoisting and sinking made equal nodes", merge_duplicates},
      {"simplify_views", "and views of views", simplify_views},
      {"keep_reduced_axes", "what is computed from a reduction stays aligned with what was reduced", keep_reduced_axes},
      {"simplify_views", "reshapes that this put in meet those that were there", simplify_views},
      {"merge_duplicates", "and become equal ones", merge_duplicates},
      {"drop_unused", "what no fetch needs goes, also inside loops, before fusion could pull it in", drop_unused},
      {"fold_norms", "a batch norm that has its statistics becomes weights and a bias, which the next pass takes in",
       fold_norms},
      {"fuse_convolutions", "bias and ReLU become a part of the convolution before groups could take them",
       fuse_convolutions},
      {"mixed_precision",
       "products in 16 bits, where that is asked for: when they are where they stay, and what is rounded can be "
       "rounded "
       "by the groups that make it",
       mixed_precision},
      {"widen_products",
       "no library multiplies f16 on the CPU, nor bf16 without AVX-512: casts around products, which groups then take",
       widen_products},
      {"combine_matmul_rows",
       "weights' gradients of one layer become one product that fills a GPU: when types are what they stay, and before "
       "rows are aligned",
       combine_matmul_rows},
      {"align_products",
       "rows of products begin where a GPU's library wants them: when types are what they stay, and before groups, "
       "which "
       "write between padding as well",
       align_products},
      {"pool_convolutions",
       "windows are pooled by the convolution that makes them; when types are what they stay, and before "
       "groups take what becomes a part of it",
       pool_convolutions},
      {"add_to_convolutions",
       "an image that is added to a convolution's result is added by its kernel, for the same reasons",
       add_to_convolutions},
      {"rematerialize_masks",
       "a gradient that is masked for two kernels is masked by each, before groups would store it",
       rematerialize_masks},
      {"bucket_collectives",
       "what is reduced over the ranks goes in few messages: when it is known what is ready when, and before groups, "
       "which write into them",
       bucket_collectives},
      {"fuse_groups", "elementwise ops and reductions that share an iteration space become one kernel", fuse_groups},
      {"rematerialize_casts",
       "what kernels would store in f32 of 16 bits that they read is cast by those that want it: when it is known what "
       "would be stored",
       rematerialize_casts},
      {"rematerialize_images",
       "and what they would store of an image in memory with few ops is made again by its readers, for the same reason",
       rematerialize_images},
      {"pack_weights",
       "weights that products of a loop or of all runs read again and again lie as those want them; no other op could",
       pack_weights},
      {"preprocess_parameters",
       "what follows from parameters alone is made when they change, where a program only reads them; the program does "
       "it",
       leave_alone},
      {"choose_layouts",
       "images lie with their channels innermost between convolutions, so that nothing is converted; the planner does "
       "it",
       leave_alone},
      {"alias_views",
       "views cost nothing, parts are written where they belong, small constants before the first run; the planner "
       "does it",
       leave_alone},
  };
  return passes;
}

std::vector<PassRecord> run_passes(Graph& graph, const PassOptions& options) {
  for (const std::string& name : options.disabled) {
    const auto& all = pipeline();
    if (std::none_of(all.begin(), all.end(), [&](const Pass& pass) { return pass.name == name; })) {
      std::vector<std::string> names;
      for (const Pass& pass : all) {
        if (std::find(names.begin(), names.end(), pass.name) == names.end()) names.push_back(pass.name);
      }
      fail(ErrorKind::argument, "there is no pass named '{}'; there are: {}", name, fmt::join(names, ", "));
    }
  }
  PassNotes unnoted(options.target, options.precision);
  inline_checkpoints(graph, unnoted);  // nothing else could run a checkpoint, so it is not in the list
  std::vector<PassRecord> records;
  const CancelPoll poll;
  const auto is_disabled = [&](const char* name) {
    return std::find(options.disabled.begin(), options.disabled.end(), name) != options.disabled.end();
  };
  const KernelSetting kernels{options.target, options.allow_tf32, options.environment, !is_disabled("choose_layouts")};
  const auto run = [&](const Pass& pass) {
    poll();
    PassRecord record{.name = pass.name, .nodes_before = graph.size()};
    PassNotes notes(kernels, options.precision, !is_disabled("claim_composed"), options.preprocesses,
                    options.bucket_bytes);
    const auto start = std::chrono::steady_clock::now();
    pass.run(graph, notes);
    record.milliseconds = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
    record.nodes_after = graph.size();
    for (const std::string& note : notes.list()) record.notes.push_back(one_line(note));  // they quote labels
    if (options.verifies_each) verify(graph, pass.name);
    if (options.after) options.after(pass.name, graph);
    records.push_back(std::move(record));
  };
  PassNotes ranks(kernels, options.precision, false, false);
  lower_collectives(graph, ranks);
  const std::span<const Pass> listed = pipeline();
  if (!is_disabled(listed[0].name)) run(listed[0]);  // in front of those that are not in the list: they look at scans
  // It is not in the list of passes that can be switched off, since gradients have seen its result.
  run({"recognize_recurrences", "a scan around a recurrent cell is the op for all steps", recognize_recurrences});
  // A part of a pass of the list, where a kernel is not asked yet.
  if (options.precision != f32 && !is_disabled("mixed_precision")) {
    run({"narrow_composed", "recurrences and attention are of 16 bits before a kernel is asked whether it claims them",
         narrow_composed});
  }
  // This one is not in the list either: nothing else knows composed ops.
  run({"expand_composed_ops", "composed ops with gradients of their own become what they consist of",
       expand_composed_ops});
  for (const Pass& pass : listed.subspan(1)) {
    if (!is_disabled(pass.name)) run(pass);
  }
  if (!options.verifies_each) verify(graph, "all passes (PAODING_VERIFY=1 checks it after each)");
  return records;
}

void for_each_graph(Graph& graph, const std::function<void(Graph&)>& rewrite) {
  CancelScope::poll();
  for (NodeId id = 0; id < graph.size(); ++id) {
    for (const auto& body : graph.node(id).bodies) {
      if (!graph.node(id).op->is_fusion_group()) for_each_graph(*body, rewrite);
    }
  }
  rewrite(graph);
}

}  // namespace paoding
