// SPDX-License-Identifier: Apache-2.0
// A call of gather, scatter_add, their *_elements or embedding_grad as kernels see it, and the error about an index out
// of range, which reads the same on every device.
#pragma once

#include <string>

#include "ops/kernel.h"

namespace paoding {

/// `axis` of a call, counted from the front of a value of this rank.
int index_axis(const KernelCall& call, int rank);
/// The row that embedding_grad adds nothing to; -1 of scatter_add, which adds to all.
std::int64_t padding_row(const KernelCall& call);

/// The indices of a call: read as i64, and named in the error about one that is out of range.
class Indices {
 public:
  Indices(const KernelCall& call, std::size_t input, int axis, std::int64_t range)
      : type_(call.inputs[input].type), op_(op_name(call)), scope_(call.scope), axis_(axis), range_(range) {}

  std::int64_t count() const { return type_.shape.elements(); }
  bool is_wide() const { return type_.dtype == DType::i64; }
  bool is_legal(std::int64_t id) const { return static_cast<std::uint64_t>(id) < static_cast<std::uint64_t>(range_); }

  /// Error (argument): index number `position` is `id`.
  [[noreturn]] void fail(std::int64_t position, std::int64_t id) const;
  /// The same for indices that lie in host memory.
  [[noreturn]] void fail_at(const void* data, std::int64_t position) const;

 private:
  static std::string op_name(const KernelCall& call);  // as the user knows it

  Type type_;
  std::string op_, scope_;
  int axis_;
  std::int64_t range_;
};

/// The limits of a call of check_indices, and its error.
class CheckedIndices {
 public:
  explicit CheckedIndices(const KernelCall& call);

  std::int64_t least() const { return least_; }
  std::int64_t most() const { return most_; }
  std::int64_t count() const { return type_.shape.elements(); }
  bool is_legal(std::int64_t id) const { return least_ <= id && id <= most_; }
  /// Error (argument): index number `position` is `id`.
  [[noreturn]] void fail(std::int64_t position, std::int64_t id) const;

 private:
  Type type_;
  std::int64_t least_, most_;
  std::string what_, scope_;
};

/// Why kernels decline a call of check_indices; empty when they do not.
std::string checked_refusal(const KernelCall& call);

}  // namespace paoding
