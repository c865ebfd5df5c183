// SPDX-License-Identifier: Apache-2.0
// NCCL, loaded at run time.
#pragma once

#include <string>

#include "distributed/gpu/nccl_interface.h"
#include "gpu/driver/library.h"

namespace paoding::gpu {

#define PD_NCCL_MEMBER(name, result, parameters) result(*name) parameters = nullptr;
struct Nccl {
  PD_NCCL_FUNCTIONS(PD_NCCL_MEMBER)
};
#undef PD_NCCL_MEMBER

/// NCCL's functions; nullptr when the library is missing or too old. Loaded once, from any thread.
const Nccl* nccl_functions();
/// Why nccl_functions() is nullptr, in words; empty when it is not.
const std::string& nccl_problem();
/// The library search behind nccl_functions(), for `doctor`.
const Library& nccl_library();
/// 22809 is 2.28.9; 0 when there is none.
int nccl_version();

}  // namespace paoding::gpu
