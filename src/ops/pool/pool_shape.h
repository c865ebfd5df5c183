// SPDX-License-Identifier: Apache-2.0
// A pool as kernels want it: which windows an element is in, which elements a window has, and where everything lies.
#pragma once

#include "ops/conv/window.h"
#include "ops/kernel.h"

namespace paoding {

enum class PoolKind : std::uint8_t { max_forward, max_grad, max_pick, avg_forward, avg_grad };

/// A tap of a window along one axis.
struct PoolTap {
  std::int64_t other = 0;  // the element of the image, seen from a window; the window, seen from an element
  std::int64_t tap = 0;
};

/// Taps in even steps: those that one position combines along an axis, however many there are.
struct PoolTaps {
  PoolTap first, step;
  std::int64_t count = 0;

  class Iterator {
   public:
    Iterator(const PoolTaps& taps, std::int64_t left) : at_(taps.first), step_(taps.step), left_(left) {}
    const PoolTap& operator*() const { return at_; }
    Iterator& operator++() {
      at_.other += step_.other, at_.tap += step_.tap, --left_;
      return *this;
    }
    friend bool operator!=(const Iterator& a, const Iterator& b) { return a.left_ != b.left_; }

   private:
    PoolTap at_, step_;
    std::int64_t left_;
  };
  Iterator begin() const { return {*this, count}; }
  Iterator end() const { return {*this, 0}; }
};

/// The taps that every position along one axis of the result combines. They are looked up where images commonly end,
/// and computed after that: a result of a billion positions takes no memory but its own.
class PoolAxis {
 public:
  PoolAxis() = default;
  PoolAxis(const WindowAxis& window, bool is_grad, bool counts_padding);

  PoolTaps of(std::int64_t position) const {
    const auto at = static_cast<std::size_t>(position);
    return at < taps_.size() ? taps_[at] : taps_of(position);
  }
  std::int64_t kernel() const { return window_.kernel; }
  /// Whether every element of the windows is in one window alone, and none of them outside of the image.
  bool is_side_by_side() const {
    return window_.stride == window_.kernel && window_.dilation == 1 && window_.before == 0 && window_.after == 0;
  }
  /// avg: of a window, the elements along this axis that count.
  std::int64_t count(std::int64_t window) const {
    const auto at = static_cast<std::size_t>(window);
    return at < counts_.size() ? counts_[at] : count_of(window);
  }

 private:
  PoolTaps taps_of(std::int64_t position) const;
  PoolTaps taps_of_window(std::int64_t o) const;
  PoolTaps taps_of_element(std::int64_t element) const;
  std::int64_t count_of(std::int64_t window) const;

  WindowAxis window_;
  bool is_grad_ = false, counts_padding_ = false;
  // The greatest common divisor of stride and dilation; and, after both are divided by it, the stride's inverse modulo
  // the dilation.
  std::int64_t common_ = 1, inverse_ = 0;
  std::vector<PoolTaps> taps_;        // of the first positions
  std::vector<std::int64_t> counts_;  // of the first windows
};

struct PoolShape {
  PoolKind kind = PoolKind::max_forward;
  DType dtype = DType::f32;
  std::int64_t batch = 0, channels = 0, kernel_width = 1;
  std::array<PoolAxis, 2> axes;
  Layout from, to;               // the operand and the result: image and windows, or the other way round
  Layout index;                  // of max pools, one per window
  bool is_side_by_side = false;  // windows, along both axes
  /// max_forward: the index is kNoPoolTap where the largest element is not above 0.
  bool hides_zero = false;
  bool has_index() const { return kind != PoolKind::avg_forward && kind != PoolKind::avg_grad; }

  explicit PoolShape(const KernelCall& call);
};

/// An index of 8 bits that no element of a window of at most 255 has.
inline constexpr std::uint8_t kNoPoolTap = 255;

/// Rows [begin, end) of the result, counted over all images, by the fast kernels; as a pool's operands lie. The index
/// of max_forward may be null.
void run_simd_pool_rows(const PoolShape& shape, void* const* operands, std::int64_t begin, std::int64_t end);
/// sums[c] = the sum over `pixels` of dy[pixel, c], of f32, bf16 or f16, where the index names an element.
void run_simd_pool_sums(DType dtype, const void* dy, const std::uint8_t* index, std::int64_t pixels,
                        std::int64_t channels, float* sums);

/// The fast kernels: f32, bf16 and f16 with all channels last. Empty when they can do it, else why not.
std::string simd_pool_refusal(const KernelCall& call);
std::unique_ptr<PreparedKernel> prepare_simd_pool(const KernelCall& call, const Device& device);

}  // namespace paoding
