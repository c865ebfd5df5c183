// SPDX-License-Identifier: Apache-2.0
// Memory over time as programs hold it: counters change where programs and parameters are made and go, and with no run.
#include <cstring>
#include <map>
#include <optional>

#include "paoding/nn.h"
#include "profile/recorder.h"
#include "tests/support/devices_here.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

using profile::Recorder;

// The values of each counter of the device, one after the other.
std::map<std::string, std::vector<std::int64_t>> held(const profile::Trace& trace, const Device& device) {
  std::map<std::string, std::vector<std::int64_t>> all;
  for (const profile::Sample& sample : trace.samples()) {
    const profile::Counter& counter = trace.counters()[sample.counter];
    if (counter.device != (device.kind == DeviceKind::cpu ? -1 : device.index)) continue;
    all[std::string(trace.text(counter.name))].push_back(sample.value);
  }
  return all;
}

std::int64_t change(const std::vector<std::int64_t>& values) {
  return values.empty() ? 0 : values.back() - values.front();
}

// 3 parameters of 64 KiB, an input of 1 MiB.
void build(Graph& g, std::int64_t rows) {
  Value x = g.input("x", f32, {rows, 128});
  for (const char* name : {"a", "b", "c"}) x = tanh(matmul(x, g.parameter(name, f32, {128, 128})));
  g.fetch("y", x);
}

TEST(HeldMemory, GrowsWithProgramsAndParametersAndNotWithRuns) {
  constexpr std::int64_t kParameters = 3 * 128 * 128 * 4;
  for (const Device& device : devices_here()) {
    Recorder::start({});
    std::optional<Parameters> parameters;
    std::optional<Program> program;
    Graph g;
    build(g, 2048);
    parameters.emplace(g, device);
    program.emplace(g, CompileOptions{.device = device}, &*parameters);
    auto seen = held(Recorder::stop(), device);
    EXPECT_EQ(change(seen["parameters"]), kParameters);
    EXPECT_GE(change(seen["inputs"]), 2048 * 128 * 4);
    EXPECT_GE(change(seen["arenas"]), program->report().arena_bytes);

    Tensor x(f32, {2048, 128});
    std::memset(x.bytes(), 0, static_cast<std::size_t>(x.size_bytes()));
    for (int i = 0; i < 3; ++i) program->run({{"x", x}});
    Recorder::start({.state = State::cpu});  // whose stamps take no memory of a GPU
    for (int i = 0; i < 5; ++i) program->run({{"x", x}});
    for (const auto& [name, values] : held(Recorder::stop(), Device::cpu())) {
      EXPECT_EQ(values.size(), 1u) << name;  // its value at the start
    }

    Recorder::start({});
    Graph larger;
    build(larger, 4096);
    std::optional<Program> bound = program->bind(larger);
    const std::int64_t arenas_at_most = bound->report().arena_bytes;
    bound.reset();
    program.reset();
    parameters.reset();
    seen = held(Recorder::stop(), device);
    EXPECT_EQ(change(seen["parameters"]), -kParameters);
    EXPECT_GE(std::ranges::max(seen["arenas"]), arenas_at_most);
    EXPECT_LT(change(seen["arenas"]), 0);
    EXPECT_LT(change(seen["inputs"]), 0);
  }
}

}  // namespace
}  // namespace paoding::testing_program
