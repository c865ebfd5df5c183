// SPDX-License-Identifier: Apache-2.0
// The gradient of the gradient of every formula op, fused, against finite differences of its first gradient in float64.
#include "tests/support/op_case.h"

namespace paoding::testing_program {
namespace {

// The first float case with elements that is no error.
const OpCase* usual_case(const OpDef& op) {
  for (const OpCase& c : op.cases) {
    std::int64_t elements = 1;
    for (const Shape& shape : c.shapes) elements *= shape.elements();
    if (c.error.empty() && elements > 0 && c.attrs.find("dtype") == nullptr) return &c;
  }
  return nullptr;
}

// With 0 at `zeros` of the first input. Returns how many values were compared: none of an op without a gradient.
int check_second_gradient(const OpDef& op, const OpCase& usual, const std::vector<std::size_t>& zeros = {}) {
  SCOPED_TRACE(op.name);
  const CaseGraph first({&op, "", usual, f64}, Around::nothing, true);
  if (!first.has_gradient) return 0;
  int compared = 0;
  // loss = sum over inputs of sum(gradient * weight); its gradients are checked.
  CaseGraph second({&op, "", usual, f64}, Around::nothing, true);
  Graph& graph = second.graph;
  Values made, weights;
  std::vector<std::string> names;
  for (const Graph::Fetch& fetch : graph.fetches()) {
    if (fetch.name.starts_with("gradient")) made.push_back(graph.value(fetch.ref)), names.push_back(fetch.name);
  }
  for (std::size_t i = 0; i < made.size(); ++i) {
    weights.push_back(graph.input("weight" + std::to_string(i), f64, made[i].shape()));
  }
  const Values again = gradients(made, second.floats, weights);
  for (std::size_t i = 0; i < again.size(); ++i) graph.fetch("again" + std::to_string(i), again[i]);

  Feeds feeds = feeds_of(op, graph, 11);
  for (const std::size_t element : zeros) feeds.at("in0").at(element) = 0;
  Program program(graph, {.device = Device::cpu()});
  const Tensors got = program.run(to_tensors(graph, feeds));
  const auto loss = [&](const std::string& input, std::size_t element, double shift) {
    Feeds moved;
    for (NodeId id : first.graph.inputs()) {
      const std::string& name = first.graph.node(id).name.str();
      moved[name] = feeds.at(name);
    }
    moved[input][element] += shift;
    const auto results = evaluate_graph(first.graph, moved);
    double total = 0;
    for (std::size_t i = 0; i < names.size(); ++i) {
      const Dense &values = results.at(names[i]), &weight = feeds.at("weight" + std::to_string(i));
      for (std::size_t k = 0; k < values.size(); ++k) total += values[k] * weight[k];
    }
    return total;
  };
  for (std::size_t i = 0; i < second.floats.size(); ++i) {
    const std::string input = graph.node(second.floats[i].ref().node).name.str();
    const Dense gradient = got.at("again" + std::to_string(i)).to_doubles();
    for (std::size_t element = 0; element < std::min<std::size_t>(gradient.size(), zeros.empty() ? 4 : 64); ++element) {
      constexpr double kStep = 1e-5;
      const double expected = (loss(input, element, kStep) - loss(input, element, -kStep)) / (2 * kStep);
      EXPECT_NEAR(gradient[element], expected, 1e-6 * (1 + largest(gradient))) << input << " element " << element;
      ++compared;
    }
  }
  return compared;
}

TEST(SecondGradient, IsRightForEveryFormulaOp) {
  int checked = 0;
  for (const OpDef* op : all_ops()) {
    if (op->kind != OpKind::formula || op->name.starts_with("test_")) continue;
    const OpCase* usual = usual_case(*op);
    if (usual == nullptr) continue;
    checked += check_second_gradient(*op, *usual) > 0;
  }
  EXPECT_GE(checked, 50);
}

TEST(SecondGradient, OfProductsIsRightWhereElementsAre0) {
  const Ints last{1}, first{0, -1};
  for (const char* name : {"prod", "prod_others"}) {
    // Rows with none, one, two and three zeros.
    const OpDef& op = *find_op(name);
    const OpCase rows{.shapes = {{4, 5}}, .attrs = {{"axes", last}}},
        all{.shapes = {{2, 3, 2}}, .attrs = {{"axes", first}}};
    EXPECT_GE(check_second_gradient(op, rows, {6, 10, 13, 15, 17, 19}), 20);
    EXPECT_GE(check_second_gradient(op, all, {0, 4, 11}), 12);
  }
  for (const bool exclusive : {false, true}) {
    for (const bool reverse : {false, true}) {
      const Attrs attrs{{"axis", std::int64_t{1}}, {"exclusive", exclusive}, {"reverse", reverse}};
      EXPECT_GE(check_second_gradient(*find_op("cumprod"), {.shapes = {{3, 6}}, .attrs = attrs}, {7, 12, 16}), 18);
    }
  }
}

}  // namespace
}  // namespace paoding::testing_program
