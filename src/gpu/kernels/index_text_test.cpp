// SPDX-License-Identifier: Apache-2.0
// Kernels of gather and scatter_add, compiled by NVRTC and run on the CPU, against sums written down plainly.
#include "gpu/kernels/index_text.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "gpu/driver/nvrtc.h"
#include "tests/gpu/cuda_emulation/emulated_kernels.h"
#include "tests/support/case_share.h"

namespace paoding::gpu {
namespace {

enum class Kind { gather_rows, gather_elements, scatter_rows, scatter_sorted, scatter_elements };
constexpr Kind kKinds[] = {Kind::gather_rows, Kind::gather_elements, Kind::scatter_rows, Kind::scatter_sorted,
                           Kind::scatter_elements};

struct IndexCase {
  Kind kind;
  IndexShape shape;
  std::vector<TextLaunch> launches;

  const TextLaunch& plan() const { return launches.back(); }
  bool is_gather() const { return kind == Kind::gather_rows || kind == Kind::gather_elements; }
  bool is_rows() const { return kind != Kind::gather_elements && kind != Kind::scatter_elements; }
  std::int64_t from_rows() const { return is_gather() ? shape.range : shape.count; }
  std::int64_t to_rows() const { return is_gather() ? shape.count : shape.range; }
};

IndexCase make_case(Kind kind, DType dtype, DType index, Shape extents, std::int64_t pad = 0,
                    std::int64_t alignment = 256, std::int64_t padding = -1) {
  IndexCase made{kind, {}, {}};
  IndexShape& shape = made.shape;
  shape.dtype = dtype, shape.index_dtype = index;
  shape.outer = extents[0], shape.range = extents[1], shape.count = extents[2], shape.inner = extents[3];
  shape.from_middle = shape.inner + pad, shape.from_outer = shape.from_middle * made.from_rows();
  shape.to_middle = shape.inner + 2 * pad, shape.to_outer = shape.to_middle * made.to_rows();
  shape.from_alignment = alignment;
  shape.padding = padding;
  if (kind == Kind::scatter_sorted) {
    made.launches = plan_scatter_sorted(shape);
  } else {
    made.launches.push_back(kind == Kind::gather_rows       ? plan_gather_rows(shape)
                            : kind == Kind::gather_elements ? plan_gather_elements(shape)
                            : kind == Kind::scatter_rows    ? plan_scatter_rows(shape)
                                                            : plan_scatter_elements(shape));
  }
  return made;
}

const std::vector<IndexCase>& index_cases() {
  static const std::vector<IndexCase> made = [] {
    std::vector<IndexCase> index_cases;
    for (const DType dtype : {f32, bf16, f64, u8, i64}) {
      for (const Kind kind : kKinds) {
        const DType index = index_cases.size() % 2 ? i32 : i64;
        index_cases.push_back(make_case(kind, dtype, index, {1, 100, 37, 64}));
        index_cases.push_back(make_case(kind, dtype, index, {3, 7, 11, 5}, 1));
        index_cases.push_back(make_case(kind, dtype, index, {2, 5, 300, 1}));
        index_cases.push_back(make_case(kind, dtype, index, {1, 40, 9, 132}, 4, size_bytes(dtype)));
      }
    }
    index_cases.push_back(make_case(Kind::scatter_rows, f32, i64, {1, 33, 40000, 8}));  // several chunks of indices
    for (const DType dtype : {f32, bf16, f64, u8}) {  // rows that warps share, several chunks, several rows of a CTA
      index_cases.push_back(make_case(Kind::scatter_rows, dtype, i64, {1, 3, 700, 136}, 0, 256, 1));
      index_cases.push_back(make_case(Kind::scatter_rows, dtype, i32, {1, 700, 9000, 200}));
    }
    index_cases.push_back(make_case(Kind::scatter_rows, f32, i64, {40, 5, 2000, 520}));  // no more SMs than other CTAs
    for (const DType dtype : {f32, bf16}) {  // rows that parts of the list share, up to their last places
      for (const std::int64_t count : {64, 257, 2000}) {
        index_cases.push_back(
            make_case(Kind::scatter_sorted, dtype, i64, {2, 3, count, 136}, 0, 256, count % 2 ? 1 : -1));
      }
    }
    index_cases.push_back(make_case(Kind::scatter_rows, f16, i32, {2, 3, 0, 8}));  // nothing but zeros
    index_cases.push_back(make_case(Kind::scatter_elements, f16, i32, {2, 30, 100, 40}));
    keep_share(&index_cases, [](const IndexCase& c) {
      return fmt::format("{} {} {} {} {}", static_cast<int>(c.kind), to_string(c.shape.dtype), c.shape.range,
                         c.shape.count, c.shape.inner);
    });
    return index_cases;
  }();
  return made;
}

void check(const IndexCase& c, const EmulatedKernels& kernels, unsigned seed) {
  const IndexShape& s = c.shape;
  SCOPED_TRACE(c.plan().why + " " + std::string(to_string(s.dtype)) +
               fmt::format(" [{}, {}, {}, {}]", s.outer, s.range, s.count, s.inner));
  std::mt19937 rng(seed);
  const auto size = static_cast<std::size_t>(size_bytes(s.dtype)),
             index_size = static_cast<std::size_t>(size_bytes(s.index_dtype));
  const auto from_count = static_cast<std::size_t>(s.outer * s.from_outer),
             to_count = static_cast<std::size_t>(s.outer * s.to_outer);
  const auto indices = static_cast<std::size_t>(c.is_rows() ? s.count : s.outer * s.count * s.inner);
  const auto aligned = [](std::vector<char>& bytes, std::size_t count) {
    bytes.assign(count + 512, 0x7f);
    char* at = bytes.data();
    while (reinterpret_cast<std::uintptr_t>(at) % 256 != 0) ++at;
    return at;
  };
  std::vector<char> from_bytes, id_bytes, to_bytes, workspace_bytes;
  char* from = aligned(from_bytes, from_count * size + 256) + (s.from_alignment < 256 ? s.from_alignment : 0);
  char *ids = aligned(id_bytes, indices * index_size), *to = aligned(to_bytes, to_count * size);
  char* workspace = aligned(workspace_bytes, static_cast<std::size_t>(c.plan().workspace_bytes));
  for (std::size_t k = 0; k < from_count; ++k) {
    put(s.dtype, from + k * size,
        is_float(s.dtype) ? std::uniform_real_distribution<double>(-1, 1)(rng) : double(rng() % 100));
  }
  for (std::size_t k = 0; k < indices; ++k) {  // some out of range, many equal
    const std::int64_t id = rng() % 9 == 0 ? std::int64_t(rng() % 5) - 2 + (rng() % 2 ? s.range : 0)
                                           : std::int64_t(rng() % 3 == 0 ? 0 : rng() % static_cast<unsigned>(s.range));
    put(s.index_dtype, ids + k * index_size, double(id));
  }
  std::vector<double> want(to_count, NAN), terms(to_count, 0), lowest(to_count, 0), highest(to_count, 0);
  std::uint64_t first_wrong = ~std::uint64_t{0}, wrong_id = 0;
  const auto from_at = [&](std::int64_t o, std::int64_t m, std::int64_t i) {
    return get(s.dtype, from + static_cast<std::size_t>(o * s.from_outer + m * s.from_middle + i) * size);
  };
  const auto to_at = [&](std::int64_t o, std::int64_t m, std::int64_t i) {
    return static_cast<std::size_t>(o * s.to_outer + m * s.to_middle + i);
  };
  for (std::int64_t o = 0; o < s.outer; ++o) {
    for (std::int64_t i = 0; i < s.inner; ++i) {
      for (std::int64_t m = 0; m < c.to_rows(); ++m) want[to_at(o, m, i)] = 0;
      for (std::int64_t n = 0; n < s.count; ++n) {
        const std::int64_t place = c.is_rows() ? n : (o * s.count + n) * s.inner + i;
        const auto id =
            static_cast<std::int64_t>(get(s.index_dtype, ids + static_cast<std::size_t>(place) * index_size));
        if (id < 0 || id >= s.range) {
          if (static_cast<std::uint64_t>(place) < first_wrong) {
            first_wrong = static_cast<std::uint64_t>(place), wrong_id = static_cast<std::uint64_t>(id);
          }
          continue;
        }
        if (c.is_gather()) {
          want[to_at(o, n, i)] = from_at(o, id, i);
        } else if (id != s.padding) {
          const std::size_t at = to_at(o, id, i);
          want[at] += from_at(o, n, i);
          terms[at] += 1;
          lowest[at] = std::min(lowest[at], want[at]), highest[at] = std::max(highest[at], want[at]);
        }
      }
    }
  }
  if (c.plan().grid[0] == 0) return;
  std::vector<char> sorted_bytes;
  char* sorted = aligned(sorted_bytes, indices * index_size);
  std::vector<std::int64_t> places(indices);
  const auto id_at = [&](std::int64_t place) {
    return get(s.index_dtype, ids + static_cast<std::size_t>(place) * index_size);
  };
  std::iota(places.begin(), places.end(), 0);
  std::stable_sort(places.begin(), places.end(), [&](std::int64_t a, std::int64_t b) { return id_at(a) < id_at(b); });
  for (std::size_t k = 0; k < indices; ++k) put(s.index_dtype, sorted + k * index_size, id_at(places[k]));
  std::vector<unsigned> tickets(static_cast<std::size_t>(c.plan().ticket_count) + 1, 0);
  std::uint64_t fault_words[2];
  LaunchScratch scratch{workspace, tickets.data(), fault_words, nullptr};
  std::int64_t* places_at = places.data();
  std::vector<void*> arguments = {c.is_gather() ? &from : &ids, c.is_gather() ? &ids : &from, &to, &scratch, nullptr};
  if (c.kind == Kind::scatter_sorted) {
    arguments.insert(arguments.begin() + 1, {&sorted, &places_at});
  }
  for (int round = 0; round < 2; ++round) {
    fault_words[0] = fault_words[1] = ~std::uint64_t{0};
    for (const TextLaunch& each : c.launches) {
      const Launch launch = kernels.find(each.entry);
      ASSERT_NE(launch, nullptr) << kernels.log();
      std::vector<std::uint64_t> sizes = each.sizes;
      arguments.back() = sizes.data();
      std::vector<unsigned> order(each.grid[0]);
      std::iota(order.begin(), order.end(), 0u);
      std::shuffle(order.begin(), order.end(), rng);
      ASSERT_EQ(launch(arguments.data(), each.grid[0], each.block, order.data()), 0) << "deadlock";
    }
    for (const unsigned ticket : tickets) ASSERT_EQ(ticket, 0u);
    if (first_wrong == ~std::uint64_t{0}) {
      EXPECT_EQ(fault_words[0] & fault_words[1], ~std::uint64_t{0});
    } else {
      EXPECT_EQ(fault_words[0], first_wrong << 32 | (wrong_id & 0xffffffffu));
      EXPECT_EQ(fault_words[1], first_wrong << 32 | wrong_id >> 32);
    }
    for (std::size_t k = 0; k < to_count; ++k) {
      if (std::isnan(want[k])) continue;  // between rows
      double expected = want[k];
      if (!is_float(s.dtype)) {
        char wrapped[8];
        put(s.dtype, wrapped, expected);
        expected = get(s.dtype, wrapped);
      }
      // Updates are added in their order, in f64 or f32, in one chain or in parts: every partial sum is one of
      // neighbours, and so within the range of the sums from the beginning. Adding them rounds as often as there are
      // terms, here (in f64) as there, and storing the result once more.
      const double unit = s.dtype == f64 ? 2 * 0x1p-53 : 0x1p-24;
      const double stored = s.dtype == bf16 ? 0x1p-8 : s.dtype == f16 ? 0x1p-11 : 0;
      const bool is_exact = c.is_gather() || !is_float(s.dtype);
      const double most =
          is_exact ? 0 : stored * std::fabs(expected) + unit * terms[k] * (highest[k] - lowest[k]) * (1 + stored);
      ASSERT_NEAR(get(s.dtype, to + k * size), expected, most) << "element " << k << " in round " << round;
    }
  }
}

TEST(IndexText, FindsAndAddsTheRightRows) {
  std::vector<const TextLaunch*> plans;
  for (const IndexCase& c : index_cases()) {
    for (const TextLaunch& launch : c.launches) plans.push_back(&launch);
  }
  const EmulatedKernels kernels(plans);
  unsigned seed = 1;
  for (const IndexCase& c : index_cases()) {
    check(c, kernels, seed++);
    if (HasFailure()) return;
  }
}

TEST(IndexText, Compiles) {
  if (nvrtc() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << nvrtc_problem();
  for (const Kind kind : kKinds) {
    for (const DType dtype : {f32, bf16}) {
      for (const std::int64_t count : {30, 300}) {
        const IndexCase made = make_case(kind, dtype, i64, {1, 50000, count, 512});
        for (const TextLaunch& launch : made.launches) {
          EXPECT_FALSE(compile(launch.source, launch.entry + ".cu", "sm_90a").empty());
        }
      }
    }
  }
}

TEST(IndexText, DependsOnTheShapeClassOnly) {
  EXPECT_EQ(make_case(Kind::gather_rows, f32, i64, {1, 50, 30, 512}).plan().source,
            make_case(Kind::gather_rows, f32, i64, {2, 500, 31, 1024}).plan().source);
}

}  // namespace
}  // namespace paoding::gpu
