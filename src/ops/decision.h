// SPDX-License-Identifier: Apache-2.0
// Which kernel runs an op is decided here and nowhere else. The question is a KernelCall: the op, the layouts of its
// operands and results, the target, the environment. A pass that has to know the answer before the planner knows where
// values lie asks about the layouts that the planner aims at, and the decision stays on the node; the planner takes it
// over where the call that it makes is the same, and else asks anew. The step keeps the decision.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/kernel.h"
#include "paoding/graph.h"

namespace paoding {

struct Decision {
  KernelCall call;  // with the timed entry that the kernels were asked with
  /// The kernels that accept the call, in the order of the op's table. The first runs it; those after it stand in where
  /// one declines when it is prepared.
  std::vector<const KernelImplementation*> accepting;
  std::vector<std::string> refusals;  // a line for each kernel in front of the first that accepts

  /// nullptr: none accepts.
  const KernelImplementation* kernel() const { return accepting.empty() ? nullptr : accepting.front(); }
  /// The one of that name among those that accept; nullptr where there is none.
  const KernelImplementation* accepting_kernel(const std::string& name) const;
  /// Lines about kernel(): why it was chosen, where that is worth one; the times of its call, where one of its
  /// kernels is timed; and which operands do not lie dense.
  std::vector<std::string> notes() const;
};
using DecisionPtr = std::shared_ptr<const Decision>;

/// Asks the kernels of the call's op. The answer follows from the call alone.
Decision decide(KernelCall call);

/// Whether two calls have the same answer: all is equal that a kernel may look at when it is chosen.
bool are_same_question(const KernelCall& a, const KernelCall& b);

/// These decide, beside the graph, which kernel runs a node.
struct KernelSetting {
  TargetPtr target = std::make_shared<const Target>();
  bool allow_tf32 = false;
  KernelEnvironmentPtr environment = no_environment();
  bool chooses_layouts = true;  // PlanOptions::choose_layouts
};

/// A call of the node without operands. A node that has to run on the CPU is a call for the CPU.
KernelCall call_of(const Node& node, const KernelSetting& setting);
/// Whether an image that an op reads gains by channels that lie innermost, where a kernel of the device wants them so.
bool gains_by_channels_last(const Type& image, DeviceKind device);
/// The call of the node that the planner aims at: every operand at the start of a slot, images with their channels
/// innermost where kernels of the op want that, all else dense. Bit k of `unread`: nobody reads result k. (Where values
/// turn out to lie otherwise, the planner copies them for a kernel that nothing else can stand in for.)
KernelCall expected_call(const Graph& graph, const Node& node, const KernelSetting& setting, std::uint32_t unread = 0);
/// Decides that call, or takes over the node's decision on it; it is on the node then.
const Decision& decide(Graph& graph, NodeId id, const KernelSetting& setting, std::uint32_t unread = 0);

/// Prepares `chosen`, one of the decision's, or the first after it that does not decline; `notes` gets a line per
/// decline. `call` is the decision's and says which inputs the launch before leaves alone. Kernels that are source of
/// paoding's own are prepared by `load`. Error (unsupported) when all decline.
std::unique_ptr<PreparedKernel> prepare_kernel(
    const Decision& decision, const KernelImplementation& chosen, const KernelCall& call, const Device& device,
    std::vector<std::string>* notes,
    const std::function<Preparation(const KernelImplementation&, const KernelCall&)>& load = {});

}  // namespace paoding
