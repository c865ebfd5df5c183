// SPDX-License-Identifier: Apache-2.0
// The devices of this machine, for tests that are for any device.
#pragma once

#include <vector>

#include "paoding/types.h"

namespace paoding::testing_program {

/// The CPU, and the GPU where there is one.
inline std::vector<Device> devices_here() {
  std::vector<Device> all{Device::cpu()};
  if (Device::best().kind != DeviceKind::cpu) all.push_back(Device::best());
  return all;
}

}  // namespace paoding::testing_program
