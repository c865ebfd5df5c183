// SPDX-License-Identifier: Apache-2.0
// Which ops fuse_groups makes one kernel, which it keeps apart and why; the groups' values, as the reference computes
// them.
#include <ctime>

#include "group/lower.h"
#include "paoding/autodiff.h"
#include "paoding/ops.h"
#include "tests/support/pass_check.h"
#include "tests/support/program_check.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;
using Dense = std::vector<double>;

const std::vector<void (*)(Graph&, PassNotes&)> kPasses = {merge_duplicates,  fold_identities, simplify_views,
                                                           keep_reduced_axes, simplify_views,  merge_duplicates,
                                                           drop_unused,       fuse_groups};

// Nodes that become launches.
int kernels_of(const Graph& graph) {
  int count = 0;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    const std::string& op = node.op->name;
    count += op != "input" && op != "parameter" && !is_generated(node) && node.op->kind != OpKind::view;
  }
  return count;
}

// Lowers every group and compares the reference's result for it with that of its body.
void check_lowered(const Graph& graph) {
  const auto feeds = random_feeds(graph, 7);
  const auto all = graph.clone();
  std::map<Ref, std::string> names;
  for (NodeId id = 0; id < graph.size(); ++id) {
    for (std::int32_t k = 0; k < static_cast<std::int32_t>(graph.node(id).types.size()); ++k) {
      names[{id, k}] = "seen" + std::to_string(names.size());
      all->fetch(names[{id, k}], all->value({id, k}));
    }
  }
  auto values = evaluate_graph(*all, feeds);
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.op->name != "group") continue;
    std::vector<Layout> inputs, outputs;
    for (const Ref& ref : node.inputs) inputs.push_back(Layout::dense(graph.type(ref)));
    for (const Type& type : node.types) outputs.push_back(Layout::dense(type));
    const LoweredGroup lowered = lower(graph, node, inputs, outputs);
    ASSERT_NO_THROW(check(lowered.group)) << to_string(lowered.group);
    for (const Group& group : {lowered.group, canonical(lowered.group)}) {
      check(group);
      std::vector<Dense> memory;
      for (const std::size_t input : lowered.load_inputs) memory.push_back(values.at(names.at(node.inputs[input])));
      for (const Type& type : node.types) memory.emplace_back(static_cast<std::size_t>(type.shape.elements()), -77.0);
      std::vector<double*> pointers;
      for (Dense& each : memory) pointers.push_back(each.data());
      run_reference(group, pointers);
      for (std::size_t k = 0; k < node.types.size(); ++k) {
        const Dense& expected = values.at(names.at({id, static_cast<std::int32_t>(k)}));
        const Dense& got = memory[lowered.load_inputs.size() + k];
        for (std::size_t i = 0; i < expected.size(); ++i) {
          EXPECT_NEAR(got[i], expected[i], 1e-12 * (1 + std::fabs(expected[i]))) << to_string(group);
        }
      }
    }
  }
}

// Runs all passes on the graph of `build`, checks values, and counts the kernels.
template <class Build>
int kernels(Build build) {
  Graph g;
  build(g);
  run_and_compare(g, kPasses);
  check_lowered(g);
  const int count = kernels_of(g);
  EXPECT_GT(count, 0);
  return count;
}

Value softmax_of(const Value& x) {
  const Ints last{-1};
  const Value e = exp(x - stop_gradient(max(x, last, true)));
  return e / sum(e, last, true);
}

Value normalized(const Value& x, const Value& scale, const Value& shift) {
  const Ints last{-1};
  return (x - mean(x, last, true)) * rsqrt(var(x, last, true) + 1e-5) * scale + shift;
}

// -log softmax(x)[label], per row.
Value cross_entropy_of(const Value& x, const Value& labels) {
  const Value index = iota(x.graph(), {x.shape()[1]}, 0, labels.dtype());
  const Value hit = equal(reshape(labels, Ints{-1, 1}), index);
  return logsumexp(x, Ints{1}) - sum(select(hit, x, full(x.graph(), {}, 0, x.dtype())), Ints{1});
}

void fetch_gradients(Graph& g, const Value& y, std::initializer_list<Value> inputs) {
  const Value dy = g.input("dy", y.dtype(), y.shape());
  const Values made = gradients(std::array{y}, std::span(inputs.begin(), inputs.size()), std::array{dy});
  for (std::size_t i = 0; i < made.size(); ++i) g.fetch("d" + std::to_string(i), made[i]);
}

TEST(FuseGroups, MakesOneKernelOfASoftmaxAndOneOfItsGradient) {
  EXPECT_EQ(kernels([](Graph& g) { g.fetch("y", softmax_of(g.input("x", f32, {6, 10}))); }), 1);
  EXPECT_EQ(kernels([](Graph& g) { g.fetch("y", softmax_of(g.input("x", f32, {2, 3, 4, 5}) * 0.5)); }), 1);
  EXPECT_EQ(kernels([](Graph& g) {
              const Value x = g.input("x", f32, {6, 10});
              fetch_gradients(g, softmax_of(x), {x});
            }),
            1);
}

TEST(FuseGroups, MakesOneKernelOfALogSoftmaxAndItsGradient) {
  const auto build = [](Graph& g) {
    const Value x = g.input("x", f32, {6, 10});
    const Value y = x - logsumexp(x, Ints{1}, true);
    g.fetch("y", y);
    fetch_gradients(g, y, {x});
  };
  EXPECT_EQ(kernels(build), 1);
}

TEST(FuseGroups, MakesOneKernelOfALayerNormAndOneOfItsGradients) {
  EXPECT_EQ(kernels([](Graph& g) {
              const Value x = g.input("x", f32, {2, 3, 8});
              g.fetch("y", normalized(x, g.input("w", f32, {8}), g.input("b", f32, {8})));
            }),
            1);
  // dx reads reductions of the last axis; dw and db are reduced over the others.
  EXPECT_EQ(kernels([](Graph& g) {
              const Value x = g.input("x", f32, {2, 3, 8}), w = g.input("w", f32, {8}), b = g.input("b", f32, {8});
              fetch_gradients(g, normalized(x, w, b), {x, w, b});
            }),
            1);
}

TEST(FuseGroups, MakesOneKernelOfACrossEntropyAndItsGradient) {
  const auto loss = [](Graph& g) { return cross_entropy_of(g.input("x", f32, {6, 10}), g.input("labels", i64, {6})); };
  EXPECT_EQ(kernels([&](Graph& g) { g.fetch("y", loss(g)); }), 1);
  EXPECT_EQ(kernels([&](Graph& g) {
              const Value y = loss(g);
              g.fetch("y", y);
              fetch_gradients(g, y, {g.find("x")});
            }),
            1);
  // The mean over rows is another kernel, since its elements are rows, and so is its division.
  EXPECT_LE(kernels([&](Graph& g) {
              const Value y = mean(loss(g));
              g.fetch("y", y);
              fetch_gradients(g, y, {g.find("x")});
            }),
            3);
}

TEST(FuseGroups, RunsASoftmaxAsOneLaunchOnTheCpu) {
  for (const DType dtype : {f32, f64, bf16}) {
    Graph g;
    const Value x = g.input("x", dtype, {33, 130});
    g.fetch("y", softmax_of(x));
    CompileOptions options;
    options.device = Device::cpu();
    Program fused(g, options);
    EXPECT_EQ(fused.report().launches, 1) << fused.plan_text();
    options.disabled_passes = testing_program::pass_names();
    Program plain(g, options);
    const auto feeds = testing_program::make_feeds(g, 5);
    const auto tensors = testing_program::to_tensors(g, feeds);
    const Dense exact = evaluate_graph(g, feeds).at("y");
    for (Program* program : {&fused, &plain}) {
      testing_program::expect_close("y", program->run(tensors).at("y").to_doubles(), exact,
                                    8 * testing_program::epsilon(dtype));
    }
  }
}

TEST(FuseGroups, WritesWhatIsPerRowOncePerRow) {
  Graph g;
  const Value x = g.input("x", f32, {6, 10});
  const Value m = max(x, Ints{1}, true), s = sum(exp(x - m), Ints{1}, true);
  g.fetch("max", m);
  g.fetch("lse", log(s) + m);
  g.fetch("y", exp(x - m) / s);
  run_and_compare(g, kPasses);
  check_lowered(g);
  EXPECT_EQ(kernels_of(g), 1);
}

TEST(FuseGroups, TakesArgmaxAndIndicesIn) {
  EXPECT_EQ(kernels([](Graph& g) { g.fetch("y", argmax(g.input("x", f32, {6, 10}), 1)); }), 1);
  EXPECT_EQ(kernels([](Graph& g) {
              const Value x = g.input("x", f32, {3, 5, 5});
              const Value i = iota(g, {5, 1}, 0, i32), j = iota(g, {5}, 0, i32);
              g.fetch("y", softmax_of(select(less_equal(j, i), x, full(g, {}, -1e9))));
            }),
            1);
}

TEST(FuseGroups, KeepsReductionsOverDifferentAxesApart) {
  Graph g;
  const Value x = g.input("x", f32, {6, 10});
  const Value rows = x - mean(x, Ints{1}, true);
  g.fetch("y", rows - mean(rows, Ints{0}, true));
  run_and_compare(g, kPasses);
  check_lowered(g);
  EXPECT_GT(kernels_of(g), 1);
}

TEST(FuseGroups, SaysWhyAReductionIsReadByAnotherKernel) {
  Graph g;
  const Value x = g.input("x", f32, {2, (64 << 10) + 1});
  g.fetch("y", x - mean(x, Ints{1}, true));
  const Value z = g.input("z", f32, {6, 10});
  g.fetch("w", z - mean(z, Ints{0}, true));
  PassNotes notes;
  fuse_groups(g, notes);
  std::string all;
  for (const std::string& note : notes.list()) all += note + "\n";
  EXPECT_NE(all.find("rows of 65537 elements, more than 65536, would be read again from memory"), std::string::npos);
  EXPECT_NE(all.find("its rows are not contiguous"), std::string::npos) << all;
}

int kernels_on_gpu(Graph& g, std::string* notes_text = nullptr) {
  PassNotes notes(std::make_shared<const Target>(named_target("h200")));
  fuse_groups(g, notes);
  for (const std::string& note : notes.list()) {
    if (notes_text != nullptr) *notes_text += note + "\n";
  }
  return kernels_of(g);
}

TEST(FuseGroups, KeepsRowsTogetherOnAGpu) {
  Graph strided;  // rows that are not contiguous
  const Value z = strided.input("z", f32, {400, 10});
  strided.fetch("w", z - mean(z, Ints{0}, true));
  EXPECT_EQ(kernels_on_gpu(strided), 1);

  Graph large;  // more of them than a few CTAs should go through
  const Value images = large.input("images", f32, {100, 16, 14, 14});
  large.fetch("w", images - mean(images, Ints{0, 2, 3}, true));
  EXPECT_EQ(kernels_on_gpu(large), 2);

  Graph norm;  // values that are combined over all rows, too
  const Value x = norm.input("x", f32, {100, 30}), dy = norm.input("dy", f32, {100, 30});
  const Value off = x - mean(x, Ints{1}, true);
  norm.fetch("dx", dy * off);
  norm.fetch("dgamma", sum(dy * off, Ints{0}));
  norm.fetch("all", sum(off * off));
  EXPECT_EQ(kernels_on_gpu(norm), 1);
}

TEST(FuseGroups, SaysWhyAGpuDoesNotKeepRowsTogether) {
  Graph g;
  const Value x = g.input("x", f32, {2, (32 << 10) + 1});
  g.fetch("y", x - mean(x, Ints{1}, true));
  Graph strided;
  const Value z = strided.input("z", f32, {600, 10});
  const Value off = z - mean(z, Ints{0}, true);
  strided.fetch("w", off);
  strided.fetch("sums", sum(off, Ints{1}));
  Graph some;
  const Value a = some.input("a", f32, {6, 10, 20});
  const Value b = a - mean(a, Ints{2}, true);
  some.fetch("b", b);
  some.fetch("sums", sum(b, Ints{1}));
  std::string notes;
  EXPECT_GT(kernels_on_gpu(g, &notes), 1);
  EXPECT_GT(kernels_on_gpu(strided, &notes), 1);
  EXPECT_GT(kernels_on_gpu(some, &notes), 1);
  EXPECT_NE(notes.find("2 rows of 32769 elements: separate kernels share out such rows"), std::string::npos) << notes;
  EXPECT_NE(notes.find("is neither over its rows nor over all of them"), std::string::npos) << notes;
}

// Measures the processor's time, not the clock on the wall: others may use the machine.
double seconds_to_fuse(Graph& g) {
  PassNotes notes;
  const std::clock_t start = std::clock();
  fuse_groups(g, notes);
  return static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
}

TEST(FuseGroups, TakesUnderASecondForFiveThousandOps) {
  Graph chain;
  Value y = chain.input("x", f32, {8});
  for (int i = 0; i < 5000; ++i) y = i % 2 == 0 ? tanh(y) : y * 0.5;
  chain.fetch("y", y);
  EXPECT_LT(seconds_to_fuse(chain), 1.0);
  EXPECT_LE(kernels_of(chain), 40);

  // A deep network with its gradients: every layer's activation is read far away.
  Graph net;
  const Value x = net.input("x", f32, {4, 8}), w = net.input("w", f32, {8, 8});
  Value h = x;
  for (int i = 0; i < 500; ++i) h = softmax_of(tanh(matmul(h, w))) + h;
  const Values made = gradients(std::array{sum(h)}, std::array{x, w});
  net.fetch("dx", made[0]);
  net.fetch("dw", made[1]);
  EXPECT_GT(net.size(), 5000);
  EXPECT_LT(seconds_to_fuse(net), 1.0);

  // Many that read one value: as many as one kernel may have.
  Graph wide;
  const Value source = wide.input("x", f32, {8});
  for (int i = 0; i < 2000; ++i) wide.fetch("y" + std::to_string(i), source * static_cast<double>(i + 2));
  EXPECT_LT(seconds_to_fuse(wide), 2.0);
  for (NodeId id = 0; id < wide.size(); ++id) {
    if (wide.node(id).op->name == "group") {
      EXPECT_LE(wide.node(id).inputs.size() + wide.node(id).types.size(), 40u);
    }
  }
}

// Results of that shape.
int written_by_groups(const Graph& g, const Shape& shape) {
  int count = 0;
  for (NodeId id = 0; id < g.size(); ++id) {
    if (g.node(id).op->name != "group") continue;
    for (const Type& type : g.node(id).types) count += type.shape == shape ? 1 : 0;
  }
  return count;
}

// dx = g a + x sum(g x): g is written for who adds it up and for who reads it later, so g a, which waits for the sum,
// is made where dx is, and not written beside g. (On a CPU all of it is one kernel.)
TEST(FuseGroups, LeavesWhatWaitsForASumToItsReader) {
  Graph g;
  const Shape image{64, 32, 64};
  const Value x = g.input("x", f32, image), given = g.input("g", f32, image), a = g.input("a", f32, {32, 1});
  const Value masked = select(greater(x, full(g, {}, 0, f32)), given, full(g, {}, 0, f32));
  const Value scaled = masked * a * 2.0;
  const Value total = sum(masked * x, Ints{0, 2}, true);
  g.fetch("dx", scaled + x * total);
  g.fetch("masked", masked);
  const auto feeds = random_feeds(g, 7);
  const auto before = evaluate_graph(g, feeds);
  PassNotes notes(std::make_shared<const Target>(named_target("h200")));
  fuse_groups(g, notes);
  EXPECT_EQ(written_by_groups(g, image), 2) << to_text(g);
  EXPECT_EQ(evaluate_graph(g, feeds), before);
}

// dx = f'(x) (dy w^T): all ops of the derivative are of x alone, and x is in memory for f. So they are made where the
// product is read, and nothing but x and f(x) is written before it.
TEST(FuseGroups, MakesADerivativeWhereItIsMultiplied) {
  Graph g;
  const Shape image{512, 256};
  const Value x = g.input("a", f32, image) + g.input("b", f32, image), w = g.input("w", f32, {256, 8});
  const Value y = matmul(gelu(x, "tanh"), w);
  g.fetch("y", y);
  g.fetch("dx", gradients(std::array{sum(y * y)}, std::array{x})[0]);
  for (const auto& pass : kPasses) {
    PassNotes notes;
    pass(g, notes);
  }
  EXPECT_EQ(written_by_groups(g, image), 3) << to_text(g);
}

// Two that wait for sums of their own read one image in place of one each.
TEST(FuseGroups, WritesOneImageForTwoWhoWait) {
  Graph g;
  const Shape image{64, 32, 64};
  const Value x = g.input("x", f32, image), given = cast(g.input("g", f32, image), bf16);
  const Value masked = select(greater(x, full(g, {}, 0, f32)), given, full(g, {}, 0, bf16));
  for (const char* name : {"a", "b"}) {
    const Value factor = g.input(name, f32, {32, 1}), scaled = cast(cast(masked, f32) * factor, bf16);
    g.fetch(std::string("d") + name, scaled + cast(x * sum(cast(masked, f32) * x * factor, Ints{0, 2}, true), bf16));
  }
  PassNotes notes(std::make_shared<const Target>(named_target("h200")));
  fuse_groups(g, notes);
  EXPECT_EQ(written_by_groups(g, image), 3) << to_text(g);
}

// One kernel for all took minutes to make, and had no place for 2^16 operands.
TEST(FuseGroups, SplitsASumOfThousands) {
  Graph g;
  const Value x = g.input("x", f64, {1000, 2});
  Values terms;
  for (const Value& row : unstack(x)) terms.push_back(row);
  g.fetch("y", add_n(terms));
  const auto notes = run_and_compare(g, {fuse_groups});
  ASSERT_FALSE(notes.empty());
  EXPECT_EQ(notes[0], "a sum of 1000 became sums of 256");
  for (NodeId id = 0; id < g.size(); ++id) EXPECT_LE(g.node(id).inputs.size(), 256u);
}

}  // namespace
}  // namespace paoding
