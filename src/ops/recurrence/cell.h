// SPDX-License-Identifier: Apache-2.0
// Everything that code outside of the cells' own files asks of a recurrent cell: how many gates it has, where its ops
// over time have their inputs, results, biases and lengths, and which results a gradient reads. A new cell fills one
// in.
#pragma once

#include <cstddef>
#include <vector>

#include "paoding/op.h"

namespace paoding {

/// Attributes of a gradient that say whether those of the states at the end are given, by CellDescriptor::last.
inline constexpr const char* kLastStates[] = {"last_h", "last_c"};

/// A recurrence over time and its gradient, by the places of their inputs and results. Of the recurrence xw is input 0,
/// u input 1, states are result 0, and after the inputs listed here come lengths and a bias. Of the gradient, input 0
/// is u; after it come the results that it reads, then gradients, each of which may be absent, and lengths.
struct CellDescriptor {
  const char* op;                     // its gradient over time is the op of this name and "_grad"
  std::int64_t gates;                 // xw and u have so many times the columns of a state
  std::size_t inputs;                 // that are always there
  std::size_t h0, c0 = 0;             // inputs; c0 is 0 where there is none
  std::size_t bm = 0;                 // the bias of the last gate's product of the state; 0: none
  std::size_t cells = 0;              // result: the cell states, which stay f32 beside 16 bits; 0: none
  std::vector<std::size_t> read;      // results that the gradient reads, in its order
  std::vector<std::size_t> last;      // results that are states at the end, h first
  std::vector<std::size_t> internal;  // results of which nobody should want a gradient
  bool has_relu = false;

  /// Whether the gradient's result 1 is that of the state's products, where it differs from result 0, that of xw.
  bool has_inner_gradient() const { return bm != 0; }
  /// Inputs of the op, or of its gradient, that stay f32 where the others are of 16 bits.
  std::vector<std::size_t> wide_inputs(bool is_gradient, const Attrs& attrs) const;

  AttrSpec reverse() const { return {.name = "reverse", .example = false, .doc = "from the last step to the first"}; }
  /// Attributes of the op, and of its gradient.
  std::vector<AttrSpec> attrs() const;
  std::vector<AttrSpec> gradient_attrs() const;
};

/// The cell that the op runs over time, forward; nullptr where it does not.
inline const CellDescriptor* cell_over_time(const OpDef& op) { return op.is_cell_gradient ? nullptr : op.cell; }
/// The cell of whose recurrence over time the op is the gradient; nullptr where it is none.
inline const CellDescriptor* cell_of_gradient(const OpDef& op) { return op.is_cell_gradient ? op.cell : nullptr; }

/// The work of a recurrence, or of its gradient: in every step a product of every row with u.
OpCost cost_over_time(const CostCall& call, bool is_gradient);

}  // namespace paoding
