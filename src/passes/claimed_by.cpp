// SPDX-License-Identifier: Apache-2.0
#include "passes/claimed_by.h"

namespace paoding {

KernelCall dense_call(const Graph& graph, const Node& node, bool allow_tf32, const TargetPtr& target) {
  KernelCall call{node.op, node.attrs, {}, {}, {}, allow_tf32, node.scope.str(), target};
  for (const Ref& ref : node.inputs) call.inputs.push_back(Layout::dense(graph.type(ref)));
  for (const Type& type : node.types) call.outputs.push_back(Layout::dense(type));
  return call;
}

const KernelImplementation* claimed_by(const Graph& graph, const Node& node, PassNotes& notes) {
  if (!notes.has_claims()) return nullptr;
  KernelCall call = dense_call(graph, node, notes.allow_tf32(), notes.shared_target());
  for (const auto* layouts : {&call.inputs, &call.outputs}) {
    for (const Layout& layout : *layouts) call.alignments.push_back(size_bytes(layout.type.dtype));
  }
  std::vector<std::string> refusals;
  const KernelImplementation* claimant = choose_kernel(call, &refusals);
  for (const std::string& refusal : refusals) notes.add(refusal);
  return claimant;
}

const KernelImplementation* expected_kernel(const Graph& graph, const Node& node, const PassNotes& notes) {
  constexpr std::int64_t kSlotAlignment = 256;
  const DeviceKind device = notes.target().is_gpu() ? DeviceKind::cuda : DeviceKind::cpu;
  const std::uint32_t wants = wants_channels_last(*node.op, device);
  std::size_t operand = 0;
  KernelCall call = dense_call(graph, node, notes.allow_tf32(), notes.shared_target());
  for (auto* layouts : {&call.inputs, &call.outputs}) {
    for (Layout& layout : *layouts) {
      if ((wants >> operand++ & 1u) != 0) layout = channels_last(layout.type);
    }
  }
  call.alignments.assign(operand, kSlotAlignment);
  std::vector<std::string> refusals;
  return choose_kernel(call, &refusals);
}

}  // namespace paoding
