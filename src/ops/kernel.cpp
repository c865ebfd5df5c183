// SPDX-License-Identifier: Apache-2.0
#include "ops/kernel.h"

#include <algorithm>
#include <deque>
#include <map>
#include <mutex>

#include "base/check.h"
#include "base/one_line.h"
#include "ops/all_kernels.h"
#include "ops/prologue.h"

namespace paoding {
namespace {

struct KernelTable {
  std::mutex mutex;
  std::map<std::string, std::deque<KernelImplementation>> of_op;  // deque: addresses stay
  std::map<std::string, EpilogueKernel> epilogues;                // by op
  std::map<std::string, PrologueKernel> prologues;
};

KernelTable& table() {
  static KernelTable the_table;
  return the_table;
}

void register_once() {
  static std::once_flag once;
  std::call_once(once, register_built_in_kernels);
}

}  // namespace

void register_kernel(std::string op, KernelImplementation implementation) {
  const std::lock_guard lock(table().mutex);
  table().of_op[std::move(op)].push_back(std::move(implementation));
}

void register_epilogue_kernel(const std::string& op, EpilogueKernel kernel) {
  const std::lock_guard lock(table().mutex);
  table().epilogues.emplace(op, std::move(kernel));
}

void register_prologue_kernel(const std::string& op, PrologueKernel kernel) {
  const std::lock_guard lock(table().mutex);
  table().prologues.emplace(op, std::move(kernel));
}

const PrologueKernel* prologue_kernel(const std::string& op) {
  register_once();
  const std::lock_guard lock(table().mutex);
  const auto found = table().prologues.find(op);
  return found == table().prologues.end() ? nullptr : &found->second;
}

const EpilogueKernel* epilogue_kernel(const std::string& op) {
  register_once();
  const std::lock_guard lock(table().mutex);
  const auto found = table().epilogues.find(op);
  return found == table().epilogues.end() ? nullptr : &found->second;
}

std::vector<const KernelImplementation*> accepting_kernels(const KernelCall& call, std::vector<std::string>* refusals) {
  register_once();
  const std::lock_guard lock(table().mutex);
  std::vector<const KernelImplementation*> accepting;
  for (const KernelImplementation& candidate : table().of_op[call.op->name]) {
    if (candidate.device != call.target->kind) continue;
    const std::string refusal = candidate.refusal(call);
    if (refusal.empty()) {
      accepting.push_back(&candidate);
    } else if (accepting.empty()) {
      refusals->push_back(call.op->name + ": " + candidate.name + " declined: " + refusal);
    }
  }
  return accepting;
}

const KernelImplementation* choose_kernel(const KernelCall& call, std::vector<std::string>* refusals) {
  const auto accepting = accepting_kernels(call, refusals);
  return accepting.empty() ? nullptr : accepting.front();
}

std::unique_ptr<PreparedKernel> prepare_kernel(
    const KernelImplementation& chosen, const KernelCall& call, const Device& device, std::vector<std::string>* notes,
    const std::function<Preparation(const KernelImplementation&, const KernelCall&)>& load) {
  std::vector<std::string> unused;
  auto accepting = accepting_kernels(call, &unused);
  // Measurements since the plan was made may have changed its answer.
  if (std::ranges::find(accepting, &chosen) == accepting.end()) accepting.insert(accepting.begin(), &chosen);
  for (auto it = std::find(accepting.begin(), accepting.end(), &chosen); it != accepting.end(); ++it) {
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

namespace {
std::uint32_t operands_of(const OpDef& op, DeviceKind device, std::uint32_t KernelImplementation::*operands) {
  register_once();
  const std::lock_guard lock(table().mutex);
  std::uint32_t all = 0;
  for (const KernelImplementation& candidate : table().of_op[op.name]) {
    if (candidate.device == device) all |= candidate.*operands;
  }
  return all;
}
}  // namespace

std::uint32_t wants_channels_last(const OpDef& op, DeviceKind device) {
  return operands_of(op, device, &KernelImplementation::channels_last);
}

std::uint32_t writes_any_layout(const OpDef& op, DeviceKind device) {
  return operands_of(op, device, &KernelImplementation::any_layout);
}

}  // namespace paoding
