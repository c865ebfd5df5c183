// SPDX-License-Identifier: Apache-2.0
#include "runtime/target.h"

#include "cpu/this_cpu.h"

namespace paoding {

TargetPtr target_of(const Device& device) {
  if (device.kind == DeviceKind::cuda) return target_of_gpu(device.index);
  static const TargetPtr cpu = std::make_shared<const Target>(this_cpu());
  return cpu;
}

}  // namespace paoding
