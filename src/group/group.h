// SPDX-License-Identifier: Apache-2.0
// Group: the loop nest that everything but products and convolutions is compiled to. One broadcast iteration space,
// loads with strides (0 = broadcast), one scalar Expr, and outputs that each reduce over their own set of axes. Outputs
// with different reduce masks share one read: lerp_grad writes dy and reduces dx in one pass over dout. The Expr may
// also read its own reductions (the row maximum and the row sum of a softmax): a group then runs in stages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "paoding/scalar.h"

namespace paoding {

inline constexpr int kMaxGroupRank = 10;

/// How the elements that fall on one output element are combined. Without any element: 0, -inf or the least integer,
/// +inf or the greatest integer, 1. A NaN among the elements makes max and min NaN. none over reduced axes: the value
/// does not vary along them (it depends on the group's own reductions, say) and is written once.
enum class Combine : std::uint8_t { none, sum, max, min, prod };

/// An operand read once per iteration point: element address = sum over axes of index * stride.
struct GroupLoad {
  DType dtype = DType::f32;           // as stored; converted to compute_dtype(dtype) when read
  std::vector<std::int64_t> strides;  // in elements, one per axis of the space; 0 where broadcast
  friend bool operator==(const GroupLoad&, const GroupLoad&) = default;
};

/// An operand written: expr node `value`, reduced over the axes in `reduce_mask`.
struct GroupOutput {
  DType dtype = DType::f32;           // as stored
  std::int32_t value = -1;            // node of the Expr
  std::uint32_t reduce_mask = 0;      // bit a: axis a is reduced
  Combine combine = Combine::none;    // none when reduce_mask is 0
  std::vector<std::int64_t> strides;  // in elements; 0 on reduced axes
  friend bool operator==(const GroupOutput&, const GroupOutput&) = default;
};

/// An index value, which follows from the iteration point alone: start + sum over axes of index * stride. Read with
/// Prim::index. It has no memory and is no operand.
struct GroupIndex {
  DType dtype = DType::i64;  // i64 or i32
  std::int64_t start = 0;
  std::vector<std::int64_t> strides;  // one per axis of the space
  friend bool operator==(const GroupIndex&, const GroupIndex&) = default;
};

/// A reduction whose result the group itself reads, at every point it was reduced over, with Prim::reduced. All of a
/// group reduce over the same axes. Its pass over the points is that of stages()[value]; the Prim::reduced that reads
/// it stands after `value` in the Expr. The result has the compute dtype of `value`; it is not rounded to the dtype
/// in which an unfused program would store it.
struct GroupReduction {
  std::int32_t value = -1;  // node of the Expr
  Combine combine = Combine::sum;
  std::uint32_t reduce_mask = 0;  // bit a: axis a is reduced; never 0
  friend bool operator==(const GroupReduction&, const GroupReduction&) = default;
};

/// Operands are numbered loads first, then outputs; each has its own pointer when the group runs, which already
/// includes any constant offset. Prim::input with index i reads loads[i]. An output may share memory with a load only
/// if both have the same dtype, strides and start, and the output does not reduce (each element is then read before it
/// is written, by the same iteration point). A group with reductions writes its other outputs in its last pass over the
/// points of those reductions, so this holds for it too.
struct Group {
  std::vector<std::int64_t> extents;  // the iteration space, outermost axis first; rank 0 is one point
  std::vector<GroupLoad> loads;
  std::vector<GroupOutput> outputs;
  std::vector<GroupIndex> indices;
  std::vector<GroupReduction> reductions;  // every one reads only earlier ones
  Expr expr;

  int rank() const { return static_cast<int>(extents.size()); }
  std::int64_t points() const;
  std::size_t operands() const { return loads.size() + outputs.size(); }
  /// Bytes that must move at least: every distinct element of a load read once, every output element written once.
  std::int64_t min_bytes() const { return min_read_bytes() + min_written_bytes(); }
  std::int64_t min_read_bytes() const;
  std::int64_t min_written_bytes() const;
};

/// Same group with axes of extent 1 dropped, adjacent axes merged wherever every operand's strides and every reduce
/// mask allow it, and axes ordered so that the last is the one along which most bytes are contiguous.
Group canonical(const Group& group);

/// Fails when the group is not as described above: masks, strides, node indices, the order of reductions.
void check(const Group& group);

/// The pass over the points of one row (the elements of one reduction) in which each node of the Expr can be computed:
/// 0 unless it depends on a reduction, 1 where that reduction needs nothing but loads, and so on.
std::vector<int> stages(const Group& group);

/// Whether each node of the Expr takes different values along the axes in `mask`, which must be 0 or, in a group with
/// reductions, contain or equal their mask. Nodes that do not are computed once per row.
std::vector<bool> varies_along(const Group& group, std::uint32_t mask);

/// The result of combining no element, in a compute dtype, as a double (the greatest i64 is 2^63 then).
double identity_of(Combine combine, DType compute);

std::string_view to_string(Combine combine);

/// One line per load and output and the Expr, for dumps: "space [16, 150528]", "load 0 f32 (150528, 1)" ...
std::string to_string(const Group& group);

/// Runs the group in double, point by point: the reference that every generated kernel is compared with.
/// `operands`: for each operand a dense array of doubles addressed by its strides. Sums are compensated.
void run_reference(const Group& group, const std::vector<double*>& operands);

}  // namespace paoding
