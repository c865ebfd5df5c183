// SPDX-License-Identifier: Apache-2.0
// A run that throws has written no parameter: whatever met the fault, wherever it stands in the model and in its plan,
// captured and stepwise. The parameters that the run would have written are compared with a run that goes well.
#include <gtest/gtest.h>
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <stdexcept>

#include "paoding/nn.h"
#include "paoding/paoding.h"
#include "tests/support/allocation_count.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

Tensor ramp(const Shape& shape, double first, double step) {
  Dense values;
  for (std::int64_t i = 0; i < shape.elements(); ++i) values.push_back(first + step * static_cast<double>(i));
  return Tensor::from(f32, shape, values);
}

Tensor index(double value) { return Tensor::from(i32, {}, Dense{value}); }

// Parameters w [4, 3], v [4, 3] and count [1]; inputs x [4, 3] and id, an index into four rows.
struct Model {
  explicit Model(Graph& g)
      : w(g.parameter("w", f32, {4, 3})),
        v(g.parameter("v", f32, {4, 3})),
        count(g.parameter("count", f32, {1})),
        x(g.input("x", f32, {4, 3})),
        id(g.input("id", i32, {})) {}
  Value w, v, count, x, id;
};

using Build = std::function<void(Graph&, const Model&)>;

std::map<std::string, Dense> values(const Parameters& parameters) {
  std::map<std::string, Dense> all;
  for (const std::string& name : parameters.names()) all[name] = parameters.get(name).to_doubles();
  return all;
}

// This machine's, or the pretended GPU.
std::vector<Device> devices() {
#ifdef PAODING_PRETEND_FOLDER
  return {Device::cuda(0)};
#else
  if (Device::best().kind == DeviceKind::cuda) return {Device::cpu(), Device::best()};
  return {Device::cpu()};
#endif
}

// The model runs well, fails and leaves everything as it was, and goes on as if it had not failed.
void check_on(const Device& device, const Graph& g, CompileOptions options, std::string_view error) {
  options.device = device;
  Parameters parameters(g, device), untouched(g, device);
  for (Parameters* each : {&parameters, &untouched}) {
    each->set("w", ramp({4, 3}, 1, 0.5));
    each->set("v", ramp({4, 3}, -2, 0.25));
  }
  Program program(g, options, &parameters), other(g, options, &untouched);
  SCOPED_TRACE(program.plan_text());
  const Tensors good{{"x", ramp({4, 3}, 0.5, 1)}, {"id", index(2)}}, bad{{"x", ramp({4, 3}, 7, -1)}, {"id", index(9)}};
  program.run(good), other.run(good);
  const auto before = values(parameters);
  EXPECT_NE(before.at("w"), ramp({4, 3}, 1, 0.5).to_doubles()) << "the run was to write something";
  const std::string message = message_of([&] {
    program.run(bad);
    program.wait();
  });
  EXPECT_TRUE(has(message, error)) << message;
  EXPECT_EQ(values(parameters), before);
  program.run(good), other.run(good);
  EXPECT_EQ(values(parameters), values(untouched));
}

void check_that_a_failing_run_writes_nothing(const Build& build, std::string_view error,
                                             const std::vector<Device>& on = devices()) {
  Graph g;
  build(g, Model(g));
  for (const Device& device : on) {
    for (const Execution execution : {Execution::captured, Execution::stepwise}) {
      for (const bool has_passes : {true, false}) {
        CompileOptions options;
        options.execution = execution;
        if (!has_passes) options.disabled_passes = pass_names();
        SCOPED_TRACE(to_string(device));
        check_on(device, g, options, error);
      }
    }
  }
}

void update(const Model& m) {
  assign(m.w, m.w - 0.1 * m.x);
  assign(m.v, 0.9 * m.v + m.x);
}

TEST(FailingRun, WritesNothingWhenAMetricReadsARowThatIsNotThere) {
  check_that_a_failing_run_writes_nothing(
      [](Graph& g, const Model& m) {
        update(m);
        g.fetch("row", gather(m.x, m.id));
      },
      "indices[] = 9");
}

TEST(FailingRun, WritesNothingWhenTheFaultStandsBeforeTheUpdate) {
  check_that_a_failing_run_writes_nothing(
      [](Graph& g, const Model& m) {
        g.fetch("row", gather(m.x, m.id));
        update(m);
      },
      "indices[] = 9");
}

TEST(FailingRun, WritesNothingWhenTheFaultReadsTheNewValue) {
  check_that_a_failing_run_writes_nothing(
      [](Graph& g, const Model& m) {
        const Value next = m.w - 0.1 * m.x;
        assign(m.w, next);
        assign(m.v, m.v + 1.0);
        g.fetch("row", gather(tanh(next), m.id));
      },
      "indices[] = 9");
}

TEST(FailingRun, WritesNothingWhenWhatMakesTheNewValueFailsHalfWay) {
  check_that_a_failing_run_writes_nothing(
      [](Graph&, const Model& m) {
        assign(m.v, m.x);
        assign(m.w, scatter_add(reshape(m.id, Ints{1}), sum(m.x, Ints{0}, true), 0, 4));
      },
      "indices[0] = 9");
}

TEST(FailingRun, WritesNothingWhenElementsAreScatteredOrGatheredOneByOne) {
  check_that_a_failing_run_writes_nothing(
      [](Graph& g, const Model& m) {
        const Value ids = expand(reshape(m.id, Ints{1, 1}), Shape{4, 3});
        assign(m.w, scatter_add_elements(ids, m.x, 0, 4));
        assign(m.count, m.count + 1.0);
        g.fetch("taken", gather_elements(m.x, ids));
      },
      "= 9");
}

TEST(FailingRun, WritesNothingWhenATurnOfAScanFails) {
  check_that_a_failing_run_writes_nothing(
      [](Graph& g, const Model& m) {
        // In turn t row t * id / 6: with id = 9 the last of four turns fails.
        const StepResult made = scan({m.w}, {m.x}, [&](const Values& c, const Values& e) {
          const Value row = gather(m.v, floor_divide(cast(step_index(e[0].graph()), i32) * m.id, 6));
          return step({c[0] + row}, {e[0] * row});
        });
        assign(m.w, made.carries[0]);
        assign(m.v, made.outputs[0]);
        assign(m.count, m.count + 1.0);
        g.fetch("last", sum(made.outputs[0]));
      },
      "= 4");
}

TEST(FailingRun, WritesNothingWhenTheBranchThatIsTakenFails) {
  check_that_a_failing_run_writes_nothing(
      [](Graph&, const Model& m) {
        const Value is_small = less(m.id, 1);
        const Values made = cond(
            is_small,
            [&] {
              return Values{m.w * 2.0, m.v};
            },
            [&] {
              const Value next = m.w - m.x;
              return Values{next, next + gather(m.x, m.id)};
            });
        assign(m.w, made[0]);
        assign(m.v, made[1]);
        assign(m.count, m.count + 1.0);
      },
      "indices[] = 9");
}

TEST(FailingRun, WritesNothingWhenALoopFailsInItsSecondTurn) {
  check_that_a_failing_run_writes_nothing(
      [](Graph& g, const Model& m) {
        const Values made = while_loop(
            {m.w, full(g, {}, 0, i32)}, [&](const Values& v) { return less_equal(v[1], m.id); },
            [&](const Values& v) {
              return Values{v[0] + gather(m.x, v[1]), v[1] + 1.0};
            });
        assign(m.w, made[0]);
        assign(m.v, m.v * 0.5);
      },
      "indices[] = 4");
}

TEST(FailingRun, WritesNothingWhenTheRowsOfAnEmbeddingAreTrained) {
  check_that_a_failing_run_writes_nothing(
      [](Graph& g, const Model& m) {
        const Value loss = sum(square(embedding(m.w, reshape(m.id, Ints{1})) - sum(m.x * m.v, Ints{0}, true)));
        minimize(loss, Adam{.learning_rate = 0.1});
        g.fetch("loss", loss);
      },
      "indices[0] = 9");
}

// The gradient alone is fetched, which does not need the loss.
// A GPU does not check labels: see below.
TEST(FailingRun, WritesNothingWhenALabelIsNoClassOnTheCpu) {
  for (const bool has_loss : {true, false}) {
    check_that_a_failing_run_writes_nothing(
        [&](Graph& g, const Model& m) {
          const Value loss = cross_entropy(m.w * m.x, expand(m.id, Shape{4}));
          minimize(loss, Adam{.learning_rate = 0.1});
          g.fetch("y", has_loss ? loss : gradients(loss, {m.x})[0]);
        },
        "cross_entropy: labels[0] = 9, but from 0 to 2 are legal, and negative numbers", {Device::cpu()});
  }
}

TEST(FailingRun, WritesNothingOnAGpuWhereALabelIsNoClassAndNonfiniteLossesAreSkipped) {
  if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  for (const Device& device : devices()) {
    if (device.kind != DeviceKind::cuda) continue;
    Graph g;
    const Value logits = g.parameter("logits", f32, {2, 3});
    const Value loss = cross_entropy(logits * 1.0, g.input("labels", i64, {2}));
    minimize(loss, Adam{.learning_rate = 0.1}, {.skip_nonfinite = true});
    g.fetch("loss", loss);
    Parameters parameters(g, device, {.seed = 3});
    const Dense before = parameters.get("logits").to_doubles();
    Program program(g, {.device = device}, &parameters);
    const auto loss_of = [&](const Dense& labels) {
      return program.run({{"labels", Tensor::from(i64, {2}, labels)}}).at("loss").to_doubles()[0];
    };
    EXPECT_TRUE(std::isnan(loss_of({1, 9})));
    EXPECT_EQ(parameters.get("logits").to_doubles(), before);
    EXPECT_TRUE(std::isfinite(loss_of({1, -1})));
    EXPECT_NE(parameters.get("logits").to_doubles(), before);
  }
}

TEST(FailingRun, DrawsTheSameRandomNumbersAgain) {
  check_that_a_failing_run_writes_nothing(
      [](Graph& g, const Model& m) {
        assign(m.w, m.w + random_uniform(g, {4, 3}));
        g.fetch("row", gather(m.x, m.id));
      },
      "indices[] = 9");
}

// Each repeat is a run: the writes of those before the failed one stay, and its own do not happen.
TEST(FailingRun, OfSeveralRepeatsKeepsThoseThatEnded) {
  Graph g;
  const Value count = g.parameter("count", i32, {}), total = g.parameter("total", f32, {});
  assign(count, count + 1.0);
  assign(total, total + gather(g.input("x", f32, {3}), count));
  for (const Execution execution : {Execution::captured, Execution::stepwise}) {
    Parameters parameters(g, Device::cpu());
    CompileOptions options;
    options.execution = execution;
    options.repeats = 5;
    Program program(g, options, &parameters);
    const std::string message = message_of([&] { program.run({{"x", ramp({3}, 1, 1)}}); });
    EXPECT_TRUE(has(message, "gather: indices[] = 3, but axis 0 has extent 3")) << message;
    EXPECT_TRUE(has(message, "in repeat 4 of 5")) << message;
    EXPECT_EQ(parameters.get("count").to_doubles()[0], 3);
    EXPECT_EQ(parameters.get("total").to_doubles()[0], 1 + 2 + 3);
  }
}

TEST(FailingRun, WritesNothingWhenOnPrintThrows) {
  Graph g;
  const Model m(g);
  assign(m.w, m.w + 1.0);
  const Value next = m.v + 1.0;
  assign(m.v, print(next, "next"));
  print(sum(m.x), "sum");
  for (const Device& device : devices()) {
    for (const Execution execution : {Execution::captured, Execution::stepwise}) {
      for (const std::string thrown_at : {"next", "sum"}) {
        CompileOptions options;
        options.device = device;
        options.execution = execution;
        options.on_print = [&](const Printed& printed) {
          if (printed.message == thrown_at) throw std::runtime_error("enough");
        };
        Parameters parameters(g, device);
        Program program(g, options, &parameters);
        const auto before = values(parameters);
        EXPECT_THROW(program.run({{"x", ramp({4, 3}, 0, 1)}, {"id", index(0)}}), std::runtime_error);
        EXPECT_EQ(values(parameters), before);
      }
    }
  }
}

TEST(FailingRun, WritesNothingWhereverOnStepThrows) {
  Graph g;
  const Model m(g);
  update(m);
  assign(m.count, reshape(sum(m.x * m.w), Ints{1}));
  int thrown_at = 0, seen = 0;
  CompileOptions options;
  options.execution = Execution::stepwise;
  options.disabled_passes = {"fuse_groups"};
  options.on_step = [&](const StepSeen&) {
    if (seen++ == thrown_at) throw std::runtime_error("enough");
  };
  Parameters parameters(g, Device::cpu());
  parameters.set("w", ramp({4, 3}, 1, 0.5));
  Program program(g, options, &parameters);
  const auto before = values(parameters);
  const Tensors feeds{{"x", ramp({4, 3}, 0, 1)}, {"id", index(0)}};
  for (bool has_thrown = true; has_thrown; ++thrown_at) {
    seen = 0;
    has_thrown = false;
    try {
      program.run(feeds);
    } catch (const std::runtime_error&) {
      has_thrown = true;
      EXPECT_EQ(values(parameters), before) << "thrown at step " << thrown_at;
    }
  }
  EXPECT_GT(thrown_at, 4);
  EXPECT_NE(values(parameters), before);
}

// The addresses that the process has now, with so many more, and none that are free among them for `largest` bytes.
class AddressLimit {
 public:
  AddressLimit(std::int64_t more, std::int64_t largest) {
    malloc_trim(0);  // memory that earlier tests have freed would be usable too
    getrlimit(RLIMIT_AS, &before_);
    std::ifstream file("/proc/self/statm");
    std::int64_t pages = 0;
    file >> pages;
    holes_.reserve(1024);
    limit_to(pages * sysconf(_SC_PAGESIZE));
    // Blocks that malloc gives now lie between blocks in use, where nothing can be given back.
    while (holes_.size() < holes_.capacity()) {
      void* const hole = std::malloc(static_cast<std::size_t>(largest));
      if (hole == nullptr) break;
      holes_.push_back(hole);
    }
    limit_to(pages * sysconf(_SC_PAGESIZE) + more);
  }
  ~AddressLimit() {
    setrlimit(RLIMIT_AS, &before_);
    for (void* const hole : holes_) std::free(hole);
  }
  AddressLimit(const AddressLimit&) = delete;
  AddressLimit& operator=(const AddressLimit&) = delete;

 private:
  void limit_to(std::int64_t bytes) const {
    rlimit limit = before_;
    limit.rlim_cur = static_cast<rlim_t>(bytes);
    setrlimit(RLIMIT_AS, &limit);
  }
  rlimit before_{};
  std::vector<void*> holes_;
};

// Freed memory, of so many bytes, between blocks in use: other tests may leave such.
class FreedMemory {
 public:
  explicit FreedMemory(std::int64_t bytes) {
    constexpr std::size_t kBlock = 64 << 10;  // small enough to lie in the heap
    std::vector<void*> blocks(static_cast<std::size_t>(bytes) / kBlock);
    for (void*& block : blocks) block = std::malloc(kBlock);
    last_ = std::malloc(kBlock);
    for (void* const block : blocks) std::free(block);
  }
  ~FreedMemory() { std::free(last_); }
  FreedMemory(const FreedMemory&) = delete;
  FreedMemory& operator=(const FreedMemory&) = delete;

 private:
  void* last_;
};

// The fetches take 64 MB, and so does the other alternative of the Variant.
TEST(FailingRun, WritesNothingWithoutMemoryForItsResults) {
  if (!AllocationCount::works()) GTEST_SKIP() << "NOT CHECKED: sanitizers reserve terabytes of addresses";
  constexpr std::int64_t kElements = 1 << 24;
  const FreedMemory of_another_test(8 * kElements);
  const auto check = [](const Device& device, const Build& build) {
    Graph g;
    const Model m(g);
    assign(m.count, m.count + 1.0);
    build(g, m);
    Parameters parameters(g, device);
    CompileOptions options;
    options.device = device;
    Program program(g, options, &parameters);
    const Tensors feeds{{"x", ramp({4, 3}, 3, 1)}, {"id", index(0)}};
    EXPECT_EQ(*program.run(feeds).at("y").data<float>(), 6);
    {
      const AddressLimit limit(std::int64_t{8} << 20, 4 * kElements);
      const std::string message = message_of([&] { program.run(feeds); });
      EXPECT_TRUE(has(message, "a f32[16777216]: needs 64.0 MB of memory, but ulimit -v leaves ")) << message;
    }
    EXPECT_EQ(parameters.get("count").to_doubles()[0], 1);
    EXPECT_EQ(*program.run(feeds).at("y").data<float>(), 6);
    EXPECT_EQ(parameters.get("count").to_doubles()[0], 2);
  };
  const auto large = [&](const Value& x) {
    return expand(slice(reshape(x, Ints{12}), 0, 0, 1), Shape{kElements}) * 2.0;
  };
  for (const Device& device : devices()) {
    check(device, [&](Graph& g, const Model& m) { g.fetch("y", large(m.x)); });
  }
  if (devices()[0].kind == DeviceKind::cuda) return;
  check(Device::cpu(), [&](Graph& g, const Model& m) {
    g.fetch("y", switch_variant(m.id, {[&] { return Values{m.x * 2.0}; }, [&] { return Values{large(m.x)}; }}));
  });
}

TEST(FailingRun, WritesNothingInAProgramForAnotherShape) {
  const auto build = [](const Programs::Key& key) {
    auto g = std::make_unique<Graph>();
    const Value w = g->parameter("w", f32, {3}), ids = g->input("ids", i32, {key[0]});
    assign(w, w + 1.0);
    g->fetch("rows", gather(w, ids));
    return g;
  };
  const auto first = build({1});
  const auto ids = [](const Dense& values) {
    return Tensors{{"ids", Tensor::from(i32, {static_cast<std::int64_t>(values.size())}, values)}};
  };
  for (const Device& device : devices()) {
    Parameters parameters(*first, device);
    Programs programs(build, {.device = device}, &parameters);
    programs.at({1}).run(ids({2}));
    EXPECT_TRUE(has(message_of([&] { programs.at({2}).run(ids({1, 3})); }), "indices[1] = 3"));
    EXPECT_EQ(parameters.get("w").to_doubles(), (Dense{1, 1, 1}));
  }
}

}  // namespace
}  // namespace paoding::testing_program
