// SPDX-License-Identifier: Apache-2.0
#include "runtime/shadows.h"

#include "base/check.h"
#include "base/half.h"
#include "base/one_line.h"

namespace paoding {

Tensor rounded_shadow(const Tensor& value, DType dtype) {
  Tensor made(dtype, value.shape());
  const auto* from = value.data<float>();
  auto* to = reinterpret_cast<std::uint16_t*>(made.bytes());
  const std::int64_t count = value.shape().elements();
  for (std::int64_t i = 0; i < count; ++i) to[i] = dtype == bf16 ? float_to_bf16(from[i]) : float_to_f16(from[i]);
  return made;
}

Shadow& Shadows::at(const std::string& name, const std::string& of, const Type& type, const Device& device) {
  const std::lock_guard lock(mutex_);
  const auto found = all_.find(name);
  if (found != all_.end()) return found->second;
  const std::int64_t bytes = size_bytes(type);
  try {
    auto buffer = device.kind == DeviceKind::cpu ? make_cpu_buffer(bytes) : make_gpu_buffer(bytes, device);
    return all_.emplace(name, Shadow{of, type, std::move(buffer)}).first->second;
  } catch (const Error& error) {  // too little memory, most often
    fail(error.kind(), "parameter '{}' in {}: {}", one_line(of), to_string(type.dtype), error.what());
  }
}

void Shadows::outdate(std::string_view of) {
  const std::lock_guard lock(mutex_);
  for (auto& [name, shadow] : all_) {
    if (shadow.of == of) shadow.is_fresh = false;
  }
}

void Shadows::refresh(const std::vector<Shadow*>& wanted,
                      const std::function<Tensor(const std::string& of)>& value_of) {
  const std::lock_guard lock(mutex_);
  for (Shadow* shadow : wanted) {
    if (shadow->is_fresh) continue;
    shadow->buffer->write(rounded_shadow(value_of(shadow->of), shadow->type.dtype));
    shadow->is_fresh = true;
  }
}

void Shadows::Outdated::mark(Shadows& shadows) {
  const std::lock_guard lock(shadows.mutex_);
  if (shadows.all_.size() != seen_) {
    list_.clear();
    for (auto& [name, shadow] : shadows.all_) {
      if (written_.contains(shadow.of) && !written_.contains(name)) list_.push_back(&shadow);
    }
    seen_ = shadows.all_.size();
  }
  for (Shadow* shadow : list_) shadow->is_fresh = false;
}

}  // namespace paoding
