// SPDX-License-Identifier: Apache-2.0
// dynamic_slice and dynamic_update_slice against slices at fixed places, at every start, within and beyond the value.
#include "paoding/ops/dynamic.h"

#include "paoding/ops/lists.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

TEST(DynamicSlice, IsTheSliceAtAnyStartMovedToWhereItFits) {
  Graph g;
  const Value a = g.input("a", f64, {5, 6}), start = g.input("start", i64, {2}), part = g.input("part", f64, {2, 3});
  const Value dy = g.input("dy", f64, {2, 3}), dz = g.input("dz", f64, {5, 6});
  const Value y = dynamic_slice(a, start, std::array<std::int64_t, 2>{2, 3}), z = dynamic_update_slice(a, part, start);
  g.fetch("y", y);
  g.fetch("z", z);
  g.fetch("dy/da", gradients({y}, {a}, {dy})[0]);
  const Values of_z = gradients({z}, {a, part}, {dz});
  g.fetch("dz/da", of_z[0]);
  g.fetch("dz/dpart", of_z[1]);
  Program program(g);
  const Feeds feeds = make_feeds(g, 1);
  Tensors given = to_tensors(g, feeds);
  for (const auto& [row, column] :
       std::vector<std::pair<int, int>>{{0, 0}, {2, 1}, {3, 3}, {9, 2}, {1, 7}, {-4, 0}, {1, -1}}) {
    SCOPED_TRACE(std::to_string(row) + ", " + std::to_string(column));
    given["start"] = Tensor::from(i64, {2}, Dense{double(row), double(column)});
    const Tensors got = program.run(given);
    const int r0 = std::clamp(row, 0, 3), c0 = std::clamp(column, 0, 3);
    Dense y_(6), z_ = feeds.at("a"), da(30, 0.0), left = feeds.at("dz"), dpart(6);
    for (int r = 0; r < 2; ++r) {
      for (int c = 0; c < 3; ++c) {
        const auto whole = static_cast<std::size_t>((r0 + r) * 6 + c0 + c),
                   in_part = static_cast<std::size_t>(r * 3 + c);
        y_[in_part] = feeds.at("a")[whole];
        z_[whole] = feeds.at("part")[in_part];
        da[whole] = feeds.at("dy")[in_part];
        dpart[in_part] = feeds.at("dz")[whole];
        left[whole] = 0;
      }
    }
    EXPECT_EQ(got.at("y").to_doubles(), y_);
    EXPECT_EQ(got.at("z").to_doubles(), z_);
    EXPECT_EQ(got.at("dy/da").to_doubles(), da);
    EXPECT_EQ(got.at("dz/da").to_doubles(), left);
    EXPECT_EQ(got.at("dz/dpart").to_doubles(), dpart);
  }
}

// A buffer that a loop fills from its end, and its gradient.
TEST(DynamicSlice, WritesAndReadsWhereALoopIs) {
  Graph g;
  const Value xs = g.input("xs", f64, {4, 3}), dy = g.input("dy", f64, {4, 3});
  const StepResult made = scan({zeros(g, {4, 3}, f64)}, {xs}, [](const Values& carries, const Values& elements) {
    const Value t = step_index(carries[0].graph());
    const Value row = reshape(elements[0] * elements[0], Shape{1, 3});
    return step({dynamic_update_slice(carries[0], row, 0, 3 - t)}, {dynamic_slice(carries[0], 0, 4 - t, 1)});
  });
  g.fetch("y", made.carries[0]);
  g.fetch("dx", gradients({made.carries[0]}, {xs}, {dy})[0]);
  g.fetch("read", made.outputs[0]);
  const Feeds feeds = make_feeds(g, 2);
  const Tensors got = Program(g).run(to_tensors(g, feeds));
  const Dense &x = feeds.at("xs"), &d = feeds.at("dy");
  for (std::size_t t = 0; t < 4; ++t) {
    for (std::size_t i = 0; i < 3; ++i) {
      const double value = x[t * 3 + i];
      EXPECT_EQ(got.at("y").to_doubles()[(3 - t) * 3 + i], value * value);
      EXPECT_EQ(got.at("dx").to_doubles()[t * 3 + i], 2 * value * d[(3 - t) * 3 + i]);
      // The value that the step before wrote; in the first step nothing is there.
      EXPECT_EQ(got.at("read").to_doubles()[t * 3 + i], t == 0 ? 0 : x[(t - 1) * 3 + i] * x[(t - 1) * 3 + i]);
    }
  }
}

TEST(DynamicSlice, OfOneElementIsNoKernelOfItsOwn) {
  Graph g;
  const Value a = g.input("a", f32, {2, 8, 4}), x = g.input("x", f32, {2, 1, 4}), at = g.input("at", i64, {});
  g.fetch("y", dynamic_update_slice(a, x * 2.0, 1, at) + 1.0);
  EXPECT_EQ(Program(g).report().launches, 1);
}

}  // namespace
}  // namespace paoding::testing_program
