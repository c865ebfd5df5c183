// SPDX-License-Identifier: Apache-2.0
#include "passes/claimed_by.h"

namespace paoding {

const KernelImplementation* claimed_by(Graph& graph, NodeId id, PassNotes& notes) {
  if (!notes.has_claims()) return nullptr;
  const Decision& decision = decide(graph, id, notes.kernel_setting());
  for (const std::string& refusal : decision.refusals) notes.add(refusal);
  return decision.kernel();
}

}  // namespace paoding
