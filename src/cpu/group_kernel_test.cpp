// SPDX-License-Identifier: Apache-2.0
// The CPU back end of groups against the double-precision reference: random groups over dtypes, layouts, masks, sizes
// at tile edges and thread counts, then cases that random ones do not reach.
#include "cpu/group_kernel.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>

#include "cpu/tile_stored.h"
#include "hwy/targets.h"

namespace paoding {
namespace {

constexpr double kPoison = 77;  // exact in every dtype but bool; gaps between output elements must keep it

// An operand in its stored dtype and, for the reference, in double.
struct Memory {
  DType dtype = DType::f32;
  std::vector<double> values;
  std::vector<char> bytes;

  void store() {
    bytes.resize(values.size() * static_cast<std::size_t>(size_bytes(dtype)));
    visit_stored(dtype, [this](auto d) {
      using S = Stored<d.value>;
      auto* to = reinterpret_cast<typename S::Type*>(bytes.data());
      for (std::size_t i = 0; i < values.size(); ++i) to[i] = S::store(static_cast<typename S::Compute>(values[i]));
    });
  }
  std::vector<double> load() const {
    std::vector<double> result(values.size());
    visit_stored(dtype, [&](auto d) {
      using S = Stored<d.value>;
      const auto* from = reinterpret_cast<const typename S::Type*>(bytes.data());
      for (std::size_t i = 0; i < result.size(); ++i) result[i] = static_cast<double>(S::load(from[i]));
    });
    return result;
  }
};

std::size_t elements(const Group& group, const std::vector<std::int64_t>& strides) {
  std::int64_t last = 0;
  for (std::size_t axis = 0; axis < strides.size(); ++axis) {
    last += std::max<std::int64_t>(group.extents[axis] - 1, 0) * strides[axis];
  }
  return static_cast<std::size_t>(last + 1);
}

struct Case {
  Group group;
  std::vector<Memory> memory;  // per operand

  void add_output(std::int32_t value, DType dtype, std::uint32_t mask, std::vector<std::int64_t> strides,
                  Combine combine = Combine::sum) {
    group.outputs.push_back({dtype, value, mask, mask ? combine : Combine::none, std::move(strides)});
  }
  // A value that does not vary along the reduced axes, written once per row.
  void add_once(std::int32_t value, DType dtype, std::uint32_t mask, std::vector<std::int64_t> strides) {
    group.outputs.push_back({dtype, value, mask, Combine::none, std::move(strides)});
  }
  Scalar add_reduction(Scalar value, Combine combine, std::uint32_t mask) {
    group.reductions.push_back({value.id(), combine, mask});
    Expr* expr = &group.expr;
    const auto index = static_cast<std::int32_t>(group.reductions.size()) - 1;
    return {expr, expr->add({.prim = Prim::reduced, .dtype = value.dtype(), .index = index})};
  }
  Scalar add_index(DType dtype, std::int64_t start, std::vector<std::int64_t> strides) {
    group.indices.push_back({dtype, start, std::move(strides)});
    Expr* expr = &group.expr;
    const auto index = static_cast<std::int32_t>(group.indices.size()) - 1;
    return {expr, expr->add({.prim = Prim::index, .dtype = dtype, .index = index})};
  }
  void make_memory(std::mt19937& random) {
    std::uniform_real_distribution<double> uniform(-2, 2);
    for (const GroupLoad& load : group.loads) {
      Memory m{load.dtype, std::vector<double>(elements(group, load.strides)), {}};
      for (double& v : m.values) {
        v = is_float(load.dtype)    ? uniform(random)
            : load.dtype == boolean ? double(random() % 2)
            : load.dtype == u8      ? double(random() % 10)
                                    : double(random() % 19) - 9;
      }
      m.store();
      m.values = m.load();  // as rounded
      memory.push_back(std::move(m));
    }
    for (const GroupOutput& output : group.outputs) {
      const double poison = output.dtype == boolean ? 1 : kPoison;
      Memory m{output.dtype, std::vector<double>(elements(group, output.strides), poison), {}};
      m.store();
      memory.push_back(std::move(m));
    }
  }
};

double tolerance(DType dtype, double want, double terms, double scale) {
  if (!is_float(dtype)) return 0;
  const double half = dtype == bf16 ? 0x1p-8 : dtype == f16 ? 0x1p-10 : 0;
  const double unit = dtype == f64 ? 1e-13 : 1e-6;
  return (half + 4 * unit) * (std::fabs(want) + 1) + unit * scale * std::sqrt(terms);
}

void check_kernel(const Case& c, int threads, double scale = 20, double terms = -1, Sharing sharing = Sharing::none,
                  bool is_far = false) {
  std::vector<Memory> want = c.memory, got = c.memory, again = c.memory;
  std::vector<double*> values;
  std::vector<void*> pointers, pointers_again;
  for (std::size_t i = 0; i < want.size(); ++i) {
    values.push_back(want[i].values.data());
    pointers.push_back(got[i].bytes.data());
    pointers_again.push_back(again[i].bytes.data());
  }
  run_reference(c.group, values);
  const CpuGroupKernel kernel(c.group, threads, sharing, std::vector<bool>(c.group.outputs.size(), is_far));
  kernel.run(pointers.data());
  kernel.run(pointers_again.data());
  for (std::size_t i = 0; i < want.size(); ++i) {
    ASSERT_EQ(got[i].bytes, again[i].bytes) << "two runs differ, operand " << i << "\n" << to_string(c.group);
    if (i < c.group.loads.size()) {
      ASSERT_EQ(got[i].bytes, c.memory[i].bytes) << "load " << i << " was written\n" << to_string(c.group);
      continue;
    }
    const GroupOutput& output = c.group.outputs[i - c.group.loads.size()];
    const double n = output.reduce_mask ? (terms > 0 ? terms : double(c.group.points())) : 0;
    const std::vector<double> result = got[i].load();
    for (std::size_t k = 0; k < result.size(); ++k) {
      const double expected = output.dtype == boolean ? double(want[i].values[k] != 0) : want[i].values[k];
      if (result[k] == expected || (std::isnan(result[k]) && std::isnan(expected))) continue;  // infinities too
      ASSERT_NEAR(result[k], expected, tolerance(output.dtype, expected, n, scale))
          << "operand " << i << " element " << k << " threads " << threads << "\n"
          << to_string(c.group);
    }
  }
}

// ---- random groups -----------------------------------------------------------------

class Generator {
 public:
  explicit Generator(unsigned seed) : random_(seed) {}

  Case make() {
    Case c;
    choose_extents(c.group);
    const DType compute = std::vector<DType>{f32, f32, f32, f64, i32, i64}[pick(6)];
    const int loads = 1 + pick(4);
    std::vector<Scalar> numbers, bools;
    Expr* expr = &c.group.expr;
    for (int i = 0; i < loads; ++i) {
      const DType stored = stored_of(compute);
      const std::uint32_t kept = pick(2) ? all_ : random_() & all_;
      c.group.loads.push_back({stored, strides(c.group, kept)});
      Scalar x = make_input(expr, i, compute_dtype(stored));
      if (stored == boolean) bools.push_back(x);
      numbers.push_back(x.dtype() == compute ? x : convert(x, compute));
      if (pick(8) == 0 && is_float(compute)) numbers.push_back(convert(convert(x, pick(2) ? bf16 : f16), compute));
    }
    if (pick(4) == 0) {
      std::vector<std::int64_t> steps;
      for (std::size_t axis = 0; axis < c.group.extents.size(); ++axis) steps.push_back(pick(2) ? pick(40) - 20 : 0);
      const Scalar at = c.add_index(pick(2) ? i64 : i32, pick(100) - 50, std::move(steps));
      if (is_float(compute)) {
        numbers.push_back(convert(at, compute) * (1.0 / 4096));
      } else {
        const Scalar narrow = convert(at, compute);
        numbers.push_back(minimum(maximum(narrow, narrow.constant(-40)), narrow.constant(40)));
      }
      bools.push_back(at < at.constant(pick(20)));
    }
    const Scalar first = numbers[0], second = numbers[pick(int(numbers.size()))];
    bools.push_back(first < second);
    bools.push_back(first <= second);
    bools.push_back(equal(first, second));
    const Scalar negated = apply_prim(Prim::logical_not, std::vector<Scalar>{bools[0]});
    const Prim both = pick(2) ? Prim::logical_and : Prim::logical_or;
    bools.push_back(apply_prim(both, std::vector<Scalar>{negated, bools.back()}));
    numbers.push_back(make_constant(expr, 1.0 + pick(3), compute));
    const int nodes = 1 + pick(12);
    for (int i = 0; i < nodes; ++i) numbers.push_back(node(numbers, bools, compute));
    const std::size_t before = numbers.size();
    const std::uint32_t row = random_() & all_;
    if (row != 0 && pick(2)) add_stages(c, numbers, bools, compute, row);
    const int outputs = 1 + pick(3);
    for (int o = 0; o < outputs; ++o) {
      const std::uint32_t mask = pick(2) ? 0 : random_() & all_;
      const bool truth = pick(10) == 0;
      const Scalar number = o == 0 ? numbers.back() : numbers[pick(int(numbers.size()))];
      // Products of many terms near 1 only: those of anything else leave every range.
      const Combine combine = std::vector<Combine>{Combine::sum, Combine::sum, Combine::max, Combine::min,
                                                   Combine::prod}[is_float(compute) && !truth ? pick(5) : pick(4)];
      Scalar value = truth ? bools[pick(int(bools.size()))] : number;
      if (combine == Combine::prod && mask) value = 1.0 + tanh(value) * (0.5 / double(1 + c.group.points()));
      const DType dtype = truth               ? (mask && pick(2) ? i64 : boolean)
                          : is_float(compute) ? stored_float(compute)
                                              : compute;
      c.add_output(value.id(), dtype, mask, strides(c.group, all_ & ~mask), combine);
    }
    if (!c.group.reductions.empty() && pick(2)) {
      const std::vector<bool> varies = varies_along(c.group, row);
      for (std::size_t i = before; i < numbers.size(); ++i) {
        if (varies[static_cast<std::size_t>(numbers[i].id())] || c.group.points() == 0) continue;
        const DType dtype = is_float(compute) ? stored_float(compute) : compute;
        c.add_once(numbers[i].id(), dtype, row, strides(c.group, all_ & ~row));
        break;
      }
    }
    c.make_memory(random_);
    return c;
  }

 private:
  int pick(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  void choose_extents(Group& group) {
    const int rank = pick(10) == 0 ? 6 + pick(5) : pick(5);
    static constexpr std::int64_t kEdges[] = {1,  2,  3,   7,   8,   15,  16,   17,   31,   33,  63,
                                              64, 65, 127, 128, 129, 200, 1023, 1024, 1025, 2100};
    std::int64_t points = 1;
    for (int axis = 0; axis < rank; ++axis) {
      std::int64_t extent = kEdges[pick(21)];
      if (rank > 5) extent = 1 + pick(3);
      while (points * extent > 6000) extent = (extent + 1) / 2;
      if (pick(60) == 0) extent = 0;
      points *= std::max<std::int64_t>(extent, 1);
      group.extents.push_back(extent);
    }
    std::shuffle(group.extents.begin(), group.extents.end(), random_);
    all_ = (1u << rank) - 1;
  }

  // Reductions that later ones and the outputs read. Sums are made means, which keeps everything near 1.
  void add_stages(Case& c, std::vector<Scalar>& numbers, std::vector<Scalar>& bools, DType compute, std::uint32_t row) {
    double length = 1;
    for (std::size_t axis = 0; axis < c.group.extents.size(); ++axis) {
      if ((row >> axis) & 1u) length *= double(std::max<std::int64_t>(c.group.extents[axis], 1));
    }
    const int count = 1 + pick(4);
    for (int i = 0; i < count; ++i) {
      const Combine combine = std::vector<Combine>{Combine::sum, Combine::max, Combine::min}[pick(3)];
      Scalar value = numbers[pick(3) ? numbers.size() - 1 : std::size_t(pick(int(numbers.size())))];
      if (!is_float(compute)) {
        value = minimum(maximum(value, value.constant(-3)), value.constant(3));
      } else if (combine == Combine::sum) {
        value = tanh(value) * (1 / length);
      }
      const Scalar reduced = c.add_reduction(value, combine, row);
      numbers.push_back(reduced);
      if (pick(2)) numbers.push_back(is_float(compute) ? rsqrt(abs(reduced) + 0.25) : -reduced);
      const int nodes = 1 + pick(3);
      for (int k = 0; k < nodes; ++k) {
        numbers.push_back(node(numbers, bools, compute));
        if (pick(3) == 0) numbers.push_back(pick(2) ? minimum(numbers.back(), reduced) : numbers.back() - reduced);
      }
    }
  }

  // Strides of a layout with room for every element over the `kept` axes: any axis order, sometimes with gaps.
  std::vector<std::int64_t> strides(const Group& group, std::uint32_t kept) {
    std::vector<std::size_t> order(group.extents.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    if (pick(4) == 0) std::shuffle(order.begin(), order.end(), random_);
    std::vector<std::int64_t> result(order.size(), 0);
    std::int64_t step = pick(8) == 0 ? 3 : 1;
    for (std::size_t i = order.size(); i-- > 0;) {
      if (!((kept >> order[i]) & 1u)) continue;
      result[order[i]] = step;
      step *= std::max<std::int64_t>(group.extents[order[i]], 1);
      if (pick(8) == 0) step += 5;
    }
    return result;
  }

  DType stored_float(DType compute) { return compute == f64 ? f64 : std::vector<DType>{f32, f32, f16, bf16}[pick(4)]; }
  DType stored_of(DType compute) {
    if (pick(10) == 0) return boolean;
    if (is_float(compute)) return stored_float(compute);
    return compute == i32 && pick(2) ? u8 : compute;
  }

  // Well-conditioned formulas only: the kernel computes in f32, the reference in double.
  Scalar node(std::vector<Scalar>& numbers, std::vector<Scalar>& bools, DType compute) {
    const Scalar a = numbers[pick(int(numbers.size()))], b = numbers[pick(int(numbers.size()))];
    switch (pick(is_float(compute) ? 13 : 6)) {
      case 0: return minimum(a, b);
      case 1: return maximum(a, b);
      case 2: return select(bools[pick(int(bools.size()))], a, b);
      case 3: return abs(a) - b;
      case 4: return is_float(compute) ? (a + b) * 0.5 : minimum(maximum(a + b, a.constant(-50)), a.constant(50));
      case 5: return is_float(compute) ? tanh(a) * b : minimum(maximum(a * b, a.constant(-50)), a.constant(50));
      case 6: return -a;
      case 7: return a / (abs(b) + 0.5);
      case 8: return sigmoid(a);
      case 9: return log(abs(a) + 0.5);
      case 10: return sqrt(abs(a) + 0.25);
      case 11: return rsqrt(abs(a) + 0.25) * b;
      default: return exp(tanh(a));
    }
  }

  std::mt19937 random_;
  std::uint32_t all_ = 0;
};

class RandomGroups : public testing::TestWithParam<int> {};

TEST_P(RandomGroups, MatchTheReference) {
  for (unsigned seed = 0; seed < 700; ++seed) {
    const Case c = Generator(seed).make();
    check_kernel(c, GetParam(), 20, -1, seed % 2 ? Sharing::none : Sharing::possible, seed % 3 == 0);
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
  }
}
INSTANTIATE_TEST_SUITE_P(Threads, RandomGroups, testing::Values(1, 2, 4));

TEST(CpuGroupKernel, MatchesTheReferenceOnEveryInstructionSet) {
  const auto supported = hwy::SupportedTargets();
  for (auto targets = supported; targets != 0; targets &= targets - 1) {
    const auto one = targets & -targets;
    hwy::SetSupportedTargetsForTest(one);
    for (unsigned seed = 1000; seed < 1150; ++seed) {
      check_kernel(Generator(seed).make(), 1);
      ASSERT_FALSE(HasFatalFailure()) << "seed " << seed << " target " << hwy::TargetName(one);
    }
  }
  hwy::SetSupportedTargetsForTest(0);
}

// ---- chosen cases ------------------------------------------------------------------

TEST(CpuGroupKernel, LerpGradientWritesOneAndSumsTheOtherInOnePass) {
  for (const int threads : {1, 2, 3, 4}) {
    Case c;
    c.group.extents = {16, 5000};
    c.group.loads = {{f32, {5000, 1}}, {f32, {0, 0}}};
    const Scalar g = make_input(&c.group.expr, 0, f32), w = make_input(&c.group.expr, 1, f32);
    c.add_output(((1.0 - w) * g).id(), f32, 3, {0, 0});
    c.add_output((w * g).id(), f32, 0, {5000, 1});
    c.add_output((w * g).id(), f32, 1, {0, 1});
    c.add_output((w * g).id(), bf16, 2, {1, 0});
    std::mt19937 random(1);
    c.make_memory(random);
    check_kernel(c, threads, 1);
  }
}

TEST(CpuGroupKernel, ColumnSumsWiderThanTheCacheGoStripByStrip) {
  for (const int threads : {1, 2, 4}) {
    Case c;
    c.group.extents = {3, 40000};
    c.group.loads = {{f32, {40000, 1}}};
    const Scalar x = make_input(&c.group.expr, 0, f32);
    c.add_output((x * x).id(), f32, 1, {0, 1});
    c.add_output((x * 2.0).id(), f32, 0, {40000, 1});
    std::mt19937 random(1);
    c.make_memory(random);
    check_kernel(c, threads, 1, 3);
  }
}

TEST(CpuGroupKernel, TransposedOperandsAreReadInSquareTiles) {
  for (const int threads : {1, 2, 4}) {
    Case c;
    c.group.extents = {37, 3, 200};
    c.group.loads = {
        {f32, {600, 200, 1}}, {f32, {1, 37, 111}}, {bf16, {1, 0, 0}}, {f32, {0, 0, 1}}, {u8, {1, 37, 111}}};
    std::vector<Scalar> x;
    for (int i = 0; i < 5; ++i) x.push_back(make_input(&c.group.expr, i, compute_dtype(c.group.loads[i].dtype)));
    const Scalar row = exp(x[2]), column = tanh(x[3]);
    const Scalar value = x[0] + x[1] * row + column * convert(x[4], f32);
    c.add_output(value.id(), f32, 0, {600, 200, 1});
    c.add_output((value * row).id(), f16, 0, {1, 37, 111});
    c.add_output(value.id(), f32, 1, {0, 200, 1});
    c.add_output((row + column).id(), f32, 4, {3, 1, 0});
    c.add_output(value.id(), f32, 7, {0, 0, 0});
    std::mt19937 random(1);
    c.make_memory(random);
    check_kernel(c, threads);
  }
}

TEST(CpuGroupKernel, SumOfManyFloatsIsAccurate) {
  const std::int64_t n = 1638400;
  Group group;
  group.extents = {n};
  group.loads = {{f32, {1}}};
  group.outputs = {{f32, make_input(&group.expr, 0, f32).id(), 1, Combine::sum, {0}}};
  std::mt19937 random(1);
  std::uniform_real_distribution<float> uniform(0, 1);
  std::vector<float> x(n);
  long double want = 0;
  for (float& v : x) want += v = uniform(random);
  for (const int threads : {1, 2}) {
    float sum = -1;
    void* operands[] = {x.data(), &sum};
    CpuGroupKernel(group, threads).run(operands);
    EXPECT_NEAR(sum / static_cast<double>(want), 1, 1e-6);
  }
}

TEST(CpuGroupKernel, OutputMayShareMemoryWithALoadThatIsReadAgainLater) {
  // out0 = a + b over a's memory; out1 = a * out0's value: a must still be the old one.
  const std::int64_t n = 3000;
  Group group;
  group.extents = {n};
  group.loads = {{f32, {1}}, {f32, {1}}};
  const Scalar a = make_input(&group.expr, 0, f32), b = make_input(&group.expr, 1, f32);
  const Scalar sum = a + b;
  group.outputs = {{f32, sum.id(), 0, Combine::none, {1}}, {f32, (sum * a).id(), 0, Combine::none, {1}}};
  std::vector<float> x(n), y(n), z(n);
  for (int i = 0; i < n; ++i) x[i] = float(i % 50), y[i] = float(i % 7);
  void* operands[] = {x.data(), y.data(), x.data(), z.data()};
  CpuGroupKernel(group, 2).run(operands);
  for (int i = 0; i < n; ++i) {
    ASSERT_EQ(x[i], float(i % 50 + i % 7));
    ASSERT_EQ(z[i], float(i % 50 + i % 7) * float(i % 50));
  }
}

TEST(CpuGroupKernel, EmptySumsWriteZeroAndEmptyAccumulationKeepsTheOutput) {
  Case c;
  c.group.extents = {0, 3};
  c.group.loads = {{f32, {3, 1}}};
  const std::int32_t x = make_input(&c.group.expr, 0, f32).id();
  c.add_output(x, f32, 1, {0, 1});
  c.add_output(x, f32, 1, {0, 1});
  c.add_output(x, i64, 3, {0, 0});
  std::mt19937 random(1);
  c.make_memory(random);
  check_kernel(c, 0);
  check_kernel(c, 4);
}

TEST(CpuGroupKernel, OutputsThatGoPastTheCachesAreWrittenWhole) {
  // Odd sizes and a start that is not aligned.
  const std::int64_t n = 300'013;
  Group group;
  group.extents = {n};
  group.loads = {{f32, {0}}};
  const Scalar w = make_input(&group.expr, 0, f32);
  group.loads.push_back({f32, {1}});
  const Scalar x = make_input(&group.expr, 1, f32);
  group.outputs = {{f32, (w * x).id(), 0, Combine::none, {1}}};
  std::vector<float> from(n), to(n + 2, -1.0f);
  for (std::int64_t i = 0; i < n; ++i) from[i] = float(i % 1000);
  float two = 2;
  void* operands[] = {&two, from.data(), to.data() + 1};
  CpuGroupKernel(group, 2, Sharing::none, {true}).run(operands);
  EXPECT_EQ(to.front(), -1);
  EXPECT_EQ(to.back(), -1);
  for (std::int64_t i = 0; i < n; ++i) ASSERT_EQ(to[i + 1], 2 * from[i]) << i;
}

TEST(CpuGroupKernel, RowsAskedForAheadChangeNothingAndNeedNotBeThere) {
  const std::int64_t rows = 6, columns = 2 * 4096 / 4;  // two pages each, of f32
  Case c;
  c.group.extents = {rows, columns};
  c.group.loads = {{f32, {columns, 1}}, {bf16, {columns, 1}}};
  const Scalar x = make_input(&c.group.expr, 0, f32), y = make_input(&c.group.expr, 1, bf16);
  const Scalar total = c.add_reduction(x * y * x.constant(0x1p-11), Combine::sum, 2);
  c.add_output((exp(x) - total * y).id(), f32, 0, {columns, 1});
  c.add_output((y * total).id(), f32, 1, {0, 1});
  std::mt19937 random(1);
  c.make_memory(random);
  for (const int threads : {1, 3}) check_kernel(c, threads);

  // After the last row of x nothing may be read.
  const std::size_t bytes = c.memory[0].bytes.size(), page = 4096;
  void* const mapped = mmap(nullptr, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  ASSERT_EQ(mprotect(static_cast<char*>(mapped) + bytes, page, PROT_NONE), 0);
  std::memcpy(mapped, c.memory[0].bytes.data(), bytes);
  std::vector<void*> operands = {mapped};
  for (std::size_t i = 1; i < c.memory.size(); ++i) operands.push_back(c.memory[i].bytes.data());
  CpuGroupKernel(c.group, 1).run(operands.data());
  munmap(mapped, bytes + page);
}

TEST(CpuGroupKernel, SmallGroupsRunOnTheCallersThread) {
  Group group;
  group.extents = {16};
  group.loads = {{f32, {1}}};
  group.outputs = {{f32, make_input(&group.expr, 0, f32).id(), 0, Combine::none, {1}}};
  EXPECT_EQ(CpuGroupKernel(group).threads(), 1);
  EXPECT_EQ(CpuGroupKernel(group, 8).threads(), 1) << "16 floats are one cache line";
}

// ---- functions ---------------------------------------------------------------------

template <class T>
std::vector<T> apply(Prim prim, DType dtype, std::vector<T> x) {
  Group group;
  group.extents = {static_cast<std::int64_t>(x.size())};
  group.loads = {{dtype, {1}}};
  const Scalar a = make_input(&group.expr, 0, dtype);
  group.outputs = {{dtype, apply_prim(prim, std::vector<Scalar>{a}).id(), 0, Combine::none, {1}}};
  std::vector<T> y(x.size(), T(-123));
  void* operands[] = {x.data(), y.data()};
  CpuGroupKernel(group).run(operands);
  return y;
}

template <class T>
void check_functions(DType dtype, double relative) {
  constexpr T kInfinity = std::numeric_limits<T>::infinity();
  std::vector<T> x{0,
                   T(-0.0),
                   1,
                   -1,
                   kInfinity,
                   -kInfinity,
                   std::numeric_limits<T>::quiet_NaN(),
                   std::numeric_limits<T>::max(),
                   std::numeric_limits<T>::lowest(),
                   std::numeric_limits<T>::min(),
                   std::numeric_limits<T>::denorm_min(),
                   89,
                   -89,
                   -103,
                   104,
                   710,
                   -710,
                   -746,
                   1e5,
                   -1e5};
  std::mt19937 random(5);
  for (const double range : {1e-6, 1e-3, 0.1, 1.0, 10.0, 30.0, 87.0, 700.0}) {
    std::uniform_real_distribution<double> uniform(-range, range);
    for (int i = 0; i < 5000; ++i) x.push_back(static_cast<T>(uniform(random)));
  }
  const std::pair<Prim, long double (*)(long double)> functions[] = {
      {Prim::exp, [](long double a) { return std::exp(a); }},
      {Prim::log, [](long double a) { return std::log(a); }},
      {Prim::sqrt, [](long double a) { return std::sqrt(a); }},
      {Prim::rsqrt, [](long double a) { return 1 / std::sqrt(a); }},
      {Prim::tanh, [](long double a) { return std::tanh(a); }},
      {Prim::sigmoid, [](long double a) { return 1 / (1 + std::exp(-a)); }}};
  for (const auto& [prim, function] : functions) {
    const std::vector<T> y = apply(prim, dtype, x);
    double worst = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const T want = static_cast<T>(function(x[i]));
      if (std::isnan(want)) {
        EXPECT_TRUE(std::isnan(y[i])) << int(prim) << " of " << x[i] << " is " << y[i];
      } else if (std::isinf(want) || want == 0) {
        EXPECT_EQ(y[i], want) << int(prim) << " of " << x[i];
        EXPECT_EQ(std::signbit(y[i]), std::signbit(want)) << int(prim) << " of " << x[i];
      } else {
        const T floor = std::numeric_limits<T>::min() * T(1e-2);  // subnormal results may lose digits
        const double error = double(std::fabs(y[i] - want) / std::max(std::fabs(want), floor));
        worst = std::max(worst, error);
        EXPECT_LE(error, relative) << int(prim) << " of " << x[i] << " is " << y[i] << ", not " << want;
      }
    }
    testing::Test::RecordProperty("worst_" + std::to_string(int(prim)), std::to_string(worst));
  }
}

TEST(CpuFunctions, AreAccurateInF32) { check_functions<float>(f32, 1e-6); }
TEST(CpuFunctions, AreAccurateInF64) { check_functions<double>(f64, 1e-14); }

TEST(CpuFunctions, MinimumAndMaximumGiveNanIfEitherIs) {
  Group group;
  group.extents = {20};
  group.loads = {{f32, {1}}, {f32, {1}}};
  const Scalar a = make_input(&group.expr, 0, f32), b = make_input(&group.expr, 1, f32);
  group.outputs = {{f32, minimum(a, b).id(), 0, Combine::none, {1}}, {f32, maximum(a, b).id(), 0, Combine::none, {1}}};
  std::vector<float> x(20, 1), y(20, 2), low(20), high(20);
  for (int i = 0; i < 20; i += 3) x[i] = NAN;
  for (int i = 1; i < 20; i += 3) y[i] = NAN;
  void* operands[] = {x.data(), y.data(), low.data(), high.data()};
  CpuGroupKernel(group).run(operands);
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(std::isnan(low[i]), i % 3 != 2);
    EXPECT_EQ(std::isnan(high[i]), i % 3 != 2);
  }
}

}  // namespace
}  // namespace paoding
