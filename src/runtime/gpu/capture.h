// SPDX-License-Identifier: Apache-2.0
// The end of a stream capture, which has to come whatever happens in it.
#pragma once

#include "gpu/driver/driver.h"

namespace paoding {

/// Called when a capture of the stream has begun: calls `enqueue` and ends the capture. `made` has the graph then,
/// which is the caller's to destroy, also where `enqueue` throws.
template <class Enqueue>
void capture_to_end(CUstream stream, CUgraph* made, const Enqueue& enqueue) {
  const gpu::Driver& driver = gpu::required_driver();
  try {
    enqueue();
  } catch (...) {
    driver.cuStreamEndCapture(stream, made);
    throw;
  }
  PD_CUDA(driver.cuStreamEndCapture(stream, made));
}

}  // namespace paoding
