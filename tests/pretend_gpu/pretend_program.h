// SPDX-License-Identifier: Apache-2.0
// What tests on the pretended GPU share.
#pragma once

#include <dlfcn.h>

#include "tests/pretend_gpu/pretend_gpu.h"
#include "tests/program_check.h"

namespace paoding::testing_program {

/// The GPU's other side. The library has loaded the driver by then, or this loads it.
inline pretend::Gpu& pretend_gpu() {
  static pretend::Gpu* gpu = [] {
    void* library = dlopen(PAODING_PRETEND_FOLDER "/libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    return reinterpret_cast<pretend::Gpu* (*)()>(dlsym(library, "paoding_pretend_gpu"))();
  }();
  return *gpu;
}

inline CompileOptions on_gpu(Execution execution = Execution::captured) {
  CompileOptions options;
  options.device = Device::cuda(0);
  options.execution = execution;
  return options;
}

}  // namespace paoding::testing_program
