// SPDX-License-Identifier: Apache-2.0
#include "trace/api_names.h"

#include <algorithm>
#include <array>

namespace paoding::trace {
namespace {

using profile::Copy;
using profile::SpanKind;

bool name_contains(std::string_view text, std::string_view part) { return text.find(part) != text.npos; }

bool starts_with_any(std::string_view text, auto... parts) { return (text.starts_with(parts) || ...); }

// Without the API's own letters: "cudaLaunchKernel_v7000" is "LaunchKernel_v7000".
std::string_view without_api(std::string_view name) {
  for (const std::string_view api : {"cuda", "hip", "cu"}) {
    if (name.starts_with(api) && name.size() > api.size() && name[api.size()] >= 'A' && name[api.size()] <= 'Z') {
      return name.substr(api.size());
    }
  }
  return "";
}

}  // namespace

SpanKind kind_of_call(std::string_view name) {
  const std::string_view call = without_api(name);
  if (call.empty()) return SpanKind::host;
  if (name_contains(call, "Synchronize") || starts_with_any(call, "StreamWaitValue")) return SpanKind::wait;
  if (name_contains(call, "Launch") && !name_contains(call, "LaunchHostFunc") && !name_contains(call, "Config") &&
      !name_contains(call, "Attribute")) {
    return SpanKind::launch;
  }
  const bool moves = starts_with_any(call, "Memcpy", "Memset");
  if (!moves) return SpanKind::host;
  // A fill does not wait for its end; of copies those do that are not called asynchronous.
  return name_contains(call, "Async") || call.starts_with("Memset") ? SpanKind::launch : SpanKind::wait;
}

bool is_async_copy(std::string_view name) {
  const std::string_view call = without_api(name);
  return call.starts_with("Memcpy") && name_contains(call, "Async");
}

CopyName copy_of_name(std::string_view name) {
  struct Way {
    std::string_view word;
    Copy copy;
  };
  static constexpr std::array<Way, 16> kWays = {{{"HtoD", Copy::host_to_device},
                                                 {"DtoH", Copy::device_to_host},
                                                 {"DtoD", Copy::same_device},
                                                 {"PtoP", Copy::device_to_device},
                                                 {"HtoH", Copy::host_to_host},
                                                 {"H2D", Copy::host_to_device},
                                                 {"D2H", Copy::device_to_host},
                                                 {"D2D", Copy::same_device},
                                                 {"P2P", Copy::device_to_device},
                                                 {"H2H", Copy::host_to_host},
                                                 {"HostToDevice", Copy::host_to_device},
                                                 {"DeviceToHost", Copy::device_to_host},
                                                 {"DeviceToDevice", Copy::same_device},
                                                 {"PeerToPeer", Copy::device_to_device},
                                                 {"HostToHost", Copy::host_to_host},
                                                 {"HOST_TO_DEVICE", Copy::host_to_device}}};
  const auto way = std::ranges::find_if(kWays, [&](const Way& w) { return name_contains(name, w.word); });
  CopyName found;
  if (way != kWays.end()) found.copy = way->copy;
  if (name_contains(name, "Pageable")) found.memory = "pageable";
  if (name_contains(name, "Pinned")) found.memory = "pinned";
  return found;
}

}  // namespace paoding::trace
