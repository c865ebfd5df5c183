// SPDX-License-Identifier: Apache-2.0
#include "ops/kernel.h"

#include <deque>
#include <map>
#include <mutex>

#include "ops/all_kernels.h"

namespace paoding {
namespace {

struct KernelTable {
  std::mutex mutex;
  std::map<std::string, std::deque<KernelImplementation>> of_op;  // deque: addresses stay
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

const KernelImplementation* choose_kernel(const KernelCall& call, DeviceKind device,
                                          std::vector<std::string>* refusals) {
  register_once();
  const std::lock_guard lock(table().mutex);
  for (const KernelImplementation& candidate : table().of_op[call.op->name]) {
    if (candidate.device != device) continue;
    const std::string refusal = candidate.refusal(call);
    if (refusal.empty()) return &candidate;
    refusals->push_back(call.op->name + ": " + candidate.name + " declined: " + refusal);
  }
  return nullptr;
}

std::uint32_t wants_channels_last(const OpDef& op, DeviceKind device) {
  register_once();
  const std::lock_guard lock(table().mutex);
  std::uint32_t operands = 0;
  for (const KernelImplementation& candidate : table().of_op[op.name]) {
    if (candidate.device == device) operands |= candidate.channels_last;
  }
  return operands;
}

}  // namespace paoding
