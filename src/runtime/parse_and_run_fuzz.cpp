// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: whatever graph the text is, if it is small, it compiles with all passes and with none and runs, or
// Error says why not; a fetch has the type that it was promised.
// Build and run: make fuzz
#include <cstdint>
#include <string_view>

#include "paoding/error.h"
#include "paoding/graph.h"
#include "paoding/op.h"
#include "paoding/program.h"
#include "passes/pass.h"

namespace {

using namespace paoding;

constexpr double kMostWork = 2e5;

// Elements written by a run, roughly, and something for each node; a loop without a limit is too much.
double work_of(const Graph& graph) {
  double work = 0;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    double mine = 50;
    for (const Type& type : node.types) mine += static_cast<double>(type.shape.elements());
    for (const Ref& input : node.inputs) mine += static_cast<double>(graph.type(input).shape.elements());
    for (const auto& body : node.bodies) mine += work_of(*body);
    if (const AttrValue* length = node.attrs.find("length"); length != nullptr) {
      if (const auto* turns = std::get_if<std::int64_t>(length)) mine *= static_cast<double>(*turns < 1 ? 1 : *turns);
    }
    if (node.op->name == "while") mine += 2 * kMostWork;
    work += mine;
  }
  return work;
}

// Small numbers of both signs; indices that are sometimes out of range.
Tensor fed(const Type& type) {
  std::vector<double> values(static_cast<std::size_t>(type.shape.elements()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto turn = static_cast<double>(i % 7);
    values[i] = type.dtype == DType::boolean ? static_cast<double>(i % 2)
                : type.dtype == DType::u8    ? turn
                : is_integer(type.dtype)     ? turn - 1
                                             : (turn - 3) / 2;
  }
  return Tensor::from(type.dtype, type.shape, values);
}

void run(const Graph& graph, const CompileOptions& options) {
  Program program(graph, options);
  for (std::size_t i = 0; i < program.input_names().size(); ++i) {
    program.set_input(static_cast<int>(i), fed(program.input_type(static_cast<int>(i))));
  }
  program.run();
  program.run();
  for (const Graph::Fetch& fetch : graph.fetches()) {
    const Tensor got = program.fetch(program.fetch_index(fetch.name));
    if (got.to_doubles().size() != static_cast<std::size_t>(got.shape().elements())) __builtin_trap();
    const bool is_variant = graph.node(fetch.ref.node).op->name == "variant";
    if (!is_variant && got.type() != graph.type(fetch.ref)) __builtin_trap();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size_bytes) {
  std::unique_ptr<Graph> graph;
  try {
    graph = parse_graph(std::string_view(reinterpret_cast<const char*>(bytes), size_bytes));
  } catch (const Error&) {
    return 0;
  }
  if (work_of(*graph) > kMostWork) return 0;
  CompileOptions fused, plain;
  for (const Pass& pass : pipeline()) plain.disabled_passes.emplace_back(pass.name);
  for (const CompileOptions* options : {&fused, &plain}) {
    try {
      run(*graph, *options);
    } catch (const Error&) {  // (unsupported), (argument): a legal graph that has no program, or no such run
    }
  }
  return 0;
}
