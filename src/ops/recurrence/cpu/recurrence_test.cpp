// SPDX-License-Identifier: Apache-2.0
// The CPU's kernels of recurrences over time and of their gradients against the compositions in f64, for random shapes.
#include <fmt/format.h>
#include <gtest/gtest.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <stdexcept>

#include "cpu/this_cpu.h"
#include "ops/decision.h"
#include "ops/recurrence/packed_weights.h"
#include "ops/recurrence/recurrence_work.h"
#include "tests/support/pass_check.h"
#include "tests/support/pretend_tiles.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

struct Case {
  std::string cell;  // lstm, gru, rnn, or relu: an rnn with that activation
  std::int64_t steps, rows, hidden;
  bool is_reverse = false, has_lengths = false;
  bool has_bias = false;  // xw is a product and a bias, which the recurrence adds

  std::string op() const { return (cell == "relu" ? "rnn" : cell) + "_recurrence"; }
  std::int64_t gates() const { return cell == "lstm" ? 4 : cell == "gru" ? 3 : 1; }
};

// The results of a layer that are read, with the gradients of all its inputs. The cell state of an LSTM is of type
// `wide`.
void build(Graph& g, const Case& c, DType dtype, DType wide) {
  const std::int64_t H = c.hidden, G = c.gates();
  Value xw = g.input("xw", dtype, {c.steps, c.rows, c.has_bias ? 3 : G * H}), x = xw;
  Value bias;
  if (c.has_bias) {
    bias = g.input("bias", dtype, {G * H});
    xw = matmul(x, g.input("w", dtype, {3, G * H})) + bias;
  }
  const Value u = g.input("u", dtype, {H, G * H});
  const Value h0 = g.input("h0", dtype, {c.rows, H});
  const Value lengths = c.has_lengths ? g.input("lengths", i32, {c.rows}) : Value();
  Values inputs = {x, u, h0};
  Value states, loss;
  if (c.cell == "lstm") {
    inputs.push_back(g.input("c0", wide, {c.rows, H}));
    const LstmRecurrence made = lstm_recurrence(xw, u, h0, inputs[3], lengths, c.is_reverse);
    states = made.states, loss = sum(made.last_c * made.last_c);
    g.fetch("last_h", made.last_h);
    g.fetch("last_c", made.last_c);
  } else if (c.cell == "gru") {
    inputs.push_back(g.input("bm", dtype, {H}));
    const GruRecurrence made = gru_recurrence(xw, u, inputs[3], h0, lengths, c.is_reverse);
    states = made.states, loss = sum(cast(made.last_h * made.last_h, wide));
    g.fetch("last_h", made.last_h);
  } else {
    const RnnRecurrence made = rnn_recurrence(xw, u, h0, lengths, c.is_reverse, c.cell == "relu");
    states = made.states, loss = sum(cast(made.last_h * made.last_h, wide));
    g.fetch("last_h", made.last_h);
  }
  g.fetch("states", states);
  const Value weight = g.input("weight", dtype, states.shape());
  if (c.has_bias) inputs.insert(inputs.begin(), bias);
  const Values grads = gradients(std::array{sum(cast(states * weight, wide)) + loss}, inputs);
  const char* names[] = {"dbias", "dxw", "du", "dh0", "d_fourth"};
  for (std::size_t i = 0; i < grads.size(); ++i) g.fetch(names[i + (c.has_bias ? 0 : 1)], grads[i]);
}

// Weights small enough that gates work, as multiples of 2^-10, so that f32 has them too; or as bf16 has them.
Feeds feeds_of(const Graph& g, const Case& c, std::mt19937* random, DType dtype = f32) {
  Feeds feeds;
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (NodeId id : g.inputs()) {
    const Type& type = g.node(id).types[0];
    Dense& values = feeds[g.node(id).name.str()];
    const double scale = g.node(id).name == Name("u") ? 1 / std::sqrt(static_cast<double>(c.hidden)) : 1;
    for (std::int64_t i = 0; i < type.shape.elements(); ++i) {
      values.push_back(std::round(uniform(*random) * scale * 1024) / 1024);
    }
    if (dtype != f32) values = rounded({dtype, {type.shape.elements()}}, values);
    if (type.dtype == i32) {
      for (double& value : values) value = static_cast<double>((*random)() % static_cast<unsigned>(c.steps + 2));
      values[0] = 0;
      values.back() = 1;
    }
  }
  return feeds;
}

std::string text_of(const Case& c) {
  return fmt::format("{}: T {}, B {}, H {}{}{}", c.cell, c.steps, c.rows, c.hidden, c.is_reverse ? ", reverse" : "",
                     c.has_lengths ? ", lengths" : "");
}

void check(const Case& c, std::mt19937* random) {
  SCOPED_TRACE(text_of(c));
  Graph g, exact;
  build(g, c, f32, f32);
  build(exact, c, f64, f64);
  const Feeds feeds = feeds_of(g, c, random);
  Program program(g), reference(exact);
  const std::string plan = program.plan_text();
  EXPECT_TRUE(has(plan, c.op() + " s") && has(plan, c.op() + "_grad s") && has(plan, "(team)")) << plan;
  const std::string line = plan.substr(plan.find(" " + c.op() + " s"));
  EXPECT_EQ(has(line.substr(0, line.find('\n')), "bias:"), c.has_bias) << plan;
  EXPECT_FALSE(has(plan, "/sum s")) << "the gradient adds up those of biases\n" << plan;
  const Tensors got = program.run(to_tensors(g, feeds)), wanted = reference.run(to_tensors(exact, feeds));
  for (const auto& [name, tensor] : got) {
    const Dense values = wanted.at(name).to_doubles();
    expect_close(name, tensor.to_doubles(), values, 4e-6 * static_cast<double>(c.steps) * (1 + largest(values)));
  }
  expect_same_bits(got, program.run(to_tensors(g, feeds)));
}

class RecurrencesOnCpu : public testing::TestWithParam<const char*> {};
class RecurrencesInBf16OnCpu : public RecurrencesOnCpu {};

TEST_P(RecurrencesOnCpu, AreTheRecurrenceForAnyShape) {
  std::mt19937 random(1);
  for (const std::int64_t hidden : {1, 2, 15, 16, 17, 33, 64, 100, 130}) {
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 7, 13}) {
      const bool is_reverse = random() % 2 == 0, has_lengths = random() % 2 == 0;
      const auto steps = 1 + static_cast<std::int64_t>(random() % 9);
      check({GetParam(), steps, rows, hidden, is_reverse, has_lengths, random() % 2 == 0}, &random);
    }
  }
  for (const std::int64_t rows : {1, 2, 4}) {  // packed all the same
    for (const std::int64_t hidden : {1, 17, 64, 100}) check({GetParam(), kManySteps, rows, hidden}, &random);
  }
  check({GetParam(), 3, 1, 1536, false, false}, &random);
  check({GetParam(), 3, 6, 777, true, true}, &random);
  for (const bool is_reverse : {false, true}) {  // rows enough that two or four threads have some of their own
    check({GetParam(), 5, 70, 100, is_reverse, false}, &random);
    check({GetParam(), 5, 70, 100, is_reverse, true}, &random);
    check({GetParam(), 4, 33, 130, is_reverse, false, true}, &random);
  }
}

// The sums of bf16 are f32, so errors come from values that are rounded on the way.
TEST_P(RecurrencesInBf16OnCpu, AreTheRecurrence) {
  std::mt19937 random(2);
  for (const std::int64_t hidden : {1, 16, 21, 64, 130}) {
    for (const std::int64_t rows : {2, 5, 9, 20, 67}) {
      const std::int64_t steps = hidden == 21 ? kManySteps : 6;
      const Case c{GetParam(), steps, rows, hidden, random() % 2 == 0, random() % 2 == 0, hidden % 2 == 1};
      SCOPED_TRACE(text_of(c));
      Graph g, exact;
      build(g, c, bf16, f32);
      build(exact, c, f64, f64);
      const Feeds feeds = feeds_of(g, c, &random, bf16);
      Program program(g), reference(exact);
      // With tiles and few threads the library has the large ones.
      const std::string plan = program.plan_text();
      EXPECT_TRUE(has(plan, c.op() + "_grad s") || this_cpu().has_amx) << plan;
      const Tensors wanted = reference.run(to_tensors(exact, feeds));
      for (const auto& [name, tensor] : program.run(to_tensors(g, feeds))) {
        const Dense values = wanted.at(name).to_doubles();
        expect_close(name, tensor.to_doubles(), values, 0.03 * (1 + largest(values)));
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cells, RecurrencesOnCpu, testing::Values("lstm", "gru", "rnn", "relu"),
                         [](const auto& each) { return std::string(each.param); });
// Without relu: a sum that is rounded across 0 has another slope there.
INSTANTIATE_TEST_SUITE_P(Cells, RecurrencesInBf16OnCpu, testing::Values("lstm", "gru", "rnn"),
                         [](const auto& each) { return std::string(each.param); });

// A layer whose weights are a parameter.
void build_forward(Graph& g, const Case& c, DType dtype, DType wide) {
  const std::int64_t H = c.hidden, G = c.gates();
  const Value xw = g.input("xw", dtype, {c.steps, c.rows, G * H}), h0 = g.input("h0", dtype, {c.rows, H});
  const Value u = g.parameter("u", dtype, {H, G * H});
  const Value lengths = c.has_lengths ? g.input("lengths", i32, {c.rows}) : Value();
  if (c.cell == "lstm") {
    const Value c0 = g.input("c0", wide, {c.rows, H});
    const LstmRecurrence made = lstm_recurrence(xw, u, h0, c0, lengths, c.is_reverse);
    g.fetch("states", made.states), g.fetch("last_h", made.last_h), g.fetch("last_c", made.last_c);
  } else if (c.cell == "gru") {
    const GruRecurrence made = gru_recurrence(xw, u, g.input("bm", dtype, {H}), h0, lengths, c.is_reverse);
    g.fetch("states", made.states), g.fetch("last_h", made.last_h);
  } else {
    const RnnRecurrence made = rnn_recurrence(xw, u, h0, lengths, c.is_reverse);
    g.fetch("states", made.states), g.fetch("last_h", made.last_h);
  }
}

// Packed when they are set, and no longer in every run: a run reads the weights that were set last.
void check_kept_weights(const Case& c, DType dtype, std::mt19937* random) {
  SCOPED_TRACE(text_of(c) + ", " + std::string(to_string(dtype)));
  Graph g, exact;
  build_forward(g, c, dtype, f32), build_forward(exact, c, f64, f64);
  const Feeds feeds = feeds_of(g, c, random, dtype);
  Parameters parameters(g, Device::cpu()), exact_ones(exact, Device::cpu());
  CompileOptions options;
  options.device = Device::cpu();
  Program program(g, options, &parameters), reference(exact, options, &exact_ones);
  const std::string plan = program.plan_text();
  const std::int64_t depth = packed_depth(find_op(c.op())->cell, g.find("u").type(), this_cpu()),
                     together = blocks_together(c.gates());
  ASSERT_GT(depth, 0);
  // With AMX the library's products of many rows of bf16 are faster, and read weights in an order of their own.
  const bool is_by_tiles = dtype == bf16 && this_cpu().has_amx && has(plan, "matmul_packed");
  EXPECT_TRUE(is_by_tiles || has(plan, fmt::format("[{},{},{},16,", c.hidden / (16 * together), c.hidden / depth,
                                                   c.gates() * together)))
      << plan;
  for (int time = 0; time < 2; ++time) {
    const Shape shape{c.hidden, c.gates() * c.hidden};
    Dense u;
    // Up to about 1 / sqrt(hidden), exact in bf16: with larger weights rounding errors grow from step to step.
    const double most = std::exp2(std::floor(-0.5 * std::log2(static_cast<double>(c.hidden))));
    for (std::int64_t i = 0; i < shape.elements(); ++i) {
      u.push_back((static_cast<double>((*random)() % 65) - 32) / 32 * most);
    }
    parameters.set("u", Tensor::from(dtype, shape, u)), exact_ones.set("u", Tensor::from(f64, shape, u));
    const Tensors got = program.run(to_tensors(g, feeds)), wanted = reference.run(to_tensors(exact, feeds));
    for (const auto& [name, tensor] : got) {
      const Dense values = wanted.at(name).to_doubles();
      const double error = dtype == f32 ? 4e-6 * static_cast<double>(c.steps) : 0.03;
      expect_close(name, tensor.to_doubles(), values, error * (1 + largest(values)));
    }
  }
}

TEST(RecurrenceKernelsOnCpu, ReadWeightsThatAreKeptPacked) {
  std::mt19937 random(4);
  const std::int64_t whole = 64 * std::max(this_cpu().threads, 2);  // panels of one gate for all threads
  for (const auto& [cell, widths] :
       {std::pair("lstm", std::array<std::int64_t, 2>{96, 160}), std::pair("gru", std::array<std::int64_t, 2>{96, 160}),
        std::pair("rnn", std::array<std::int64_t, 2>{whole, 2 * whole})}) {
    for (const std::int64_t hidden : widths) {
      for (const std::int64_t rows : {1, 3, 6, 40}) {
        const Case c{cell, hidden == widths[0] ? 3 : kManySteps, rows, hidden, rows == 3, rows == 6};
        for (const DType dtype : {f32, bf16}) check_kept_weights(c, dtype, &random);
      }
    }
  }
  EXPECT_EQ(packed_depth(find_op("rnn_recurrence")->cell, {f32, {160, 160}}, this_cpu()), 0) << "no whole panels";
}

// One step's results for sums from where a gate is 0 to where it is 1, for NaN and infinite ones, and for small ones.
TEST(RecurrenceKernelsOnCpu, AreTheFunctionsOfTheStandardLibrary) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  constexpr std::int64_t H = 16;
  Dense sums = {kInfinity, -kInfinity, std::nan(""), 0.0, -0.0, 1e-30, -1e-12, 88, -88, 1e30};
  for (int i = -20000; i <= 20000; ++i) sums.push_back(0.001 * i);
  sums.resize((sums.size() + H - 1) / H * H);
  const std::int64_t rows = static_cast<std::int64_t>(sums.size()) / H;
  Graph g;
  const Value xw = g.input("xw", f32, {1, rows, H}), h0 = g.input("h0", f32, {rows, H});
  g.fetch("tanh", rnn_recurrence(xw, g.input("u", f32, {H, H}), h0).last_h);
  // An LSTM with a forget gate of these sums, whose cells are 1 before and to which nothing is added.
  const Value zero = zeros(g, {1, rows, H}), u4 = g.input("u4", f32, {H, 4 * H}), c0 = full(g, {rows, H}, 1);
  g.fetch("sigmoid", lstm_recurrence(concat(std::array{zero, xw, zero, zero}, 2), u4, h0, c0).last_c);
  Program program(g, {});
  EXPECT_NE(program.plan_text().find("lstm_recurrence"), std::string::npos);
  EXPECT_NE(program.plan_text().find("rnn_recurrence"), std::string::npos);
  const Tensor fed = Tensor::from(f32, {1, rows, H}, sums);
  const auto nothing = [](const Shape& shape) {
    return Tensor::from(f32, shape, Dense(static_cast<std::size_t>(shape.elements())));
  };
  const Tensors got =
      program.run({{"xw", fed}, {"h0", nothing({rows, H})}, {"u", nothing({H, H})}, {"u4", nothing({H, 4 * H})}});
  const Dense x = fed.to_doubles(), activated = got.at("tanh").to_doubles(), gate = got.at("sigmoid").to_doubles();
  for (std::size_t i = 0; i < x.size(); ++i) {
    if (std::isnan(x[i])) {
      EXPECT_TRUE(std::isnan(activated[i]) && std::isnan(gate[i]));
      continue;
    }
    const double tanh = std::tanh(x[i]), sigmoid = 1 / (1 + std::exp(-x[i]));
    EXPECT_NEAR(activated[i], tanh, 3e-7 * std::abs(tanh)) << x[i];
    EXPECT_NEAR(gate[i], sigmoid, 3e-7 * sigmoid + 2e-38) << x[i];
  }
}

TEST(RecurrenceKernelsOnCpu, LeaveLargeProductsOf16BitsToTheLibraryWhereItHasTiles) {
  const std::int64_t B = 32, H = 512;
  KernelCall call{find_op("lstm_recurrence"), {{"reverse", false}, {"bias", false}}, {}, {}, {}, false, "", {}};
  for (const Type& type : {Type{bf16, {3, B, 4 * H}}, Type{bf16, {H, 4 * H}}, Type{bf16, {B, H}}, Type{f32, {B, H}}}) {
    call.inputs.push_back(Layout::dense(type));
  }
  const auto refusal = [&](bool has_amx, int threads) {
    Target target = named_target("avx512");
    target.has_amx = has_amx, target.threads = threads;
    call.target = std::make_shared<const Target>(target);
    const Decision decision = decide(call);
    return decision.kernel() != nullptr ? std::string() : decision.refusals.at(0);
  };
  EXPECT_TRUE(has(refusal(true, 2), "products of bf16 on tiles are faster")) << refusal(true, 2);
  EXPECT_EQ(refusal(true, 16), "");
  EXPECT_EQ(refusal(false, 2), "");
}

// Memory for the operands of a call, which is run; results follow the inputs. Input 1 may lie transposed: by columns.
std::vector<Tensor> run_call(const char* op, Attrs attrs, const std::vector<Tensor>& inputs,
                             const std::vector<Type>& results, const Target& target, bool is_by_columns = false) {
  KernelCall call{find_op(op), std::move(attrs), {}, {}, {}, false, "", std::make_shared<const Target>(target)};
  std::vector<Tensor> operands = inputs;
  for (const Tensor& input : inputs) call.inputs.push_back(Layout::dense({input.dtype(), input.shape()}));
  if (is_by_columns) {
    const Shape& transposed = inputs[1].shape();
    call.inputs[1] = {{inputs[1].dtype(), {transposed[1], transposed[0]}}, {1, transposed[1]}};
  }
  for (const Type& type : results) {
    call.outputs.push_back(Layout::dense(type));
    operands.emplace_back(type);
  }
  const Decision decision = decide(call);
  std::vector<std::string> notes = decision.refusals;
  if (decision.kernel() == nullptr) {
    throw std::logic_error(fmt::format("no kernel for {}: {}", op, fmt::join(notes, "; ")));
  }
  const auto kernel = prepare_kernel(decision, *decision.kernel(), call, Device::cpu(), &notes);
  std::vector<std::byte> scratch(static_cast<std::size_t>(kernel->scratch_bytes()) + 64);
  std::vector<void*> pointers;
  for (Tensor& operand : operands) pointers.push_back(operand.bytes());
  kernel->run({pointers.data(), scratch.data(), nullptr});
  return {operands.begin() + static_cast<std::ptrdiff_t>(inputs.size()), operands.end()};
}

// An LSTM of bf16 and its gradient by the kernels for a target, against the composition in f64 with the same numbers.
void check_lstm_in_bf16(std::int64_t rows, std::int64_t H, const Target& target) {
  SCOPED_TRACE(fmt::format("{} rows, {} units", rows, H));
  const std::int64_t T = 5;
  const Case c{"lstm", T, rows, H};
  Graph g;
  build(g, c, f64, f64);
  std::mt19937 random(3);
  Feeds feeds = feeds_of(g, c, &random, bf16);
  const Tensors wanted = Program(g).run(to_tensors(g, feeds));
  const auto tensor = [&](const char* name, DType dtype, const Shape& shape) {
    return Tensor::from(dtype, shape, feeds.at(name));
  };
  const Shape state{rows, H}, states{T + 1, rows, H}, gates{T, rows, 4 * H};
  const Tensor u = tensor("u", bf16, {H, 4 * H});
  const std::vector<Tensor> made =
      run_call("lstm_recurrence", {{"reverse", false}, {"bias", false}},
               {tensor("xw", bf16, gates), u, tensor("h0", bf16, state), tensor("c0", f32, state)},
               {{bf16, states}, {f32, states}, {bf16, gates}, {bf16, state}, {f32, state}}, target);
  expect_close("states", made[0].to_doubles(), wanted.at("states").to_doubles(), 0.02);
  expect_close("last_c", made[4].to_doubles(), wanted.at("last_c").to_doubles(), 0.02);
  Dense d_last_c = wanted.at("last_c").to_doubles(), d_states = feeds.at("weight");
  for (double& value : d_last_c) value *= 2;
  d_states.erase(d_states.begin(), d_states.begin() + rows * H);  // h0's own
  const std::vector<Tensor> back =
      run_call("lstm_recurrence_grad",
               {{"states", true}, {"last_h", false}, {"last_c", true}, {"reverse", false}, {"sums", false}},
               {u, made[2], made[1], Tensor::from(bf16, {T, rows, H}, d_states), Tensor::from(f32, state, d_last_c)},
               {{bf16, gates}, {bf16, {0}}, {f32, state}}, target);
  expect_close("dxw", back[0].to_doubles(), wanted.at("dxw").to_doubles(), 0.05);
  expect_close("dc0", back[2].to_doubles(), wanted.at("d_fourth").to_doubles(), 0.05);
}

TEST(RecurrenceKernelsOnCpu, ComputeBf16InF32WhereTheCpuHasNoPairs) {
  for (const std::int64_t rows : {2, 9}) check_lstm_in_bf16(rows, 21, named_target("avx512"));
}

#if defined(__x86_64__)
// Whether the CPU has tiles that PAODING_CPU_ISA hides: instructions that work cannot be pretended.
bool hides_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kTiles = 1U << 24;
  return !this_cpu().has_amx && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 && (d & kTiles) != 0;
}

TEST(RecurrenceKernelsOnCpu, ComputeBf16InTilesWhereTheCpuHasThem) {
  if (hides_tiles()) GTEST_SKIP() << "NOT CHECKED: this CPU's tiles are not to be used";
  std::optional<PretendTiles> pretended;
  if (!this_cpu().has_amx) pretended.emplace();
  Target target = named_target("avx512");
  target.has_amx = true;
  for (const std::int64_t rows : {5, 16, 31, 32, 33, 50}) {
    for (const std::int64_t hidden : {1, 21, 64, 100}) check_lstm_in_bf16(rows, hidden, target);
  }
}
#endif

// All results of a layer whose u lies by rows and of the same by columns: the same bits where u is packed, in the same
// order. Where it is not packed, numbers are added up in another order.
void check_columns(const Case& c, DType dtype, const Target& target, std::mt19937* random) {
  SCOPED_TRACE(text_of(c) + ", " + std::string(to_string(dtype)));
  const std::int64_t H = c.hidden, G = c.gates();
  const auto tensor = [&](DType type, const Shape& shape) {
    Dense values;
    for (std::int64_t i = 0; i < shape.elements(); ++i) values.push_back(static_cast<double>((*random)() % 257) / 512);
    return Tensor::from(type, shape, values);
  };
  const Shape state{c.rows, H}, states{c.steps + 1, c.rows, H}, saved{c.steps, c.rows, 4 * H};
  const Tensor u = tensor(dtype, {H, G * H});
  const Dense rows = u.to_doubles();
  Dense columns;
  for (std::int64_t j = 0; j < G * H; ++j) {
    for (std::int64_t k = 0; k < H; ++k) columns.push_back(rows[static_cast<std::size_t>(k * G * H + j)]);
  }
  std::vector<Tensor> inputs = {tensor(dtype, {c.steps, c.rows, G * H}), u, tensor(dtype, state)};
  std::vector<Type> results = {{dtype, states}, {dtype, state}};
  Attrs attrs{{"reverse", c.is_reverse}, {"bias", false}};
  if (c.cell == "lstm") {
    inputs.push_back(tensor(f32, state));
    results = {{dtype, states}, {f32, states}, {dtype, saved}, {dtype, state}, {f32, state}};
  } else if (c.cell == "gru") {
    inputs.insert(inputs.begin() + 2, tensor(dtype, {H}));
    results.insert(results.begin() + 1, {dtype, saved});
  } else {
    attrs.set("relu", false);
  }
  const std::vector<Tensor> wanted = run_call(c.op().c_str(), attrs, inputs, results, target);
  inputs[1] = Tensor::from(dtype, {G * H, H}, columns);
  const std::vector<Tensor> got = run_call(c.op().c_str(), attrs, inputs, results, target, true);
  const bool is_packed = c.rows > kFewRows || c.steps >= kManySteps;
  for (std::size_t i = 0; i < wanted.size(); ++i) {
    const auto name = fmt::format("result {}", i);
    if (is_packed) {
      EXPECT_TRUE(std::equal(wanted[i].bytes(), wanted[i].bytes() + wanted[i].size_bytes(), got[i].bytes())) << name;
    } else {
      const Dense values = wanted[i].to_doubles();
      expect_close(name, got[i].to_doubles(), values, (dtype == f32 ? 2e-6 : 0.01) * (1 + largest(values)));
    }
  }
}

TEST(RecurrenceKernelsOnCpu, ReadWeightsThatLieByColumns) {
  std::mt19937 random(6);
  Target plain = named_target("avx512"), tiles = plain;
  tiles.has_amx = true;
#if defined(__x86_64__)
  std::optional<PretendTiles> pretended;
  if (!this_cpu().has_amx && !hides_tiles()) pretended.emplace();
  const bool has_tiles = !hides_tiles();
#else
  const bool has_tiles = false;
#endif
  for (const char* cell : {"lstm", "gru", "rnn"}) {
    for (const std::int64_t hidden : {1, 3, 16, 17, 31, 64, 100, 144}) {
      for (const std::int64_t rows : {1, 2, 3, 4, 5, 70}) {  // few of few steps are multiplied where u lies
        for (const std::int64_t steps : {std::int64_t{3}, kManySteps}) {
          const Case c{cell, steps, rows, hidden, rows % 2 == 0};
          check_columns(c, f32, this_cpu(), &random);
          check_columns(c, bf16, plain, &random);
          const bool is_small = rows * c.gates() * hidden * hidden <= 1 << 20;  // large ones are the library's
          const bool is_for_tiles = is_small && rows > kFewRows;
          if (!this_cpu().has_amx || is_for_tiles) check_columns(c, bf16, this_cpu(), &random);
          if (has_tiles && is_for_tiles) check_columns(c, bf16, tiles, &random);
        }
      }
    }
  }
}

// Small integers, so that every sum is exact: multiply(rows, parts, a, stride, pairs, panel, tile).
template <class Multiply>
void check_products(std::int64_t rows, std::int64_t parts, std::int64_t pairs, std::int64_t rows_there,
                    const Multiply& multiply) {
  std::mt19937 random(5);
  const auto small = [&] { return static_cast<float>(static_cast<int>(random() % 17) - 8); };
  const auto bits = [](float value) { return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16); };
  const auto number = [](std::uint16_t half) { return std::bit_cast<float>(static_cast<std::uint32_t>(half) << 16); };
  const std::int64_t stride = 2 * pairs + 6, width = parts * kUnitBlock;
  std::vector<std::uint16_t> a(static_cast<std::size_t>(rows_there * stride)),
      panel(static_cast<std::size_t>(2 * pairs * width));
  std::vector<float> wanted(static_cast<std::size_t>(rows * width)), tile(static_cast<std::size_t>(rows_there * width));
  for (std::uint16_t& value : a) value = bits(small());
  for (std::uint16_t& value : panel) value = bits(small());
  for (std::int64_t r = 0; r < rows; ++r) {
    for (std::int64_t k = 0; k < 2 * pairs; ++k) {
      for (std::int64_t j = 0; j < width; ++j) {
        wanted[static_cast<std::size_t>(r * width + j)] +=
            number(a[static_cast<std::size_t>(r * stride + k)]) *
            number(panel[static_cast<std::size_t>((k / 2 * width + j) * 2 + k % 2)]);
      }
    }
  }
  multiply(rows, parts, a.data(), stride, pairs, panel.data(), tile.data());
  tile.resize(wanted.size());
  EXPECT_EQ(tile, wanted) << rows << " rows, " << parts << " parts";
}

TEST(RecurrenceKernelsOnCpu, MultiplyPairsExactly) {
  if (!multiplies_pairs()) GTEST_SKIP() << "NOT CHECKED: needs a CPU with products of pairs of bf16";
  for (std::int64_t parts = 1; parts <= 4; ++parts) {
    for (std::int64_t rows = 1; rows <= rows_in_registers(parts); ++rows) {
      check_products(rows, parts, 7, rows, multiply_pairs);
    }
  }
}

#if defined(__x86_64__)
TEST(RecurrenceKernelsOnCpu, MultiplyTilesExactly) {
  if (hides_tiles()) GTEST_SKIP() << "NOT CHECKED: this CPU's tiles are not to be used";
  std::optional<PretendTiles> pretended;
  if (!this_cpu().has_amx) pretended.emplace();
  const TileScope tiles(true);
  for (std::int64_t parts = 1; parts <= 4; ++parts) {
    for (const std::int64_t rows : {1, 7, 16, 17, 31, 32}) {
      const auto multiply = [](std::int64_t count, std::int64_t p, const std::uint16_t* a, std::int64_t stride,
                               std::int64_t pairs, const std::uint16_t* panel,
                               float* tile) { multiply_tiles(count, p, a, stride, 2 * pairs, panel, tile); };
      check_products(rows, parts, 3 * kTileDepth / 2, RecurrenceWork::padded_rows(Numbers::bf16_in_tiles, rows),
                     multiply);
    }
  }
}
#endif

}  // namespace
}  // namespace paoding::testing_program
