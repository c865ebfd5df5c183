// SPDX-License-Identifier: Apache-2.0
#include "findings/device_limits.h"

#include <algorithm>
#include <array>
#include <cctype>

#include "base/target.h"

namespace paoding::findings {
namespace {

// From the vendors' data sheets: dense products, TFLOP/s; memory in TB/s; multiprocessors or compute units; L2 in MiB.
struct DataSheet {
  std::string_view word;  // in the device's name, small letters
  int sms, threads_of_sm;
  double terabytes;
  double f64, f32, tf32, half;
  int cache_mib;
};
constexpr auto kSheets = std::to_array<DataSheet>({
    {"gb200", 148, 2048, 8.0, 40, 80, 1250, 2500, 126},
    {"b200", 148, 2048, 8.0, 40, 80, 1125, 2250, 126},
    {"h200", 132, 2048, 4.8, 67, 67, 494.7, 989.4, 60},
    {"gh200", 132, 2048, 4.0, 67, 67, 494.7, 989.4, 60},
    {"h100 pcie", 114, 2048, 2.0, 51, 51, 378, 756, 50},
    {"h100 nvl", 132, 2048, 3.9, 60, 60, 417.5, 835, 50},
    {"h100", 132, 2048, 3.35, 67, 67, 494.7, 989.4, 50},
    {"h800", 132, 2048, 3.35, 1, 67, 494.7, 989.4, 50},
    {"h20", 78, 2048, 4.0, 1, 44, 74, 148, 60},
    {"a100-sxm4-40gb", 108, 2048, 1.555, 19.5, 19.5, 156, 312, 40},
    {"a100-pcie-40gb", 108, 2048, 1.555, 19.5, 19.5, 156, 312, 40},
    {"a100-pg509", 108, 2048, 1.555, 19.5, 19.5, 156, 312, 40},
    {"a100", 108, 2048, 2.039, 19.5, 19.5, 156, 312, 40},
    {"a800", 108, 2048, 2.039, 9.7, 19.5, 156, 312, 40},
    {"a40", 84, 1536, 0.696, 0.6, 37.4, 74.8, 149.7, 6},
    {"a10g", 80, 1536, 0.6, 0.5, 31.5, 35, 70, 6},
    {"a10", 72, 1536, 0.6, 0.5, 31.2, 62.5, 125, 6},
    {"l40s", 142, 1536, 0.864, 1.4, 91.6, 183, 362, 96},
    {"l40", 142, 1536, 0.864, 1.4, 90.5, 90.5, 181, 96},
    {"l4", 58, 1536, 0.3, 0.5, 30.3, 60, 121, 48},
    {"rtx 4090", 128, 1536, 1.008, 1.3, 82.6, 82.6, 165.2, 72},
    {"rtx 3090", 82, 1536, 0.936, 0.6, 35.6, 35.6, 71, 6},
    {"v100-sxm2", 80, 2048, 0.9, 7.8, 15.7, 0, 125, 6},
    {"v100", 80, 2048, 0.9, 7, 14, 0, 112, 6},
    {"gp100", 56, 2048, 0.717, 5.2, 10.3, 0, 0, 4},
    {"t4", 40, 1024, 0.32, 0.25, 8.1, 0, 65, 4},
    {"mi355x", 256, 2048, 8.0, 78.6, 157.3, 0, 2500, 256},
    {"mi325x", 304, 2048, 6.0, 163.4, 163.4, 653.7, 1307.4, 256},
    {"mi300x", 304, 2048, 5.3, 163.4, 163.4, 653.7, 1307.4, 256},
    {"mi300a", 228, 2048, 5.3, 122.6, 122.6, 490.3, 980.6, 256},
    {"mi250x", 110, 2048, 1.638, 47.9, 47.9, 0, 191.5, 8},
    {"mi250", 104, 2048, 1.638, 45.3, 45.3, 0, 181, 8},
    {"mi210", 104, 2048, 1.638, 45.3, 45.3, 0, 181, 8},
    {"mi100", 120, 2048, 1.229, 11.5, 46.1, 0, 184.6, 8},
});

std::string lower_case(std::string_view text) {
  std::string small(text);
  std::ranges::transform(small, small.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return small;
}

// "l4" is no part of "l40s": nothing but a letter's or a number's end stands around a name.
bool holds_word(std::string_view text, std::string_view word) {
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0; };
  for (std::size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) {
    const std::size_t behind = at + word.size();
    if ((at == 0 || !is_word(text[at - 1])) && (behind == text.size() || !is_word(text[behind]))) return true;
  }
  return false;
}

const Target& h200() { return named_target("h200"); }

// Bytes a ns of a kernel that reads and writes as much: one time for a byte read and one for a byte written.
double streamed(const Target& target) {
  return 2 / (1 / target.read_bytes_per_us + 1 / target.write_bytes_per_us) / 1e3;
}

// The share of the data sheet's number that the H200 reaches.
double bandwidth_share() {
  constexpr double kSheet = 4.8e3;  // bytes a ns
  return streamed(h200()) / kSheet;
}

}  // namespace

std::string_view DeviceLimits::reservation() const {
  if (is_of_recording) return " (in the fastest kernel of this recording)";
  return is_measured ? "" : " (the vendor's number, times the share that an H200 reaches)";
}

DeviceLimits limits_of_device(std::string_view name) {
  DeviceLimits limits;
  limits.name = std::string(name);
  const std::string small = lower_case(name);
  const auto sheet = std::ranges::find_if(kSheets, [&](const DataSheet& one) { return holds_word(small, one.word); });
  if (sheet == kSheets.end()) return limits;
  limits.sms = sheet->sms;
  limits.threads_of_sm = sheet->threads_of_sm;
  limits.cache_bytes = std::int64_t{sheet->cache_mib} << 20;
  limits.bytes_per_ns = sheet->terabytes * 1e3 * bandwidth_share();
  const UnitRates measured = unit_rates(h200());
  constexpr UnitRates kH200Sheet = {0, 67e3, 67e3, 494.7e3, 989.4e3};
  const UnitRates own = {0, sheet->f64 * 1e3, sheet->f32 * 1e3, sheet->tf32 * 1e3, sheet->half * 1e3};
  // f64 of ordinary lanes was measured there, which tensor cores double: the share of f32 stands for both.
  const std::size_t f32 = static_cast<std::size_t>(Unit::f32);
  for (std::size_t unit = 1; unit < kUnits; ++unit) {
    const std::size_t by = unit == static_cast<std::size_t>(Unit::f64) ? f32 : unit;
    limits.flops_per_ns[unit] = own[unit] * measured[by] / kH200Sheet[by];
  }
  limits.is_measured = sheet->word == "h200";
  limits.has_measured_products = sheet->word == "h200" || sheet->word == "h100";
  return limits;
}

DeviceLimits limits_of_device(const profile::Trace& trace, int device) {
  DeviceLimits limits;
  for (const profile::Limit& own : trace.limits()) {
    if (own.device != device) continue;
    if (!own.name.empty()) limits = limits_of_device(own.name);
    if (own.sms > 0) limits.sms = own.sms;
    if (own.threads_of_sm > 0) limits.threads_of_sm = own.threads_of_sm;
    if (own.registers_of_sm > 0) limits.registers_of_sm = own.registers_of_sm;
    if (own.shared_of_sm > 0) limits.shared_of_sm = own.shared_of_sm;
    const bool is_ours = own.flops_per_ns[static_cast<std::size_t>(Unit::f32)] > 0;
    if (is_ours) {
      // Ours has the rate of reads alone; the share of it that a kernel reaches which writes too is the H200's.
      limits.bytes_per_ns = own.bytes_per_ns * streamed(h200()) * 1e3 / h200().read_bytes_per_us;
      limits.flops_per_ns = own.flops_per_ns;
      limits.is_measured = true;
    } else if (limits.bytes_per_ns == 0) {
      limits.bytes_per_ns = own.bytes_per_ns * bandwidth_share();  // as the vendor has it
    }
  }
  return limits;
}

}  // namespace paoding::findings
