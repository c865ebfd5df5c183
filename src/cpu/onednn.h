// SPDX-License-Identifier: Apache-2.0
// oneDNN primitives in a row, prepared once: running them sets pointers and executes, nothing else.
#pragma once

#include <cstdint>
#include <dnnl.hpp>
#include <string_view>
#include <utility>
#include <vector>

#include "base/layout.h"

namespace paoding {

const dnnl::engine& onednn_engine();

/// Limits of numbers that oneDNN counts in 32 bits internally, though its interface takes 64: extents, and the bytes
/// that a kernel works on at once, which is at most kOneDnnRows rows of an operand. (Measured with 2.6.3 on AVX-512:
/// leading dimensions of 300 million f32 give wrong sums or end the process, operands of 5 billion elements in short
/// rows are right.)
inline constexpr std::int64_t kMostOneDnnExtent = 0x7fffffff, kMostOneDnnBytes = 0x7fffffff, kOneDnnRows = 64;

/// Error (device): "op: oneDNN failed (why); .." with the memory that is free.
[[noreturn]] void fail_in_onednn(std::string_view op, std::string_view why);

/// The data type of f32 and bf16.
dnnl::memory::data_type onednn_type(DType dtype);
/// `layout` as oneDNN describes it; `dims` and `strides` may be another view of it.
dnnl::memory::desc onednn_desc(DType dtype, const std::vector<std::int64_t>& dims,
                               const std::vector<std::int64_t>& strides);

/// The result of `make`; Error (device) when oneDNN throws, which names the op and the memory that is free.
template <class Make>
auto made_by_onednn(std::string_view op, Make make) {
  try {
    return make();
  } catch (const dnnl::error& error) {
    fail_in_onednn(op, error.what());
  }
}

/// Primitives that run one after the other on operands of a kernel and on scratch memory.
class OneDnnSequence {
 public:
  /// Where a memory's bytes are.
  struct Place {
    bool is_scratch = false;
    std::int64_t at = 0;  // operand number, or offset in the scratch memory
  };
  static Place operand(std::size_t i) { return {false, static_cast<std::int64_t>(i)}; }

  OneDnnSequence();
  OneDnnSequence(OneDnnSequence&&) = default;

  /// A new piece of scratch memory, kept apart from all others.
  Place scratch(std::size_t bytes);
  /// A memory of this description at this place; the number it has in add().
  std::size_t memory(const dnnl::memory::desc& desc, Place place);
  /// Appends a primitive with its arguments: DNNL_ARG_.. and the number of a memory.
  void add(dnnl::primitive primitive, std::vector<std::pair<int, std::size_t>> arguments);
  /// Appends a conversion from one memory to another; nothing when the descriptions are equal and so are the places.
  void add_reorder(std::size_t from, std::size_t to);
  const dnnl::memory::desc& desc(std::size_t memory) const { return descs_[memory]; }

  std::int64_t scratch_bytes() const { return scratch_bytes_; }
  /// Error (device) when oneDNN cannot, for want of memory.
  void run(void* const* operands, void* scratch) const;

 private:
  struct Stage {
    dnnl::primitive primitive;
    std::vector<dnnl_exec_arg_t> arguments;
  };
  dnnl::stream stream_;
  std::vector<dnnl::memory> memories_;
  std::vector<dnnl::memory::desc> descs_;
  std::vector<Place> places_;
  std::vector<Stage> stages_;
  std::int64_t scratch_bytes_ = 0;
  mutable bool has_run_ = false;  // some of the machine code is written when it is first run
};

}  // namespace paoding
