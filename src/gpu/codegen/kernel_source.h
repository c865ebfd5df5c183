// SPDX-License-Identifier: Apache-2.0
// The CUDA source of a kernel. Equal sources are one text in memory for as long as anything has them, hashed once:
// programs of other shapes have mostly the same kernels, and 30 KB and more of each source are the same prelude.
#pragma once

#include <compare>
#include <memory>
#include <string>
#include <string_view>

#include "base/hash128.h"

namespace paoding::gpu {

/// Threads may share one as they share a pointer.
class KernelSource {
 public:
  KernelSource() = default;
  KernelSource(std::string text);  // NOLINT: it is a text
  KernelSource(std::string_view text) : KernelSource(std::string(text)) {}
  KernelSource(const char* text) : KernelSource(std::string(text)) {}

  const std::string& text() const;
  operator const std::string&() const { return text(); }  // NOLINT: likewise
  bool empty() const { return kept_ == nullptr; }
  /// Enough bits to take equal for same. Zeros of an empty source.
  Hash128 hash() const { return kept_ == nullptr ? Hash128{} : kept_->hash; }
  bool has(std::string_view part) const { return text().find(part) != std::string::npos; }

  friend bool operator==(const KernelSource& a, const KernelSource& b) { return a.hash() == b.hash(); }
  /// An order that is the same in every process, but for that no order of texts.
  friend std::strong_ordering operator<=>(const KernelSource& a, const KernelSource& b) {
    return a.hash() <=> b.hash();
  }

 private:
  struct Kept {
    Hash128 hash;
    std::string text;
  };
  std::shared_ptr<const Kept> kept_;
};

}  // namespace paoding::gpu
