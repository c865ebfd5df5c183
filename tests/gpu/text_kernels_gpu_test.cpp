// SPDX-License-Identifier: Apache-2.0
// Kernel ops that a GPU computes with source of our own, run on the CPU by cuda_emulation against the float64
// reference: every case of the op sweep that has one, with gradients, and sizes at which the kernels go other ways.
#include "gpu/driver/nvrtc.h"
#include "ops/index/check_indices.h"
#include "tests/gpu/emulated_cases.h"
#include "tests/gpu/kernel_texts.h"
#include "tests/support/op_case.h"

namespace paoding::testing_program {
namespace {

void add(EmulatedCases* cases, const std::string& what, const Graph& graph, const Feeds& feeds) {
  auto program = std::make_unique<EmulatedProgram>(graph);
  if (!program->has_text_kernel()) return;
  // Not all products are of few rows, which are our own: where one is a library's, ProductText and the tests of the op
  // have the others.
  if (program->library_op() == "matmul") return;
  cases->add(what, graph.clone(), feeds, std::move(program));
}

void check_sweep(const std::vector<DType>& dtypes, bool has_chains) {
  EmulatedCases cases;
  std::set<std::string> ops;
  for (const DType dtype : dtypes) {
    for (const SweepCase& c : sweep_cases(dtype)) {
      if (!c.shape.error.empty()) continue;
      for (const Around around : {Around::nothing, Around::elementwise}) {
        if (around == Around::elementwise && !has_chains) continue;
        const std::size_t before = cases.size();
        try {
          const CaseGraph made(c, around, is_float(dtype));
          add(&cases, c.op->name + "/" + c.name + "/" + std::string(to_string(dtype)), made.graph,
              feeds_of(c, made.graph, 1));
        } catch (const Error& error) {
          // Not every op takes integers, nor does every constant of a case fit them.
          EXPECT_TRUE(!is_float(dtype) || error.kind() == ErrorKind::dtype || error.kind() == ErrorKind::unsupported)
              << error.what();
        }
        if (cases.size() > before) ops.insert(c.op->name);
      }
    }
  }
  std::printf("%zu cases of %zu ops\n", cases.size(), ops.size());
  for (const char* op :
       {"gather", "scatter_add_elements", "max_pool2d", "avg_pool2d", "cumsum", "sort", "topk", "conv2d"}) {
    EXPECT_TRUE(ops.contains(op) || !is_float(dtypes[0])) << op;
  }
  cases.check();
}

TEST(TextKernels, OfTheSweepAreRightInF32) { check_sweep({f32}, true); }
TEST(TextKernels, OfTheSweepAreRightInOtherFloats) { check_sweep({f64, bf16, f16}, false); }
TEST(TextKernels, OfTheSweepAreRightInIntegers) { check_sweep({i64, i32, u8}, false); }

void add_made(EmulatedCases* cases, const std::string& what, const std::function<void(Graph&)>& make) {
  Graph graph;
  make(graph);
  add(cases, what, graph, make_feeds(graph, 3));
  EXPECT_GT(cases->size(), 0u);
}

TEST(TextKernels, SortRowsOfAnyLength) {
  EmulatedCases cases;
  for (const std::int64_t count : {1, 64, 65, 256, 257, 1024, 1025, 3000, 9000}) {
    for (const DType dtype : {f32, f64, i32, bf16, u8}) {
      if (count > 3000 && dtype != f32 && dtype != u8) continue;
      add_made(&cases, fmt::format("sort {} {}", count, to_string(dtype)), [&](Graph& g) {
        const Sorted made = sort(g.input("a", dtype, {2, count}), 1, count % 2 == 0);
        g.fetch("values", made.values), g.fetch("indices", made.indices);
      });
    }
    if (count < 5) continue;
    for (const std::int64_t k : {std::int64_t{5}, count - 1}) {
      add_made(&cases, fmt::format("topk {} of {}", k, count), [&](Graph& g) {
        const Sorted made = topk(g.input("a", f32, {count, 3}), k, 0, k == 5);
        g.fetch("values", made.values), g.fetch("indices", made.indices);
      });
    }
  }
  cases.check();
}

TEST(TextKernels, SortNansAboveAllAndKeepTheOrderOfEquals) {
  const float nan = std::numeric_limits<float>::quiet_NaN(), inf = std::numeric_limits<float>::infinity();
  std::vector<float> values;
  for (int i = 0; i < 1500; ++i) {
    const float all[] = {nan, inf, -inf, 0.0f, -0.0f, 1.0f, -1.0f, 1e-45f, -nan};
    values.push_back(all[i * 7 % 9]);
  }
  Graph g;
  const Value a = g.input("a", f32, {1500});
  for (const bool descending : {false, true}) {
    const Sorted made = sort(a, 0, descending);
    g.fetch(fmt::format("values{}", descending), made.values);
    g.fetch(fmt::format("indices{}", descending), made.indices);
  }
  Tensor fed(f32, {1500});
  std::memcpy(fed.bytes(), values.data(), values.size() * sizeof(float));
  const EmulatedProgram program(g);
  const gpu::EmulatedKernels compiled(program.kernels());
  expect_same_bits(Program(g).run({{"a", fed}}), program.run(compiled, {{"a", fed}}, 1));
}

TEST(TextKernels, AddUpSortedIndicesWhateverTheyAre) {
  EmulatedCases cases;
  struct Sizes {
    std::int64_t count, extent, inner;
    int spread;  // of ids: 1 is one row for all
  };
  for (const Sizes& s :
       {Sizes{3000, 100, 40, 100}, {1500, 70, 5, 3}, {700, 33, 130, 1}, {40, 3000, 8, 3000}, {0, 9, 4, 1}}) {
    for (const auto& [dtype, id_dtype] : {std::pair{f32, i64}, {bf16, i32}, {f64, i32}, {i32, i64}}) {
      for (const std::int64_t padding : {-1, 2}) {
        if (padding >= 0 && dtype != f32) continue;
        Graph graph;
        const Value ids = graph.input("ids", id_dtype, {s.count});
        const int axis = s.inner == 8 ? 1 : 0;
        const Value updates = graph.input("a", dtype, axis == 1 ? Shape{2, s.count, 8} : Shape{s.count, s.inner});
        const Sorted order = sort(ids, 0);
        graph.fetch("y", call("scatter_add_sorted", {ids, order.values, order.indices, updates},
                              {{"axis", std::int64_t{axis}}, {"extent", s.extent}, {"padding", padding}}));
        Feeds feeds = make_feeds(graph, 3);
        for (std::size_t i = 0; i < feeds.at("ids").size(); ++i) {
          feeds.at("ids")[i] = static_cast<double>((i * i * 7 + i / 3) % static_cast<std::size_t>(s.spread));
        }
        auto program = std::make_unique<EmulatedProgram>(graph);
        EXPECT_TRUE(program->has_text_kernel());
        cases.add(fmt::format("{} ids of {}", s.count, s.extent), graph.clone(), feeds, std::move(program));
      }
    }
  }
  cases.check();
}

TEST(TextKernels, MoveRowsOfATableByPiecesOf16Bytes) {
  Graph g;
  const Value table = g.input("table", f32, {500, 512}), ids = g.input("ids", i64, {8, 5});
  g.fetch("rows", gather(table, ids, 0));
  g.fetch("sums", scatter_add(ids, g.input("updates", f32, {8, 5, 512}), 0, 500));
  std::string texts;
  for (const std::string& text : kernel_texts(g)) texts += text;
  EXPECT_NE(texts.find("(const uint4* a, const long long* ids, uint4* out,"), std::string::npos);
  EXPECT_NE(texts.find("  scatter_listed<long long, float, 4>("), std::string::npos);
}

TEST(TextKernels, AddUpRowsThatAreCutIntoParts) {
  EmulatedCases cases;
  for (const bool exclusive : {false, true}) {
    for (const bool reverse : {false, true}) {
      for (const Shape& shape : {Shape{1, 5000}, Shape{3, 1024}, Shape{5000, 3}, Shape{2, 300, 40}}) {
        add_made(&cases, fmt::format("cumsum {} {} {}", to_string(shape), exclusive, reverse), [&](Graph& g) {
          g.fetch("y",
                  cumsum(g.input("a", f32, shape), shape.rank() == 2 && shape[0] == 5000 ? 0 : 1, exclusive, reverse));
        });
      }
    }
  }
  add_made(&cases, "cumsum i64", [](Graph& g) { g.fetch("y", cumsum(g.input("a", i64, {2, 3000}), 1)); });
  cases.check();
}

TEST(TextKernels, LetAnInfinityReachOnlyWhatComesAfterIt) {
  const double inf = std::numeric_limits<double>::infinity();
  for (const bool exclusive : {false, true}) {
    Graph g;
    g.fetch("y", cumsum(g.input("a", f32, {4000}), 0, exclusive));
    Dense values(4000, 1.0);
    values[2500] = inf, values[2600] = -inf;
    const Tensors feeds{{"a", Tensor::from(f32, {4000}, values)}};
    const EmulatedProgram program(g);
    const gpu::EmulatedKernels compiled(program.kernels());
    expect_close("y", program.run(compiled, feeds, 1).at("y").to_doubles(), Program(g).run(feeds).at("y").to_doubles(),
                 1e-6);
  }
}

// Just beside the middle between two 16-bit values, by less than an f32 has room for.
TEST(TextKernels, CastsTo16BitsRoundOnce) {
  const double tiny = 0x1p-40;
  const Dense x{1 + 0x1p-11 + tiny,
                1 + 0x1p-11,
                1 + 0x1p-11 - tiny,
                -(1 + 3 * 0x1p-11) + tiny,
                1 + 0x1p-8 + tiny,
                1 + 0x1p-8,
                -(1 + 3 * 0x1p-8) + tiny,
                0x1p-25 * (1 + tiny),
                65520 - 0x1p-20,
                65520,
                1e300,
                -1e300,
                5e-324};
  const auto count = static_cast<std::int64_t>(x.size());
  const std::vector<std::int64_t> n{(1ll << 40) + (1ll << 32) + 1,
                                    (1ll << 40) + (1ll << 32),
                                    -(1ll << 61) - (1ll << 53) - 1,
                                    (1ll << 61) + 3 * (1ll << 53) - 1,
                                    257,
                                    -3};
  Graph g;
  const Value wide = g.input("x", f64, {count}), whole = g.input("n", i64, {static_cast<std::int64_t>(n.size())});
  for (const DType dtype : {f16, bf16}) {
    g.fetch(std::string(to_string(dtype)), cast(wide, dtype));
    g.fetch(std::string(to_string(dtype)) + " computed with", cast(cast(wide * 1.5 / 1.5, dtype), f32) * 1.0);
  }
  g.fetch("whole", cast(whole, bf16));
  const EmulatedProgram program(g);
  const gpu::EmulatedKernels compiled(program.kernels());
  const Tensors got = program.run(compiled, {{"x", Tensor::from(f64, {count}, x)}, {"n", Tensor::from(n)}}, 1);
  for (const DType dtype : {f16, bf16}) {
    EXPECT_EQ(got.at(std::string(to_string(dtype))).to_doubles(), rounded({dtype, {count}}, x)) << to_string(dtype);
  }
  EXPECT_EQ(got.at("f16").to_doubles()[0], 1 + 0x1p-10);
  EXPECT_EQ(got.at("f16").to_doubles()[2], 1);
  EXPECT_EQ(got.at("bf16 computed with").to_doubles()[4], 1 + 0x1p-7);
  EXPECT_EQ(got.at("whole").to_doubles(),
            (Dense{0x1p40 * (1 + 0x1p-7), 0x1p40, -0x1p61 * (1 + 0x1p-7), 0x1p61 * (1 + 0x1p-7), 256, -3}));
}

TEST(TextKernels, PoolImagesThatLieInAnyOrder) {
  EmulatedCases cases;
  for (const bool is_last : {false, true}) {
    for (const DType dtype : {f32, bf16}) {
      add_made(&cases, fmt::format("pools {} {}", is_last, to_string(dtype)), [&](Graph& g) {
        const Value x = is_last ? transpose(g.input("x", dtype, {2, 9, 7, 5}), Ints{0, 3, 1, 2})
                                : g.input("x", dtype, {2, 5, 9, 7});
        Pool2dOptions options;
        options.kernel = {3, 3};
        options.stride = {2, 1};
        options.padding = {1, 0, 1, 2};
        const Value a = max_pool2d(x, options), b = avg_pool2d(x, options, is_last);
        g.fetch("max", a), g.fetch("avg", b);
        g.fetch("dx", gradients(sum(cast(a, f32) * cast(b, f32)), {x})[0]);
      });
    }
  }
  cases.check();
}

TEST(TextKernels, NameAnIndexOutOfRangeAsTheCpuDoes) {
  const auto same = [](const std::function<Value(Graph&)>& make, const Tensors& feeds) {
    Graph g;
    g.fetch("y", make(g));
    const EmulatedProgram program(g);
    const gpu::EmulatedKernels compiled(program.kernels());
    const std::string on_cpu = message_of([&] { Program(g).run(feeds); });
    EXPECT_EQ(message_of([&] { program.run(compiled, feeds, 1); }), on_cpu);
    EXPECT_TRUE(has(on_cpu, ", but axis ") || has(on_cpu, ", but from 0 to ")) << on_cpu;
  };
  const auto ids = [](DType dtype, const Shape& shape, Dense values) { return Tensor::from(dtype, shape, values); };
  const Tensor a = Tensor::from(f32, {4, 3}, Dense(12, 1.0));
  for (const DType dtype : {i32, i64}) {
    same(
        [&](Graph& g) {
          const Scope scope(g, "head");
          return check_indices(g.input("i", dtype, {4}), 2, {.may_be_negative = true, .what = "labels"});
        },
        {{"i", ids(dtype, {4}, {0, -1, 3, 9})}});
    same(
        [&](Graph& g) {
          return gather(g.input("a", f32, {4, 3}), g.input("i", dtype, {2, 3}), 0);
        },
        {{"a", a}, {"i", ids(dtype, {2, 3}, {0, 1, 2, 4, -1, 9})}});
    same(
        [&](Graph& g) {
          const Scope scope(g, "model");
          return gather_elements(g.input("a", f32, {4, 3}), g.input("i", dtype, {2, 3}), 0);
        },
        {{"a", a}, {"i", ids(dtype, {2, 3}, {0, 1, -2, 3, 3, 9})}});
    same(
        [&](Graph& g) {
          return scatter_add(g.input("i", dtype, {4}), g.input("a", f32, {4, 3}), 0, 5);
        },
        {{"a", a}, {"i", ids(dtype, {4}, {0, 4, -1, 7})}});
    same(
        [&](Graph& g) {
          return call("embedding_grad", {g.input("i", dtype, {4}), g.input("a", f32, {4, 3})},
                      {{"padding", std::int64_t{4}}, {"extent", std::int64_t{5}}});
        },
        {{"a", a}, {"i", ids(dtype, {4}, {0, 4, -1, 7})}});
    same(
        [&](Graph& g) {
          return scatter_add(g.input("i", dtype, {4}), g.input("a", f32, {4, 3}), 0, 0);
        },
        {{"a", a}, {"i", ids(dtype, {4}, {3, 0, 0, 0})}});
    same(
        [&](Graph& g) {
          return scatter_add_elements(g.input("i", dtype, {4, 3}), g.input("a", f32, {4, 3}), 0, 2);
        },
        {{"a", a}, {"i", ids(dtype, {4, 3}, {0, 1, 1, 1, 0, 2, 0, 0, 0, 0, 0, -5})}});
    same(
        [&](Graph& g) {
          return scatter_add_elements(g.input("i", dtype, {4, 3}), g.input("a", f32, {4, 3}), 0, 0);
        },
        {{"a", a}, {"i", ids(dtype, {4, 3}, Dense(12, 1.0))}});
    const Tensor many = Tensor::from(f32, {100, 3}, Dense(300, 1.0));
    Dense wrong(300, 1.0);
    wrong[298] = -1, wrong[200] = 2;
    same(
        [&](Graph& g) {
          return scatter_add_elements(g.input("i", dtype, {100, 3}), g.input("a", f32, {100, 3}), 0, 2);
        },
        {{"a", many}, {"i", ids(dtype, {100, 3}, wrong)}});
  }
  same(
      [&](Graph& g) {
        return gather(g.input("a", f32, {4, 3}), g.input("i", i64, {2}), 1);
      },
      {{"a", a}, {"i", ids(i64, {2}, {1, -7e15})}});
}

// Offsets of more than 31 bits; planned only, nobody has the memory.
TEST(TextKernels, OfHugeValuesCompile) {
  if (gpu::nvrtc() == nullptr) GTEST_SKIP() << "NOT CHECKED, no kernel was compiled: " << gpu::nvrtc_problem();
  Graph g;
  const Value rows = g.input("rows", bf16, {1 << 17, 1 << 16}), ids = g.input("ids", i64, {1 << 16});
  const Value images = g.input("images", bf16, {1 << 14, 64, 96, 96});
  g.fetch("cumsum", cumsum(rows, 1)), g.fetch("columns", cumsum(rows, 0));
  g.fetch("sort", topk(rows, 8, 1).values);
  g.fetch("gather", gather(rows, ids, 0)), g.fetch("scatter", scatter_add(ids, rows, 1, 1 << 16));
  const Value pooled = max_pool2d(images), mean = avg_pool2d(images);
  const Value y = conv2d(images, g.input("w", bf16, {8, 64, 3, 3}));
  g.fetch("pools", pooled + mean), g.fetch("conv", y);
  const Values made = gradients(sum(cast(pooled + mean, f32)) + sum(cast(y, f32)), {images, g.find("w")});
  g.fetch("images", made[0]), g.fetch("weights", made[1]);
  int wide = 0;
  for (const auto& [text, step] : kernel_texts_with_steps(g)) {
    if (text.find("using Index = long long;") == std::string::npos) continue;
    SCOPED_TRACE(step);
    ++wide;
    EXPECT_FALSE(gpu::compile(text, "kernel.cu", "sm_90a").empty());
  }
  EXPECT_GE(wide, 12);
}

}  // namespace
}  // namespace paoding::testing_program
