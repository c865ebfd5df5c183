// SPDX-License-Identifier: Apache-2.0
// Compiles CUDA source to a cubin with NVRTC, loaded at run time. NVRTC needs no GPU and no driver, so kernels
// can be compiled, and tests of them run, on any machine that has the library.
#pragma once

#include <nvrtc.h>

#include <span>
#include <string>
#include <vector>

#include "gpu/driver/library.h"

namespace paoding::gpu {

#define PD_NVRTC_FUNCTIONS(X) \
  X(nvrtcVersion)             \
  X(nvrtcGetErrorString)      \
  X(nvrtcCreateProgram)       \
  X(nvrtcDestroyProgram)      \
  X(nvrtcCompileProgram)      \
  X(nvrtcGetCUBINSize)        \
  X(nvrtcGetCUBIN)            \
  X(nvrtcGetProgramLogSize)   \
  X(nvrtcGetProgramLog)

#define PD_NVRTC_MEMBER(name) decltype(&::name) name = nullptr;
struct Nvrtc {
  PD_NVRTC_FUNCTIONS(PD_NVRTC_MEMBER)
};
#undef PD_NVRTC_MEMBER

/// NVRTC's functions; nullptr when the library is missing. Loaded once, from any thread.
const Nvrtc* nvrtc();
/// Why nvrtc() is nullptr, in words; empty when it is not.
const std::string& nvrtc_problem();
/// The library search behind nvrtc(), for `doctor`.
const Library& nvrtc_library();
/// 13000 for CUDA 13.0, as the driver counts; 0 without NVRTC.
int nvrtc_version();

/// The options that a source is compiled with, besides the architecture. From CUDA 12.4 on --minimal is among them,
/// which saves a fifth of the time of a small kernel, unless the source uses the features that it leaves out: textures,
/// surfaces, functions and types with the prefix "cuda", launches of kernels from kernels.
const std::vector<std::string>& default_options(std::string_view source);

/// The cubin of CUDA source for an architecture such as "sm_90a"; `name` is the file name that errors show.
/// `options` are passed after default_options(source).
/// Error (device) without NVRTC, or with NVRTC's log and the numbered lines it complains about.
std::vector<char> compile(const std::string& source, const std::string& name, const std::string& arch,
                          std::span<const std::string> options = {});

}  // namespace paoding::gpu
