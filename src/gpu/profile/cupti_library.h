// SPDX-License-Identifier: Apache-2.0
// Loads CUPTI's activity functions at run time; the profiler takes kernel and copy times from them. A toolkit may come
// without cupti.h; then PD_HAS_CUPTI is 0 and cupti() is always nullptr.
#pragma once

#include <cstdint>
#include <string>

#include "gpu/driver/library.h"

#if __has_include(<cupti.h>)
#include <cupti.h>
#define PD_HAS_CUPTI 1
#else
#define PD_HAS_CUPTI 0
#endif

namespace paoding::gpu {

#if PD_HAS_CUPTI
#define PD_CUPTI_FUNCTIONS(X)       \
  X(cuptiGetVersion)                \
  X(cuptiGetResultString)           \
  X(cuptiGetTimestamp)              \
  X(cuptiActivityRegisterCallbacks) \
  X(cuptiActivityEnable)            \
  X(cuptiActivityDisable)           \
  X(cuptiActivityFlushAll)          \
  X(cuptiActivityGetNextRecord)     \
  X(cuptiActivityGetNumDroppedRecords)
// Functions that tell the nodes of graphs apart, and let go of CUPTI: nullptr where one is missing.
#define PD_CUPTI_NODE_FUNCTIONS(X) \
  X(cuptiGetGraphExecId)           \
  X(cuptiFinalize)
#else
#define PD_CUPTI_FUNCTIONS(X)
#define PD_CUPTI_NODE_FUNCTIONS(X)
#endif

#define PD_CUPTI_MEMBER(name) decltype(&::name) name = nullptr;
struct Cupti {
  PD_CUPTI_FUNCTIONS(PD_CUPTI_MEMBER)
  PD_CUPTI_NODE_FUNCTIONS(PD_CUPTI_MEMBER)
};
#undef PD_CUPTI_MEMBER

/// CUPTI's functions; nullptr when the library or its header was missing. Loaded once, from any thread.
const Cupti* cupti();
/// Why cupti() is nullptr, in words; empty when it is not.
const std::string& cupti_problem();
/// The library search behind cupti(), for `doctor`.
const Library& cupti_library();
/// CUPTI's own number for its interface, 130001 for CUDA 13.0; 0 without CUPTI. A library older than the header's
/// CUPTI_API_VERSION writes shorter records: fields it does not have must not be read.
std::uint32_t cupti_version();

#if PD_HAS_CUPTI
/// Throws an error (device) that names the action and has CUPTI's words, unless the call succeeded.
void check(CUptiResult result, const char* what);
#endif

}  // namespace paoding::gpu

/// Throws Error (device) with the call's text and CUPTI's description when the call fails.
#define PD_CUPTI(call) ::paoding::gpu::check((call), #call)
