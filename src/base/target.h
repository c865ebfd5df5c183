// SPDX-License-Identifier: Apache-2.0
// Target: the machine that code is made for. Passes, the choice of kernels, schedules and the planner read it; a device
// is needed only where something runs, so a program can be planned, and its kernels compiled, for a chip that is not
// there.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "paoding/types.h"

namespace paoding {

/// "sm_90a" for 9.0: the architecture that NVRTC compiles for. The "a" is for instructions that only that chip has.
std::string arch_name(int major, int minor);

/// The widest vectors of a CPU that code is made for.
enum class VectorIsa : std::uint8_t { scalar, avx2, avx512, neon };

/// A library that is loaded at run time, as its own version number says.
struct TargetLibrary {
  std::string name;  // "cublaslt"
  std::int64_t version = 0;

  friend bool operator==(const TargetLibrary&, const TargetLibrary&) = default;
};

struct Target {
  std::string name;  // "h200", or the device's own name
  DeviceKind kind = DeviceKind::cpu;
  std::int64_t memory_bytes = 0;
  std::int64_t last_cache_bytes = 0;  // L2 of a GPU, the last level of a CPU

  // ---- a GPU ----

  int major = 0, minor = 0;          // compute capability: 9.0 of an H200
  int sm_count = 0;                  // multiprocessors
  std::int64_t shared_bytes = 0;     // shared memory that a CTA may opt in to
  std::int64_t in_flight_bytes = 0;  // asked for at once by an SM, that cover the latency of memory
  // The time of a byte in a kernel that streams: a copy reaches 2 / (1 / read + 1 / write).
  double read_bytes_per_us = 0, write_bytes_per_us = 0;
  double cached_bytes_per_us = 0;  // reads that hit L2
  std::vector<TargetLibrary> libraries;

  // ---- a CPU ----

  VectorIsa isa = VectorIsa::scalar;
  bool has_bf16 = false;  // products of bf16 in hardware
  bool has_amx = false;
  int threads = 0;  // that a parallel region has

  bool is_gpu() const { return kind == DeviceKind::cuda; }
  std::string arch() const { return arch_name(major, minor); }
  /// The least time of a kernel that reads and writes so much of memory.
  double stream_us(double read_bytes, double written_bytes) const;
  /// The version of a library; 0 when it is not there.
  std::int64_t version_of(std::string_view library) const;

  friend bool operator==(const Target&, const Target&) = default;
};

/// A program, its plan and its kernels share one.
using TargetPtr = std::shared_ptr<const Target>;

/// The targets that go by a name: t4, a100, l40s, h100, h200, b200; avx2, avx512, neon. The rates of the H200 were
/// measured; those of the other GPUs assume that they reach as much of the vendor's bandwidth as the H200 does. GPUs
/// are given the libraries of CUDA 13.0.
const std::vector<Target>& named_targets();
/// Error (argument) with the names there are.
const Target& named_target(std::string_view name);

/// A GPU of that name and size, with the rates that its memory's bandwidth (bytes per us, as the vendor states it)
/// allows.
Target gpu_target(std::string name, int major, int minor, int sm_count, double bandwidth);
/// The same for a GPU that calls itself so ("NVIDIA H200"): a named target's is one, and has its measured rates.
Target described_gpu(std::string name, int major, int minor, int sm_count, double bandwidth);

}  // namespace paoding
