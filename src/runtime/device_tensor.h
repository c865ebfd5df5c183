// SPDX-License-Identifier: Apache-2.0
// The value behind a DeviceTensor: a program's result, or memory of the caller's.
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

  /// Orders work that is enqueued in `stream` from here on after the work that makes the value.
  virtual void order_before(void* /*stream*/) {}
  /// Notes that the stream may read the value: whoever drops it then may have left such work there.
  virtual void note_reader(void* /*stream*/) {}
  /// Waits for the value; throws the error of the run that made it.
  virtual void wait() {}
};

/// Copies from the memory of a GPU, where the value is, to the tensor's.
void read_gpu_memory(const Device& device, const void* from, Tensor* to);

}  // namespace paoding
