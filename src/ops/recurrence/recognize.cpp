// SPDX-License-Identifier: Apache-2.0
#include "ops/recurrence/recognize.h"

#include "base/check.h"
#include "ops/recurrence/gate_sums.h"
#include "ops/recurrence/steps.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

std::size_t at(int i) { return static_cast<std::size_t>(i); }

// The step of a scan, looked at as a cell whose state is carry `h`.
class Cell {
 public:
  Cell(const ScanView& scan, int h) : scan_(scan), h_at_(h), reader_(scan, {scan.body.inputs()[at(h)], 0}) {
    h_ = reader_.input(h), next_h_ = behind(h);
    if (scan.carries == 2) c_ = reader_.input(1 - h), next_c_ = behind(1 - h);
    const Shape& state = reader_.type(h_).shape;
    if (state.rank() == 2) rows_ = state[0], hidden_ = state[1];
  }

  bool is_found() {
    if (hidden_ == 0 || !is_float(reader_.type(h_).dtype)) return false;
    const bool is_cell = scan_.carries == 2 ? is_lstm() : is_gru() || is_rnn();
    return is_cell && has_sums() && stacks_only_states();
  }
  const std::string& op() const { return op_; }
  const std::string& why_not() const { return why_not_; }

  // Empty when the gates' summands cannot be found.
  Values compose(const Values& outer) {
    GatesOutside outside(reader_, scan_, outer, hidden_);
    const Value xw = outside.inputs(gates_, rows_);
    const Value u = xw.valid() ? outside.state_weights(gates_) : Value();
    const Value bm = u.valid() && op_ == "gru_recurrence" ? outside.vector(inner_) : u;
    if (!bm.valid()) {
      why_not_ = outside.why_not();
      return {};
    }
    const bool is_reverse = scan_.is_reverse;
    const Value& h0 = outer[at(h_at_)];
    Value states, cells;
    Values results(at(scan_.carries));
    if (op_ == "lstm_recurrence") {
      const Value& c0 = outer[at(1 - h_at_)];
      const LstmRecurrence made = lstm_recurrence(xw, u, h0, cast(c0, compute_dtype(c0.dtype())), {}, is_reverse);
      states = made.states, cells = cast(made.cells, c0.dtype());
      results[at(h_at_)] = made.last_h, results[at(1 - h_at_)] = cast(made.last_c, c0.dtype());
    } else if (op_ == "gru_recurrence") {
      const GruRecurrence made = gru_recurrence(xw, u, bm, h0, {}, is_reverse);
      states = made.states, results[0] = made.last_h;
    } else {
      const RnnRecurrence made = rnn_recurrence(xw, u, h0, {}, is_reverse, is_relu_);
      states = made.states, results[0] = made.last_h;
    }
    for (int k = 0; k < scan_.outputs; ++k) {
      const Ref ref = behind(scan_.carries + k);
      const Value& entries = ref == h_ || ref == next_h_ ? states : cells;
      const bool is_before = ref == h_ || ref == c_;
      results.push_back(is_before ? before_steps(entries, is_reverse) : behind_steps(entries, is_reverse));
    }
    return results;
  }

 private:
  Ref behind(int fetch) const { return scan_.body.fetches()[at(fetch)].ref; }
  bool decline(std::string why_not) {
    if (why_not_.empty()) why_not_ = std::move(why_not);
    return false;
  }

  // Takes `ref` for an activated gate: its operand becomes gate `k`'s sum. False when it is activated otherwise, or the
  // gate is another already.
  bool is_gate(Ref ref, std::string_view activation, int k) {
    if (!reader_.is(ref, activation) || !reader_.depends_on_state(ref)) return false;
    Ref& activated = activated_[at(k)];
    if (!activated.valid()) activated = ref;
    return activated == ref;
  }

  // o tanh(f c + i g)
  bool is_lstm() {
    if (!(reader_.type(c_) == reader_.type(h_))) return false;
    op_ = "lstm_recurrence", count_ = 4;
    const bool has_output = reader_.is_either(next_h_, "mul", [&](Ref o, Ref activated) {
      return reader_.is(activated, "tanh") && reader_.node(activated).inputs[0] == next_c_ && is_gate(o, "sigmoid", 3);
    });
    if (!has_output) return false;
    const bool has_cell = reader_.is_either(next_c_, "add", [&](Ref kept, Ref added) {
      return reader_.is_either(kept, "mul", [&](Ref f, Ref c) { return c == c_ && is_gate(f, "sigmoid", 1); }) &&
             reader_.is_either(added, "mul", [&](Ref i, Ref g) {
               return reader_.is(g, "tanh") && is_gate(i, "sigmoid", 0) && is_gate(g, "tanh", 2);
             });
    });
    return has_cell || decline("its cell state is not f c + i g");
  }

  bool is_rest(Ref ref, Ref z) const {
    return reader_.is(ref, "sub") && reader_.number(reader_.node(ref).inputs[0]) == 1.0 &&
           reader_.node(ref).inputs[1] == z;
  }
  bool is_difference(Ref ref, Ref a, Ref b) const {
    return reader_.is(ref, "sub") && reader_.node(ref).inputs[0] == a && reader_.node(ref).inputs[1] == b;
  }

  // Whether it is a + w (b - a) = (1 - w) a + w b with the given ends; w then.
  Ref weight_between(Ref ref, Ref a, Ref b) const {
    Ref weight;
    if (reader_.is(ref, "lerp") && reader_.node(ref).inputs[0] == a && reader_.node(ref).inputs[1] == b) {
      return reader_.node(ref).inputs[2];
    }
    reader_.is_either(ref, "add", [&](Ref first, Ref second) {
      const auto is_step = [&](Ref w, Ref change) {
        if (first == a && is_difference(change, b, a)) weight = w;
        return weight.valid();
      };
      const auto is_second = [&](Ref w, Ref of_b) {
        if (of_b != b) return false;
        const bool is_first =
            reader_.is_either(first, "mul", [&](Ref rest, Ref of_a) { return of_a == a && is_rest(rest, w); });
        if (is_first) weight = w;
        return is_first;
      };
      return reader_.is_either(second, "mul", is_step) || reader_.is_either(second, "mul", is_second);
    });
    return weight;
  }

  // n + z (h - n) in one of its forms, n = tanh(.. + r m).
  bool is_gru() {
    op_ = "gru_recurrence", count_ = 3;
    for (NodeId id = 0; id < scan_.body.size(); ++id) {
      const Ref n{id, 0};
      if (!reader_.is(n, "tanh") || !reader_.depends_on_state(n)) continue;
      for (const bool is_transposed : {false, true}) {
        const Ref z = is_transposed ? weight_between(next_h_, h_, n) : weight_between(next_h_, n, h_);
        if (!z.valid()) continue;
        // The rest of a gate is the gate of the negated sum.
        const bool is_of_rest = reader_.is(z, "sub") && reader_.number(reader_.node(z).inputs[0]) == 1.0;
        const Ref activated = is_of_rest ? reader_.node(z).inputs[1] : z;
        if (!is_gate(activated, "sigmoid", 1)) return decline("its update gate is not activated by a sigmoid");
        gates_[1].is_negated = is_transposed != is_of_rest;
        activated_[2] = n;
        return true;
      }
    }
    return false;
  }

  bool is_rnn() {
    op_ = "rnn_recurrence", count_ = 1;
    const auto is_zero = [&](Ref ref) { return reader_.number(ref) == 0.0; };
    is_relu_ = !reader_.is(next_h_, "tanh");
    const bool is_maximum = reader_.is_either(next_h_, "maximum", [&](Ref sum, Ref zero) {
      relu_sum_ = sum;
      return is_zero(zero);
    });
    if (!is_maximum) relu_sum_ = {};
    if (is_relu_ && !is_maximum && !reader_.is(next_h_, "relu")) return false;
    activated_[0] = next_h_;
    return true;
  }

  bool has_sums() {
    const bool is_gru = op_ == "gru_recurrence";
    for (int k = 0; k < count_; ++k) {
      if (is_gru && k == 0) continue;  // is found in the sum of n
      const Ref sum = relu_sum_.valid() ? relu_sum_ : reader_.node(activated_[at(k)]).inputs[0];
      if (!reader_.read(sum, &gates_[at(k)], &why_not_)) return false;
    }
    if (is_gru && !has_reset()) return false;
    gates_.resize(at(count_));
    for (const GateSum& gate : gates_) {
      if (!gate.others.empty()) return decline("a gate depends on the state through " + label(gate.others[0]));
      if (!gate.state) return decline("a gate has no product of the state");
      if (!(reader_.type(gate.state->right).dtype == reader_.type(h_).dtype)) return decline("its weights are cast");
    }
    return true;
  }

  // The one that n adds r m as.
  bool has_reset() {
    GateSum& n = gates_[2];
    if (n.state) return decline("its reset gate does not scale a product of the state");
    if (n.others.size() != 1) return decline("n is not the tanh of a sum with r m");
    const Ref scaled = n.others[0];
    if (reader_.is(scaled, "matmul")) return decline("its reset gate scales the state, not a product of it");
    Ref inner;
    const bool is_product = reader_.is_either(scaled, "mul", [&](Ref r, Ref m) {
      if (!reader_.is(r, "sigmoid")) return false;
      inner = m;
      return is_gate(r, "sigmoid", 0);
    });
    if (!is_product) return decline("n is not the tanh of a sum with r m");
    if (!reader_.read(reader_.node(activated_[0]).inputs[0], &gates_[0], &why_not_)) return false;
    if (!reader_.read(inner, &inner_, &why_not_)) return false;
    if (!inner_.others.empty()) return decline("r scales what depends on the state through " + label(inner_.others[0]));
    if (!inner_.state) return decline("its reset gate does not scale a product of the state");
    if (!inner_.products.empty()) return decline("what the reset gate scales depends on the step");
    n.others.clear();
    n.state = inner_.state;
    return true;
  }

  std::string label(Ref ref) const { return reader_.node(ref).label(); }

  bool stacks_only_states() {
    for (int k = 0; k < scan_.outputs; ++k) {
      const Ref ref = behind(scan_.carries + k);
      const bool is_state = ref == h_ || ref == next_h_, is_cell = c_.valid() && (ref == c_ || ref == next_c_);
      if (!is_state && !is_cell) return decline("it stacks " + label(ref) + ", which is not its state");
    }
    return true;
  }

  const ScanView& scan_;
  const int h_at_;
  StepReader reader_;
  Ref h_, c_, next_h_, next_c_;  // of the body
  std::int64_t rows_ = 0, hidden_ = 0;
  std::string op_, why_not_;
  int count_ = 0;  // of gates
  std::array<Ref, 4> activated_;
  std::vector<GateSum> gates_ = std::vector<GateSum>(4);
  GateSum inner_;  // m
  bool is_relu_ = false;
  Ref relu_sum_;
};

std::optional<Cell> cell_of(const ScanView& scan, std::string* why_not) {
  if (scan.length == 0 || scan.carries < 1 || scan.carries > 2 || !scan.body.effects().empty()) return std::nullopt;
  for (int h = 0; h < scan.carries; ++h) {
    Cell cell(scan, h);
    if (cell.is_found()) return cell;
    if (why_not != nullptr && !cell.why_not().empty()) *why_not = cell.op() + ": " + cell.why_not();
  }
  return std::nullopt;
}

}  // namespace

std::string recurrence_of(const ScanView& scan, std::string* why_not) {
  auto cell = cell_of(scan, why_not);
  if (!cell) return "";
  Graph apart;  // a trial: some ops have no rule for all steps at once
  Values outer;
  for (int i = 0; i < static_cast<int>(scan.body.inputs().size()); ++i) {
    Type type = scan.body.type({scan.body.inputs()[at(i)], 0});
    if (i >= scan.first_sequence() && i < scan.first_constant()) type.shape = type.shape.with_inserted(0, scan.length);
    outer.push_back(apart.input(fmt::format("in{}", i), type.dtype, type.shape));
  }
  std::string reason;
  try {
    if (!cell->compose(outer).empty()) return cell->op();
    reason = cell->why_not();
  } catch (const Error& error) {
    reason = error.what();
  }
  if (why_not != nullptr) *why_not = cell->op() + ": " + reason;
  return "";
}

Values as_recurrence(const ScanView& scan, const Values& outer) { return cell_of(scan, nullptr)->compose(outer); }

}  // namespace paoding
