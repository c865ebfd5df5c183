// SPDX-License-Identifier: Apache-2.0
// The C interface of recurrent layers against the ops of a graph, for every cell and dtype; its errors; and
// its use from C code (recurrent_c11.c).
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "paoding/profile.h"
#include "paoding/recurrent.h"
#include "profile/trace.h"
#include "tests/support/program_check.h"

extern "C" const char* check_recurrent_from_c();

namespace paoding::testing_program {
namespace {

struct CLayer {
  pd_cell cell;
  DType dtype = f32;
  bool is_reverse = false, has_lengths = false, gates_first = false;
  bool two_biases = false, is_first = false;
  std::int64_t T = 5, B = 6, I = 7, H = 9;

  std::int64_t gates() const { return cell == PD_LSTM ? 4 : cell == PD_GRU ? 3 : 1; }
  pd_recurrent_layer declared(const char* device) const {
    const pd_number number = dtype == f32 ? PD_F32 : dtype == f64 ? PD_F64 : dtype == bf16 ? PD_BF16 : PD_F16;
    pd_recurrent_layer made{};
    made.cell = cell, made.number = number, made.device = device;
    made.steps = T, made.batch = B, made.inputs = I, made.hidden = H;
    made.has_lengths = has_lengths ? 1 : 0, made.is_reverse = is_reverse ? 1 : 0, made.is_training = 1;
    made.gates_first = gates_first ? 1 : 0, made.two_biases = two_biases ? 1 : 0, made.is_first = is_first ? 1 : 0;
    return made;
  }
};

// The same as a graph, with the gradients of sum(y weight) + sum(last_h) + sum(last_c).
Graph& build(Graph& g, const CLayer& l) {
  const DType wide = compute_dtype(l.dtype);
  const std::int64_t G = l.gates();
  const Value x = g.input("x", l.dtype, {l.T, l.B, l.I}), w = g.input("w", l.dtype, {l.I, G * l.H});
  const Value u = g.input("u", l.dtype, {l.H, G * l.H}), h0 = g.input("h0", l.dtype, {l.B, l.H});
  const Value b = g.input("b", l.dtype, {(l.cell == PD_GRU ? 4 : G) * l.H});
  const Value lengths = l.has_lengths ? g.input("lengths", i32, {l.B}) : Value();
  Values wanted = {x, w, u, b, h0};
  const Value sums = matmul(x, w) + (l.cell == PD_GRU ? slice(b, 0, 0, 3 * l.H) : b);
  Value states, last_h, loss;
  if (l.cell == PD_LSTM) {
    wanted.push_back(g.input("c0", wide, {l.B, l.H}));
    const LstmRecurrence made = lstm_recurrence(sums, u, h0, wanted.back(), lengths, l.is_reverse);
    states = made.states, last_h = made.last_h, loss = sum(made.last_c);
    g.fetch("last_c", made.last_c);
  } else if (l.cell == PD_GRU) {
    const GruRecurrence made = gru_recurrence(sums, u, slice(b, 0, 3 * l.H, 4 * l.H), h0, lengths, l.is_reverse);
    states = made.states, last_h = made.last_h;
  } else {
    const RnnRecurrence made = rnn_recurrence(sums, u, h0, lengths, l.is_reverse, l.cell == PD_RNN_RELU);
    states = made.states, last_h = made.last_h;
  }
  const std::int64_t first = l.is_reverse ? 0 : 1;
  const Value y = slice(states, 0, first, first + l.T);
  g.fetch("y", y);
  g.fetch("last_h", last_h);
  const Value of_y = sum(cast(y * g.input("weight", l.dtype, y.shape()), wide)) + sum(cast(last_h, wide));
  loss = loss.valid() ? loss + of_y : of_y;
  const char* names[] = {"d_x", "d_w", "d_u", "d_b", "d_h0", "d_c0"};
  const Values found = gradients(std::array{loss}, wanted);
  for (std::size_t i = 0; i < found.size(); ++i) g.fetch(names[i], found[i]);
  return g;
}

// A matrix [rows, columns] as [columns, rows].
Dense transposed(const Dense& values, std::int64_t rows) {
  const std::size_t height = static_cast<std::size_t>(rows), width = values.size() / height;
  Dense made(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) made[i % width * height + i / width] = values[i];
  return made;
}

// Tensors that lie as the interface wants them.
class Memory {
 public:
  void* put(const std::string& name, const Tensor& tensor) {
    void* at = make(name, tensor.type());
    std::memcpy(at, tensor.bytes(), static_cast<std::size_t>(tensor.size_bytes()));
    return at;
  }
  void* make(const std::string& name, const Type& type) {
    const Tensor tensor(type);
    auto& [kept, bytes] = places_[name];
    kept = type;
    bytes.reset(std::aligned_alloc(256, static_cast<std::size_t>(tensor.size_bytes() + 511) / 256 * 256));
    return bytes.get();
  }
  void* room(const std::string& name, std::size_t bytes) {
    return make(name, {DType::u8, {static_cast<std::int64_t>(bytes)}});
  }
  void* at(const std::string& name) { return places_.contains(name) ? places_.at(name).second.get() : nullptr; }
  Dense values(const std::string& name) {
    const auto& [type, bytes] = places_.at(name);
    Tensor tensor(type);
    std::memcpy(tensor.bytes(), bytes.get(), static_cast<std::size_t>(tensor.size_bytes()));
    return tensor.to_doubles();
  }

 private:
  struct Free {
    void operator()(void* bytes) const { std::free(bytes); }
  };
  std::map<std::string, std::pair<Type, std::unique_ptr<void, Free>>> places_;
};

// Two biases that stand for the one, of a GRU [4 H]: a part of each where they are added.
std::pair<Dense, Dense> apart(const CLayer& l, const Dense& both) {
  const std::size_t h = static_cast<std::size_t>(l.H),
                    added = static_cast<std::size_t>(l.cell == PD_GRU ? 2 : l.gates()) * h;
  Dense of_x, of_h;
  for (std::size_t i = 0; i < added; ++i) of_x.push_back(both[i] * 0.25), of_h.push_back(both[i] * 0.75);
  for (std::size_t i = added; i < added + h && l.cell == PD_GRU; ++i)
    of_x.push_back(both[i]), of_h.push_back(both[i + h]);
  return {of_x, of_h};
}

void run_both_ways(const CLayer& l, pd_recurrent_plan* plan, Memory& m, const Tensors& feeds) {
  const DType wide = compute_dtype(l.dtype);
  for (const auto& [name, tensor] : feeds) {
    const bool is_transposed = l.gates_first && (name == "w" || name == "u");
    const Shape& shape = tensor.shape();
    m.put(name, is_transposed ? Tensor::from(l.dtype, {shape[1], shape[0]}, transposed(tensor.to_doubles(), shape[0]))
                              : tensor);
  }
  pd_recurrent_sizes sizes;
  ASSERT_EQ(pd_recurrent_get_sizes(plan, &sizes), PD_OK);
  const Shape state{l.B, l.H};
  const std::int64_t G = l.gates();
  if (l.two_biases) {
    const auto [of_x, of_h] = apart(l, feeds.at("b").to_doubles());
    m.put("b", Tensor::from(l.dtype, {G * l.H}, of_x));
    m.put("b_hh", Tensor::from(l.dtype, {G * l.H}, of_h));
  }
  m.make("states", {l.dtype, {l.T + 1, l.B, l.H}});
  m.make("last_h", {l.dtype, state});
  m.make("last_c", {wide, state});
  m.room("saved", sizes.saved);
  const bool has_cells_apart = l.cell == PD_LSTM && l.gates_first;
  void* cells = has_cells_apart ? m.make("cells", {wide, {l.T + 1, l.B, l.H}}) : nullptr;
  const pd_recurrent_forward_args forward = {m.at("x"),
                                             m.at("w"),
                                             m.at("u"),
                                             m.at("b"),
                                             m.at("h0"),
                                             m.at("c0"),
                                             static_cast<const std::int32_t*>(m.at("lengths")),
                                             m.at("states"),
                                             m.at("last_h"),
                                             m.at("last_c"),
                                             m.at("saved"),
                                             m.room("workspace", sizes.forward_workspace),
                                             m.at("b_hh"),
                                             cells};
  ASSERT_EQ(pd_recurrent_forward(plan, &forward, nullptr), PD_OK) << pd_last_error();
  const auto ones = [&](const char* name, DType dtype) {
    return m.put(name, Tensor::from(dtype, state, Dense(static_cast<std::size_t>(l.B * l.H), 1)));
  };
  const pd_recurrent_backward_args backward = {
      m.at("x"),
      m.at("w"),
      m.at("u"),
      m.at("h0"),
      static_cast<const std::int32_t*>(m.at("lengths")),
      m.at("states"),
      m.at("saved"),
      m.at("weight"),
      ones("ones_h", l.dtype),
      ones("ones_c", wide),
      l.is_first ? nullptr : m.make("d_x", {l.dtype, {l.T, l.B, l.I}}),
      m.make("d_w", {l.dtype, {l.I, G * l.H}}),
      m.make("d_u", {l.dtype, {l.H, G * l.H}}),
      m.make("d_b", {l.dtype, {(l.cell == PD_GRU && !l.two_biases ? 4 : G) * l.H}}),
      m.make("d_h0", {l.dtype, state}),
      m.make("d_c0", {wide, state}),
      m.room("workspace", sizes.backward_workspace),
      m.make("d_b_hh", {l.dtype, {G * l.H}}),
      cells};
  ASSERT_EQ(pd_recurrent_backward(plan, &backward, nullptr), PD_OK) << pd_last_error();
}

TEST(RecurrentInC, IsTheLayerOfAGraph) {
  for (const pd_cell cell : {PD_LSTM, PD_GRU, PD_RNN_TANH, PD_RNN_RELU}) {
    for (const int way : {0, 1, 2, 3, 4, 5}) {
      for (const DType dtype : {f32, f64, bf16}) {
        if (dtype == bf16 && cell == PD_RNN_RELU) continue;  // sums that are rounded across 0
        const CLayer l{cell, dtype, way % 2 == 1, way / 2 == 1, way >= 4, way == 5, way == 5};
        SCOPED_TRACE(fmt::format("cell {}, way {}, {}", static_cast<int>(cell), way, to_string(dtype)));
        Graph g;
        build(g, l);
        Feeds fed = make_feeds(g, 3);
        if (l.has_lengths) fed["lengths"] = {5, 0, 1, 3, 9, 2};
        const Tensors feeds = to_tensors(g, fed), wanted = Program(g).run(feeds);
        const pd_recurrent_layer declared = l.declared("cpu");
        pd_recurrent_plan* plan = nullptr;
        ASSERT_EQ(pd_recurrent_create(&declared, &plan), PD_OK) << pd_last_error();
        Memory memory;
        run_both_ways(l, plan, memory, feeds);
        const double tolerance = dtype == f64 ? 1e-12 : dtype == f32 ? 1e-5 : 0.05;
        for (const auto& [name, tensor] : wanted) {
          if (name == "d_x" && l.is_first) continue;
          Dense values = tensor.to_doubles();
          if (name == "d_b" && l.two_biases) {
            const auto end = values.begin() + l.gates() * l.H, n = values.begin() + 2 * l.H;
            Dense of_h(values.begin(), l.cell == PD_GRU ? n : end);
            if (l.cell == PD_GRU) of_h.insert(of_h.end(), end, values.end());
            expect_close("d_b_hh", memory.values("d_b_hh"), of_h, tolerance * (1 + largest(values)));
            values.resize(static_cast<std::size_t>(l.gates() * l.H));
          }
          Dense got = memory.values(name == "y" ? "states" : name);
          if (name == "y") {
            const auto entry = static_cast<std::ptrdiff_t>(l.B * l.H);
            l.is_reverse ? got.erase(got.end() - entry, got.end()) : got.erase(got.begin(), got.begin() + entry);
          }
          if (l.gates_first && (name == "d_w" || name == "d_u")) got = transposed(got, l.gates() * l.H);
          expect_close(name, got, values, tolerance * (1 + largest(values)));
        }
        pd_recurrent_destroy(plan);
      }
    }
  }
}

TEST(RecurrentInC, RunsTheKernelsOfPrograms) {
  const pd_recurrent_layer layer = CLayer{PD_LSTM}.declared("cpu");
  pd_recurrent_plan* plan = nullptr;
  ASSERT_EQ(pd_recurrent_create(&layer, &plan), PD_OK);
  const std::string text = pd_recurrent_describe(plan);
  EXPECT_TRUE(has(text, "lstm_recurrence ") && has(text, "lstm_recurrence_grad ") && has(text, "(team)")) << text;
  EXPECT_FALSE(has(text, "copy")) << text;
  pd_recurrent_destroy(plan);
}

// The part of a description that is the forward pass's.
std::string forward_of(const pd_recurrent_layer& layer) {
  pd_recurrent_plan* plan = nullptr;
  EXPECT_EQ(pd_recurrent_create(&layer, &plan), PD_OK) << pd_last_error();
  const std::string text = pd_recurrent_describe(plan);
  pd_recurrent_destroy(plan);
  return text.substr(0, text.find("backward\n"));
}

TEST(RecurrentInC, ReadsWeightsAsPyTorchKeepsThemWithoutACopyOfThem) {
  for (const pd_cell cell : {PD_LSTM, PD_GRU, PD_RNN_TANH}) {
    for (const DType dtype : {f32, bf16}) {
      CLayer l{cell, dtype};
      l.gates_first = true, l.H = 64;
      for (const auto& [steps, rows] : {std::pair(1, 1), std::pair(20, 1), std::pair(5, 40)}) {
        l.T = steps, l.B = rows;
        const std::string text = forward_of(l.declared("cpu"));
        EXPECT_TRUE(has(text, "(team)") && !has(text, "copy") && !has(text, "transpose")) << text;
      }
    }
  }
}

TEST(RecurrentInC, ReadsWeightsAnewInEveryCall) {
  for (const bool gates_first : {false, true}) {
    CLayer l{PD_LSTM};
    l.gates_first = gates_first;
    Graph g;
    build(g, l);
    Program program(g);
    const pd_recurrent_layer declared = l.declared("cpu");
    pd_recurrent_plan* plan = nullptr;
    ASSERT_EQ(pd_recurrent_create(&declared, &plan), PD_OK) << pd_last_error();
    Memory memory;
    Feeds fed = make_feeds(g, 3);
    run_both_ways(l, plan, memory, to_tensors(g, fed));
    pd_recurrent_sizes sizes;
    ASSERT_EQ(pd_recurrent_get_sizes(plan, &sizes), PD_OK);
    for (const char* name : {"w", "u", "b"}) {
      auto* values = static_cast<float*>(memory.at(name));
      for (std::size_t i = 0; i < fed.at(name).size(); ++i) values[i] *= 0.5F;
      for (double& value : fed.at(name)) value *= 0.5;
    }
    const pd_recurrent_forward_args forward = {memory.at("x"),
                                               memory.at("w"),
                                               memory.at("u"),
                                               memory.at("b"),
                                               memory.at("h0"),
                                               memory.at("c0"),
                                               nullptr,
                                               memory.at("states"),
                                               memory.at("last_h"),
                                               memory.at("last_c"),
                                               memory.at("saved"),
                                               memory.room("workspace", sizes.forward_workspace),
                                               nullptr,
                                               nullptr};
    ASSERT_EQ(pd_recurrent_forward(plan, &forward, nullptr), PD_OK) << pd_last_error();
    pd_recurrent_destroy(plan);
    const Tensors wanted = program.run(to_tensors(g, fed));
    expect_close("last_c", memory.values("last_c"), wanted.at("last_c").to_doubles(), 1e-5);
    expect_close("last_h", memory.values("last_h"), wanted.at("last_h").to_doubles(), 1e-5);
  }
}

TEST(RecurrentInC, IsSeenInRecordings) {
  const CLayer l{PD_LSTM};
  Graph g;
  build(g, l);
  const pd_recurrent_layer declared = l.declared("cpu");
  pd_recurrent_plan* plan = nullptr;
  ASSERT_EQ(pd_recurrent_create(&declared, &plan), PD_OK) << pd_last_error();
  Memory memory;
  Profiler seen(State::cpu);
  run_both_ways(l, plan, memory, to_tensors(g, make_feeds(g, 3)));
  seen.end();
  pd_recurrent_destroy(plan);
  std::map<std::string, std::map<std::string, int>> ops;  // by run
  const profile::Trace& trace = seen.trace();
  for (profile::SpanId i = 0; i < trace.size(); ++i) {
    if (trace.kind(i) != profile::SpanKind::op) continue;
    ++ops[std::string(trace.name(trace.parent(i)))][std::string(trace.text(trace.site(i).op))];
  }
  ASSERT_EQ(ops.size(), 2u);
  EXPECT_EQ(ops["pd_recurrent_forward"]["lstm_recurrence"], 1);
  EXPECT_EQ(ops["pd_recurrent_forward"]["matmul"], 1);
  EXPECT_EQ(ops["pd_recurrent_backward"]["lstm_recurrence_grad"], 1);
  EXPECT_GE(ops["pd_recurrent_backward"]["matmul"], 2) << "gradients of x and of the weights";
}

TEST(RecurrentInC, IsUsableFromC) {
  const char* wrong = check_recurrent_from_c();
  EXPECT_EQ(wrong, nullptr) << wrong;
}

TEST(RecurrentInC, SaysWhatIsWrong) {
  pd_recurrent_plan* plan = nullptr;
  const auto create = [&](const pd_recurrent_layer& layer) { return pd_recurrent_create(&layer, &plan); };
  EXPECT_EQ(pd_recurrent_create(nullptr, &plan), PD_ERROR_ARGUMENT);
  EXPECT_STREQ(pd_last_error(), "pd_recurrent_create: layer is null");
  pd_recurrent_layer layer = CLayer{PD_GRU}.declared("cpu");
  layer.hidden = 0;
  EXPECT_EQ(create(layer), PD_ERROR_ARGUMENT);
  EXPECT_STREQ(pd_last_error(), "pd_recurrent_create: hidden is 0, needs to be from 1 to 2^31");
  layer = CLayer{PD_GRU}.declared("tpu");
  EXPECT_EQ(create(layer), PD_ERROR_ARGUMENT);
  EXPECT_STREQ(pd_last_error(), "pd_recurrent_create: device is 'tpu', needs to be cpu, cuda or cuda:N");
  layer = CLayer{PD_GRU}.declared("cuda:77");
  EXPECT_EQ(create(layer), PD_ERROR_DEVICE);
  layer = CLayer{static_cast<pd_cell>(9)}.declared("cpu");
  EXPECT_EQ(create(layer), PD_ERROR_ARGUMENT);
  EXPECT_EQ(plan, nullptr);
  layer = CLayer{PD_GRU}.declared("cpu");
  layer.is_training = 0;
  ASSERT_EQ(create(layer), PD_OK);
  const pd_recurrent_backward_args nothing = {};
  EXPECT_EQ(pd_recurrent_backward(plan, &nothing, nullptr), PD_ERROR_ARGUMENT);
  EXPECT_STREQ(pd_last_error(), "pd_recurrent_backward: the plan was made without is_training");
  std::thread([] { EXPECT_STREQ(pd_last_error(), ""); }).join();
  alignas(64) std::byte memory[128];
  pd_recurrent_forward_args args = {};
  args.workspace = memory + 1;
  EXPECT_EQ(pd_recurrent_forward(plan, &args, nullptr), PD_ERROR_ARGUMENT);
  EXPECT_TRUE(has(pd_last_error(), "needs to be aligned to 64 bytes")) << pd_last_error();
  pd_recurrent_destroy(plan);

  layer.is_training = 1;
  ASSERT_EQ(create(layer), PD_OK);
  pd_recurrent_sizes sizes;
  ASSERT_EQ(pd_recurrent_get_sizes(plan, &sizes), PD_OK);
  Memory m;
  void* const room = m.room("room", std::max(sizes.forward_workspace, std::size_t{1} << 20));
  args = {room, room, room, room, room, room, nullptr, room, nullptr, nullptr, nullptr, room, nullptr, nullptr};
  EXPECT_EQ(pd_recurrent_forward(plan, &args, nullptr), PD_ERROR_ARGUMENT);
  EXPECT_TRUE(has(pd_last_error(), "pd_recurrent_forward: saved is null, needed are ")) << pd_last_error();
  pd_recurrent_destroy(plan);
  pd_recurrent_destroy(nullptr);
}

}  // namespace
}  // namespace paoding::testing_program
