// SPDX-License-Identifier: Apache-2.0
// Plans of indexing for a GPU, though none need be here: kernels note the place of an index out of range in 32 bits.
#include <gtest/gtest.h>

#include "tests/gpu/kernel_texts.h"

namespace paoding::testing_program {
namespace {

using Build = Value (*)(const Value& indices);

constexpr std::pair<const char*, Build> kOps[] = {
    {"gather", [](const Value& ids) { return gather(ids.graph().input("table", f32, {4}), ids, 0); }},
    {"scatter_add",
     [](const Value& ids) { return scatter_add(ids, ids.graph().input("updates", f32, ids.shape()), 0, 4); }},
    {"check_indices", [](const Value& ids) {
       return call("check_indices", {ids}, {{"most", std::int64_t{3}}});
     }}};

TEST(IndexOnGpu, DeclinesMoreIndicesThanTheFaultWordsCanPlace) {
  constexpr std::int64_t kMost = (std::int64_t{1} << 32) - 2;
  for (const auto& [name, build] : kOps) {
    for (const std::int64_t count : {kMost, kMost + 1}) {
      Graph g;
      g.fetch("y", build(g.input("ids", i32, {count})));
      std::string text;
      try {
        text = to_string(plan_for_gpu(g));
      } catch (const Error& error) {
        text = error.what();
      }
      EXPECT_EQ(has(text, "2^32 - 1 indices or more"), count > kMost) << name << " of " << count << ": " << text;
    }
  }
}

}  // namespace
}  // namespace paoding::testing_program
