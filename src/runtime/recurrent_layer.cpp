// SPDX-License-Identifier: Apache-2.0
#include "runtime/recurrent_layer.h"

#include "base/check.h"
#include "base/device_name.h"
#include "ops/recurrence/steps.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

// The layer's extents and the types that follow from them.
struct LayerTypes {
  explicit LayerTypes(const pd_recurrent_layer& l)
      : dtype(dtype_of(l.number)), wide(compute_dtype(dtype)), T(l.steps), B(l.batch), I(l.inputs), H(l.hidden) {
    is_lstm = l.cell == PD_LSTM, is_gru = l.cell == PD_GRU;
    G = is_lstm ? 4 : is_gru ? 3 : 1;
    gates_first = l.gates_first != 0;
  }
  Shape weight(std::int64_t inputs) const { return gates_first ? Shape{G * H, inputs} : Shape{inputs, G * H}; }
  DType dtype, wide;  // of cell states
  std::int64_t T, B, I, H, G;
  bool is_lstm, is_gru, gates_first;
};

class Memory {
 public:
  explicit Memory(Graph* graph) : graph_(*graph) {}
  Value read(const char* name, DType dtype, const Shape& shape) { return graph_.parameter(name, dtype, shape); }
  void write(const char* name, const Value& value) { graph_.fetch(name, value); }

 private:
  Graph& graph_;
};

// u as recurrences have it, [H, G H].
Value steps_matrix(const LayerTypes& t, const Value& u) {
  return t.gates_first ? transpose(u, std::array<std::int64_t, 2>{1, 0}) : u;
}

Value sum_of(const Value& b, const Value& b_hh) { return b_hh.valid() ? b + b_hh : b; }

Value weight_gradient(const LayerTypes& t, const Value& before, const Value& d_product) {
  return t.gates_first ? gradient_of_weights(d_product, before) : gradient_of_weights(before, d_product);
}

}  // namespace

DType dtype_of(pd_number number) {
  constexpr DType kTypes[] = {f32, f64, bf16, f16};
  return kTypes[number];
}

Device device_of(const char* name) {
  const std::string_view text = name == nullptr ? "" : name;
  if (const auto device = device_named(text)) return *device;
  fail(ErrorKind::argument, "device is '{}', needs to be cpu, cuda or cuda:N", text);
}

void check_layer(const pd_recurrent_layer& layer) {
  if (layer.cell < PD_LSTM || layer.cell > PD_RNN_RELU) {
    fail(ErrorKind::argument, "cell is {}, needs to be PD_LSTM, PD_GRU, PD_RNN_TANH or PD_RNN_RELU",
         static_cast<int>(layer.cell));
  }
  if (layer.number < PD_F32 || layer.number > PD_F16) {
    fail(ErrorKind::argument, "number is {}, needs to be PD_F32, PD_F64, PD_BF16 or PD_F16",
         static_cast<int>(layer.number));
  }
  const std::pair<const char*, std::int64_t> extents[] = {
      {"steps", layer.steps}, {"batch", layer.batch}, {"inputs", layer.inputs}, {"hidden", layer.hidden}};
  for (const auto& [name, extent] : extents) {
    if (extent < 1 || extent > (std::int64_t{1} << 31)) {
      fail(ErrorKind::argument, "{} is {}, needs to be from 1 to 2^31", name, extent);
    }
  }
}

std::vector<SavedPart> saved_parts(const pd_recurrent_layer& layer) {
  const LayerTypes t(layer);
  if (layer.is_training == 0) return {};
  const Shape gates{t.T, t.B, 4 * t.H};
  if (t.is_lstm) return {{"gates", {t.dtype, gates}}, {"cells", {t.wide, {t.T + 1, t.B, t.H}}}};
  if (t.is_gru) return {{"gates", {t.dtype, gates}}};
  return {};
}

void build_forward(const pd_recurrent_layer& layer, Graph* graph) {
  const LayerTypes t(layer);
  Memory memory(graph);
  const Value x = memory.read("x", t.dtype, {t.T, t.B, t.I}), w = memory.read("w", t.dtype, t.weight(t.I));
  const Value u = steps_matrix(t, memory.read("u", t.dtype, t.weight(t.H)));
  const bool has_two = layer.two_biases != 0;
  const Value b = memory.read("b", t.dtype, {(t.is_gru && !has_two ? 4 : t.G) * t.H});
  const Value b_hh = has_two ? memory.read("b_hh", t.dtype, {t.G * t.H}) : Value();
  const Value h0 = memory.read("h0", t.dtype, {t.B, t.H});
  const Value c0 = t.is_lstm ? memory.read("c0", t.wide, {t.B, t.H}) : Value();
  const Value lengths = layer.has_lengths != 0 ? memory.read("lengths", i32, {t.B}) : Value();
  const bool is_reverse = layer.is_reverse != 0;
  const Value product = matmul(x, w, false, t.gates_first);
  if (t.is_lstm) {
    const LstmRecurrence made = lstm_recurrence(product + sum_of(b, b_hh), u, h0, c0, lengths, is_reverse);
    memory.write("states", made.states);
    memory.write("last_h", made.last_h);
    memory.write("last_c", made.last_c);
    if (layer.is_training == 0) return;
    memory.write("gates", made.gates);
    memory.write("cells", made.cells);
  } else if (t.is_gru) {
    const Value inner = has_two ? slice(b_hh, 0, 2 * t.H, 3 * t.H) : slice(b, 0, 3 * t.H, 4 * t.H);
    const Value outer = has_two ? b + concat(std::array{slice(b_hh, 0, 0, 2 * t.H), zeros(*graph, {t.H}, t.dtype)}, 0)
                                : slice(b, 0, 0, 3 * t.H);
    const GruRecurrence made = gru_recurrence(product + outer, u, inner, h0, lengths, is_reverse);
    memory.write("states", made.states);
    memory.write("last_h", made.last_h);
    if (layer.is_training != 0) memory.write("gates", made.saved);
  } else {
    const RnnRecurrence made =
        rnn_recurrence(product + sum_of(b, b_hh), u, h0, lengths, is_reverse, layer.cell == PD_RNN_RELU);
    memory.write("states", made.states);
    memory.write("last_h", made.last_h);
  }
}

void build_backward(const pd_recurrent_layer& layer, Graph* graph) {
  const LayerTypes t(layer);
  Memory memory(graph);
  const bool is_reverse = layer.is_reverse != 0;
  const Value x = memory.read("x", t.dtype, {t.T, t.B, t.I}), w = memory.read("w", t.dtype, t.weight(t.I));
  const Value u = steps_matrix(t, memory.read("u", t.dtype, t.weight(t.H))),
              h0 = memory.read("h0", t.dtype, {t.B, t.H});
  const Value states = memory.read("states", t.dtype, {t.T + 1, t.B, t.H});
  Values inputs = {u};
  for (const SavedPart& part : saved_parts(layer)) {
    inputs.push_back(memory.read(part.name, part.type.dtype, part.type.shape));
  }
  if (!t.is_lstm) inputs.push_back(states);
  inputs.push_back(memory.read("d_states", t.dtype, {t.T, t.B, t.H}));
  inputs.push_back(memory.read("d_last_h", t.dtype, {t.B, t.H}));
  Attrs attrs{{"states", true}, {"last_h", true}, {"reverse", is_reverse}};
  if (t.is_lstm) {
    inputs.push_back(memory.read("d_last_c", t.wide, {t.B, t.H}));
    attrs.set("last_c", true);
  } else if (!t.is_gru) {
    attrs.set("relu", layer.cell == PD_RNN_RELU);
  }
  const Value lengths = layer.has_lengths != 0 ? memory.read("lengths", i32, {t.B}) : Value();
  if (lengths.valid()) inputs.push_back(lengths);
  const char* op = t.is_lstm ? "lstm_recurrence_grad" : t.is_gru ? "gru_recurrence_grad" : "rnn_recurrence_grad";
  const Values made = call(*find_op(op), inputs, attrs);

  const Value &d_sums = made[0], &d_product = t.is_gru ? made[1] : made[0];  // of x w + b, and of h u
  const std::array<std::int64_t, 2> over_time{0, 1};
  if (layer.is_first == 0) memory.write("d_x", matmul(d_sums, w, false, !t.gates_first));
  memory.write("d_w", weight_gradient(t, x, d_sums));
  memory.write("d_u", weight_gradient(t, states_before(states, h0, lengths, is_reverse), d_product));
  const Value d_b = sum(d_sums, over_time);
  if (layer.two_biases != 0) {
    memory.write("d_b", d_b);
    memory.write("d_b_hh", t.is_gru ? sum(d_product, over_time) : d_b);
  } else {
    memory.write("d_b", t.is_gru ? concat(std::array{d_b, sum(gate_of(d_product, 2, t.H), over_time)}, 0) : d_b);
  }
  memory.write("d_h0", made[t.is_gru ? 2 : 1]);
  if (t.is_lstm) memory.write("d_c0", made[2]);
}

}  // namespace paoding
