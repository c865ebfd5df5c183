// SPDX-License-Identifier: Apache-2.0
// A GRU's state in 16 bits: its sum over many steps, in kernels and in loops, and in mixed precision.
#include <gtest/gtest.h>

#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

constexpr std::int64_t kSteps = 400, kBatch = 2, kUnits = 3;

// z is about 0.99 and n about 1, so that every step adds a hundredth of the difference to 1: rounded to bf16 after
// every step, the state would stop far below.
Feeds slow_feeds(Graph& g) {
  Feeds feeds = make_feeds(g, 2);
  Dense& xw = feeds.at("xw");
  for (std::size_t i = 0; i < xw.size(); ++i) {
    const std::size_t gate = i % (3 * kUnits) / kUnits;
    xw[i] = gate == 0 ? 0 : gate == 1 ? 4.6 : 6;
  }
  for (const char* name : {"u", "bm", "h0"}) {
    for (double& value : feeds.at(name)) value *= 0.01;
  }
  return feeds;
}

GruRecurrence build(Graph& g, DType dtype) {
  const Value xw = g.input("xw", dtype, {kSteps, kBatch, 3 * kUnits}), u = g.input("u", dtype, {kUnits, 3 * kUnits});
  return gru_recurrence(xw, u, g.input("bm", dtype, {kUnits}), g.input("h0", dtype, {kBatch, kUnits}));
}

Tensors run(const CompileOptions& options, DType dtype, const std::string& has_step = "") {
  Graph g;
  const GruRecurrence made = build(g, dtype);
  const Value loss = sum(cast(made.states, f32)), state = made.last_h;
  g.fetch("states", made.states), g.fetch("last_h", state);
  g.fetch("dh0", gradients(std::array{sum(cast(state, f32))}, std::array{g.find("h0")})[0]);
  g.fetch("loss", loss);
  Program program(g, options);
  EXPECT_TRUE(has(program.plan_text(), has_step)) << program.plan_text();
  return program.run(to_tensors(g, slow_feeds(g)));
}

TEST(GruRecurrence, AddsUpItsStateInF32) {
  const Tensors exact = run({.device = Device::cpu()}, f64);
  for (const bool has_kernel : {true, false}) {
    SCOPED_TRACE(has_kernel ? "a kernel" : "a loop");
    CompileOptions options{.device = Device::cpu()};
    if (!has_kernel) options.disabled_passes = {"claim_composed"};
    const Tensors got = run(options, bf16);
    for (const char* name : {"states", "last_h", "dh0"})
      expect_close(name, got.at(name).to_doubles(), exact.at(name).to_doubles(), 1e-2);
  }
}

TEST(GruRecurrence, IsOf16BitsInMixedPrecision) {
  const Tensors exact = run({.device = Device::cpu()}, f64);
  const Tensors got = run({.device = Device::cpu(), .precision = bf16}, f32, "bf16[401,2,3]");
  for (const char* name : {"states", "last_h", "dh0"})
    expect_close(name, got.at(name).to_doubles(), exact.at(name).to_doubles(), 1e-2);
}

}  // namespace
}  // namespace paoding::testing_program
