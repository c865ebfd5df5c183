// SPDX-License-Identifier: Apache-2.0
// Facts that an op declares beside its meaning. Passes, the planner and reports decide by them and never by an op's
// name, so an op from outside the tree that declares them is treated as those of the tree are. The first part is for
// any op; the second describes the library's own kinds, which register_op() takes from nobody else.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "paoding/graph.h"
#include "paoding/scalar.h"

namespace paoding {

// ---- for any op ----

/// The input of a cost rule: the types of a call. Results of a composed op that nobody reads have shape [0].
struct CostCall {
  std::span<const Type> inputs, outputs;
  const Attrs& attrs;
};

/// The work of one call of an op that a kernel runs. Reports compare a step's time with it, and the planner tells long
/// runs from short ones by it.
struct OpCost {
  double flops = 0;               // arithmetic operations, a multiplication with its addition two
  std::int64_t bytes = -1;        // that are read and written at least; -1: each operand once
  std::int64_t serial_steps = 1;  // that wait for each other, as those of a recurrence do
  bool is_product = false;        // the flops are those of products, which units for matrices do
  std::size_t factor = 0;         // the input whose dtype the flops are done in
  /// The time of a kernel is at most about that of its flops or of its bytes, whichever is longer. Otherwise it is not
  /// known, as that of a sort.
  bool bounds_time = false;
};

/// Where a kernel runs the op, result `result` lies in the memory of input `input`, of the same type: the kernel finds
/// the input's elements there and writes only those that change. The planner copies an input that is needed later.
struct OpAlias {
  std::size_t result = 0, input = 0;
  friend bool operator==(const OpAlias&, const OpAlias&) = default;
};

/// How mixed precision deals with the inputs and results of an op in f32.
enum class PrecisionRule : std::uint8_t {
  by_kind,      // views move, formulas and reductions compute in f32 whatever is stored; others read f32
  product,      // reads 16 bits, and rounds its sums to them
  moves,        // its elements are its inputs', chosen or averaged: they are wanted as its result is
  accumulates,  // adds up in f32: it reads 16 bits only where another reader wants them
  exact,        // decides by its inputs, as a sort does: reads f32 that was not computed from rounded results
};

/// The one scalar primitive that a formula is, as tracing it shows. Formulas of more have none.
struct PrimitiveForm {
  struct Argument {
    int input = -1;     // the number of an input; -1: `number`
    double number = 0;  // a constant of the formula
    friend bool operator==(const Argument&, const Argument&) = default;
  };
  Prim prim = Prim::constant;              // constant: it is none; input: the result is the first argument
  std::array<Argument, 3> arguments = {};  // as many as the primitive takes, in its order
  friend bool operator==(const PrimitiveForm&, const PrimitiveForm&) = default;
};

// ---- of the library's own ops ----

/// How the elements of a view lie among those of its inputs. ops/views.h reads their attributes.
enum class ViewForm : std::uint8_t {
  none,          // it is no view
  reshaped,      // the same elements in the same order
  broadcast,     // elements repeat along axes
  sliced,        // a part, perhaps backwards or with steps
  transposed,    // the axes in another order
  concatenated,  // inputs side by side along an axis
  padded,        // a number around the elements and between them
};

/// How a node runs its bodies.
enum class BodyUse : std::uint8_t {
  none,         // it has none
  every_step,   // once for each of a known number of steps, which carry values on: ops/scan/scan.h
  one_chosen,   // the one that its first input chooses: ops/control/branch.h
  while_true,   // its second as long as its first gives true
  every_point,  // as one kernel, for each point of an iteration space: a fusion group
  inlined,      // not at all: the body takes the node's place before anything else happens
};

/// Whether an op gives its input back in another dtype.
enum class Conversion : std::uint8_t {
  none,
  value,      // each element is converted
  in_memory,  // a stored value is rounded; readers in the same kernel see it as it was
};

/// How ops find elements by indices that are values.
enum class Indexing : std::uint8_t {
  none,
  picks_in_windows,   // result 0 has one element of each window, result 1 says which
  returns_to_picked,  // adds each element of input 0 to the one that input 1, such a result 1, names
  adds_rows,          // adds rows of input 1 at the places that input 0 names
};

/// A collective over the ranks of a communicator. All ranks run it, whatever their values are.
enum class Collective : std::uint8_t {
  none,
  all_reduce,      // element by element, over the ranks; the attribute `reduction` says how
  reduce_scatter,  // the same, of which each rank keeps its part of axis 0
  all_gather,      // the ranks' values along axis 0
  broadcast,       // the value of the rank that the attribute `root` names
  rank_test,       // whether it is the rank of the attribute `number`: known when a program is made
};

/// A convolution of images, or one of its gradients.
struct Convolution {
  enum class Result : std::uint8_t { image, image_gradient, weight_gradient };
  Result result = Result::image;
  bool has_bias = false;   // a bias per channel is added, input 2, and the attribute `activation` applied
  bool has_added = false;  // an image is added as well
  bool is_pooled = false;  // windows of the image are pooled

  bool is_plain() const { return result == Result::image && !has_bias && !is_pooled; }
  bool is_biased() const { return result == Result::image && has_bias && !has_added && !is_pooled; }
  friend bool operator==(const Convolution&, const Convolution&) = default;
};

}  // namespace paoding
