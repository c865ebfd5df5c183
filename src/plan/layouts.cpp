// SPDX-License-Identifier: Apache-2.0
// choose_layouts: images [N, C, H, W] lie with their channels innermost from one convolution or pool to the next, the
// elementwise work between them included, where the kernels of the device want it. It is a matter of strides: the graph
// does not change, and groups walk over memory in whatever order it lies. Matrices are transposed for single products,
// and weights for all convolutions that read them. (Measured on one CPU with AVX-512 and oneDNN 2.6.3, for 3x3
// convolutions of 16 to 64 channels: channels innermost were about as fast as its blocked formats and faster than
// channels outermost. Other shapes and CPUs were not measured.)
#include <algorithm>

#include "base/check.h"
#include "group/lower.h"
#include "plan/planner.h"

namespace paoding {
namespace {

bool wants(std::uint32_t operands, std::size_t i) { return i < 32 && (operands >> i & 1u) != 0; }

// Matrices of the last two axes, stored by columns.
Layout matrices_transposed(const Type& type) {
  Layout layout = Layout::dense(type);
  const auto rank = static_cast<std::size_t>(type.shape.rank());
  layout.strides[rank - 2] = 1, layout.strides[rank - 1] = type.shape[type.shape.rank() - 2];
  return layout;
}

}  // namespace

void Planner::choose_layouts(Frame& frame) {
  if (!options_.choose_layouts) return;
  const Graph& graph = frame.graph;
  const auto is_image = [&](Ref ref) { return graph.type(ref).shape.rank() == 4; };
  std::set<Ref> wanted, used, fetched;  // by a kernel, by any node, by the caller
  for (const Graph::Fetch& fetch : graph.fetches()) fetched.insert(fetch.ref);
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    const bool is_kernel = node.op->is_run_by_kernel();
    const std::uint32_t operands = is_kernel ? wants_channels_last(*node.op, options_.target->kind) : 0;
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      used.insert(node.inputs[i]);
      if (wants(operands, i) && gains_by_channels_last(graph.type(node.inputs[i]), options_.target->kind)) {
        wanted.insert(node.inputs[i]);
      }
    }
  }
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    const bool is_kernel = node.op->is_run_by_kernel();
    if (!is_kernel && !(is_groupable(node) && !node.op->is_uniform)) continue;
    const std::uint32_t operands = is_kernel ? wants_channels_last(*node.op, options_.target->kind) : 0;
    const std::uint32_t any = is_kernel ? writes_any_layout(*node.op, options_.target->kind) : 0;
    for (std::int32_t k = 0; k < static_cast<std::int32_t>(node.types.size()); ++k) {
      const Ref ref{id, k};
      // A result that is only fetched is written in its reader's layout.
      if (!is_image(ref) || (fetched.contains(ref) && !used.contains(ref))) continue;
      const std::size_t operand = node.inputs.size() + static_cast<std::size_t>(k);
      bool is_chosen = wants(operands, operand) || (wants(any, operand) && wanted.contains(ref));
      if (!is_kernel) {
        is_chosen = wanted.contains(ref);
        for (const Ref& input : node.inputs) {
          is_chosen |= frame.channels_last.contains(input) && graph.type(input).shape == graph.type(ref).shape;
        }
      }
      if (is_chosen) frame.channels_last.insert(ref);
    }
  }
}

Operand Planner::kernel_input(Frame& frame, NodeId id, std::size_t i) {
  const Node& node = frame.graph.node(id);
  const Ref ref = node.inputs[i];
  const Operand found = place(frame, ref);
  const Type& type = found.layout.type;
  if (!options_.choose_layouts || !wants(wants_channels_last(*node.op, options_.target->kind), i)) return found;
  if (!gains_by_channels_last(type, options_.target->kind)) return found;
  if (type.shape.elements() == 0 || is_channels_last(found.layout)) return found;
  const auto it = frame.converted.find(ref);
  if (it != frame.converted.end()) return it->second;
  Operand made{new_slot(SlotKind::arena, "channels_last", size_bytes(type)), 0, {}, channels_last(type)};
  copy(frame, found, made, node, "channels_last");
  return frame.converted[ref] = made;
}

Operand Planner::transposed(Frame& frame, const Operand& from, const Node& node, Ref ref) {
  const Type& type = from.layout.type;
  const bool is_image = type.shape.rank() == 4;
  if (const auto it = frame.converted.find(ref); is_image && it != frame.converted.end()) return it->second;
  Operand made{new_slot(SlotKind::arena, "copy_transposed", size_bytes(type)),
               0,
               {},
               is_image ? channels_last(type) : matrices_transposed(type)};
  copy(frame, from, made, node, "copy_transposed");
  if (!is_image) return made;
  frame.converted[ref] = made;
  // Conversions of parameters go in front of all steps: side by side they share a launch.
  const bool is_outermost = frame.steps == &plan_.steps;
  if (is_outermost && plan_.slots[static_cast<std::size_t>(from.slot)].kind == SlotKind::parameter) {
    std::rotate(frame.steps->begin(), frame.steps->end() - 1, frame.steps->end());
  }
  return made;
}

bool Planner::turn_inputs(Frame& frame, Step* step, const Node& node) {
  if (!options_.choose_layouts || !step->kernel->transposed) return false;
  const std::uint32_t wanted = step->kernel->transposed(step->call);
  for (std::size_t i = 0; i < step->reads; ++i) {
    if (wants(wanted, i)) step->operands[i] = transposed(frame, step->operands[i], node, node.inputs[i]);
  }
  return wanted != 0;
}

}  // namespace paoding
