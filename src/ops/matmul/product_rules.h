// SPDX-License-Identifier: Apache-2.0
// Rules for products on a GPU that passes want to know too: when a factor is copied first, to lie along K, and how many
// rows have a kernel of paoding's own.
#pragma once

#include <algorithm>
#include <cstdint>

namespace paoding {

/// In f32; beyond, larger tiles of the library's are ahead.
inline constexpr std::int64_t kMostFewRows = 256;
/// The same where nothing is rounded, which the library does without tensor cores: where the right factor lies across
/// K, and where it lies along it (benchmarks/results/2026-11-26-recurrence-gradients-f32-2.txt).
inline constexpr std::int64_t kMostExactRows = 1024, kMostExactRowsAlong = 4096;
/// Limits in 16 bits, where all factors of a CTA have room beside each other.
inline constexpr std::int64_t kLeastNarrowRows = 33, kMostNarrowRows = 64, kMostNarrowDepth = 128;

// Tensor cores of Hopper take operands of TF32 along K only. Where both lie across it cuBLAS reaches about 170 TFLOP/s,
// and 230 to 350 where one of them does (benchmarks/results/2026-11-22-recurrence-teams.txt, 2).
inline constexpr double kAcrossRate = 170e6, kAlongRate = 230e6;  // operations a us
inline constexpr double kCopyRate = 3e6, kCopyStart = 2;          // bytes read and written a us; us

inline double product_operations(std::int64_t m, std::int64_t n, std::int64_t k) {
  return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
}

/// us, of a copy of a factor [k, rows] of f32 that lies along K.
inline double transposed_copy_us(std::int64_t rows, std::int64_t k) {
  return kCopyStart + 2 * 4.0 * static_cast<double>(k) * static_cast<double>(rows) / kCopyRate;
}

/// Whether, for a product [m, k] x [k, n] in TF32 whose operands both lie across K, a copy of the smaller one takes
/// less than it saves.
inline bool transposing_pays(std::int64_t m, std::int64_t n, std::int64_t k) {
  const double operations = product_operations(m, n, k);
  return operations / kAcrossRate - operations / kAlongRate > transposed_copy_us(std::min(m, n), k);
}

}  // namespace paoding
