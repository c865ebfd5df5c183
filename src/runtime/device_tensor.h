// SPDX-License-Identifier: Apache-2.0
// What is behind a DeviceTensor: a program's result, or memory of the caller's.
#pragma once

#include "paoding/device_tensor.h"

namespace paoding {

struct DeviceTensor::State {
  State(const Type& its_type, const Device& where) : type(its_type), device(where) {}
  virtual ~State() = default;
  State(const State&) = delete;
  State& operator=(const State&) = delete;

  const Type type;
  const Device device;
  void* address = nullptr;

  /// What is enqueued in `stream` from here on comes behind what makes the value.
  virtual void order_before(void* /*stream*/) {}
  /// That it does: who drops the value then may have left work there that reads it.
  virtual void note_reader(void* /*stream*/) {}
  /// Waits for the value; throws what the run that made it met.
  virtual void wait() {}
};

/// Copies from the memory of a GPU, where the value is, to the tensor's.
void read_gpu_memory(const Device& device, const void* from, Tensor* to);

}  // namespace paoding
