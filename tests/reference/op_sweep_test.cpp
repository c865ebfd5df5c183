// SPDX-License-Identifier: Apache-2.0
// Every op, every case it declares, every float dtype: forward, gradient, between elementwise ops, fused against
// unfused, errors. Nothing is written per op. Tests are named OpSweep.lerp/case1/gradient/f32; on a machine with a GPU
// there are OpSweepOnGpu tests too.
#include <numeric>
#include <optional>

#include "examples/rotary.h"
#include "graph/formula.h"
#include "tests/support/error_model.h"
#include "tests/support/gpu_refusals.h"
#include "tests/support/op_case.h"

namespace paoding::testing_program {
namespace {

constexpr double kStep = 1e-5;          // of finite differences
constexpr std::size_t kMostProbes = 8;  // elements of one input that are compared
constexpr std::size_t kMostTries = 64;  // and that are tried for it: those at a kink have nothing to compare with

bool casts_to_half(const Graph& graph) {
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.op->name == "cast" && (node.types[0].dtype == f16 || node.types[0].dtype == bf16)) return true;
    for (const auto& body : node.bodies) {
      if (casts_to_half(*body)) return true;
    }
    if (node.op->kind != OpKind::composed) continue;
    Graph composition;
    Values inputs;
    for (const Ref& ref : node.inputs) {
      const Type& type = graph.type(ref);
      inputs.push_back(composition.input("in" + std::to_string(inputs.size()), type.dtype, type.shape));
    }
    expand_composed(composition, *node.op, inputs, node.attrs);
    if (casts_to_half(composition)) return true;
  }
  return false;
}

// Results that jump have no finite difference; their gradient is defined to be the identity's. Nor have results whose
// gradient is stopped, wholly or for a row.
bool rounds(const SweepCase& c, const Graph& graph) {
  if (c.op->name == "stop_gradient") return true;
  if (c.op->name == "embedding" && c.shape.attrs.find("padding") != nullptr) return true;
  if (casts_to_half(graph)) return true;  // a composed op that computes f16 and bf16 in f32
  const AttrValue* dtype = c.shape.attrs.find("dtype");
  if (dtype == nullptr || !std::holds_alternative<DType>(*dtype)) return false;
  const DType to = std::get<DType>(*dtype);
  return to != f64 && to != f32;
}

Dense values_of(const Tensors& tensors, const std::string& name) { return tensors.at(name).to_doubles(); }

void expect_within(const Tensors& got, const std::map<std::string, Expected>& all, const std::string& what = "") {
  for (const auto& [name, expected] : all) {
    EXPECT_EQ(expected.problem_with(values_of(got, name)), "") << name << what;
  }
}

// A recurrent kernel's functions lose up to 3e-7 each in every step (recurrence.cu).
double few_roundings(const Graph& graph) {
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (graph.node(id).op->name.ends_with("_recurrence")) return 8;
  }
  return 4;
}

// Runs a program with two sets of feeds and the first again: nothing may be remembered.
Tensors run_thrice(Program& program, const Graph& graph, const Feeds& feeds, const Feeds& others) {
  const Tensors first = program.run(to_tensors(graph, feeds));
  const Tensors second = program.run(to_tensors(graph, others));
  expect_within(second, expected_within(graph, others, few_roundings(graph)), " of the second run");
  expect_same_bits(first, program.run(to_tensors(graph, feeds)));
  return first;
}

CompileOptions options_for(const Device& device, bool fused = true) {
  CompileOptions options;
  options.device = device;
  if (!fused) options.disabled_passes = pass_names();
  return options;
}

void check_forward(const SweepCase& c, const Device& device) {
  const CaseGraph made(c, Around::nothing, false);
  const Feeds feeds = feeds_of(c, made.graph, 1), others = feeds_of(c, made.graph, 2);
  Program program(made.graph, options_for(device));
  const Tensors got = run_thrice(program, made.graph, feeds, others);
  for (const auto& [name, tensor] : got) {
    EXPECT_EQ(tensor.type(),
              made.graph.type(made.graph.fetches()[static_cast<std::size_t>(program.fetch_index(name))].ref));
  }
  expect_within(got, expected_within(made.graph, feeds, few_roundings(made.graph)));
}

// d(sum out * seed) / d(element) by central differences in float64; none where it has no derivative.
std::optional<double> difference(const CaseGraph& made, const Feeds& feeds, const std::string& input,
                                 std::size_t element) {
  const auto loss = [&](double shift) {
    Feeds moved = feeds;
    moved[input][element] += shift;
    const auto results = evaluate_graph(made.graph, moved);
    double total = 0;
    for (std::size_t i = 0, seed = 0; i < made.graph.fetches().size(); ++i) {
      const Graph::Fetch& fetch = made.graph.fetches()[i];
      if (!fetch.name.starts_with("out") || !is_float(made.graph.type(fetch.ref).dtype)) continue;
      const Dense &out = results.at(fetch.name), &weights = feeds.at("seed" + std::to_string(seed++));
      for (std::size_t k = 0; k < out.size(); ++k) {
        if (std::isfinite(out[k])) total += out[k] * weights[k];  // the logarithm of a sum of nothing does not move
      }
    }
    return total;
  };
  // Where the slopes of both sides disagree there is a jump or a kink, and no derivative to compare with.
  const double here = loss(0), left = (here - loss(-kStep)) / kStep, right = (loss(kStep) - here) / kStep;
  if (std::fabs(left - right) > 1e-2 * (1 + std::min(std::fabs(left), std::fabs(right)))) return std::nullopt;
  return (loss(kStep) - loss(-kStep)) / (2 * kStep);
}

void check_gradient(const SweepCase& c, const Device& device) {
  const CaseGraph made(c, Around::nothing, true);
  if (!made.has_gradient) {
    SUCCEED() << "the op has no gradient";
    return;
  }
  const Feeds feeds = feeds_of(c, made.graph, 3), others = feeds_of(c, made.graph, 4);
  Program program(made.graph, options_for(device));
  const Tensors got = run_thrice(program, made.graph, feeds, others);
  const std::map<std::string, Expected> exact = expected_within(made.graph, feeds, few_roundings(made.graph));
  std::mt19937 random(5);
  for (std::size_t i = 0; i < made.floats.size(); ++i) {
    const std::string name = "gradient" + std::to_string(i);
    const Dense gradient = values_of(got, name);
    EXPECT_EQ(got.at(name).type(), made.floats[i].type());
    EXPECT_EQ(exact.at(name).problem_with(gradient), "") << name;
    if (rounds(c, made.graph)) continue;
    const std::string input = made.graph.node(made.floats[i].ref().node).name.str();
    std::vector<std::size_t> elements(gradient.size());
    std::iota(elements.begin(), elements.end(), std::size_t{0});
    std::shuffle(elements.begin(), elements.end(), random);
    std::size_t compared = 0, tried = 0;
    while (compared < kMostProbes && tried < std::min(elements.size(), kMostTries)) {
      const std::size_t element = elements[tried++];
      const std::optional<double> expected = difference(made, feeds, input, element);
      if (!expected) continue;
      ++compared;
      EXPECT_NEAR(gradient[element], *expected,
                  exact.at(name).limits[element] + 1e-7 * (1 + std::max(std::fabs(*expected), largest(gradient))))
          << "element " << element << " of the gradient for " << input;
    }
    testing::Test::RecordProperty("kinks_of_" + input, static_cast<int>(tried - compared));
    // The few values of a half may all meet at kinks (a multiple of b, say); the same case of f32 has others.
    const bool is_half = c.dtype == f16 || c.dtype == bf16;
    EXPECT_TRUE(compared > 0 || elements.empty() || is_half)
        << "none of " << tried << " elements of " << input << " has a derivative to compare with";
  }
}

// Between elementwise ops, in the same kernel.
void check_chain(const SweepCase& c, const Device& device) {
  const CaseGraph made(c, Around::elementwise, false);
  const Feeds feeds = feeds_of(c, made.graph, 6);
  Program program(made.graph, options_for(device));
  // An i32 made of a float may differ by one where the float is at the edge; no case is.
  expect_within(program.run(to_tensors(made.graph, feeds)), expected_within(made.graph, feeds));
  if (c.op->kind == OpKind::formula) {
    const Graph& graph = made.graph;
    const bool is_empty = std::ranges::all_of(
        graph.fetches(), [&](const Graph::Fetch& fetch) { return graph.type(fetch.ref).shape.elements() == 0; });
    EXPECT_EQ(program.report().launches, is_empty ? 0 : 1) << program.plan_text();
  }
}

// On a GPU nearly all of the time is the compilation of the kernels that ops have of their own when passes are off:
// there only the larger graph is compared, which has the kernels of the smaller one.
void check_fused(const SweepCase& c, const Device& device) {
  for (const Around around : {Around::nothing, Around::elementwise}) {
    if (device.kind == DeviceKind::cuda && around == Around::nothing) continue;
    const CaseGraph made(c, around, true);
    const Feeds feeds = feeds_of(c, made.graph, 7);
    Program fused(made.graph, options_for(device)), plain(made.graph, options_for(device, false));
    const Tensors a = fused.run(to_tensors(made.graph, feeds)), b = plain.run(to_tensors(made.graph, feeds));
    for (auto& [name, expected] : expected_within(made.graph, feeds)) {
      Expected unfused{values_of(b, name), expected.limits};
      for (double& limit : unfused.limits) limit *= 2;
      EXPECT_EQ(unfused.problem_with(values_of(a, name)), "") << name << " fused against unfused";
    }
  }
}

void check_error(const SweepCase& c) {
  try {
    const CaseGraph made(c, Around::nothing, false);
    FAIL() << "no error; expected one with '" << c.shape.error << "'";
  } catch (const Error& error) {
    const std::string message = error.what();
    EXPECT_NE(message.find(c.shape.error), std::string::npos) << message;
    EXPECT_NE(message.find(c.op->name), std::string::npos) << message;
  }
}

// ---- registration ----

class SweepTest : public testing::Test {
 public:
  SweepTest(std::function<void()> check, std::string what, DeviceKind device)
      : check_(std::move(check)), what_(std::move(what)), device_(device) {}
  void TestBody() override {
    SCOPED_TRACE(what_);
    try {
      check_();
    } catch (const Error& error) {
      if (device_ == DeviceKind::cpu || !is_known_gpu_refusal(error)) throw;
      GTEST_SKIP() << "NOT CHECKED on a GPU: " << error.what();
    }
  }

 private:
  std::function<void()> check_;
  std::string what_;
  DeviceKind device_;
};

void add_test(const char* suite, const SweepCase& c, const std::string& kind, const Device& device,
              std::function<void()> check) {
  std::string name = c.op->name + "/" + c.name + "/" + kind, shapes;
  if (c.shape.error.empty()) name += "/" + std::string(to_string(c.dtype));
  for (const Shape& shape : c.shape.shapes) shapes += to_string(shape) + " ";
  testing::RegisterTest(suite, name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                        [=] { return new SweepTest(check, c.op->name + " of " + shapes, device.kind); });
}

void add_tests(const char* suite, const Device& device) {
  for (const DType dtype : {f32, f64, bf16, f16}) {
    for (const SweepCase& c : sweep_cases(dtype)) {
      if (!c.shape.error.empty()) {
        if (dtype == f32 && device.kind == DeviceKind::cpu)
          add_test(suite, c, "error", device, [c] { check_error(c); });
        continue;
      }
      const std::vector<DType> dtypes = input_dtypes(c);
      const bool has_floats = std::find(dtypes.begin(), dtypes.end(), dtype) != dtypes.end();
      if (!has_floats && dtype != f32) continue;  // the same as in f32
      add_test(suite, c, "forward", device, [c, device] { check_forward(c, device); });
      // Passes do not see a dtype's width, so that on a GPU one of 32 bits and one of 16 stand for the others; programs
      // without passes, whose many kernels take a third of the time of all tests there, have one dtype.
      const bool is_on_cpu = device.kind == DeviceKind::cpu;
      const bool is_chained = is_on_cpu || dtype == f32 || dtype == bf16, is_fused_too = is_on_cpu || dtype == f32;
      if (is_chained) add_test(suite, c, "chain", device, [c, device] { check_chain(c, device); });
      if (is_fused_too) add_test(suite, c, "fused", device, [c, device] { check_fused(c, device); });
      if (has_floats) add_test(suite, c, "gradient", device, [c, device] { check_gradient(c, device); });
    }
  }
  // Ops on numeric dtypes take integers too.
  for (const DType dtype : {i32, i64, u8}) {
    for (const SweepCase& c : sweep_cases(dtype)) {
      const std::vector<DType> dtypes = input_dtypes(c);
      if (!c.shape.error.empty() || std::find(dtypes.begin(), dtypes.end(), dtype) == dtypes.end()) continue;
      try {
        const CaseGraph takes_it(c, Around::nothing, false);
      } catch (const Error&) {
        continue;
      }
      add_test(suite, c, "forward", device, [c, device] { check_forward(c, device); });
      const bool is_fused_too = device.kind == DeviceKind::cpu || dtype == i64;
      if (is_fused_too) add_test(suite, c, "fused", device, [c, device] { check_fused(c, device); });
    }
  }
}

[[maybe_unused]] const bool are_added = [] {
  rotary_op::register_rotary();  // an op of a user's own, with a kernel
  add_tests("OpSweep", Device::cpu());
  if (Device::best().kind == DeviceKind::cuda) add_tests("OpSweepOnGpu", Device::best());
  return true;
}();

TEST(OpSweepCases, AreThereForEveryOp) {
  // Ops without a case, with the reason why.
  const std::set<std::string> without = {
      "input",
      "parameter",
      "full",
      "group",
      "scan",  // structural: tested by graphs
      "branch",
      "variant",
      "while",               // its body has to be written by hand: branch_test.cpp
      "checkpoint",          // the same
      "assign",              // its input is a parameter: assign_test.cpp
      "scatter_add_sorted",  // its inputs belong together: sort_indices_test.cpp
      "pack_weights",
      "all_reduce",  // those of several ranks, which need a communicator: collectives_test.cpp
      "reduce_scatter",
      "all_gather",
      "broadcast",
      "is_rank",
      "matmul_packed",  // the weights between them are in this machine's order: matmul_packed_test.cpp
  };
  for (const OpDef* op : all_ops()) {
    bool has_result = false;
    for (const OpCase& c : op->cases) has_result |= c.error.empty();
    if (op->name.starts_with("test_")) continue;  // registered by another test of this program
    EXPECT_NE(has_result, without.contains(op->name)) << op->name;
  }
}

std::set<std::string> names_of_tests(std::string_view suite) {
  std::set<std::string> names;
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& each = *all.GetTestSuite(i);
    for (int k = 0; each.name() == suite && k < each.total_test_count(); ++k) names.insert(each.GetTestInfo(k)->name());
  }
  return names;
}

TEST(OpSweepCases, RunOnAGpuWhereThereIsOne) {
  const std::set<std::string> here = names_of_tests("OpSweep"), there = names_of_tests("OpSweepOnGpu");
  EXPECT_FALSE(here.empty());
  if (Device::best().kind != DeviceKind::cuda) {
    EXPECT_TRUE(there.empty());
    GTEST_SKIP() << "NOT CHECKED: no GPU here, the sweep ran on the CPU only";
  }
  for (const std::string& name : here) {
    if (has(name, "/error") || has(name, "/fused/") || has(name, "/chain/")) continue;
    EXPECT_TRUE(there.contains(name)) << name;
  }
}

}  // namespace
}  // namespace paoding::testing_program
