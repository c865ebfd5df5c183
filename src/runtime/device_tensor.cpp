// SPDX-License-Identifier: Apache-2.0
#include "runtime/device_tensor.h"

#include "base/check.h"

namespace paoding {
namespace {

struct CallersMemory : DeviceTensor::State {
  CallersMemory(const Type& its_type, const Device& where, std::shared_ptr<void> given)
      : State(its_type, where), memory(std::move(given)) {
    address = memory.get();
  }
  std::shared_ptr<void> memory;
};

}  // namespace

DeviceTensor::DeviceTensor(const Type& type, const Device& device, std::shared_ptr<void> memory) {
  if (device.kind != DeviceKind::cuda) {
    fail(ErrorKind::argument, "DeviceTensor: {} is no GPU\nhint: a Tensor is in the host's memory", to_string(device));
  }
  if (memory == nullptr && paoding::size_bytes(type) > 0) {
    fail(ErrorKind::argument, "DeviceTensor: a {} takes {} bytes, but there are none", to_string(type),
         paoding::size_bytes(type));
  }
  state_ = std::make_shared<CallersMemory>(type, device, std::move(memory));
}

const Type& DeviceTensor::type() const { return state_->type; }
const Device& DeviceTensor::device() const { return state_->device; }
void* DeviceTensor::address() const { return state_->address; }
void DeviceTensor::make_wait(void* stream) const {
  state_->order_before(stream);
  state_->note_reader(stream);
}

Tensor DeviceTensor::to_host() const {
  Tensor tensor(type());
  state_->wait();
  if (size_bytes() > 0) read_gpu_memory(device(), address(), &tensor);
  return tensor;
}

}  // namespace paoding
