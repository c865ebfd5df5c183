// SPDX-License-Identifier: Apache-2.0
// Kernels over operands of more bytes than the machine has: memory that takes room only where it is written, zeros
// elsewhere, so that indices above 2^31 are tried in seconds.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <cstring>
#include <string>
#include <vector>

#include "base/half.h"
#include "ops/decision.h"
#include "paoding/tensor.h"

namespace paoding::testing_program {

class SparseMemory {
 public:
  explicit SparseMemory(const Type& type) : type_(type), bytes_(static_cast<std::size_t>(size_bytes(type)) + 4096) {
    void* made = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (made != MAP_FAILED) address_ = static_cast<std::byte*>(made);
  }
  ~SparseMemory() {
    if (address_ != nullptr) munmap(address_, bytes_);
  }
  SparseMemory(const SparseMemory&) = delete;
  SparseMemory& operator=(const SparseMemory&) = delete;

  void* address() const { return address_; }
  const Type& type() const { return type_; }

  template <class T>
  T& at(std::int64_t i) const {
    return reinterpret_cast<T*>(address_)[i];
  }
  void set(std::int64_t i, float value) const {
    if (type_.dtype == DType::bf16) at<std::uint16_t>(i) = float_to_bf16(value);
    if (type_.dtype == DType::f32) at<float>(i) = value;
    if (type_.dtype == DType::u8) at<std::uint8_t>(i) = static_cast<std::uint8_t>(value);
  }
  float get(std::int64_t i) const {
    if (type_.dtype == DType::bf16) return bf16_to_float(at<std::uint16_t>(i));
    return type_.dtype == DType::f32 ? at<float>(i) : static_cast<float>(at<std::uint8_t>(i));
  }

 private:
  Type type_;
  std::size_t bytes_;
  std::byte* address_ = nullptr;
};

/// The call of an op on dense operands; attributes that are not given have their defaults.
inline KernelCall dense_call(const std::string& op, const std::vector<Type>& inputs, const std::vector<Type>& outputs,
                             const Attrs& attrs = {}) {
  KernelCall call;
  call.op = find_op(op);
  for (const AttrSpec& spec : call.op->attrs) {
    const AttrValue* given = attrs.find(spec.name);
    call.attrs.set(spec.name, given == nullptr ? spec.example : *given);
  }
  for (const Type& type : inputs) call.inputs.push_back(Layout::dense(type));
  for (const Type& type : outputs) call.outputs.push_back(Layout::dense(type));
  call.alignments.assign(inputs.size() + outputs.size(), 64);
  return call;
}

/// Chooses, prepares and runs the CPU's kernel; its name, "" when there is none.
inline std::string run_dense(const KernelCall& call, const std::vector<const SparseMemory*>& operands) {
  const KernelImplementation* const chosen = decide(call).kernel();
  if (chosen == nullptr) return "";
  const auto kernel = chosen->prepare(call, Device::cpu()).take();
  const SparseMemory scratch(Type{DType::u8, Shape{kernel->scratch_bytes()}});
  std::vector<void*> addresses;
  for (const SparseMemory* operand : operands) addresses.push_back(operand->address());
  kernel->run({addresses.data(), scratch.address(), nullptr});
  return chosen->name;
}

}  // namespace paoding::testing_program
