// SPDX-License-Identifier: Apache-2.0
// Feeds that are on the GPU already and results that stay there. Programs on the CPU give the right values. On the
// pretended GPU under many schedules.
#include "paoding/device_tensor.h"
#include "tests/gpu/enqueued_runs.h"

namespace paoding::testing_program {
namespace {

void build_next(Graph& g, std::int64_t n) {
  const Value x = g.input("x", f32, {n}), y = g.input("y", f32, {n});
  g.fetch("next", x * 0.5 + y);
  g.fetch("sum", sum(x));
}

// Both sizes: those that the host's values are copied in the run's own stream of, and beside it.
TEST(DeviceTensors, GoFromProgramToProgramWithoutTheHost) {
  PD_SKIP_WITHOUT_A_GPU();
  for (const std::int64_t n : {std::int64_t{8}, std::int64_t{70'000}}) {
    Graph g;
    build_next(g, n);
    Program first(g, on_gpu()), second(g, on_gpu()), on_cpu(g);
    for (unsigned seed = 0; seed < 10; ++seed) {
      schedule(seed, seed % 4);
      Tensor want = input(n, 1);
      first.set_input(0, want);
      std::vector<DeviceTensor> sums;
      std::vector<Tensor> wanted;
      DeviceTensor last = [&] {
        first.set_input(1, input(n, 0));
        first.run();
        return first.fetch_on_device(0);
      }();
      want = on_cpu.run({{"x", want}, {"y", input(n, 0)}}).at("next");
      forget_calls();
      for (int step = 0; step < 9; ++step) {
        Program& program = step % 2 == 0 ? second : first;
        if (step < 2) program.set_input(1, input(n, step));  // the other inputs keep theirs
        const Feed feed{0, last};
        std::vector<AnyTensor> made = program.call({&feed, 1}, LeftOut::keep, Results::on_device);
        last = std::get<DeviceTensor>(std::move(made[0]));
        sums.push_back(std::get<DeviceTensor>(std::move(made[1])));
        const Tensors results = on_cpu.run({{"x", want}, {"y", input(n, step % 2)}});
        want = results.at("next");
        wanted.push_back(results.at("sum"));
      }
      EXPECT_EQ(waits(), 0u);
      EXPECT_EQ(last.to_host().to_doubles(), want.to_doubles()) << "seed " << seed;
      for (std::size_t i = 0; i < sums.size(); ++i) {
        const double sum = wanted[i].item<double>();
        EXPECT_NEAR(sums[i].to_host().item<double>(), sum, 1e-5 * std::abs(sum)) << "seed " << seed << " step " << i;
      }
    }
  }
}

TEST(DeviceTensors, AValueOfTheHostAfterOneOfTheDeviceIsTheInputs) {
  PD_SKIP_WITHOUT_A_GPU();
  for (const std::int64_t n : {std::int64_t{8}, std::int64_t{70'000}}) {
    Graph g;
    build_next(g, n);
    Program program(g, on_gpu()), other(g, on_gpu());
    other.run({{"x", input(n, 3)}, {"y", input(n, 4)}});
    const DeviceTensor there = other.fetch_on_device(0);
    program.set_input(1, Tensor::from(f32, {n}, Dense(static_cast<std::size_t>(n), 0)));
    for (int step = 0; step < 6; ++step) {
      program.set_input(0, input(n, step));
      program.set_input(0, there);
      if (step % 2 == 0) program.set_input(0, input(n, step));
      program.run();
      Dense want = step % 2 == 0 ? input(n, step).to_doubles() : there.to_host().to_doubles();
      for (double& each : want) each *= 0.5;
      EXPECT_EQ(program.fetch(0).to_doubles(), want) << step;
    }
  }
}

TEST(DeviceTensors, OutliveTheirProgram) {
  PD_SKIP_WITHOUT_A_GPU();
  Graph g;
  build_next(g, 8);
  std::vector<DeviceTensor> kept;
  {
    Program program(g, on_gpu());
    for (int step = 0; step < 3; ++step) {
      program.set_input(0, input(8, step)), program.set_input(1, input(8, 0));
      program.run();
      kept.push_back(program.fetch_on_device(0));
    }
  }
  Program later(g, on_gpu()), on_cpu(g);
  for (int step = 0; step < 3; ++step) {
    const Tensors want = on_cpu.run({{"x", input(8, step)}, {"y", input(8, 0)}});
    EXPECT_EQ(kept[static_cast<std::size_t>(step)].to_host().to_doubles(), want.at("next").to_doubles());
    later.set_input(0, kept[static_cast<std::size_t>(step)]), later.set_input(1, input(8, 1));
    later.run();
    const Tensors after = on_cpu.run({{"x", want.at("next")}, {"y", input(8, 1)}});
    EXPECT_EQ(later.fetch(0).to_doubles(), after.at("next").to_doubles());
  }
}

TEST(DeviceTensors, OfARunThatFailedAreItsError) {
  PD_SKIP_WITHOUT_A_GPU();
  Graph g;
  g.fetch("row", gather(g.input("x", f32, {4, 8}), g.input("id", i32, {1})));
  Program program(g, on_gpu());
  const int id = program.input_index("id");
  program.set_input(program.input_index("x"), Tensor::from(f32, {4, 8}, Dense(32, 1.5)));
  std::vector<DeviceTensor> rows;
  for (const double row : {1.0, 9.0, 2.0}) {
    program.set_input(id, Tensor::from(i32, {1}, {row}));
    program.run();
    rows.push_back(program.fetch_on_device(0));
  }
  const char* const said = "= 9";
  EXPECT_PRED2(has, message_of([&] { rows[1].to_host(); }), said);
  EXPECT_PRED2(has, message_of([&] { rows[1].make_wait(nullptr); }), said);
  EXPECT_EQ(rows[0].to_host().to_doubles(), Dense(8, 1.5));
  Graph same;
  same.fetch("y", same.input("x", f32, {1, 8}) * 1.0);
  Program reads_rows(same, on_gpu());
  EXPECT_PRED2(has, message_of([&] { reads_rows.set_input(0, rows[1]); }), said);
  program.set_input(id, Tensor::from(i32, {1}, {3.0}));
  program.run();
  EXPECT_EQ(program.fetch_on_device(0).to_host().to_doubles(), Dense(8, 1.5));
}

TEST(DeviceTensors, AreRefusedWhereTheyDoNotBelong) {
  PD_SKIP_WITHOUT_A_GPU();
  Graph g;
  build_next(g, 8);
  Program program(g, on_gpu()), on_cpu(g);
  program.run({{"x", input(8, 0)}, {"y", input(8, 1)}});
  const DeviceTensor there = program.fetch_on_device(0), sum = program.fetch_on_device(1);
  EXPECT_EQ(message_of([&] { program.set_input(0, sum); }), "input 'x' is f32[8], not f32[]");
  EXPECT_EQ(
      message_of([&] { on_cpu.set_input(0, there); }),
      "input 'x' is on cuda:0, the program on cpu\nhint: a copy in the host's memory (to_host(), in Python cpu())");
  const DeviceTensor elsewhere({f32, {8}}, Device::cuda(7), std::shared_ptr<void>(&g, [](void*) {}));
  EXPECT_EQ(message_of([&] { program.set_input(0, elsewhere); }), "input 'x' is on cuda:7, the program on cuda:0");
  EXPECT_PRED2(has, message_of([] { DeviceTensor({f32, {8}}, Device::cuda(), nullptr); }), "takes 32 bytes");
  EXPECT_PRED2(has, message_of([&] { DeviceTensor({f32, {8}}, Device::cpu(), nullptr); }), "cpu is no GPU");
  on_cpu.run({{"x", input(8, 0)}, {"y", input(8, 1)}});
  EXPECT_PRED2(has, message_of([&] { on_cpu.fetch_on_device(0); }),
               "fetch 'next' on the device: the program is on the CPU");
  const std::vector<Feed> one{{0, there}};
  EXPECT_PRED2(has, message_of([&] { program.call(one); }), "no value is given for 'y'");
  EXPECT_PRED2(has, message_of([&] { program.call(std::vector<Feed>{{2, there}}); }), "there is no number 2");
  EXPECT_EQ(program.call(one, LeftOut::keep).size(), 2u);
}

#ifdef PAODING_PRETEND_FOLDER

// Whose memory is the host's: a caller's is any.
TEST(DeviceTensors, ACallersMemoryIsReadAfterItIsFilledAndBeforeTheCallerGoesOn) {
  void* library = dlopen(PAODING_PRETEND_FOLDER "/libcuda.so.1", RTLD_NOW);
  const auto at = [&](const char* name) { return dlsym(library, name); };
  const auto copy = reinterpret_cast<decltype(&::cuMemcpyDtoDAsync)>(at("cuMemcpyDtoDAsync_v2"));
  const auto record = reinterpret_cast<decltype(&::cuEventRecord)>(at("cuEventRecord"));
  const auto wait = reinterpret_cast<decltype(&::cuStreamWaitEvent)>(at("cuStreamWaitEvent"));
  CUstream mine = nullptr;
  CUevent filled = nullptr;
  reinterpret_cast<decltype(&::cuStreamCreateWithPriority)>(at("cuStreamCreateWithPriority"))(&mine, 0, 0);
  reinterpret_cast<decltype(&::cuEventCreate)>(at("cuEventCreate"))(&filled, 0);
  Graph g;
  build_next(g, 8);
  Program program(g, on_gpu()), on_cpu(g);
  const auto place = [](const void* pointer) { return reinterpret_cast<CUdeviceptr>(pointer); };
  for (unsigned seed = 0; seed < 40; ++seed) {
    schedule(seed, seed % 4);
    const auto memory = std::make_shared<Tensor>(input(8, 30));
    std::vector<Tensor> values;
    std::vector<DeviceTensor> made;
    for (int step = 0; step < 4; ++step) {
      values.push_back(input(8, step));
      copy(place(memory->bytes()), place(values.back().bytes()), 32, mine);  // over memory that the run before has read
      record(filled, mine);
      wait(static_cast<CUstream>(program.stream()), filled, 0);
      program.set_input(0, DeviceTensor({f32, {8}}, Device::cuda(), {memory, memory->bytes()}), mine);
      program.set_input(1, input(8, 5));
      program.run();
      made.push_back(program.fetch_on_device(0));
    }
    EXPECT_GT(memory.use_count(), 1) << "let go before it was read";
    for (std::size_t step = 0; step < made.size(); ++step) {
      const Tensors want = on_cpu.run({{"x", values[step]}, {"y", input(8, 5)}});
      EXPECT_EQ(made[step].to_host().to_doubles(), want.at("next").to_doubles()) << "seed " << seed;
    }
    program.wait();
    EXPECT_EQ(memory.use_count(), 1);
  }
}

// A tensor that is dropped while a reader in another stream is under way keeps its value until that has read it.
TEST(DeviceTensors, MemoryIsUsedAgainAfterItsReaders) {
  void* library = dlopen(PAODING_PRETEND_FOLDER "/libcuda.so.1", RTLD_NOW);
  const auto at = [&](const char* name) { return dlsym(library, name); };
  const auto copy = reinterpret_cast<decltype(&::cuMemcpyDtoDAsync)>(at("cuMemcpyDtoDAsync_v2"));
  CUstream theirs = nullptr;
  reinterpret_cast<decltype(&::cuStreamCreateWithPriority)>(at("cuStreamCreateWithPriority"))(&theirs, 0, 0);
  Graph g;
  build_next(g, 8);
  Program program(g, on_gpu()), on_cpu(g);
  const std::size_t before = pretend_gpu().bytes_in_use();
  for (const CUstream reader : {CUstream{}, CU_STREAM_LEGACY, theirs}) {
    for (unsigned seed = 0; seed < 20; ++seed) {
      schedule(seed, seed % 3);
      std::vector<Tensor> read;
      for (int step = 0; step < 12; ++step) {
        program.set_input(0, input(8, step)), program.set_input(1, input(8, 0));
        program.run();
        const DeviceTensor made = program.fetch_on_device(0);
        made.make_wait(reader);
        const Tensor& to = read.emplace_back(f32, Shape{8});
        copy(reinterpret_cast<CUdeviceptr>(to.bytes()), reinterpret_cast<CUdeviceptr>(made.address()), 32, reader);
      }
      program.run();
      reinterpret_cast<decltype(&::cuCtxSynchronize)>(at("cuCtxSynchronize"))();
      for (int step = 0; step < 12; ++step) {
        const Tensors want = on_cpu.run({{"x", input(8, step)}, {"y", input(8, 0)}});
        EXPECT_EQ(read[static_cast<std::size_t>(step)].to_doubles(), want.at("next").to_doubles())
            << "seed " << seed << ", step " << step;
      }
    }
  }
  EXPECT_LT(pretend_gpu().bytes_in_use() - before, 100u) << "memory is not used again";
}

#endif

}  // namespace
}  // namespace paoding::testing_program
