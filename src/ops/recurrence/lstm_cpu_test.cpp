// SPDX-License-Identifier: Apache-2.0
// The CPU's kernels of lstm_recurrence and of its gradient against the composition in f64, for random shapes.
#include <gtest/gtest.h>

#include <random>

#include "ops/kernel.h"
#include "tests/pass_check.h"
#include "tests/program_check.h"

namespace paoding::testing_program {
namespace {

struct Case {
  std::int64_t steps, rows, hidden;
  bool is_reverse, has_lengths;
};

// What is read of a layer, with the gradients of all that it is given.
void build(Graph& g, const Case& c, DType dtype) {
  const std::int64_t H = c.hidden;
  const Value xw = g.input("xw", dtype, {c.steps, c.rows, 4 * H}), u = g.input("u", dtype, {H, 4 * H});
  const Value h0 = g.input("h0", dtype, {c.rows, H}), c0 = g.input("c0", dtype, {c.rows, H});
  const Value lengths = c.has_lengths ? g.input("lengths", i32, {c.rows}) : Value();
  const LstmRecurrence made = lstm_recurrence(xw, u, h0, c0, lengths, c.is_reverse);
  g.fetch("states", made.states);
  g.fetch("last_h", made.last_h);
  g.fetch("last_c", made.last_c);
  const Values inputs = {xw, u, h0, c0};
  const Value weight = g.input("weight", dtype, made.states.shape());
  const Values grads = gradients(std::array{sum(made.states * weight) + sum(made.last_c * made.last_c)}, inputs);
  const char* names[] = {"dxw", "du", "dh0", "dc0"};
  for (std::size_t i = 0; i < grads.size(); ++i) g.fetch(names[i], grads[i]);
}

// Weights small enough that gates work, as multiples of 2^-10, so that f32 has them too.
Feeds feeds_of(const Graph& g, const Case& c, std::mt19937* random) {
  Feeds feeds;
  std::uniform_real_distribution<double> uniform(-1, 1);
  for (NodeId id : g.inputs()) {
    const Type& type = g.node(id).types[0];
    Dense& values = feeds[g.node(id).name.str()];
    const double scale = g.node(id).name == Name("u") ? 1 / std::sqrt(static_cast<double>(c.hidden)) : 1;
    for (std::int64_t i = 0; i < type.shape.elements(); ++i) {
      values.push_back(std::round(uniform(*random) * scale * 1024) / 1024);
    }
    if (type.dtype == i32) {
      for (double& value : values) value = static_cast<double>((*random)() % static_cast<unsigned>(c.steps + 2));
      values[0] = 0;
      values.back() = 1;
    }
  }
  return feeds;
}

void check(const Case& c, std::mt19937* random) {
  SCOPED_TRACE("T " + std::to_string(c.steps) + ", B " + std::to_string(c.rows) + ", H " + std::to_string(c.hidden) +
               (c.is_reverse ? ", reverse" : "") + (c.has_lengths ? ", lengths" : ""));
  Graph g, exact;
  build(g, c, f32);
  build(exact, c, f64);
  const Feeds feeds = feeds_of(g, c, random);
  Program program(g), reference(exact);
  const std::string plan = program.plan_text();
  EXPECT_TRUE(has(plan, "lstm_recurrence s") && has(plan, "lstm_recurrence_grad s") && has(plan, "(team)")) << plan;
  const Tensors got = program.run(to_tensors(g, feeds)), wanted = reference.run(to_tensors(exact, feeds));
  for (const auto& [name, tensor] : got) {
    const Dense values = wanted.at(name).to_doubles();
    expect_close(name, tensor.to_doubles(), values, 4e-6 * static_cast<double>(c.steps) * (1 + largest(values)));
  }
  expect_same_bits(got, program.run(to_tensors(g, feeds)));
}

TEST(LstmOnCpu, IsTheRecurrenceForAnyShape) {
  std::mt19937 random(1);
  for (const std::int64_t hidden : {1, 2, 15, 16, 17, 33, 64, 100, 130}) {
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 7, 13}) {
      const bool is_reverse = random() % 2 == 0, has_lengths = random() % 2 == 0;
      check({.steps = 1 + static_cast<std::int64_t>(random() % 9),
             .rows = rows,
             .hidden = hidden,
             .is_reverse = is_reverse,
             .has_lengths = has_lengths},
            &random);
    }
  }
  check({.steps = 3, .rows = 1, .hidden = 1536, .is_reverse = false, .has_lengths = false}, &random);
  check({.steps = 3, .rows = 6, .hidden = 777, .is_reverse = true, .has_lengths = true}, &random);
}

TEST(LstmOnCpu, LeavesProductsOf16BitsToTheLibraryWhereTheCpuHasThem) {
  const Shape gates{3, 2, 8}, state{2, 2};
  KernelCall call{find_op("lstm_recurrence"), {{"reverse", false}}, {}, {}, {}, false, "", {}};
  for (const Type& type : {Type{bf16, gates}, Type{bf16, {2, 8}}, Type{bf16, state}, Type{f32, state}}) {
    call.inputs.push_back(Layout::dense(type));
  }
  Target target = named_target("avx512");
  std::vector<std::string> refusals;
  target.has_bf16 = true;
  call.target = std::make_shared<const Target>(target);
  EXPECT_EQ(choose_kernel(call, &refusals), nullptr);
  ASSERT_EQ(refusals.size(), 1u);
  EXPECT_TRUE(has(refusals[0], "products of bf16 are twice as fast")) << refusals[0];
  target.has_bf16 = false;
  call.target = std::make_shared<const Target>(target);
  EXPECT_NE(choose_kernel(call, &refusals), nullptr);
}

// Memory for the operands of a call, which is run; results follow the inputs.
std::vector<Tensor> run_call(const char* op, Attrs attrs, const std::vector<Tensor>& inputs,
                             const std::vector<Type>& results) {
  Target target = named_target("avx512");
  KernelCall call{find_op(op), std::move(attrs), {}, {}, {}, false, "", std::make_shared<const Target>(target)};
  std::vector<Tensor> operands = inputs;
  for (const Tensor& input : inputs) call.inputs.push_back(Layout::dense({input.dtype(), input.shape()}));
  for (const Type& type : results) {
    call.outputs.push_back(Layout::dense(type));
    operands.emplace_back(type);
  }
  std::vector<std::string> notes;
  const auto kernel = prepare_kernel(*choose_kernel(call, &notes), call, Device::cpu(), &notes);
  std::vector<std::byte> scratch(static_cast<std::size_t>(kernel->scratch_bytes()) + 64);
  std::vector<void*> pointers;
  for (Tensor& operand : operands) pointers.push_back(operand.bytes());
  kernel->run({pointers.data(), scratch.data(), nullptr});
  return {operands.begin() + static_cast<std::ptrdiff_t>(inputs.size()), operands.end()};
}

// On every CPU: where it has products of 16 bits no program would choose the kernel.
TEST(LstmOnCpu, ComputesBf16InF32) {
  for (const std::int64_t rows : {2, 9}) {
    const std::int64_t T = 5, H = 21;
    Graph g;  // the composition in f64, with the same numbers
    build(g, {T, rows, H, false, false}, f64);
    std::mt19937 random(3);
    Feeds feeds = feeds_of(g, {T, rows, H, false, false}, &random);
    for (auto& [name, values] : feeds) values = rounded({bf16, {static_cast<std::int64_t>(values.size())}}, values);
    const Tensors wanted = Program(g).run(to_tensors(g, feeds));
    const auto tensor = [&](const char* name, DType dtype, const Shape& shape) {
      return Tensor::from(dtype, shape, feeds.at(name));
    };
    const Shape state{rows, H}, states{T + 1, rows, H}, gates{T, rows, 4 * H};
    const Tensor u = tensor("u", bf16, {H, 4 * H});
    const std::vector<Tensor> made =
        run_call("lstm_recurrence", {{"reverse", false}},
                 {tensor("xw", bf16, gates), u, tensor("h0", bf16, state), tensor("c0", f32, state)},
                 {{bf16, states}, {f32, states}, {bf16, gates}, {bf16, state}, {f32, state}});
    expect_close("states", made[0].to_doubles(), wanted.at("states").to_doubles(), 0.02);
    expect_close("last_c", made[4].to_doubles(), wanted.at("last_c").to_doubles(), 0.02);
    Dense d_last_c = wanted.at("last_c").to_doubles(), d_states = feeds.at("weight");
    for (double& value : d_last_c) value *= 2;
    d_states.erase(d_states.begin(), d_states.begin() + rows * H);  // h0's own
    const std::vector<Tensor> back =
        run_call("lstm_recurrence_grad", {{"states", true}, {"last_h", false}, {"last_c", true}, {"reverse", false}},
                 {u, made[2], made[1], Tensor::from(bf16, {T, rows, H}, d_states), Tensor::from(f32, state, d_last_c)},
                 {{bf16, gates}, {bf16, {0}}, {f32, state}});
    expect_close("dxw", back[0].to_doubles(), wanted.at("dxw").to_doubles(), 0.05);
    expect_close("dc0", back[2].to_doubles(), wanted.at("dc0").to_doubles(), 0.05);
  }
}

}  // namespace
}  // namespace paoding::testing_program
