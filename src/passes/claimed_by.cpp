// SPDX-License-Identifier: Apache-2.0
#include "passes/claimed_by.h"

namespace paoding {
namespace {

template <class LayoutOf>
KernelCall call_of(const Graph& graph, const Node& node, const PassNotes& notes, LayoutOf layout_of) {
  KernelCall call{node.op, node.attrs, {}, {}, {}, notes.allow_tf32(), node.scope.str(), notes.shared_target()};
  for (const Ref& ref : node.inputs) call.inputs.push_back(layout_of(graph.type(ref)));
  for (const Type& type : node.types) call.outputs.push_back(layout_of(type));
  return call;
}

}  // namespace

const KernelImplementation* claimed_by(const Graph& graph, const Node& node, PassNotes& notes) {
  if (!notes.has_claims()) return nullptr;
  KernelCall call = call_of(graph, node, notes, [](const Type& type) { return Layout::dense(type); });
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
  KernelCall call = call_of(graph, node, notes, [&](const Type& type) {
    return (wants >> operand++ & 1u) != 0 ? channels_last(type) : Layout::dense(type);
  });
  call.alignments.assign(operand, kSlotAlignment);
  std::vector<std::string> refusals;
  return choose_kernel(call, &refusals);
}

}  // namespace paoding
