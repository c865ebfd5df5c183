// SPDX-License-Identifier: Apache-2.0
// Kernels whose CTAs wait for each other: an exchange in a cluster and a barrier over the grid, in the emulation under
// many schedules (PAODING_SCHEDULES of them) and on a GPU, against the same chain computed on the host; the flag that
// tells the host that a run has ended, with a CTA in the host's place; and with a planted mistake each, which the
// emulation has to find.
#include <gtest/gtest.h>

#include <numeric>

#include "cuda_text.h"
#include "gpu/codegen/text_kernel.h"
#include "gpu/driver/loaded_kernel.h"
#include "gpu/driver/nvrtc.h"
#include "tests/gpu/cuda_emulation/emulated_kernels.h"

namespace paoding::gpu {
namespace {

constexpr unsigned kWaitingSteps = 6, kThreads = 32, kCluster = 2, kGrid = 4;

unsigned next_of(unsigned value, unsigned other) { return value * 1664525u + other * 22695477u + 1013904223u; }

// Every step each CTA makes its words from its own and the other's of the step before, and sends them there. Words go
// to one of two places in turn: the other may still be reading the words of the step before.
std::string exchange_text(int places) {
  return "constexpr int kPlaces = " + std::to_string(places) + R"cuda(;
PD_DEVICE unsigned next_of(unsigned value, unsigned other) { return value * 1664525u + other * 22695477u + 1013904223u; }
PD_DEVICE void exchange(unsigned* out, const LaunchScratch&, const Sizes& size) {
  PD_DYNAMIC_SHARED(unsigned long long, mbarriers);
  unsigned* const words = (unsigned*)(mbarriers + 2);
  const unsigned rank = cluster_rank(), t = threadIdx.x;
  if (t == 0) {
    for (int p = 0; p < 2; ++p) mbarrier_init(mbarriers + p, 1);
    for (int p = 0; p < 2; ++p) mbarrier_arrive_expect_tx(mbarriers + p, kThreads * 4);
  }
  cluster_barrier();
  unsigned mine = rank * kThreads + t;
  for (int s = 0; s < size.steps; ++s) {
    const int place = s % 2;
    send(words + (place % kPlaces) * kThreads + t, mine, mbarriers + place, rank ^ 1);
    while (!mbarrier_try_wait(mbarriers + place, s / 2 % 2)) {}
    const unsigned other = words[(place % kPlaces) * kThreads + t];
    if (t == 0) mbarrier_arrive_expect_tx(mbarriers + place, kThreads * 4);
    mine = next_of(mine, other);
  }
  out[rank * kThreads + t] = mine;
  cluster_barrier();
}
)cuda";
}

std::vector<unsigned> exchanged() {
  std::vector<unsigned> words(kCluster * kThreads);
  std::iota(words.begin(), words.end(), 0u);
  for (unsigned s = 0; s < kWaitingSteps; ++s) {
    const std::vector<unsigned> before = words;
    for (unsigned i = 0; i < words.size(); ++i) words[i] = next_of(before[i], before[(i + kThreads) % words.size()]);
  }
  return words;
}

// For all threads of all CTAs of a cooperative grid: all see each thread's earlier stores after it. `counter` is the
// launch's own, and keeps its value from launch to launch: its highest bit turns with every round.
const char* const kGridBarrier = R"cuda(
#ifdef PD_EMULATE
using emulation::load_acquire;
#else
PD_DEVICE unsigned load_acquire(const unsigned* at) {
  unsigned value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
#endif
PD_DEVICE void grid_barrier(unsigned* counter) {
  __syncthreads();
  if (threadIdx.x == 0) {
    const unsigned before = add_release(counter, blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u);
    while (((before ^ load_acquire(counter)) & 0x80000000u) == 0) {}
  }
  __syncthreads();
}
)cuda";

// Every step each CTA makes its word from its own and its neighbour's of the step before.
std::string barrier_text() {
  return R"cuda(
PD_DEVICE void pass_on(unsigned* out, const LaunchScratch& scratch, const Sizes& size) {
  const Index me = blockIdx.x, count = gridDim.x;
  unsigned mine = me;
  for (int s = 0; s < size.steps; ++s) {
    if (threadIdx.x == 0) store_relaxed(out + s * count + me, mine);
    grid_barrier(scratch.tickets);
    mine = mine * 1664525u + load_relaxed(out + s * count + (me + 1) % count) * 22695477u + 1013904223u;
  }
  if (threadIdx.x == 0) store_relaxed(out + size.steps * count + me, mine);
}
)cuda";
}

// One CTA leaves without a word.
std::string deserter_text() {
  return R"cuda(
PD_DEVICE void pass_on(unsigned*, const LaunchScratch& scratch, const Sizes&) {
  if (blockIdx.x != 1) grid_barrier(scratch.tickets);
}
)cuda";
}

// The end of a run that is waited for: CTA 1 is the host, which takes the results when it is told.
constexpr unsigned kMoved = 64, kEndThreads = 64;
std::string end_text(bool synchronizes) {
  std::string text = k_to_host_cu;
  const std::string synchronization = "  __syncthreads();\n  if (threadIdx.x != 0) return;\n";
  if (!synchronizes)
    text.replace(text.find(synchronization), synchronization.size(), "  if (threadIdx.x != 0) return;\n");
  return text + R"cuda(
PD_DEVICE void end_run(unsigned* out, const LaunchScratch&, const Sizes&) {
  unsigned *const to = out + 4, *const from = to + 64, *const seen = from + 64;
  if (blockIdx.x == 0) {
    from[threadIdx.x] = threadIdx.x * 22695477u;
    __syncthreads();
    move_value((unsigned char*)to, (const unsigned char*)from, 100);
    move_value((unsigned char*)to + 112, (const unsigned char*)from + 112, 144);
    set_completion_flag(out, 1);
  } else if (threadIdx.x == 0) {
    while (load_acquire(out) != 1) {}
    for (int i = 0; i < 64; ++i) seen[i] = to[i];
  }
}
)cuda";
}
std::vector<unsigned> ended() {
  std::vector<unsigned> words = {1, 0x7f7f7f7f, 0x7f7f7f7f, 0x7f7f7f7f};
  for (int part = 0; part < 3; ++part) {
    for (unsigned i = 0; i < kMoved; ++i) {
      words.push_back(part == 1 || i < 25 || i >= 28 ? i * 22695477u : 0x7f7f7f7f);
    }
  }
  return words;
}

std::vector<unsigned> passed_on() {
  std::vector<unsigned> words(kGrid), all;
  std::iota(words.begin(), words.end(), 0u);
  for (unsigned s = 0; s <= kWaitingSteps; ++s) {
    all.insert(all.end(), words.begin(), words.end());
    const std::vector<unsigned> before = words;
    for (unsigned i = 0; i < kGrid; ++i) words[i] = next_of(before[i], before[(i + 1) % kGrid]);
  }
  return all;
}

TextLaunch made(const std::string& name, const std::string& text, const std::string& before = "") {
  TextParts parts;
  parts.name = name;
  parts.threads = name == "end_run" ? kEndThreads : kThreads;
  parts.sizes.number("steps", kWaitingSteps);
  parts.functions = before + k_exchange_cu + kGridBarrier + text;
  if (!before.empty()) parts.functions += "#undef PD_UNORDERED\n";  // not for those after it
  parts.operands = {"unsigned* out"};
  parts.call = name + "(out, scratch, size)";
  parts.ctas = name == "exchange" ? kCluster : name == "end_run" ? 2 : kGrid;
  TextLaunch launch = make_text_kernel(parts);
  launch.is_cooperative = name != "exchange";
  launch.cluster = name == "exchange" ? kCluster : 1;
  launch.shared_bytes = 16 + 2 * kThreads * 4;
  return launch;
}

struct Kernels {
  TextLaunch exchange = made("exchange", exchange_text(2)), one_place = made("exchange", exchange_text(1)),
             barrier = made("pass_on", barrier_text()),
             // The planted mistake stands before the barrier that it is in.
      unordered = made("pass_on", barrier_text(), "#define PD_UNORDERED\n"), stuck = made("pass_on", deserter_text()),
             end = made("end_run", end_text(true)), early_end = made("end_run", end_text(false));
  EmulatedKernels emulated{{&exchange, &one_place, &barrier, &unordered, &stuck, &end, &early_end}};
};
const Kernels& kernels() {
  static const Kernels* all = new Kernels;
  return *all;
}

unsigned schedules() {
  const char* const asked = std::getenv("PAODING_SCHEDULES");
  return asked != nullptr ? static_cast<unsigned>(std::atoi(asked)) : 300;
}

// How many of the schedules give something else than `want`, or end in a deadlock.
int wrong_schedules(const TextLaunch& launch, const std::vector<unsigned>& want, unsigned count = schedules()) {
  const Launch start = kernels().emulated.find(launch.entry);
  if (start == nullptr) throw std::runtime_error(kernels().emulated.log());
  int wrong = 0;
  unsigned ticket = 0;
  for (unsigned seed = 0; seed < count; ++seed) {
    std::vector<unsigned> out(want.size(), 0x7f7f7f7f);
    unsigned* at = out.data();
    std::uint64_t fault[2] = {~0ull, ~0ull};
    LaunchScratch scratch{nullptr, &ticket, fault, nullptr};
    std::vector<std::uint64_t> sizes = launch.sizes;
    void* arguments[] = {&at, &scratch, sizes.data()};
    const int rc = start(arguments, launch.grid[0], launch.block, &seed);
    wrong += rc != 0 || fault[0] != ~0ull || out != want;
  }
  return wrong;
}

TEST(WaitingKernels, AnExchangeInAClusterIsRightUnderEverySchedule) {
  EXPECT_EQ(wrong_schedules(kernels().exchange, exchanged()), 0);
}

TEST(WaitingKernels, AGridBarrierIsRightUnderEverySchedule) {
  EXPECT_EQ(wrong_schedules(kernels().barrier, passed_on()), 0);
}

TEST(WaitingKernels, AHostThatIsToldOfTheEndHasAllResultsUnderEverySchedule) {
  EXPECT_EQ(wrong_schedules(kernels().end, ended()), 0);
}

TEST(WaitingKernels, TheEmulationFindsAnEndThatIsToldBeforeAllIsThere) {
  EXPECT_GT(wrong_schedules(kernels().early_end, ended(), 300), 0);
}

TEST(WaitingKernels, TheEmulationFindsWordsThatAreOverwrittenBeforeTheyAreRead) {
  EXPECT_GT(wrong_schedules(kernels().one_place, exchanged(), 300), 0);
}

TEST(WaitingKernels, TheEmulationFindsABarrierThatDoesNotOrderStores) {
  EXPECT_GT(wrong_schedules(kernels().unordered, passed_on(), 300), 0);
}

TEST(WaitingKernels, TheEmulationFindsCtasThatWaitInVain) {
  const std::vector<unsigned> untouched(kGrid, 0x7f7f7f7f);
  EXPECT_EQ(wrong_schedules(kernels().stuck, untouched, 1), 1);
}

TEST(WaitingKernels, CompileForTheirChips) {
  if (nvrtc() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << nvrtc_problem();
  EXPECT_FALSE(compile(kernels().exchange.source, "exchange.cu", "sm_90a").empty());
  for (const char* arch : {"sm_80", "sm_90a", "sm_100a"}) {
    EXPECT_FALSE(compile(kernels().barrier.source, "pass_on.cu", arch).empty()) << arch;
  }
}

TEST(WaitingKernels, GiveTheSameOnAGpu) {
  if (driver() == nullptr) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  const GpuDevice& device = GpuDevice::get(0);
  if (device.target().major < 9) GTEST_SKIP() << "NOT CHECKED: a GPU without clusters";
  const Driver& cuda = *driver();
  const Stream stream(device);
  for (const auto& [launch, want] :
       {std::pair(&kernels().exchange, exchanged()), std::pair(&kernels().barrier, passed_on())}) {
    const DeviceMemory out(device, want.size() * 4), state(device, 24);
    PD_CUDA(cuda.cuMemsetD8Async(state.address(), 0, 8, stream.get()));
    PD_CUDA(cuda.cuMemsetD8Async(state.address() + 8, 0xff, 16, stream.get()));
    const LoadedKernel kernel(device, *launch, 1);
    void* operand = out.pointer();
    const auto at = [&](int offset) {
      return reinterpret_cast<void*>(state.address() + static_cast<unsigned>(offset));
    };
    for (int round = 0; round < 20; ++round) kernel.start(stream.get(), &operand, {nullptr, at(0), at(8), nullptr});
    stream.wait_idle();
    std::vector<unsigned> got(want.size());
    PD_CUDA(cuda.cuMemcpyDtoH(got.data(), out.address(), got.size() * 4));
    EXPECT_EQ(got, want) << launch->entry;
  }
}

}  // namespace
}  // namespace paoding::gpu
