// SPDX-License-Identifier: Apache-2.0
// Recurrent layers on a GPU for as long, and in as many shapes, as one asks for: random shapes against float64 on the
// CPU (PAODING_SHAPES of them, 4 unless told), and the same bits after many runs (PAODING_SOAK_RUNS, 300), which
// benchmarks/soak.sh runs beside another process. And a kernel whose CTAs find no room.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <random>

#include "gpu/driver/loaded_kernel.h"
#include "tests/gpu/enqueued_runs.h"
#include "tests/gpu/kernel_texts.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

int asked_for(const char* variable, int otherwise) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : otherwise;
}

struct Layer {
  std::string cell = "lstm";
  DType dtype = f32;
  bool is_tf32 = false;
  std::int64_t steps = 1, rows = 1, hidden = 1;
  bool has_lengths = false, is_reverse = false, has_gradients = true;

  std::int64_t gates() const { return cell == "lstm" ? 4 : cell == "gru" ? 3 : 1; }
  std::string text() const {
    return fmt::format("{} of {}{}: T {}, B {}, H {}{}{}{}", cell, to_string(dtype), is_tf32 ? " as TF32" : "", steps,
                       rows, hidden, has_lengths ? ", lengths" : "", is_reverse ? ", reverse" : "",
                       has_gradients ? "" : ", forward");
  }
};

void build(Graph& g, const Layer& c, DType dtype) {
  const DType wide = compute_dtype(dtype);
  const Value xw = g.input("xw", dtype, {c.steps, c.rows, c.gates() * c.hidden});
  const Value u = g.input("u", dtype, {c.hidden, c.gates() * c.hidden}), h0 = g.input("h0", dtype, {c.rows, c.hidden});
  const Value lengths = c.has_lengths ? g.input("lengths", i32, {c.rows}) : Value();
  Values wanted = {xw, u, h0};
  Value states, last;
  if (c.cell == "lstm") {
    wanted.push_back(g.input("c0", wide, {c.rows, c.hidden}));
    const LstmRecurrence made = lstm_recurrence(xw, u, h0, wanted[3], lengths, c.is_reverse);
    states = made.states, last = made.last_h;
  } else if (c.cell == "gru") {
    wanted.push_back(g.input("bm", dtype, {c.hidden}));
    const GruRecurrence made = gru_recurrence(xw, u, wanted[3], h0, lengths, c.is_reverse);
    states = made.states, last = made.last_h;
  } else {
    const RnnRecurrence made = rnn_recurrence(xw, u, h0, lengths, c.is_reverse);
    states = made.states, last = made.last_h;
  }
  g.fetch("states", states), g.fetch("last_h", last);
  if (!c.has_gradients) return;
  const Value weight = g.input("weight", dtype, states.shape());
  const Values outputs = {states, last}, seeds = {weight, last};
  const Values grads = gradients(outputs, wanted, seeds);
  for (std::size_t i = 0; i < grads.size(); ++i) g.fetch(fmt::format("gradient{}", i), grads[i]);
}

// Weights that keep the gates where they work; some rows have no steps, or one.
Feeds feeds_of(const Graph& g, const Layer& c, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Feeds feeds;
  for (const NodeId id : g.inputs()) {
    const Type& type = g.node(id).types[0];
    const double scale = g.node(id).name == Name("u") ? 1 / std::sqrt(static_cast<double>(c.hidden)) : 1;
    Dense values(static_cast<std::size_t>(type.shape.elements()));
    for (double& value : values) value = uniform(random) * scale;
    if (type.dtype == i32) {
      for (double& value : values) value = static_cast<double>(random() % static_cast<unsigned>(c.steps + 1));
      values.front() = 0, values.back() = 1;
      if (values.size() > 2) values[1] = static_cast<double>(c.steps);
    }
    feeds[g.node(id).name.str()] = rounded(type, values);
  }
  return feeds;
}

// Any shape, as long as float64 on the CPU has it in a moment.
Layer random_layer(std::mt19937& random) {
  const auto below = [&](std::int64_t most) {
    return static_cast<std::int64_t>(random() % static_cast<unsigned>(most));
  };
  const auto spread = [&](std::int64_t most) {  // about as many small ones as large ones
    std::int64_t size = 1;
    while (size < most && below(8) != 0) size *= 2;
    return 1 + below(std::min(size, most));
  };
  Layer c;
  c.cell = std::array{"lstm", "gru", "rnn"}[static_cast<std::size_t>(below(3))];
  const std::int64_t kind = below(4);
  c.dtype = kind == 0 ? bf16 : kind == 1 ? f16 : f32;
  c.is_tf32 = kind == 2;
  c.hidden = spread(1536), c.rows = spread(256), c.steps = spread(2000);
  constexpr std::int64_t kMostProducts = 1'000'000'000;
  const std::int64_t of_step = c.rows * c.hidden * c.hidden * c.gates();
  c.steps = std::clamp<std::int64_t>(kMostProducts / of_step, 1, c.steps);
  c.has_lengths = below(2) == 0, c.is_reverse = below(2) == 0, c.has_gradients = below(3) != 0;
  return c;
}

double bound_of(const Layer& c) { return c.dtype == bf16 ? 0.06 : c.dtype == f16 || c.is_tf32 ? 0.02 : 2e-4; }

// Whether one kernel runs it as a whole.
bool expect_float64(const Layer& c, unsigned seed) {
  SCOPED_TRACE(c.text());
  Graph g, exact;
  build(g, c, c.dtype), build(exact, c, f64);
  CompileOptions options = on_gpu();
  options.allow_tf32 = c.is_tf32;
  Program program(g, options), reference(exact);
  const Feeds feeds = feeds_of(g, c, seed);
  const Tensors got = program.run(to_tensors(g, feeds)), wanted = reference.run(to_tensors(exact, feeds));
  for (const auto& [name, tensor] : got) {
    const Dense values = wanted.at(name).to_doubles();
    expect_close(name, tensor.to_doubles(), values, bound_of(c) * (1 + largest(values)));
  }
  expect_same_bits(got, program.run(to_tensors(g, feeds)));
  return has(program.plan_text(), "(cta_group)");
}

TEST(RecurrenceProofs, RandomShapesAgreeWithFloat64) {
  PD_SKIP_WITHOUT_A_GPU();
  const int count = asked_for("PAODING_SHAPES", 4);
  const auto first = static_cast<unsigned>(asked_for("PAODING_SHAPES_SEED", 1));
  int whole = 0;
  for (int i = 0; i < count; ++i) {
    const unsigned seed = first + static_cast<unsigned>(i);
    std::mt19937 random(seed);
    whole += expect_float64(random_layer(random), seed) ? 1 : 0;
  }
  fmt::print("{} random layers, {} of them run by a kernel as a whole\n", count, whole);
}

// Where rows with lengths are shared out by work: see recurrence_batch_tiles.cu.
TEST(RecurrenceProofs, RowsSharedOutByWorkAgreeWithFloat64) {
  const std::vector<Layer> layers = {
      {.dtype = bf16, .steps = 40, .rows = 64, .hidden = 512, .has_lengths = true},
      {.dtype = f16, .steps = 30, .rows = 131, .hidden = 300, .has_lengths = true, .is_reverse = true},
      {.is_tf32 = true, .steps = 50, .rows = 70, .hidden = 512, .has_lengths = true},
      {.cell = "gru", .dtype = bf16, .steps = 60, .rows = 77, .hidden = 400, .has_lengths = true, .is_reverse = true},
      {.cell = "rnn", .dtype = bf16, .steps = 90, .rows = 200, .hidden = 700, .has_lengths = true}};
  for (const Layer& c : layers) {
    Graph g;
    build(g, c, c.dtype);
    for (const Step& step : plan_for_gpu(g, {}, "h200", c.is_tf32).steps) {
      if (step.text == nullptr || step.kind != Step::Kind::kernel || !has(step.call.op->name, "recurrence")) continue;
      EXPECT_EQ(step.text->launches.size(), 2u) << c.text() << ": " << step.text->launches[0].why;
    }
  }
  PD_SKIP_WITHOUT_A_GPU();
  for (const Layer& c : layers) expect_float64(c, 1);
}

TEST(RecurrenceProofs, ManyRunsHaveTheSameBits) {
  PD_SKIP_WITHOUT_A_GPU();
  const int runs = asked_for("PAODING_SOAK_RUNS", 300);
  struct Running {
    Layer layer;
    std::unique_ptr<Graph> graph;
    std::unique_ptr<Program> program;
    Tensors first;
  };
  std::vector<Running> all;
  for (const Layer& c : {Layer{.steps = 64, .hidden = 512, .has_gradients = false},  // lanes, through memory
                         Layer{.dtype = bf16, .steps = 16, .rows = 32, .hidden = 512, .has_lengths = true},  // clusters
                         Layer{.cell = "gru", .is_tf32 = true, .steps = 8, .rows = 8, .hidden = 1024},
                         Layer{.cell = "rnn", .dtype = f16, .steps = 24, .rows = 5, .hidden = 300},
                         Layer{.steps = 32, .rows = 4, .hidden = 512},                       // gradients by lanes
                         Layer{.is_tf32 = true, .steps = 20, .rows = 64, .hidden = 512}}) {  // input copied ahead
    Running made{c, std::make_unique<Graph>(), nullptr, {}};
    build(*made.graph, c, c.dtype);
    CompileOptions options = on_gpu();
    options.allow_tf32 = c.is_tf32;
    made.program = std::make_unique<Program>(*made.graph, options);
    made.first = made.program->run(to_tensors(*made.graph, feeds_of(*made.graph, c, 1)));
    all.push_back(std::move(made));
  }
  const auto start = std::chrono::steady_clock::now();
  constexpr int kBetweenLooks = 1000;
  for (int done = 0; done < runs && !testing::Test::HasFailure();) {
    for (int i = 0; i < kBetweenLooks && done < runs; ++i, ++done) {
      all[static_cast<std::size_t>(done) % all.size()].program->run();
    }
    for (const Running& each : all) {
      SCOPED_TRACE(each.layer.text() + fmt::format(", after {} runs", done));
      each.program->wait();
      for (const auto& [name, tensor] : each.first) {
        expect_same_bits({{name, each.program->fetch(each.program->fetch_index(name))}}, {{name, tensor}});
      }
    }
  }
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
  fmt::print("{} runs in {:.1f} s\n", runs, seconds.count());
}

bool is_real_gpu() {
  return gpu_here().kind == DeviceKind::cuda &&
         gpu::GpuDevice::get(0).target().name.find("pretended") == std::string::npos;
}

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// A layer planned for a GPU of twice as many multiprocessors.
TEST(RecurrenceProofs, MoreCtasThanFitAtOnceAreRefused) {
  const Target here = is_real_gpu() ? gpu::GpuDevice::get(0).target() : named_target("h200");
  Target larger = here;
  larger.sm_count *= 2;
  Graph g;
  build(g, {.dtype = bf16, .steps = 4, .rows = 8, .hidden = 2048, .has_gradients = false}, bf16);
  const Plan plan = plan_for_gpu(g, larger);
  const auto step = std::find_if(plan.steps.begin(), plan.steps.end(),
                                 [](const Step& each) { return each.label.op == "lstm_recurrence"; });
  ASSERT_NE(step, plan.steps.end());
  ASSERT_NE(step->text, nullptr);
  const gpu::TextLaunch& launch = step->text->launches[0];
  ASSERT_TRUE(launch.is_cooperative) << launch.why;
  ASSERT_GT(launch.grid[0], static_cast<unsigned>(here.sm_count)) << launch.why;
  if (!is_real_gpu()) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  const gpu::GpuDevice& device = gpu::GpuDevice::get(0);
  const gpu::LoadedKernel kernel(device, launch, step->operands.size());
  const gpu::Stream stream(device);
  const std::vector<void*> operands(step->operands.size(), nullptr);
  const double seconds = seconds_of([&] {
    EXPECT_THROW(kernel.start(stream.get(), operands.data(), {}), Error);
    stream.wait_idle();
  });
  EXPECT_LT(seconds, 5);
}

// Half of the chip, then all of it, is held by a kernel of somebody else's for half a second.
TEST(RecurrenceProofs, WaitForRoomAndGoOn) {
  if (!is_real_gpu()) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  const gpu::GpuDevice& device = gpu::GpuDevice::get(0);
  gpu::TextLaunch hold;
  hold.source =
      "struct LaunchScratch { void* pointers[5]; };\nstruct Sizes { unsigned long long cycles; };\n"
      "extern \"C\" __global__ void hold(LaunchScratch, Sizes size) {\n"
      "  for (const long long start = clock64(); clock64() - start < (long long)size.cycles;) {}\n}\n";
  hold.entry = "hold", hold.block = 1024,
  hold.shared_bytes = static_cast<unsigned>(device.target().shared_bytes) - (8u << 10), hold.sizes = {1'000'000'000};
  const gpu::Stream others(device);
  for (const Layer& c : {Layer{.steps = 64, .hidden = 512, .has_gradients = false},
                         Layer{.dtype = bf16, .steps = 16, .rows = 64, .hidden = 512}}) {
    SCOPED_TRACE(c.text());
    Graph g;
    build(g, c, c.dtype);
    Program program(g, on_gpu());
    const Tensors feeds = to_tensors(g, feeds_of(g, c, 1)), first = program.run(feeds);
    for (const unsigned part : {2u, 1u}) {
      hold.grid[0] = static_cast<unsigned>(device.target().sm_count) / part;
      const gpu::LoadedKernel kernel(device, hold, 0);
      kernel.start(others.get(), nullptr, {});
      Tensors got;
      const double seconds = seconds_of([&] { got = program.run(feeds); });
      expect_same_bits(got, first);
      EXPECT_LT(seconds, 10);
      others.wait_idle();
    }
  }
}

}  // namespace
}  // namespace paoding::testing_program
