// SPDX-License-Identifier: Apache-2.0
// Values that a run on a GPU hands to the host besides its results: those of `print`, and indices out of range. The
// places are computed here on any machine; the runs need a GPU.
#include "runtime/gpu/readback.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

#define SKIP_WITHOUT_A_GPU() \
  if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here"

TEST(Readback, PicksElementsOfAnyStrides) {
  const std::vector<float> memory = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};
  const auto pick = [&](const Shape& shape, std::initializer_list<std::int64_t> strides, std::int64_t origin) {
    Layout layout = Layout::dense({f32, shape});
    std::copy(strides.begin(), strides.end(), layout.strides.begin());
    const ByteRange range = byte_range_of(layout);
    const auto* first = reinterpret_cast<const std::byte*>(memory.data() + origin) - range.before;
    EXPECT_GE(first, reinterpret_cast<const std::byte*>(memory.data()));
    EXPECT_LE(first + range.bytes, reinterpret_cast<const std::byte*>(memory.data() + memory.size()));
    const std::vector<std::byte> copied(first, first + range.bytes);
    return picked(layout, copied.data()).to_doubles();
  };
  EXPECT_EQ(pick({2, 3}, {3, 1}, 0), (Dense{0, 1, 2, 3, 4, 5}));
  EXPECT_EQ(pick({3, 2}, {1, 4}, 1), (Dense{1, 5, 2, 6, 3, 7}));
  EXPECT_EQ(pick({3}, {-2}, 11), (Dense{11, 9, 7}));
  EXPECT_EQ(pick({2, 2}, {4, -1}, 5), (Dense{5, 4, 9, 8}));
  EXPECT_EQ(pick({2, 2}, {0, 1}, 3), (Dense{3, 4, 3, 4}));
  EXPECT_EQ(pick({0, 2}, {2, 1}, 3), Dense{});
  EXPECT_EQ(pick({}, {}, 3), Dense{3});
}

void build_prints(Graph& g) {
  const Value xs = g.input("xs", f32, {4, 3, 2}), big = g.input("big", f32, {300, 7});
  const StepResult made = scan({full(g, {3, 2}, 0)}, {xs}, [&](const Values& c, const Values& e) {
    const Scope scope(e[0].graph(), "cell");
    print(transpose(e[0], Ints{1, 0}), "transposed");
    return step({c[0] + e[0]}, {c[0]});
  });
  const Value y = print(made.carries[0] + 1.0, "end");
  print(slice(big, 1, 2, 5), "part");
  print(g.input("none", f32, {0, 3}), "nothing");
  g.fetch("y", y * 2.0);
  g.fetch("sum", sum(big));
}

TEST(Readback, PrintsOnAGpuWhatACpuPrints) {
  Graph g;
  build_prints(g);
  const auto printed = [&](const Device& device, Execution execution, int runs) {
    std::string text;
    CompileOptions options;
    options.device = device;
    options.execution = execution;
    options.on_print = [&](const Printed& p) {
      text += fmt::format("{} in {} @{}: {} {}\n", p.message, p.scope, p.instance, to_string(p.value.type()),
                          fmt::join(p.value.to_doubles(), " "));
    };
    Program program(g, options);
    for (int run = 0; run < runs; ++run) program.run(to_tensors(g, make_feeds(g, 1 + static_cast<unsigned>(run))));
    return text;
  };
  const std::string expected = printed(Device::cpu(), Execution::captured, 3);
  EXPECT_TRUE(has(expected, "transposed in cell @3")) << expected.substr(0, 200);
  SKIP_WITHOUT_A_GPU();
  EXPECT_EQ(printed(Device::best(), Execution::captured, 3), expected);
  EXPECT_EQ(printed(Device::best(), Execution::stepwise, 3), expected);
}

TEST(Readback, AnIndexOutOfRangeFailsTheRunThatMetItAndNoOther) {
  SKIP_WITHOUT_A_GPU();
  Graph g;
  const Value a = g.input("a", f32, {5, 3}), xs = g.input("xs", i64, {3, 2});
  const StepResult made = scan({full(g, {2, 3}, 0)}, {xs}, [&](const Values& c, const Values& e) {
    const Scope scope(e[0].graph(), "lookup");
    return step({c[0] + gather(a, e[0], 0)}, {});
  });
  g.fetch("y", made.carries[0]);
  const auto feeds = [&](Dense ids) {
    return Tensors{{"a", Tensor::from(f32, {5, 3}, Dense(15, 1.0))}, {"xs", Tensor::from(i64, {3, 2}, ids)}};
  };
  for (const Execution execution : {Execution::captured, Execution::stepwise}) {
    CompileOptions options;
    options.device = Device::best();
    options.execution = execution;
    Program program(g, options), on_cpu(g);
    for (const Dense& ids : {Dense{0, 1, 2, 7, 9, 0}, Dense{0, 1, 2, 3, 4, -8e12}}) {
      const std::string expected = message_of([&] { on_cpu.run(feeds(ids)); });
      EXPECT_TRUE(has(expected, "but axis 0 has extent 5 (in lookup)")) << expected;
      EXPECT_EQ(message_of([&] { program.run(feeds(ids)); }), expected);
      EXPECT_EQ(program.run(feeds({0, 1, 2, 3, 4, 0})).at("y").to_doubles(), Dense(6, 3.0));
    }
  }
}

}  // namespace
}  // namespace paoding::testing_program
