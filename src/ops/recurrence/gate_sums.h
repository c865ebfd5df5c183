// SPDX-License-Identifier: Apache-2.0
// The sums of a recurrent cell's gates in the step of a scan that somebody wrote: products of the state, products of
// values that the step reads, values. Taken apart in the step, and put together for all steps outside.
#pragma once

#include <array>
#include <map>
#include <optional>
#include <string>

#include "graph/lift.h"
#include "ops/scan/scan.h"

namespace paoding {

/// A part of a gate's sum, the columns from `column` on of the value that it names.
struct GateTerm {
  Ref left;                        // of a product: the left factor of `right`; absent: `right` itself is added
  Ref right;                       // of a product a matrix that is the same every step
  bool is_transposed = false;      // of a product: `right` is multiplied transposed
  std::int64_t row = 0, rows = 0;  // of a product: the rows of it that are multiplied
  std::int64_t column = 0;         // -1: one column for all
};

/// One gate: `state` is the product of the state with a matrix; the rest does not depend on it.
struct GateSum {
  std::optional<GateTerm> state;
  std::vector<GateTerm> products, values;
  std::vector<Ref> others;  // values that depend on the state and are no product of it
  bool is_negated = false;  // wanted is -sum
};

/// Takes sums in the step of a scan apart.
class StepReader {
 public:
  StepReader(const ScanView& scan, Ref h);

  const Node& node(Ref ref) const { return scan_.body.node(ref.node); }
  bool is(Ref ref, std::string_view op) const { return node(ref).op->name == op; }
  const Type& type(Ref ref) const { return scan_.body.type(ref); }
  /// The input of the body.
  Ref input(int i) const { return {scan_.body.inputs()[static_cast<std::size_t>(i)], 0}; }
  bool depends_on_state(Ref ref) const { return depends_[static_cast<std::size_t>(ref.node)].on_state; }
  bool is_same_every_step(Ref ref) const {
    const Depends& depends = depends_[static_cast<std::size_t>(ref.node)];
    return !depends.on_state && !depends.on_step;
  }
  /// The value of a constant that has one for all elements.
  std::optional<double> number(Ref ref) const;
  /// Whether it is op(x, y) with fits(x, y) or fits(y, x).
  template <class Fits>
  bool is_either(Ref ref, std::string_view op, const Fits& fits) const {
    if (!is(ref, op)) return false;
    const Ref a = node(ref).inputs[0], b = node(ref).inputs[1];
    return fits(a, b) || fits(b, a);
  }

  /// Adds `sum` to a gate's. False when there is a second product of the state, with the reason in why_not.
  bool read(Ref sum, GateSum* gate, std::string* why_not) { return read(sum, 0, gate, why_not); }

 private:
  struct Depends {
    bool on_state, on_step;
  };
  bool read(Ref sum, std::int64_t column, GateSum* gate, std::string* why_not);
  bool read_product(const Node& product, std::int64_t column, GateSum* gate, std::string* why_not);

  const ScanView& scan_;
  const Ref h_;
  std::vector<Depends> depends_;
};

/// The sums of all steps, in the graph in which `outer` stands for the scan's inputs.
class GatesOutside {
 public:
  GatesOutside(const StepReader& reader, const ScanView& scan, const Values& outer, std::int64_t hidden);

  /// [H, gates * H]: the matrix that the state is multiplied with.
  Value state_weights(std::span<const GateSum> gates);
  /// [T, B, gates * H]: the gates' summands. Invalid when they cannot be found, with the reason in why_not().
  Value inputs(std::span<const GateSum> gates, std::int64_t rows);
  /// [H]: the same of one gate to which nothing but vectors is added.
  Value vector(const GateSum& gate);
  const std::string& why_not() const { return why_not_; }

 private:
  struct Piece {
    const GateTerm* term;  // null: zeros
    bool is_negated;
  };
  bool is_vector(const GateTerm& term) const;
  std::optional<Lifted> outside(Ref ref);
  Value matrix(std::span<const Piece> pieces);
  Value side_by_side(std::span<const Piece> pieces);
  Value decline(std::string why_not);

  const StepReader& reader_;
  const ScanView& scan_;
  const std::int64_t hidden_;
  Graph& graph_;
  std::map<Ref, Lifted> known_;
  std::string why_not_;
};

}  // namespace paoding
