// SPDX-License-Identifier: Apache-2.0
#include "ops/decision.h"

#include <algorithm>

#include "base/check.h"
#include "base/one_line.h"
#include "base/slot_alignment.h"
#include "paoding/op.h"

namespace paoding {
namespace {

bool lie_alike(const Layout& a, const Layout& b) {
  return a.type == b.type && std::equal(a.strides.begin(), a.strides.begin() + a.type.shape.rank(), b.strides.begin());
}

template <class T>
bool are_equal(const std::shared_ptr<const T>& a, const std::shared_ptr<const T>& b) {
  return a == b || (a != nullptr && b != nullptr && *a == *b);
}

// The timed choice for the call, where the kernel is one of those that are timed.
std::shared_ptr<const TimedEntry> timed_entry(const KernelImplementation& kernel, const KernelCall& call) {
  if (!kernel.timing_key || call.environment->timed == nullptr) return nullptr;
  TimedEntry entry{kernel.timing_key(call), std::nullopt, ""};
  if (entry.key.empty()) return nullptr;
  entry.choice = call.environment->timed->find(entry.key, &entry.ignored);
  return std::make_shared<const TimedEntry>(std::move(entry));
}

}  // namespace

const KernelEnvironmentPtr& no_environment() {
  static const auto none = std::make_shared<const KernelEnvironment>();
  return none;
}

const KernelImplementation* Decision::accepting_kernel(const std::string& name) const {
  const auto found = std::ranges::find(accepting, name, &KernelImplementation::name);
  return found == accepting.end() ? nullptr : *found;
}

std::vector<std::string> Decision::notes() const {
  std::vector<std::string> notes;
  if (kernel() == nullptr) return notes;
  const std::string& op = call.op->name;
  if (kernel()->reason) {
    if (const std::string reason = kernel()->reason(call); !reason.empty())
      notes.push_back(fmt::format("{}: {} chosen: {}", op, kernel()->name, reason));
  }
  if (call.timed != nullptr && call.timed->choice) {
    const TimedChoice& choice = *call.timed->choice;
    const std::string library = choice.engine.empty()
                                    ? "no engine of a library's"
                                    : fmt::format("a library's engine {} {:.2f} us", choice.engine, choice.library_us);
    notes.push_back(fmt::format("{}: {} chosen by time: {}, the other {:.2f} us; entry '{}'", op, kernel()->name,
                                library, choice.own_us, call.timed->key));
  } else if (call.timed != nullptr && !call.timed->ignored.empty()) {
    notes.push_back(fmt::format("{}: timed: {}; entry '{}'", op, call.timed->ignored, call.timed->key));
  }
  std::vector<std::string> strided;
  const auto look_at = [&](const Layout& layout, const std::string& name) {
    if (layout.is_dense()) return;
    const auto strides = std::span(layout.strides).first(static_cast<std::size_t>(layout.type.shape.rank()));
    strided.push_back(fmt::format("{} {} in strides [{}]", name, to_string(layout.type), fmt::join(strides, ", ")));
  };
  const OpCall names{*call.op, {}, call.attrs, {}, {}};
  for (std::size_t i = 0; i < call.inputs.size(); ++i) look_at(call.inputs[i], names.input_name(i));
  for (std::size_t k = 0; k < call.outputs.size(); ++k) look_at(call.outputs[k], fmt::format("result {}", k));
  if (!strided.empty()) notes.push_back(fmt::format("{}: {} takes {}", op, kernel()->name, fmt::join(strided, ", ")));
  return notes;
}

Decision decide(KernelCall call) {
  Decision decision{std::move(call), {}, {}};
  const std::vector<const KernelImplementation*> kernels = kernels_of(*decision.call.op, decision.call.target->kind);
  decision.call.timed = nullptr;
  for (const KernelImplementation* kernel : kernels) {
    if (auto entry = timed_entry(*kernel, decision.call)) {
      PD_ASSERT(decision.call.timed == nullptr, "one kernel of an op's table is timed against the others");
      decision.call.timed = std::move(entry);
    }
  }
  for (const KernelImplementation* kernel : kernels) {
    const std::string refusal = kernel->refusal(decision.call);
    if (refusal.empty()) {
      decision.accepting.push_back(kernel);
    } else if (decision.accepting.empty()) {
      decision.refusals.push_back(decision.call.op->name + ": " + kernel->name + " declined: " + refusal);
    }
  }
  return decision;
}

bool are_same_question(const KernelCall& a, const KernelCall& b) {
  return a.op == b.op && a.allow_tf32 == b.allow_tf32 && a.together == b.together &&
         a.pipelined_layers == b.pipelined_layers && a.alignments == b.alignments &&
         std::ranges::equal(a.inputs, b.inputs, lie_alike) && std::ranges::equal(a.outputs, b.outputs, lie_alike) &&
         a.attrs == b.attrs && are_equal(a.target, b.target) && are_equal(a.environment, b.environment);
}

KernelCall call_of(const Node& node, const KernelSetting& setting) {
  const bool is_on_host = setting.target->is_gpu() && node.placement == Placement::cpu;
  return {.op = node.op,
          .attrs = node.attrs,
          .inputs = {},
          .outputs = {},
          .alignments = {},
          .allow_tf32 = setting.allow_tf32,
          .scope = node.scope.str(),
          .target = is_on_host ? std::make_shared<const Target>() : setting.target,
          .environment = setting.environment};
}

// A GPU moves an odd number of channels one by one wherever they lie: pixels had better lie side by side then.
bool gains_by_channels_last(const Type& image, DeviceKind device) {
  return image.shape.rank() == 4 && (device == DeviceKind::cpu || image.shape[1] == 1 || image.shape[1] % 2 == 0);
}

KernelCall expected_call(const Graph& graph, const Node& node, const KernelSetting& setting, std::uint32_t unread) {
  KernelCall call = call_of(node, setting);
  const DeviceKind device = call.target->kind;
  const std::uint32_t wants = setting.chooses_layouts ? wants_channels_last(*node.op, device) : 0;
  const auto is_wanted = [&](std::size_t operand) { return operand < 32 && (wants >> operand & 1u) != 0; };
  for (const Ref& ref : node.inputs) {
    const Type& type = graph.type(ref);
    const bool is_moved = is_wanted(call.inputs.size()) && gains_by_channels_last(type, device);
    call.inputs.push_back(is_moved && type.shape.elements() > 0 ? channels_last(type) : Layout::dense(type));
  }
  for (std::size_t k = 0; k < node.types.size(); ++k) {
    const Type& type = node.types[k];
    const bool is_moved = is_wanted(node.inputs.size() + k) && type.shape.rank() == 4;
    const bool is_unread = k < 32 && (unread >> k & 1u) != 0;
    call.outputs.push_back(is_unread  ? Layout::dense(Type{type.dtype, {0}})
                           : is_moved ? channels_last(type)
                                      : Layout::dense(type));
  }
  call.alignments.assign(call.inputs.size() + call.outputs.size(), kSlotAlignment);
  return call;
}

const Decision& decide(Graph& graph, NodeId id, const KernelSetting& setting, std::uint32_t unread) {
  KernelCall call = expected_call(graph, graph.node(id), setting, unread);
  DecisionPtr& decision = graph.mutable_node(id).decision;
  if (decision == nullptr || !are_same_question(decision->call, call)) {
    decision = std::make_shared<const Decision>(decide(std::move(call)));
  }
  return *decision;
}

std::unique_ptr<PreparedKernel> prepare_kernel(
    const Decision& decision, const KernelImplementation& chosen, const KernelCall& call, const Device& device,
    std::vector<std::string>* notes,
    const std::function<Preparation(const KernelImplementation&, const KernelCall&)>& load) {
  const auto& accepting = decision.accepting;
  const auto first = std::ranges::find(accepting, &chosen);
  PD_ASSERT(first != accepting.end(), "a kernel runs a call that it declined");
  for (auto it = first; it != accepting.end(); ++it) {
    const KernelImplementation& candidate = **it;
    PD_ASSERT(candidate.faults == Faults::none || chosen.faults == Faults::possible,
              "it was planned as one that cannot fail");
    PD_ASSERT(candidate.in_place == chosen.in_place, "results were planned where its inputs lie");
    Preparation made = candidate.prepare ? candidate.prepare(call, device) : load(candidate, call);
    if (auto kernel = made.take()) {
      kernel->made_by = &candidate;
      return kernel;
    }
    notes->push_back(fmt::format("{}: {} declined when it was prepared: {}{}", call.op->name, candidate.name,
                                 made.why_not(), in_scope(call.scope)));
  }
  fail(ErrorKind::unsupported, "{}: no kernel for {} on {}\n{}", call.op->name, to_string(call.outputs[0].type),
       to_string(device), fmt::join(*notes, "\n"));
}

}  // namespace paoding
