// SPDX-License-Identifier: Apache-2.0
#include "ops/kernel.h"

#include <deque>
#include <map>
#include <mutex>

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

std::vector<const KernelImplementation*> kernels_of(const OpDef& op, DeviceKind device) {
  register_once();
  const std::lock_guard lock(table().mutex);
  std::vector<const KernelImplementation*> kernels;
  for (const KernelImplementation& kernel : table().of_op[op.name]) {
    if (kernel.device == device) kernels.push_back(&kernel);
  }
  return kernels;
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
