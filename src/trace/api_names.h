// SPDX-License-Identifier: Apache-2.0
// What names of CUDA's, HIP's and NVIDIA's records mean, whichever file they stand in.
#pragma once

#include <string_view>

#include "profile/trace.h"

namespace paoding::trace {

/// Of a call of the CUDA or HIP API: launch (it hands work over: kernels, graphs, asynchronous copies and fills), wait
/// (it waits for a GPU: synchronisations, blocking copies) or host.
profile::SpanKind kind_of_call(std::string_view name);
/// Whether such a call hands over a copy that the caller does not wait for.
bool is_async_copy(std::string_view name);

struct CopyName {
  profile::Copy copy = profile::Copy::none;
  std::string_view memory = "";  // of the host's side: "pageable", "pinned"; empty where it is not said
};
/// Of a copy on a GPU: "Memcpy HtoD (Pageable -> Device)", "MemcpyD2H", "CopyDeviceToHost", "Memcpy HtoD".
CopyName copy_of_name(std::string_view name);

}  // namespace paoding::trace
