// SPDX-License-Identifier: Apache-2.0
#include "ops/recurrence/gate_sums.h"

#include <algorithm>

#include "ops/views.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

std::int64_t last_extent(const Shape& shape) { return shape.rank() == 0 ? 1 : shape[shape.rank() - 1]; }

GateTerm added(Ref ref, std::int64_t column) {
  GateTerm term;
  term.right = ref, term.column = column;
  return term;
}

Value sum_of(const Value& a, const Value& b) { return a.valid() ? a + b : b; }

}  // namespace

// ---- in the step ----

StepReader::StepReader(const ScanView& scan, Ref h) : scan_(scan), h_(h) {
  depends_.resize(at(scan.body.size()), {false, false});
  for (int i = 0; i < scan.first_constant(); ++i) {
    (i < scan.carries ? depends_[at(input(i).node)].on_state : depends_[at(input(i).node)].on_step) = true;
  }
  for (NodeId id = 0; id < scan.body.size(); ++id) {
    for (const Ref& ref : scan.body.node(id).inputs) {
      depends_[at(id)].on_state |= depends_[at(ref.node)].on_state;
      depends_[at(id)].on_step |= depends_[at(ref.node)].on_step;
    }
  }
}

std::optional<double> StepReader::number(Ref ref) const {
  while (is(ref, "expand")) ref = node(ref).inputs[0];
  if (!is(ref, "full")) return std::nullopt;
  return node(ref).attrs.get_float("value");
}

bool StepReader::read(Ref sum, std::int64_t column, GateSum* gate, std::string* why_not) {
  const Node& made = node(sum);
  const Shape& shape = type(sum).shape;
  if (made.op->name == "add") {
    for (const Ref& term : made.inputs) {
      const bool is_one_column = last_extent(type(term).shape) == 1 && last_extent(shape) != 1;
      if (is_one_column && !depends_on_state(term)) {
        gate->values.push_back(added(term, -1));
      } else if (!read(term, is_one_column ? 0 : column, gate, why_not)) {
        return false;
      }
    }
    return true;
  }
  if (made.op->name == "slice") {
    const SliceRange range = slice_range(made);
    const Shape& whole = type(made.inputs[0]).shape;
    bool is_of_columns = range.is_plain();
    for (int axis = 0; axis + 1 < whole.rank(); ++axis) is_of_columns &= range.extent(axis) == whole[axis];
    if (is_of_columns) return read(made.inputs[0], column + range.start.back(), gate, why_not);
  }
  if (made.op->name == "matmul" && read_product(made, column, gate, why_not)) return why_not->empty();
  if (depends_on_state(sum)) {
    gate->others.push_back(sum);
  } else {
    gate->values.push_back(added(sum, column));
  }
  return true;
}

// False when it is not a product of the state or of a value that the step reads with a matrix that stays the same.
bool StepReader::read_product(const Node& product, std::int64_t column, GateSum* gate, std::string* why_not) {
  const Ref left = product.inputs[0], right = product.inputs[1];
  const bool is_transposed = product.attrs.get_bool("transpose_b");
  if (product.attrs.get_bool("transpose_a") || type(left).shape.rank() != 2 || type(right).shape.rank() != 2) {
    return false;
  }
  if (!is_same_every_step(right)) {
    if (left == h_) *why_not = "what the state is multiplied with changes from step to step";
    return left == h_;
  }
  std::vector<Ref> parts = {left};
  if (is(left, "concat") && concat_axis(node(left)) == 1) parts = node(left).inputs;
  const auto is_state = [&](Ref part) { return part == h_; };
  if (std::any_of(parts.begin(), parts.end(), [&](Ref part) { return depends_on_state(part) && !is_state(part); })) {
    return false;
  }
  std::int64_t row = 0;
  for (const Ref& part : parts) {
    const GateTerm term{part, right, is_transposed, row, type(part).shape[1], column};
    row += term.rows;
    if (!is_state(part)) {
      gate->products.push_back(term);
    } else if (gate->state) {
      *why_not = "the state is multiplied twice";
      return true;
    } else {
      gate->state = term;
    }
  }
  return true;
}

// ---- outside ----

GatesOutside::GatesOutside(const StepReader& reader, const ScanView& scan, const Values& outer, std::int64_t hidden)
    : reader_(reader), scan_(scan), hidden_(hidden), graph_(outer[0].graph()) {
  for (std::size_t i = 0; i < outer.size(); ++i) {
    const int index = static_cast<int>(i);
    if (index >= scan.carries) known_[reader.input(index)] = {outer[i], index < scan.first_constant()};
  }
}

Value GatesOutside::decline(std::string why_not) {
  if (why_not_.empty()) why_not_ = std::move(why_not);
  return {};
}

// The value over all steps: its operands are made outside.
std::optional<Lifted> GatesOutside::outside(Ref ref) {
  if (const auto it = known_.find(ref); it != known_.end()) return it->second;
  std::vector<Lifted> inputs;
  for (const Ref& input : reader_.node(ref).inputs) {
    const auto lifted = outside(input);
    if (!lifted) return std::nullopt;
    inputs.push_back(*lifted);
  }
  std::string why_not;
  const auto made = lift_node(graph_, reader_.node(ref), inputs, scan_.length, &why_not);
  if (!made) {
    decline(why_not);
    return std::nullopt;
  }
  for (std::size_t k = 0; k < made->size(); ++k) known_[{ref.node, static_cast<std::int32_t>(k)}] = (*made)[k];
  return known_.at(ref);
}

bool GatesOutside::is_vector(const GateTerm& term) const {
  const Shape& shape = reader_.type(term.right).shape;
  return reader_.is_same_every_step(term.right) && shape.elements() == last_extent(shape);
}

// The columns of matrices, gate beside gate: columns that lie so already are a part of it.
Value GatesOutside::matrix(std::span<const Piece> pieces) {
  const GateTerm& first = *pieces[0].term;
  bool is_one = true;
  for (std::size_t k = 0; k < pieces.size(); ++k) {
    const GateTerm& term = *pieces[k].term;
    is_one &= term.right == first.right && term.is_transposed == first.is_transposed && term.row == first.row;
    is_one &= term.column == first.column + static_cast<std::int64_t>(k) * hidden_ && !pieces[k].is_negated;
  }
  const auto part = [&](const GateTerm& term, std::int64_t columns) {
    const auto right = outside(term.right);
    if (!right) return Value();
    const int row_axis = term.is_transposed ? 1 : 0;
    const Value rows = slice(right->value, row_axis, term.row, term.row + term.rows);
    const Value both = slice(rows, 1 - row_axis, term.column, term.column + columns);
    return term.is_transposed ? transpose(both, std::vector<int>{1, 0}) : both;
  };
  if (is_one) return part(first, hidden_ * static_cast<std::int64_t>(pieces.size()));
  Values parts;
  for (const Piece& piece : pieces) {
    const Value made = part(*piece.term, hidden_);
    if (!made.valid()) return {};
    parts.push_back(piece.is_negated ? -made : made);
  }
  return concat(parts, 1);
}

// The same of values that are added, [H] or [.., B, H] each.
Value GatesOutside::side_by_side(std::span<const Piece> pieces) {
  const auto whole = [&](const GateTerm& term) -> Value {
    const auto made = outside(term.right);
    if (!made) return {};
    const Shape& shape = made->value.shape();
    if (is_vector(term)) return reshape(made->value, Shape{shape.elements()});
    if (!made->has_time || shape.rank() == 3) return made->value;
    return shape.rank() == 2 ? reshape(made->value, shape.with_inserted(1, 1))
                             : reshape(made->value, Shape{shape[0], 1, 1});
  };
  const GateTerm* first = pieces[0].term;
  bool is_one = first != nullptr, is_one_column = is_one;
  for (std::size_t k = 0; k < pieces.size() && is_one; ++k) {
    const GateTerm* term = pieces[k].term;
    is_one = term != nullptr && term->right == first->right && !pieces[k].is_negated;
    is_one_column &= is_one && term->column == -1;
    is_one = is_one && (is_one_column || term->column == first->column + static_cast<std::int64_t>(k) * hidden_);
  }
  if (is_one) {
    const Value made = whole(*first);
    if (!made.valid() || (is_one_column && !is_vector(*first))) return made;
    const std::int64_t columns = hidden_ * static_cast<std::int64_t>(pieces.size());
    if (is_one_column) return expand(made, Shape{columns});
    return slice(made, made.shape().rank() - 1, first->column, first->column + columns);
  }
  Values parts;
  for (const Piece& piece : pieces) {
    if (piece.term == nullptr) {
      parts.push_back(full(graph_, Shape{hidden_}, 0, reader_.type(reader_.input(0)).dtype));
      continue;
    }
    const Value made = whole(*piece.term);
    if (!made.valid()) return {};
    const int axis = made.shape().rank() - 1;
    const std::int64_t column = piece.term->column;
    Shape shape = made.shape().with_removed(axis);
    shape = shape.with_inserted(axis, hidden_);
    const Value columns = column < 0 ? expand(made, shape) : slice(made, axis, column, column + hidden_);
    parts.push_back(piece.is_negated ? -columns : columns);
    if (!(parts.back().shape() == parts[0].shape())) return decline("its gates differ in what is added to them");
  }
  return concat(parts, parts[0].shape().rank() - 1);
}

Value GatesOutside::state_weights(std::span<const GateSum> gates) {
  std::vector<Piece> pieces;
  for (const GateSum& gate : gates) pieces.push_back({&*gate.state, gate.is_negated});
  return matrix(pieces);
}

Value GatesOutside::inputs(std::span<const GateSum> gates, std::int64_t rows) {
  Value total;
  for (std::size_t i = 0; i < gates[0].products.size(); ++i) {
    const Ref left = gates[0].products[i].left;
    const auto nth = std::count_if(gates[0].products.begin(), gates[0].products.begin() + static_cast<long>(i),
                                   [&](const GateTerm& term) { return term.left == left; });
    std::vector<Piece> pieces;
    for (const GateSum& gate : gates) {
      auto left_over = nth;
      for (const GateTerm& term : gate.products) {
        if (term.left == left && left_over-- == 0) pieces.push_back({&term, gate.is_negated});
      }
      if (gate.products.size() != gates[0].products.size()) return decline("its gates differ in what they multiply");
    }
    if (pieces.size() != gates.size()) return decline("its gates differ in what they multiply");
    const auto x = outside(left);
    const Value weights = matrix(pieces);
    if (!x || !weights.valid()) return {};
    total = sum_of(total, matmul(x->value, weights));
  }
  for (const bool of_vectors : {false, true}) {
    const auto nth_of = [&](const GateSum& gate, std::size_t n) -> const GateTerm* {
      for (const GateTerm& term : gate.values) {
        if (is_vector(term) == of_vectors && n-- == 0) return &term;
      }
      return nullptr;
    };
    for (std::size_t n = 0;; ++n) {
      std::vector<Piece> pieces;
      for (const GateSum& gate : gates) pieces.push_back({nth_of(gate, n), gate.is_negated});
      const auto is_absent = [](const Piece& piece) { return piece.term == nullptr; };
      if (std::all_of(pieces.begin(), pieces.end(), is_absent)) break;
      if (!of_vectors && std::any_of(pieces.begin(), pieces.end(), is_absent)) {
        return decline("its gates differ in what is added to them");
      }
      const Value made = side_by_side(pieces);
      if (!made.valid()) return {};
      total = sum_of(total, made);
    }
  }
  const DType dtype = reader_.type(reader_.input(0)).dtype;
  const Shape shape{scan_.length, rows, static_cast<std::int64_t>(gates.size()) * hidden_};
  if (!total.valid()) total = full(graph_, {}, 0, dtype);
  if (total.dtype() != dtype) return decline("its gates are of another type than its state");
  return total.shape() == shape ? total : expand(total, shape);
}

Value GatesOutside::vector(const GateSum& gate) {
  Value total;
  for (const GateTerm& term : gate.values) {
    if (!is_vector(term)) return decline("what the reset gate scales depends on the step or the row");
    const std::array<Piece, 1> piece = {Piece{&term, gate.is_negated}};
    const Value made = side_by_side(piece);
    if (!made.valid()) return {};
    total = sum_of(total, made);
  }
  return total.valid() ? total : full(graph_, Shape{hidden_}, 0, reader_.type(reader_.input(0)).dtype);
}

}  // namespace paoding
