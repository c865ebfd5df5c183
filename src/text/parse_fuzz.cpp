// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: whatever the bytes are, parse_graph gives a legal graph whose text reads back to itself, or Error;
// so does GraphText at the least and the greatest sizes of the extents that the text declares.
// Build: clang++-16 -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude -Isrc src/text/parse_fuzz.cpp
//        src/{text,autodiff,ops,ops/*,graph,group,scalar,base}/*.cpp -lfmt
//        without the *_test, *_cpu and *_gpu files and the tables of kernels (src/ops/kernel.cpp, all_kernels.cpp)
// Run: ./parse_fuzz -max_len=4096 corpus tests/fuzz_seeds/parse
#include <cstdint>
#include <optional>
#include <string_view>

#include "graph/verify.h"
#include "paoding/error.h"
#include "paoding/graph.h"
#include "paoding/graph_text.h"

namespace {

// Printed text must parse: an Error from there is a finding too.
void check_graph(const paoding::Graph& graph) {
  paoding::verify(graph, "parsing");
  const std::string printed = paoding::to_text(graph);
  if (paoding::to_text(*paoding::parse_graph(printed)) != printed) __builtin_trap();
}

void check_at(const paoding::GraphText& text, const paoding::Extents::Key& sizes) {
  std::unique_ptr<paoding::Graph> graph;
  try {
    text.extents().bucket_of(sizes);
    graph = text.at(sizes);
  } catch (const paoding::Error&) {
    return;
  }
  check_graph(*graph);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size_bytes);
  std::optional<paoding::GraphText> family;
  std::unique_ptr<paoding::Graph> graph;
  try {
    family.emplace(text);
    graph = paoding::parse_graph(text);
  } catch (const paoding::Error&) {
  }
  if (graph) {
    if (!family || !family->extents().empty()) __builtin_trap();
    check_graph(*graph);
  }
  if (!family || family->extents().empty()) return 0;
  paoding::Extents::Key least, most;
  for (const paoding::ExtentSpec& spec : family->extents().specs()) {
    least.push_back(spec.minimum);
    most.push_back(spec.maximum);
  }
  check_at(*family, least);
  check_at(*family, most);
  return 0;
}
