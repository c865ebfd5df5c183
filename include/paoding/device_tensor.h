// SPDX-License-Identifier: Apache-2.0
// DeviceTensor: a dense array in the memory of a GPU, for results that stay there and feeds that are there already.
#pragma once

#include <memory>

#include "paoding/tensor.h"
#include "paoding/types.h"

namespace paoding {

/// A dense row-major array in the memory of a GPU: a result that a program has left there, or the caller's. Copies
/// share the memory. The work that makes the value may still be under way: a reader is ordered after it (make_wait) or
/// waits for it (to_host). Any thread may use it, as may several.
class DeviceTensor {
 public:
  /// Wraps the caller's memory, which is kept until its readers have run; the caller orders the work that fills it.
  /// Error (argument) when `device` is no GPU, or there is no memory for a type that takes some.
  DeviceTensor(const Type& type, const Device& device, std::shared_ptr<void> memory);

  const Type& type() const;
  DType dtype() const { return type().dtype; }
  const Shape& shape() const { return type().shape; }
  std::int64_t size_bytes() const { return paoding::size_bytes(type()); }
  const Device& device() const;
  void* address() const;

  /// Orders all work that is enqueued in `stream` from here on after the work that makes the value. `stream` is a
  /// CUstream or cudaStream_t of the device; nullptr is the legacy default stream. The memory of a program's result is
  /// used again when its last copy is gone and all work enqueued by then, in any stream, has run. For a program whose
  /// runs may fail (an index out of range) the call waits for the run, and throws its error.
  void make_wait(void* stream) const;
  /// Waits for the value. Errors: those of the run that made it; (cancelled) see CancelScope.
  Tensor to_host() const;

  struct State;  // the library's
  explicit DeviceTensor(std::shared_ptr<State> state) : state_(std::move(state)) {}
  State& state() const { return *state_; }
  const std::shared_ptr<State>& shared_state() const { return state_; }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace paoding
