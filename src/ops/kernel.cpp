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

}  // namespace

void register_kernel(std::string op, KernelImplementation implementation) {
  const std::lock_guard lock(table().mutex);
  table().of_op[std::move(op)].push_back(std::move(implementation));
}

const KernelImplementation* choose_kernel(const KernelCall& call, DeviceKind device,
                                          std::vector<std::string>* refusals) {
  static std::once_flag once;
  std::call_once(once, register_built_in_kernels);
  const std::lock_guard lock(table().mutex);
  for (const KernelImplementation& candidate : table().of_op[call.op->name]) {
    if (candidate.device != device) continue;
    const std::string refusal = candidate.refusal(call);
    if (refusal.empty()) return &candidate;
    refusals->push_back(call.op->name + ": " + candidate.name + " declined: " + refusal);
  }
  return nullptr;
}

}  // namespace paoding
