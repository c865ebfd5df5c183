// SPDX-License-Identifier: Apache-2.0
// Generated group kernels: the source compiles by NVRTC, and, run thread by thread on the CPU, gives the reference's
// results, for random groups with poisoned outputs, in any order of CTAs, twice on one workspace.
#include "gpu/codegen/group_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>
#include <numeric>
#include <random>

#include "gpu/codegen/group_cases.h"
#include "group/staged.h"
#include "tests/gpu/cuda_emulation/emulated_kernels.h"
#include "tests/support/case_share.h"

namespace paoding::gpu {
namespace {

/// A value's largest relative error for being stored as dtype.
double rounding(DType dtype) {
  return dtype == f16 ? 0x1p-11 : dtype == bf16 ? 0x1p-8 : dtype == f32 ? 0x1p-23 : dtype == f64 ? 0x1p-52 : 0;
}

// ---- Cases ----

struct GroupCase {
  std::string name;
  Group group;                 // canonical
  std::vector<int> alignment;  // of each operand's start, in bytes
  Target chip;
  TextPlan plan;

  std::string why() const { return plan.launches.empty() ? "" : plan.launches[0].why; }
};

GroupCase make_case(std::string name, const Group& group, std::vector<int> alignment = {},
                    const Target& chip = named_target("h200")) {
  GroupCase made{std::move(name), canonical(group), std::move(alignment), chip, {}};
  if (made.alignment.empty()) made.alignment.assign(group.operands(), 256);
  made.plan = plan_group(made.group, made.alignment, chip);
  return made;
}

std::vector<GroupCase> make_cases() {
  std::vector<GroupCase> group_cases;
  auto add = [&](GroupCase made) { group_cases.push_back(std::move(made)); };
  Target small = named_target("h200");  // few SMs, so that small groups split as large ones do on a large chip
  small.sm_count = 4;
  add(make_case("lerp_grad same shape", lerp_grad({16, 1030}, f32, {0, 0}, 0, 0)));
  add(make_case("lerp_grad f64", lerp_grad({16, 515}, f64, {0, 0}, 0, 0)));
  add(make_case("lerp_grad dx reduced", lerp_grad({4, 3, 24, 24}, f32, {0, 0, 0, 0}, 0b1110, 0)));
  add(make_case("lerp_grad three ways", lerp_grad({16, 3, 44, 44}, f32, {0, 44, 0, 1}, 0b1110, 0), {}, small));
  add(make_case("lerp_grad dx only", lerp_grad({16, 3, 44, 44}, f32, {0, 44, 0, 1}, 0b1110, -1), {}, small));
  add(make_case("lerp_grad four axes", lerp_grad({4, 6, 24, 128}, f32, {0, 24 * 128, 128, 1}, 0b1010, 0b0100), {},
                small));
  Target one = named_target("h200");
  one.sm_count = 1;  // takes the block and the chunk axis
  add(make_case("lerp_grad blocked", lerp_grad({8, 16, 136, 128}, f32, {0, 136 * 128, 128, 1}, 0b1010, 0b0100), {},
                one));
  add(make_case("row blocked", lerp_grad({8, 8, 129, 128}, bf16, {0, 129 * 128, 128, 1}, 0b1010, 0), {}, one));
  for (const DType dtype : {f32, bf16}) {
    add(make_case("sum over rows", sums({640, 200}, dtype, {0b01}), {}, small));
    add(make_case("sum over rows, narrow", sums({2000, 12}, dtype, {0b01}), {}, small));
    add(make_case("conv bias", sums({60, 4, 14, 14}, dtype, {0b1101}), {}, small));
    add(make_case("conv bias 7x7", sums({60, 6, 7, 7}, dtype, {0b1101}), {}, small));
    add(make_case("conv bias beside what is summed", sums({60, 10, 28, 28}, dtype, {0, 0b1101}), {}, small));
    add(make_case("conv bias of rows that end between vectors", sums({60, 10, 27, 29}, dtype, {0, 0b1101}), {}, small));
    add(make_case("conv bias of rows longer than a CTA", sums({9, 3, 60, 61}, dtype, {0, 0b1101}), {}, small));
    add(make_case("channels that end between CTAs, and all, beside what is summed",
                  sums({40, 21, 28, 28}, dtype, {0, 0b1101, 0b1111}), {}, one));
    add(make_case("all beside what is summed", sums({70, 1200}, dtype, {0, 0b11}), {}, one));
    add(make_case("rows and columns", sums({70, 260}, dtype, {0b01, 0b10, 0b00, 0b11}), {}, small));
    add(make_case("long rows", sums({3, 9000}, dtype, {0b10}), {}, small));
    add(make_case("short rows", sums({300, 10}, dtype, {0b10}), {}, small));
    add(make_case("everything", sums({20011}, dtype, {0b1}), {}, small));
    for (const std::uint32_t mask : {0b01u, 0b10u, 0b11u}) {
      add(make_case("every combination", reductions({70, 260}, dtype, mask), {}, small));
    }
    add(make_case("spread", sums({5, 37, 100}, dtype, {0b001, 0b010}), {}, small));
  }
  {
    Target nine = named_target("h200");  // SMs, for eight CTAs that share
    nine.sm_count = 9;
    for (const DType dtype : {f32, bf16}) {
      add(make_case("rows of a CTA an SM", lerp_grad({1, 140000}, dtype, {0, 0}, 0b10, 0), {}, nine));
      add(make_case("columns of a CTA an SM", sums({5000, 16}, dtype, {0b01}), {}, nine));
      add(make_case("columns of a CTA an SM, by half a vector in 16 bits", sums({5000, 32}, dtype, {0b01}), {}, nine));
      add(make_case("everything by a CTA an SM", sums({140001}, dtype, {0b1}), {}, nine));
    }
    add(make_case("combinations of columns of a CTA an SM", reductions({5000, 16}, f64, 0b01), {}, nine));
    add(make_case("channels of a CTA an SM", sums({60, 2, 1500}, f32, {0b101}), {}, [&] {
      Target more = nine;
      more.sm_count = 17;
      return more;
    }()));
  }
  {
    Target tiny_cache = named_target("h200");  // in which no weight stays
    tiny_cache.last_cache_bytes = 1 << 10;
    for (const std::int64_t inner : {128, 130, 24, 7}) {
      const Strides x = {5, 0, 1, 0}, y = {6 * inner, inner, 0, 1}, w = {0, 5 * inner, inner, 1};
      add(make_case("lerp of four axes", lerp({8, 6, 5, inner}, f32, x, y, w), {}, tiny_cache));
      add(make_case("lerp of four axes, bf16", lerp({8, 6, 5, inner}, bf16, x, y, w), {}, tiny_cache));
    }
  }
  add(make_case("gates 1", lstm_gates(1, 512)));
  add(make_case("gates 32", lstm_gates(32, 512)));
  for (const DType dtype : {f64, i32, i64, u8}) {
    add(make_case("every combination of columns", reductions({600, 20}, dtype, 0b01), {}, small));
    add(make_case("every combination of rows", reductions({9, 3000}, dtype, 0b10), {}, small));
  }
  add(make_case("combinations of nothing", reductions({7, 0}, f32, 0b10)));
  add(make_case("combinations of no integers", reductions({7, 0}, i64, 0b10)));
  add(make_case("combinations of no integers of 32 bits", reductions({7, 0}, i32, 0b10)));
  for (const Strides& strides : {Strides{-260, 1}, Strides{260, -1}, Strides{-1, -70}, Strides{1, 70}}) {
    Group views = sums({70, 260}, f32, {0, 0b01, 0b10});
    views.loads[0].strides = strides;
    add(make_case("flipped or transposed", views));
    views.outputs.resize(1);
    add(make_case("flipped or transposed copy", views));
    std::swap(views.loads[0].strides, views.outputs[0].strides);
    add(make_case("flipped or transposed store", views));
  }
  for (const DType dtype : {f32, bf16, f64}) {  // large enough to be read along one axis and written along another
    for (const Strides& extents : {Strides{330, 260}, Strides{257, 299}, Strides{4, 150, 133}, Strides{40, 9, 290}}) {
      Group transposed = sums(extents, dtype, {0});
      Strides& strides = transposed.loads[0].strides;
      const auto last = strides.size() - 1;
      strides[last] = extents[last - 1], strides[last - 1] = 1;
      add(make_case("transposed", transposed));
      transposed.loads.push_back({dtype, transposed.outputs[0].strides});
      const DType computed = compute_dtype(dtype);
      transposed.outputs[0] =
          sum_output(transposed, dtype,
                     make_input(&transposed.expr, 0, computed) + make_input(&transposed.expr, 1, computed) * 0.5, 0);
      add(make_case("transposed beside one that is not", transposed));
    }
    Group outer = sums({290, 9, 40}, dtype, {0});  // along the outermost axis
    outer.loads[0].strides = {1, 290 * 40, 290};
    add(make_case("transposed along the outermost axis", outer));
  }
  add(make_case("one element", sums({}, f32, {0})));
  add(make_case("one element of extents 1", sums({1, 1}, f32, {0b11})));
  add(make_case("empty sum", sums({3, 0}, f32, {0b10, 0b01})));
  add(make_case("misaligned", lerp_grad({64, 128}, f32, {0, 1}, 0, 0b01), {256, 4, 4, 8}));
  add(make_case("half misaligned", lerp_grad({64, 128}, bf16, {0, 1}, 0, 0b01), {2, 16, 256, 2}));
  {
    Group casts;  // bytes, bools and integers
    casts.extents = {50, 77};
    casts.loads = {{u8, {77, 1}}, {boolean, {0, 1}}, {i64, {1, 50}}};
    const Scalar a = make_input(&casts.expr, 0, i32), b = make_input(&casts.expr, 1, boolean);
    const Scalar c = make_input(&casts.expr, 2, i64);
    const Scalar chosen = select(b, a, a + a);
    casts.outputs = {sum_output(casts, i32, chosen, 0b01),
                     sum_output(casts, boolean, a < chosen, 0),
                     sum_output(casts, f16, convert(chosen, f32) * 0.5, 0),
                     sum_output(casts, i64, c, 0b10),
                     sum_output(casts, u8, maximum(a, chosen), 0),
                     sum_output(casts, bf16, convert(c, bf16), 0)};
    add(make_case("casts", casts));
  }
  std::mt19937 rng(20);
  for (int i = 0; i < 200; ++i) {
    const Group group = random_group(rng);
    Target chip = named_target("h200");
    chip.sm_count = i % 3 == 0 ? 1 : i % 3 == 1 ? 4 : 132;
    std::vector<int> alignment;
    for (std::size_t k = 0; k < group.operands(); ++k) alignment.push_back(rng() % 4 ? 256 : 8);
    add(make_case("random " + std::to_string(i), group, alignment, chip));
  }
  for (const DType dtype : {f32, bf16, f64}) {
    for (const Strides& extents : {Strides{50, 10}, Strides{33, 127}, Strides{20, 1024}, Strides{5, 7709}}) {
      add(make_case("softmax of rows", softmax(extents, dtype, 2)));
    }
    add(make_case("softmax of few rows", softmax({3, 5000}, dtype, 2)));
    add(make_case("softmax of columns", softmax({40, 300}, dtype, 1), {}, small));
    add(make_case("softmax of 3 channels", softmax({4, 3, 500}, dtype, 2), {}, small));
    add(make_case("softmax of a middle axis", softmax({5, 70, 36}, dtype, 2)));
    add(make_case("softmax of two axes", softmax({6, 5, 4, 33}, dtype, 0b1010)));
    add(make_case("softmax of all", softmax({130, 7}, dtype, 3)));
    add(make_case("cross entropy", cross_entropy(37, 203, dtype)));
    add(make_case("cross entropy of biased logits", cross_entropy(9, 1027, dtype, true)));
    add(make_case("cross entropy in whole vectors", cross_entropy(9, 1024, dtype, true)));
    for (const std::int64_t classes : {128, 129, 130, 131, 132, 133, 134, 135}) {  // every distance from a vector
      add(make_case("softmax of rows that begin anywhere", softmax({9, classes}, dtype, 2)));
    }
    for (const int alignment : {2, 4, 8}) {
      if (alignment < size_bytes(dtype)) continue;
      add(make_case("softmax of misaligned rows", softmax({9, 301}, dtype, 2), {alignment, 256, 256}));
    }
    {
      Group flipped = softmax({9, 301}, dtype, 2);  // rows from the last to the first, columns as they are
      flipped.loads[0].strides[0] = -301;
      add(make_case("softmax of rows upside down", flipped));
      flipped.outputs[0].strides[0] = 304;  // stored in rows that are aligned
      add(make_case("softmax of odd rows into even ones", flipped));
    }
    add(make_case("layer norm", layer_norm({30, 1024}, dtype, 2)));
    add(make_case("layer norm, a CTA a row", layer_norm({70, 2048}, dtype, 2), {}, small));
    add(make_case("layer norm, a CTA a row that ends anywhere", layer_norm({70, 2043}, dtype, 2), {}, small));
    add(make_case("layer norm of columns", layer_norm({1000, 30}, dtype, 1)));
    add(make_case("layer norm gradient", layer_norm_grad({300, 512}, dtype, 2), {}, small));
    add(make_case("layer norm gradient, odd", layer_norm_grad({70, 131}, dtype, 2), {}, small));
    add(make_case("layer norm gradient of three axes", layer_norm_grad({6, 9, 40}, dtype, 4)));
    add(make_case("layer norm gradient of strided rows", layer_norm_grad({40, 70}, dtype, 1)));
  }
  add(make_case("rows too long to hold", softmax({2, 70001}, f64, 2)));
  add(make_case("rows too long to hold, gradient", layer_norm_grad({9, 33000}, f32, 2), {}, one));
  add(make_case("columns too long to hold", softmax({3000, 36}, f64, 1), {}, one));
  add(make_case("softmax of nothing", softmax({0, 5}, f32, 2)));
  for (int i = 0; i < 150; ++i) {
    const Group group = random_staged_group(rng);
    Target chip = named_target("h200");
    chip.sm_count = i % 3 == 0 ? 1 : i % 3 == 1 ? 4 : 132;
    std::vector<int> alignment;
    for (std::size_t k = 0; k < group.operands(); ++k) alignment.push_back(rng() % 4 ? 256 : 8);
    if (!staged_refusal(canonical(group)).empty()) continue;
    add(make_case("random staged " + std::to_string(i), group, alignment, chip));
  }
  // Every fifth with 64-bit offsets, as a group too large to run here would have.
  const std::size_t count = group_cases.size();
  for (std::size_t i = 0; i < count; i += 5) {
    GroupCase wide = group_cases[i];
    wide.name += ", 64-bit offsets";
    for (TextLaunch& launch : wide.plan.launches) {
      const std::string narrow = "using Index = int;", entry = launch.entry;
      std::string source = launch.source;
      source.replace(source.find(narrow), narrow.size(), "using Index = long long;");
      launch.entry += "_wide";
      source.replace(source.find(entry), entry.size(), launch.entry);
      launch.source = std::move(source);
    }
    if (!wide.plan.launches.empty()) add(std::move(wide));
  }
  return group_cases;
}

const std::vector<GroupCase>& all_cases() {
  static const auto* made = new std::vector<GroupCase>(make_cases());
  return *made;
}

// Those that run.
const std::vector<GroupCase>& group_cases() {
  static const auto* made = [] {
    auto* cases = new std::vector<GroupCase>(all_cases());
    keep_share(cases, [](const GroupCase& c) { return c.name; });
    return cases;
  }();
  return *made;
}

const EmulatedKernels& kernels() {
  static const EmulatedKernels made([] {
    std::vector<const TextLaunch*> plans;
    for (const GroupCase& c : group_cases()) {
      for (const TextLaunch& launch : c.plan.launches) plans.push_back(&launch);
    }
    return plans;
  }());
  return made;
}

/// One operand: as stored (with the start at the promised alignment and no better), and as doubles.
struct Operand {
  DType dtype;
  std::vector<char> bytes;
  char* start = nullptr;  // of the element at lowest address
  std::vector<double> values;
  std::int64_t first = 0;   // where the first point's element is: not 0 where a stride is negative
  char* pointer = nullptr;  // to it
};

Operand make_operand(const Group& group, std::size_t i, int alignment, std::mt19937& rng) {
  const bool is_load = i < group.loads.size();
  Operand operand;
  operand.dtype = is_load ? group.loads[i].dtype : group.outputs[i - group.loads.size()].dtype;
  std::int64_t last = 0;
  for (std::size_t a = 0; a < group.extents.size(); ++a) {
    const std::int64_t reach = operand_strides(group, i)[a] * std::max<std::int64_t>(group.extents[a] - 1, 0);
    (reach < 0 ? operand.first : last) += std::abs(reach);
  }
  const auto count = static_cast<std::size_t>(operand.first + last + 1);
  const auto size = static_cast<std::size_t>(size_bytes(operand.dtype));
  operand.bytes.assign(count * size + 1024, 0x7f);
  operand.start = operand.bytes.data();
  while (reinterpret_cast<std::uintptr_t>(operand.start) % 256 != 0) ++operand.start;
  // Elements below the first point's keep its alignment as it was promised.
  const auto before = static_cast<std::int64_t>(static_cast<std::size_t>(operand.first) * size);
  operand.start += (256 - before % 256) % 256 + (alignment < 256 ? alignment : 0);
  operand.pointer = operand.start + before;
  operand.values.resize(count);
  for (std::size_t k = 0; k < count; ++k) {
    const double value =
        is_float(operand.dtype) ? std::uniform_real_distribution<double>(-1, 1)(rng) : double(rng() % 4);
    if (is_load) put(operand.dtype, operand.start + k * size, value);  // outputs keep the poison
    operand.values[k] = get(operand.dtype, operand.start + k * size);
  }
  return operand;
}

double points(const Group& group, std::uint32_t mask) {
  double count = 1;
  for (std::size_t a = 0; a < group.extents.size(); ++a) {
    if ((mask >> a) & 1u) count *= double(group.extents[a]);
  }
  return count;
}

/// The rounding error of an output's element, whose formula has numbers about 1. Each of its n terms is rounded as
/// often as the formula has nodes, and once more when it is added up: n (nodes + 1) errors of up to a unit roundoff and
/// of either sign, together about the root of so many; 8 times that, as operations of the formula may amplify them. The
/// error of a reduction of the group's own is the same in all n terms: of m numbers of one sign in one chain, which is
/// the longest that a kernel may add them in, sqrt(m) / 3 units.
double tolerance(const Group& group, const GroupOutput& output, double value) {
  const DType compute = group.expr.dtype_of(output.value);
  const double unit = compute == f64 ? 0x1p-53 : is_float(compute) ? 0x1p-24 : 0;
  const double terms = points(group, output.reduce_mask);
  double most = 0;
  for (const GroupReduction& reduction : group.reductions) most = std::max(most, points(group, reduction.reduce_mask));
  const double own = terms * std::sqrt(most) / 3;
  const double each = 8 * std::sqrt(terms * double(group.expr.nodes().size() + 1));
  return rounding(output.dtype) * std::fabs(value) + unit * (8 * std::fabs(value) + each + own);
}

void check_text(const GroupCase& c, unsigned seed) {
  SCOPED_TRACE(c.name + "\n" + to_string(c.group) + c.why());
  std::mt19937 rng(seed);
  std::vector<Operand> operands;
  for (std::size_t i = 0; i < c.group.operands(); ++i)
    operands.push_back(make_operand(c.group, i, c.alignment[i], rng));
  std::vector<std::vector<double>> expected;
  for (const Operand& operand : operands) expected.push_back(operand.values);
  std::vector<double*> pointers;
  for (std::size_t i = 0; i < operands.size(); ++i) pointers.push_back(expected[i].data() + operands[i].first);

  std::vector<char> workspace(static_cast<std::size_t>(c.plan.workspace_bytes) + 256, 0x7f);
  std::vector<unsigned> tickets(static_cast<std::size_t>(c.plan.ticket_count) + 1, 0);
  char* workspace_at = workspace.data();
  while (reinterpret_cast<std::uintptr_t>(workspace_at) % 256 != 0) ++workspace_at;
  LaunchScratch scratch{workspace_at, tickets.data(), nullptr, nullptr};
  std::vector<void*> arguments;
  for (Operand& operand : operands) arguments.push_back(&operand.pointer);
  arguments.push_back(&scratch);
  for (int round = 0; round < 2; ++round) {  // the second round finds the results and workspace of the first
    for (const TextLaunch& kernel : c.plan.launches) {
      const Launch launch = kernels().find(kernel.entry);
      ASSERT_NE(launch, nullptr) << kernels().log();
      std::vector<std::uint64_t> sizes = kernel.sizes;
      std::vector<void*> all = arguments;
      all.push_back(sizes.data());
      std::vector<unsigned> order(kernel.grid[0]);
      std::iota(order.begin(), order.end(), 0u);
      std::shuffle(order.begin(), order.end(), rng);
      ASSERT_EQ(launch(all.data(), kernel.grid[0], kernel.block, order.data()), 0)
          << "1: deadlock, 2: reads what nothing has written";
    }
    run_reference(c.group, pointers);
    for (const unsigned ticket : tickets) ASSERT_EQ(ticket, 0u);
    for (std::size_t i = c.group.loads.size(); i < operands.size(); ++i) {
      const GroupOutput& output = c.group.outputs[i - c.group.loads.size()];
      const auto size = static_cast<std::size_t>(size_bytes(output.dtype));
      for (std::size_t k = 0; k < expected[i].size(); ++k) {
        const double got = get(output.dtype, operands[i].start + k * size);
        double want = expected[i][k];
        if (!is_float(output.dtype)) {  // the reference does not wrap
          std::vector<char> bytes(8);
          put(output.dtype, bytes.data(), want);
          want = get(output.dtype, bytes.data());
        }
        if (want == got || (std::isnan(want) && std::isnan(got))) continue;  // infinities; poison between elements
        ASSERT_NEAR(got, want, tolerance(c.group, output, want))
            << "output " << i - c.group.loads.size() << " element " << k << " in round " << round;
        expected[i][k] = got;
      }
    }
  }
}

TEST(GroupText, GivesWhatTheReferenceGives) {
  unsigned seed = 1;
  int failures = 0;
  for (const GroupCase& c : group_cases()) {
    check_text(c, seed++);
    if (HasFailure() && ++failures >= 3) break;
  }
}

TEST(GroupText, DependsOnTheShapeClassOnly) {
  auto source = [](const Group& group) {
    std::string all;
    for (const TextLaunch& launch : make_case("", group).plan.launches) all += launch.source.text();
    return all;
  };
  EXPECT_EQ(source(lerp_grad({16, 102400}, f32, {0, 0}, 0, 0)), source(lerp_grad({32, 204800}, f32, {0, 0}, 0, 0)));
  EXPECT_EQ(source(lerp_grad({16, 102400}, f32, {0, 0}, 2, 0)), source(lerp_grad({16, 114000}, f32, {0, 0}, 2, 0)));
  EXPECT_EQ(source(sums({6400, 2048}, f32, {1})), source(sums({12800, 2048}, f32, {1})));
  EXPECT_EQ(source(sums({64000, 2048}, f32, {1})), source(sums({128000, 2048}, f32, {1})));
  EXPECT_NE(source(sums({6400, 2048}, f32, {1})), source(sums({6400, 2048}, bf16, {1})));
}

// The cases above are of use only while they take every road.
// Said of every source that does, or a recording puts a stamp's kernel in front of it.
TEST(GroupText, LeavesAStampAndSaysSo) {
  for (const GroupCase& c : group_cases()) {
    for (const TextLaunch& launch : c.plan.launches) {
      EXPECT_EQ(launch.leaves_stamp, launch.source.has("leave_stamp(scratch);\n")) << c.name;
      EXPECT_TRUE(launch.leaves_stamp) << c.name;
    }
  }
}

TEST(GroupText, CasesTakeEverySchedule) {
  std::map<std::string, int> seen;
  for (const GroupCase& c : all_cases()) {
    if (c.group.points() == 0 || c.group.rank() == 0 || !c.group.reductions.empty()) continue;
    const GroupSchedule s = schedule_group(c.group, c.alignment, c.chip);
    const char* form = s.form == LoopForm::tile ? "tile " : "sweep ";
    const char* kinds[] = {"store", "column", "row", "total", "spread"};
    for (const SinkKind sink : s.sinks) ++seen[form + std::string(kinds[static_cast<int>(sink)])];
    seen["block"] += s.block > 1;
    seen["chunk"] += s.chunk > 1;
    seen["block and chunk"] += s.block > 1 && s.chunk > 1;
    seen["ragged"] += s.is_ragged;
    seen["partial sums"] += c.plan.ticket_count > 0 && !s.adds_later;
    for (const SinkKind sink : s.sinks) {
      if (s.adds_later && sink != SinkKind::store)
        ++seen["added up later, " + std::string(kinds[static_cast<int>(sink)])];
    }
    seen["several serial axes"] += s.serial_axes.size() > 1;
    seen["several inner axes"] += s.inner_axes.size() > 1;
    seen["unrolled"] += s.unroll > 1;
    seen["transposed"] += s.is_transposed;
    seen["transposed, several serial axes"] += s.is_transposed && s.serial_axes.size() > 1;
    seen["not a vector"] += std::count(s.is_vector.begin(), s.is_vector.end(), false) > 0;
  }
  for (const char* road : {"tile store",
                           "tile column",
                           "tile row",
                           "tile total",
                           "tile spread",
                           "sweep store",
                           "sweep row",
                           "sweep total",
                           "block",
                           "chunk",
                           "block and chunk",
                           "ragged",
                           "partial sums",
                           "added up later, row",
                           "added up later, total",
                           "several serial axes",
                           "several inner axes",
                           "unrolled",
                           "transposed",
                           "transposed, several serial axes",
                           "not a vector"}) {
    EXPECT_GT(seen[road], 0) << road;
  }
}

TEST(GroupText, StagedCasesTakeEveryRoad) {
  for (const std::string road : {"staged tile", "staged sweep", "held in registers", "read again", "a turn ahead",
                                 "first aligned element", "carried", "partial sums"}) {
    const auto takes = [&](const GroupCase& c) { return c.why().find(road) != std::string::npos; };
    EXPECT_TRUE(std::ranges::any_of(all_cases(), takes)) << road;
  }
}

TEST(GroupText, AWeightThatCachesDoNotHoldIsReadByAdjacentCtas) {
  for (const std::int64_t inner : {128, 64, 32}) {
    const Strides x = {512, 0, 1, 0}, y = {256 * inner, inner, 0, 1}, w = {0, 512 * inner, inner, 1};
    const Group group = canonical(lerp({64, 256, 512, inner}, f32, x, y, w));
    Target chip = named_target("h200");
    chip.last_cache_bytes = inner << 19;  // a quarter of the weight's
    const GroupSchedule s = schedule_group(group, std::vector<int>(group.operands(), 256), chip);
    ASSERT_FALSE(s.grid.empty());
    EXPECT_EQ(s.grid[0].over, GridDim::Over::axis) << s.why;
    EXPECT_EQ(s.grid[0].count, 64) << s.why;  // the axis along which the weight stays the same is the fastest
  }
}

TEST(GroupText, ElementsOf16BitsMoveBy16BytesBesideWiderValuesOfChannels) {
  const Target chip = named_target("h200");
  const auto vector_of = [&](int count, bool is_summed) {
    const Group group = canonical(by_channel({1 << 16, 64}, bf16, count, is_summed));
    const GroupSchedule s = schedule_group(group, std::vector<int>(group.operands(), 256), chip);
    EXPECT_EQ(s.form, LoopForm::tile) << s.why;
    return s.vector;
  };
  EXPECT_EQ(vector_of(1, false), 8);
  EXPECT_EQ(vector_of(4, false), 8);
  EXPECT_EQ(vector_of(5, false), 4) << "as many take as long to load as the points";
  EXPECT_EQ(vector_of(1, true), 8);
  EXPECT_EQ(vector_of(5, true), 8);
}

TEST(GroupText, ColumnsOfAFewMegabytesTakeOneCtaAnSmWhoseLastToComeAddsUp) {
  const auto schedule = [](DType dtype) {
    const Group group = canonical(sums({6400, 512}, dtype, {0b01}));
    return schedule_group(group, std::vector<int>(group.operands(), 256), named_target("h200"));
  };
  for (const DType dtype : {f32, bf16}) {
    const GroupSchedule s = schedule(dtype);
    EXPECT_EQ(s.ctas, 128) << s.why;
    EXPECT_EQ(s.lanes * s.vector, 32) << s.why;
    EXPECT_EQ(s.rows, 64) << "few enough to synchronize soon: " << s.why;
  }
  EXPECT_EQ(schedule(f32).unroll, 7) << "all rows in two batches of loads";
  EXPECT_EQ(schedule(bf16).unroll, 13) << "all rows in one";
}

TEST(GroupText, ASumBesideWhatIsSummedGoesThroughMemoryInOrder) {
  const auto schedule = [](std::initializer_list<std::uint32_t> masks) {
    const Group group = canonical(sums({1000, 16, 28, 28}, f32, masks));
    return schedule_group(group, std::vector<int>(group.operands(), 256), named_target("h200"));
  };
  const GroupSchedule in_order = schedule({0, 0b1101});
  EXPECT_EQ(in_order.sinks[1], SinkKind::row) << "of the pixels: " << in_order.why;
  EXPECT_EQ(in_order.grid[0].over, GridDim::Over::serial) << "channels first, then images: " << in_order.why;
  EXPECT_EQ(in_order.lanes, 28 * 28 / 4) << "a vector a thread: " << in_order.why;
  EXPECT_EQ(in_order.ctas, 8000) << "two channels of an image each: " << in_order.why;
  EXPECT_TRUE(in_order.adds_later) << in_order.why;
  EXPECT_EQ(schedule({0b1101}).ctas, 128) << "what only reads leaves fewer partial sums";
}

TEST(GroupText, LongRowsHaveACtaEachWhereThereAreManyOfThem) {
  const auto schedule = [](std::int64_t rows, std::int64_t row) {
    const Group group = canonical(layer_norm({rows, row}, f32, 2));
    return schedule_staged(group, std::vector<int>(group.operands(), 256), named_target("h200"));
  };
  const GroupSchedule many = schedule(8192, 1024);
  EXPECT_EQ(many.ctas, 8192) << many.why;
  EXPECT_EQ(many.threads(), 128) << many.why;
  EXPECT_FALSE(many.fetches_ahead) << many.why;
  EXPECT_GT(schedule(2000, 1024).rows, 1) << "so few are nearly all resident as it is";
}

TEST(GroupText, WritesNothingForEmptyOutputs) {
  EXPECT_TRUE(make_case("", sums({0, 4}, f32, {0})).plan.launches.empty());
}

}  // namespace
}  // namespace paoding::gpu
