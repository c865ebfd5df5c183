// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: whatever the bytes are, parse_graph gives a legal graph whose text reads back to itself, or Error.
// Build: clang++-16 -std=c++20 -g -O1 -fsanitize=fuzzer,address,undefined -Iinclude -Isrc src/text/parse_fuzz.cpp
//        src/{text,autodiff,ops,ops/*,graph,group,scalar,base}/*.cpp -lfmt
//        without the *_test, *_cpu and *_gpu files and the tables of kernels (src/ops/kernel.cpp, all_kernels.cpp)
// Run: ./parse_fuzz -max_len=4096 corpus tests/fuzz_seeds/parse
#include <cstdint>
#include <string_view>

#include "graph/verify.h"
#include "paoding/error.h"
#include "paoding/graph.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t size_bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes), size_bytes);
  std::string printed;
  try {
    const auto graph = paoding::parse_graph(text);
    paoding::verify(*graph, "parsing");
    printed = paoding::to_text(*graph);
  } catch (const paoding::Error&) {
    return 0;
  }
  // Printed text must parse: an Error here is a finding too.
  if (paoding::to_text(*paoding::parse_graph(printed)) != printed) __builtin_trap();
  return 0;
}
