// SPDX-License-Identifier: Apache-2.0
#include "passes/claimed_by.h"

namespace paoding {

const KernelImplementation* claimed_by(const Graph& graph, const Node& node, PassNotes& notes) {
  if (!notes.has_claims()) return nullptr;
  KernelCall call{node.op, node.attrs, {}, {}, {}, notes.allow_tf32(), node.scope.str(), notes.shared_target()};
  const auto add = [&](std::vector<Layout>* layouts, const Type& type) {
    layouts->push_back(Layout::dense(type));
    call.alignments.push_back(size_bytes(type.dtype));
  };
  for (const Ref& ref : node.inputs) add(&call.inputs, graph.type(ref));
  for (const Type& type : node.types) add(&call.outputs, type);
  std::vector<std::string> refusals;
  const KernelImplementation* claimant = choose_kernel(call, &refusals);
  for (const std::string& refusal : refusals) notes.add(refusal);
  return claimant;
}

}  // namespace paoding
