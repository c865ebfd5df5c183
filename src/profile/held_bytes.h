// SPDX-License-Identifier: Apache-2.0
// Memory that paoding holds on each device, by purpose. It is counted where memory is allocated and freed, which no
// steady step does, and a recording gets it as a counter when it changes.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>

namespace paoding::profile {

enum class HeldFor : std::uint8_t {
  arenas,      // of programs: values that live from one launch to another
  parameters,  // of stores, with their shadows
  inputs,      // of programs, with staging memory of feeds that are copied beside a run
  kernels,     // state of kernels from run to run, and workspaces outside of arenas
  graphs,      // executable CUDA graphs, estimated by their nodes
  pinned,      // memory of the host that a GPU copies from and to
  other,       // guards, stamps, choices
};
/// "arenas", "parameters", ..
std::string_view to_string(HeldFor what);

/// So many bytes of a device (-1: the host), as long as this lives.
class HeldBytes {
 public:
  HeldBytes() = default;
  HeldBytes(HeldFor what, int device, std::int64_t bytes) : what_(what), device_(device) { set(bytes); }
  ~HeldBytes() { set(0); }
  HeldBytes(HeldBytes&& other) noexcept
      : what_(other.what_), device_(other.device_), bytes_(std::exchange(other.bytes_, 0)) {}
  HeldBytes& operator=(HeldBytes&& other) noexcept {
    std::swap(what_, other.what_);
    std::swap(device_, other.device_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  void set(std::int64_t bytes) noexcept;

 private:
  HeldFor what_ = HeldFor::other;
  int device_ = -1;
  std::int64_t bytes_ = 0;
};

}  // namespace paoding::profile
