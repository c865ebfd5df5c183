// SPDX-License-Identifier: Apache-2.0
// OpDef: everything an op says about itself, in one block. Shape and dtype checks, broadcasting, promotion, gradient
// sums over broadcasts, kernels, tests, the op table and the docs are derived from it. Ops outside the tree register
// the same way: see examples/ and docs/design/adding_an_op.md.
#pragma once

#include <functional>
#include <optional>
#include <type_traits>

#include "paoding/error.h"
#include "paoding/graph.h"
#include "paoding/op_facts.h"
#include "paoding/scalar.h"

namespace paoding {

struct CellDescriptor;  // src/ops/recurrence/cell.h

/// An attribute an op takes.
struct AttrSpec {
  std::string name;
  AttrValue example;  // fixes the kind; its value is the default unless `required`
  bool required = false;
  std::string doc = {};
  /// For a float, or a list of floats: integers that no double holds stay integers, so that an i64 is exact.
  bool keeps_integers = false;
};

/// The input of a shape rule: the types of the inputs, the attributes, the bodies.
struct OpCall {
  const OpDef& op;
  std::span<const Type> inputs;
  const Attrs& attrs;
  std::span<const std::shared_ptr<Graph>> bodies;
  Name scope;
  /// "op: message (in scope)".
  [[noreturn]] void fail(ErrorKind kind, const std::string& message) const;
  /// The name of input i, as errors call it.
  std::string input_name(std::size_t i) const;
};

/// The input of a gradient rule. `grads[i]` is invalid where output i does not matter to the loss; an entry of the
/// result may be invalid where an input has no gradient. A gradient may have the output's broadcast shape: the driver
/// sums it to the input's shape.
struct GradCall {
  Graph& graph;
  NodeId id;
  const Node& node;
  Values inputs;
  Values outputs;
  Values grads;
  std::vector<bool> wanted;  // per input
};

/// The input of a lift rule: the node applied to every element of a new outermost axis of extent `length`. Input i has
/// that axis where `lifted[i]`. The outputs must have it. An invalid result declines.
struct LiftCall {
  const Node& node;
  Values inputs;
  std::vector<bool> lifted;
  std::int64_t length;
};

/// A test case of the op sweep: inputs of these shapes; an error text to expect instead of a result.
struct OpCase {
  std::vector<Shape> shapes = {};
  Attrs attrs = {};
  std::vector<DType> dtypes = {};  // of the inputs; f32 where absent
  std::string error = {};          // a part of the message
};

enum class OpKind {
  formula,     // elementwise: a scalar formula, broadcasting derived
  reduction,   // becomes a reduce mask of a group
  view,        // moves no data of its own: slice, reshape, concat ...
  composed,    // written in terms of other ops; a node only if it has a gradient rule, until the passes start, and
               // after that only if one of the implementations registered for it claims the node
  kernel,      // has implementations per device
  structural,  // input, parameter, scan, group
};

/// The role of an op for passes and the planner, beyond its kind. Only the library's own ops have one.
enum class OpRole : std::uint8_t {
  none,
  source,        // its value comes from outside the graph: input, parameter
  generated,     // an element follows from its place alone, and is made where it is read: full, iota
  constant,      // its value is in its attributes, and in memory before the first run
  sum,           // adds up its inputs: add, add_n
  concatenate,   // its inputs become parts of its result: concat, pad
  passed_on,     // its results are its inputs, in their memory: barrier; so are those of the next three
  shown,         // and the host is handed it: print
  update,        // input 0, a parameter, takes the value of input 1 when the run ends: assign
  alternatives,  // a fetch chooses among the inputs after the first by that: variant
  check,         // its result is its input; a run in which that is not as the attributes say fails: check_indices
};

using Formula = std::function<Scalar(std::span<const Scalar>, const Attrs&)>;

struct OpDef {
  std::string name;
  std::string summary;  // the formula or rule in one line
  OpKind kind = OpKind::kernel;
  int version = 1;
  std::vector<std::string> inputs = {};  // names; a last one ending in "..." takes any number (at least one)
  int optional_inputs = 0;               // how many of the last inputs may be absent, from the end
  std::vector<AttrSpec> attrs = {};
  int conditions = 0;       // leading inputs that are bools and take no part in promotion (select)
  bool has_effect = false;  // does something besides giving its result, so it is kept though nobody reads it: assign
  OpRole role = OpRole::none;

  // ---- facts for any op: op_facts.h ----
  std::function<OpCost(const CostCall&)> cost = {};  // of kernels; without it a flop per element, and each operand once
  std::vector<OpAlias> aliases = {};                 // of kernels
  PrecisionRule precision = PrecisionRule::by_kind;
  PrimitiveForm primitive = {};  // of formulas; found by register_op(), not to be given

  // ---- facts of the library's own ops ----
  ViewForm view = ViewForm::none;
  BodyUse bodies = BodyUse::none;
  Conversion conversion = Conversion::none;
  Indexing indexing = Indexing::none;
  Collective collective = Collective::none;
  std::optional<Prim> reduces_with = {};  // of a reduction: add, mul, minimum or maximum
  /// Multiplies matrices: inputs 0 and 1 are [.., m, k] and [.., k, n] with leading axes that broadcast, and are summed
  /// over k. Attributes transpose_a and transpose_b say that an input lies the other way round.
  bool contracts = false;
  std::optional<Convolution> convolution = {};
  const CellDescriptor* cell = nullptr;  // of a recurrence over time, or of its gradient
  bool is_cell_gradient = false;
  std::size_t narrow_inputs =
      0;  // of a composed op: so many leading inputs are of 16 bits in mixed precision, as its products' are
  std::string wide_form = {};    // the op that makes the same of 16 bits, with its sums in f32 as the result
  std::string narrow_form = {};  // of such an op: the one that rounds its sums
  bool is_kept = false;          // of a source: its value stays in a store from run to run
  bool is_uniform = false;       // of a generated value: each element is the attribute `value`
  bool has_unused_room = false;  // its result has elements that nothing is written to

  Formula formula = {};                                                      // formula ops
  std::function<std::vector<Type>(const OpCall&)> infer = {};                // all but formula and composed
  std::function<Values(const GradCall&)> gradient = {};                      // derived for formulas unless given
  std::function<Values(const LiftCall&)> lift = {};                          // derived for formulas
  std::function<Values(std::span<const Value>, const Attrs&)> compose = {};  // composed ops
  /// For a composed op with a gradient rule: a body takes its composition at once, so that passes see which parts of it
  /// do not depend on the values that a loop carries.
  bool is_open_in_bodies = false;
  std::vector<OpCase> cases = {};

  /// A composed op that call() replaces at once by its composition.
  bool is_expanded_at_once() const { return kind == OpKind::composed && !gradient; }
  /// Whether a kernel runs the op's nodes that are left after the passes: a composed op only has some where a kernel
  /// has claimed it.
  bool is_run_by_kernel() const { return kind == OpKind::kernel || kind == OpKind::composed; }
  bool is(OpRole asked) const { return role == asked; }
  /// Whether its results are its inputs, in their memory.
  bool passes_on() const { return OpRole::passed_on <= role && role <= OpRole::alternatives; }
  bool is_scan() const { return bodies == BodyUse::every_step; }
  bool is_fusion_group() const { return bodies == BodyUse::every_point; }
  /// Whether it gives the sums of 16 bits in f32.
  bool is_wide() const { return !narrow_form.empty(); }
  bool is_variadic() const { return !inputs.empty() && inputs.back().ends_with("..."); }
  /// Whether it can have so many inputs.
  bool takes(std::size_t count) const {
    if (is_variadic()) return count >= inputs.size();
    return count <= inputs.size() && inputs.size() - count <= static_cast<std::size_t>(optional_inputs);
  }
};

/// `in` when it has `count` scalars. Error (argument) when it has not: an op has other inputs than its formula takes.
std::span<const Scalar> formula_inputs(std::span<const Scalar> in, std::size_t count);

/// A formula of one to four scalars as OpDef wants it: formula([](Scalar a, Scalar b) { return a * b; }).
template <class F>
Formula formula(F f) {
  using In = std::span<const Scalar>;
  if constexpr (std::is_invocable_v<F, In, const Attrs&>) {
    return f;
  } else if constexpr (std::is_invocable_v<F, Scalar>) {
    return [f](In in, const Attrs&) { return f(formula_inputs(in, 1)[0]); };
  } else if constexpr (std::is_invocable_v<F, Scalar, Scalar>) {
    return [f](In in, const Attrs&) { return formula_inputs(in, 2), f(in[0], in[1]); };
  } else if constexpr (std::is_invocable_v<F, Scalar, Scalar, Scalar>) {
    return [f](In in, const Attrs&) { return formula_inputs(in, 3), f(in[0], in[1], in[2]); };
  } else {
    return [f](In in, const Attrs&) { return formula_inputs(in, 4), f(in[0], in[1], in[2], in[3]); };
  }
}

/// Adds an op to the table. Error (argument) when the name is taken or the block is incomplete: no name, no summary, no
/// formula, composition or shape rule where its kind needs one, names that are there twice or no words (letters and
/// digits, '_' and '.', a letter or '_' first), an alias of an input that it has not, or a kind, role or fact that only
/// the library's own ops can have (view, reduction, structural; any role; the second part of op_facts.h). The results
/// of the block's functions are checked when they are called: Error (argument) names the op and the mistake.
const OpDef& register_op(OpDef op);
/// The op of this name; nullptr when there is none.
const OpDef* find_op(std::string_view name);
/// Every op, by name.
std::vector<const OpDef*> all_ops();

/// Applies `op`: checks arity and attributes, captures values of enclosing graphs, promotes dtypes of formula inputs,
/// infers the result types, adds the node (or the nodes of a composed op's composition). `graph` is needed only for ops
/// without inputs. Errors: those of the op.
Values call(const OpDef& op, std::span<const Value> inputs, Attrs attrs = {},
            std::vector<std::shared_ptr<Graph>> bodies = {}, Graph* graph = nullptr);
/// The same for an op with one output, by name.
Value call(std::string_view op, std::initializer_list<Value> inputs, Attrs attrs = {});

}  // namespace paoding
