// SPDX-License-Identifier: Apache-2.0
// Limits of a GPU by the name that a trace gives it: measured rates where there are some, else the vendor's.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/unit_rates.h"
#include "profile/trace.h"

namespace paoding::findings {

struct DeviceLimits {
  std::string name;       // "NVIDIA H200"
  int sms = 0;            // multiprocessors, compute units of others; 0: not known
  int threads_of_sm = 0;  // that are resident at once; they share the following
  int registers_of_sm = 1 << 16, shared_of_sm = 0;
  double bytes_per_ns = 0;       // that a kernel reaches which reads and writes alike; 0: not known
  UnitRates flops_per_ns = {};   // that large products reach; 0: not known, or there is no such unit
  std::int64_t cache_bytes = 0;  // last level; 0: not known
  // Rates were measured on such a device; else the vendor's are taken, times the share that an H200 reaches of its own.
  bool is_measured = false;
  bool is_of_recording = false;        // the fastest kernels of the recording reach them, on a CPU
  bool has_measured_products = false;  // product_time.h
  bool is_known() const { return bytes_per_ns > 0; }
  double rate(Unit unit) const { return flops_per_ns[static_cast<std::size_t>(unit)]; }
  /// " (the vendor's number ..)", behind a number; "" where it was measured.
  std::string_view reservation() const;
};

/// Nothing is known of a name that is not known.
DeviceLimits limits_of_device(std::string_view name);
/// The limits that a trace has of a device, and those that its name adds.
DeviceLimits limits_of_device(const profile::Trace& trace, int device);

}  // namespace paoding::findings
