// SPDX-License-Identifier: Apache-2.0
// Fused routines beside the tile interpreter on the same lists: the same bits, and not a byte beyond the tile.
#include "cpu/fused_routine.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "scalar/primitive.h"

namespace paoding {
namespace {

using Kind = Meaning::Kind;

constexpr std::int64_t kMost = 96;  // elements of a tile
constexpr std::size_t kSlots = 24;
constexpr std::uint16_t kNumber = 20;  // slots from here on hold one element

// Memory for every slot, filled with values that functions find hard; a check shows that memory after a tile is
// untouched.
class Tiles {
 public:
  explicit Tiles(DType compute) : memory_(kSlots, std::vector<std::uint64_t>(kMost + 16)) {
    const std::vector<double> hard = {0.0,    -0.0,  1.0,  -1.0,   0.3,      -2.5,      88.9, -103.5, 200.0,
                                      -200.0, 1e-40, 1e30, -1e-30, INFINITY, -INFINITY, NAN,  0.92,   1e-4};
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      for (std::size_t i = 0; i < memory_[slot].size() * (compute == f64 ? 1 : 2); ++i) {
        const double value = i % 3 == 0 ? hard[(i / 3 + slot * 5) % hard.size()] : std::sin(double(i * 7 + slot)) * 4;
        if (compute == f64) {
          reinterpret_cast<double*>(memory_[slot].data())[i] = value;
        } else {
          reinterpret_cast<float*>(memory_[slot].data())[i] = static_cast<float>(value);
        }
      }
    }
    for (auto& memory : memory_) pointers_.push_back(reinterpret_cast<char*>(memory.data()));
  }

  void make_bools(std::size_t slot) {
    for (std::size_t i = 0; i < kMost; ++i) pointers_[slot][i] = (i * 7 + slot) % 3 == 0;
  }
  char* const* pointers() const { return pointers_.data(); }
  char*& pointer(std::size_t slot) { return pointers_[slot]; }
  const std::vector<std::vector<std::uint64_t>>& memory() const { return memory_; }

 private:
  std::vector<std::vector<std::uint64_t>> memory_;
  std::vector<char*> pointers_;
};

Instruction made(Meaning meaning, TileRoutine routine, std::uint16_t out, std::uint16_t a, std::uint16_t b = 0,
                 std::uint16_t c = 0) {
  Instruction instruction;
  instruction.routine = routine;
  instruction.meaning = meaning;
  instruction.out = out;
  instruction.a = a;
  instruction.b = b;
  instruction.c = c;
  instruction.one_row = true;
  return instruction;
}

Instruction prim(Prim p, DType compute, std::uint16_t out, std::uint16_t a, std::uint16_t b, std::uint16_t c = 0,
                 unsigned scalar_args = 0) {
  return made({.kind = Kind::prim, .prim = p, .compute = compute, .scalar_args = scalar_args},
              find_routine(p, compute, scalar_args), out, a, b, c);
}

Instruction load(DType stored, DType compute, std::uint16_t out, std::uint16_t a) {
  return made({.kind = Kind::load, .compute = compute, .stored = stored}, find_load(stored, Spacing::dense), out, a);
}
Instruction store(DType stored, DType compute, std::uint16_t out, std::uint16_t a) {
  return made({.kind = Kind::store, .compute = compute, .stored = stored}, find_store(stored, Spacing::dense, false),
              out, a);
}
Instruction sum(Combine combine, DType compute, std::uint16_t out, std::uint16_t a, bool of_columns) {
  Instruction instruction = made({.kind = Kind::accumulate, .combine = combine, .compute = compute},
                                 find_accumulate(combine, compute), out, a);
  instruction.one_row = false;
  instruction.rows_reduced = true;
  instruction.cols_reduced = !of_columns;
  instruction.pitch = of_columns ? kMost : 0;
  return instruction;
}

// Equal, or NaN both: which one of several NaNs comes through is left open. Words of two floats or of one double.
template <class T>
bool is_same(std::uint64_t a, std::uint64_t b, double tolerance) {
  constexpr std::size_t kCount = 8 / sizeof(T);
  T x[kCount], y[kCount];
  std::memcpy(x, &a, 8), std::memcpy(y, &b, 8);
  for (std::size_t i = 0; i < kCount; ++i) {
    const bool is_equal = std::memcmp(&x[i], &y[i], sizeof(T)) == 0 || (std::isnan(x[i]) && std::isnan(y[i]));
    const bool is_near = tolerance > 0 && std::abs(x[i] - y[i]) <= tolerance * (1 + std::abs(x[i]));
    if (!is_equal && !is_near) return false;
  }
  return true;
}

// Runs the list as it is and fused, for tiles of many lengths. Every list becomes a single routine.
void expect_same(const std::vector<Instruction>& list, const Tiles& tiles, double tolerance = 0) {
  std::vector<Instruction> fused = list;
  std::vector<std::shared_ptr<const FusedCode>> code;
  fuse_instructions({kSlots, {}}, true, &fused, &code);
  ASSERT_EQ(fused.size(), 1u);
  for (const std::int64_t length : {1, 7, 8, 15, 16, 17, 31, 33, 64, 65, 95, 96}) {
    Tiles expected = tiles, given = tiles;
    std::vector<char*> pointers[2];
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      // Slots without memory of their own hold index values.
      const bool is_own = tiles.pointers()[slot] == reinterpret_cast<const char*>(tiles.memory()[slot].data());
      for (int k = 0; k < 2; ++k) {
        const auto& memory = (k ? given : expected).memory()[slot];
        pointers[k].push_back(is_own ? const_cast<char*>(reinterpret_cast<const char*>(memory.data()))
                                     : tiles.pointers()[slot]);
      }
    }
    const TileShape shape{1, length};
    for (const Instruction& instruction : list) instruction.routine(instruction, pointers[0].data(), shape);
    fused[0].routine(fused[0], pointers[1].data(), shape);
    for (std::size_t slot = 0; slot < kSlots; ++slot) {
      for (std::size_t i = 0; i < kMost + 16; ++i) {
        const std::uint64_t a = expected.memory()[slot][i], b = given.memory()[slot][i];
        ASSERT_TRUE(a == b || is_same<float>(a, b, 0) || is_same<double>(a, b, tolerance))
            << "slot " << slot << " word " << i << " length " << length << std::hex << ": " << a << ", " << b;
      }
    }
  }
}

// Runs in AVX-512 and in AVX2, and compares with the interpreter's routines of the same.
class FusedRoutine : public testing::TestWithParam<VectorIsa> {
 protected:
  void SetUp() override {
    hwy::SetSupportedTargetsForTest(0);
    const std::int64_t target = GetParam() == VectorIsa::avx512 ? HWY_AVX3 : HWY_AVX2;
    if ((hwy::SupportedTargets() & target) != 0) hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().DeInit();
    if (fused_isa() != GetParam()) GTEST_SKIP() << "NOT CHECKED: needs a CPU with these instructions";
  }
  void TearDown() override {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
    fused_isa();  // before anything else makes Highway choose again
  }
};
INSTANTIATE_TEST_SUITE_P(Isa, FusedRoutine, testing::Values(VectorIsa::avx512, VectorIsa::avx2),
                         [](const auto& info) { return info.param == VectorIsa::avx512 ? "Avx512" : "Avx2"; });

constexpr Prim kUnary[] = {Prim::neg,   Prim::abs, Prim::floor, Prim::ceil, Prim::round,   Prim::trunc, Prim::sqrt,
                           Prim::rsqrt, Prim::exp, Prim::expm1, Prim::tanh, Prim::sigmoid, Prim::erf};
constexpr Prim kBinary[] = {Prim::add, Prim::sub, Prim::mul, Prim::div, Prim::minimum, Prim::maximum};
constexpr Prim kCompare[] = {Prim::less, Prim::less_equal, Prim::equal};

TEST_P(FusedRoutine, GivesTheBitsOfEveryFunction) {
  for (const DType dtype : {f32, f64}) {
    for (const Prim p : kUnary) {
      if (dtype == f64 && p >= Prim::exp && p != Prim::sqrt && p != Prim::rsqrt) continue;
      SCOPED_TRACE(std::string(primitive(p).name) + " " + std::string(to_string(dtype)));
      expect_same({prim(p, dtype, 5, 1, 1), prim(Prim::add, dtype, 6, 5, 2)}, Tiles(dtype));
    }
  }
}

TEST_P(FusedRoutine, GivesTheBitsOfArithmeticWithTilesAndSingleElements) {
  for (const DType dtype : {f32, f64}) {
    for (const Prim p : kBinary) {
      for (const unsigned scalar_args : {0u, 1u, 2u}) {
        SCOPED_TRACE(std::string(primitive(p).name) + " " + std::to_string(scalar_args));
        const std::uint16_t a = scalar_args == 1 ? kNumber : 1, b = scalar_args == 2 ? kNumber : 2;
        expect_same({prim(p, dtype, 5, a, b, 0, scalar_args), prim(Prim::neg, dtype, 6, 5, 5)}, Tiles(dtype));
      }
    }
  }
}

TEST_P(FusedRoutine, KeepsTruthInMasksAndWritesItAsBytes) {
  for (const DType dtype : {f32, f64}) {
    for (const Prim p : kCompare) {
      for (const unsigned scalar_args : {0u, 1u, 2u}) {
        for (const unsigned chosen : {0u, 2u, 4u, 6u}) {
          Tiles tiles(dtype);
          tiles.make_bools(7);
          const std::uint16_t a = scalar_args == 1 ? kNumber : 1, b = scalar_args == 2 ? kNumber : 2;
          const std::uint16_t yes = chosen & 2 ? kNumber + 1 : 3, no = chosen & 4 ? kNumber + 2 : 4;
          expect_same({prim(p, dtype, 8, a, b, 0, scalar_args), prim(Prim::logical_and, boolean, 9, 8, 7),
                       prim(Prim::logical_not, boolean, 10, 9, 9), prim(Prim::logical_or, boolean, 11, 10, 7),
                       prim(Prim::select, dtype, 5, 11, yes, no, chosen), store(boolean, boolean, 12, 11)},
                      tiles);
        }
      }
    }
  }
}

TEST_P(FusedRoutine, RoundsWhatIsStoredInHalfPrecision) {
  for (const DType stored : {DType::bf16, DType::f16}) {
    const Meaning convert{.kind = Kind::convert, .compute = f32, .stored = stored};
    expect_same({load(stored, f32, 5, 1), prim(Prim::mul, f32, 6, 5, 2), made(convert, find_convert(f32, stored), 7, 6),
                 store(stored, f32, 8, 6), prim(Prim::add, f32, 9, 7, 5)},
                Tiles(f32));
  }
}

TEST_P(FusedRoutine, PrefetchesMemoryFarAfterATileAndReadsNoneOfIt) {
  for (const DType stored : {DType::bf16, f32, f64}) {
    const Meaning ahead{.kind = Kind::prefetch, .compute = boolean, .stored = stored, .ahead = 1 << 30};
    expect_same({made(ahead, find_prefetch(), 1, 1), prim(Prim::add, f32, 5, 1, 2)}, Tiles(f32));
  }
}

TEST_P(FusedRoutine, CountsTruth) {
  Tiles tiles(f32);
  tiles.make_bools(7);
  const Meaning convert{.kind = Kind::convert, .compute = boolean, .stored = f32};
  expect_same({made(convert, find_convert(boolean, f32), 5, 7), prim(Prim::mul, f32, 6, 5, 1)}, tiles);
}

TEST_P(FusedRoutine, CombinesAllElementsAndEveryColumn) {
  for (const DType dtype : {f32, f64}) {
    for (const Combine combine : {Combine::sum, Combine::max, Combine::min}) {
      for (const bool of_columns : {false, true}) {
        Tiles tiles(f64);  // whose halves are floats of every size; a sum of those is none to compare
        auto* numbers = reinterpret_cast<double*>(tiles.pointer(1));
        for (int i = 0; i < kMost; ++i) {
          const double value = std::cos(i * 3.0);
          dtype == f64 ? numbers[i] = value : reinterpret_cast<float*>(numbers)[i] = static_cast<float>(value);
        }
        for (int i = 0; i < kMost; ++i) reinterpret_cast<double*>(tiles.pointer(9))[i] = i * 0.25 - 2;
        SCOPED_TRACE(std::to_string(static_cast<int>(combine)) + (of_columns ? " columns" : " all"));
        expect_same({prim(Prim::neg, dtype, 5, 1, 1), sum(combine, dtype, 9, 5, of_columns)}, tiles,
                    dtype == f32 ? 1e-6 : 1e-14);
      }
    }
  }
}

TEST_P(FusedRoutine, KeepsANaNInTheLargestAndTheSmallest) {
  for (const DType dtype : {f32, f64}) {
    for (const Combine combine : {Combine::max, Combine::min}) {
      for (int at = 0; at < 40; ++at) {
        Tiles tiles(dtype);
        for (int i = 0; i < kMost; ++i) {
          const double value = i == at ? std::nan("") : i;
          dtype == f64 ? reinterpret_cast<double*>(tiles.pointer(1))[i] = value
                       : reinterpret_cast<float*>(tiles.pointer(1))[i] = static_cast<float>(value);
        }
        *reinterpret_cast<double*>(tiles.pointer(9)) = 0;
        std::vector<Instruction> list = {prim(Prim::neg, dtype, 5, 1, 1), sum(combine, dtype, 9, 5, false)};
        std::vector<std::shared_ptr<const FusedCode>> code;
        fuse_instructions({kSlots, {}}, true, &list, &code);
        ASSERT_FALSE(code.empty());
        list[0].routine(list[0], tiles.pointers(), {1, 40});
        EXPECT_TRUE(std::isnan(*reinterpret_cast<double*>(tiles.pointer(9)))) << at;
      }
    }
  }
}

TEST_P(FusedRoutine, ComparesIndicesWithConstantsNearAndFar) {
  for (const DType dtype : {DType::i64, DType::i32}) {
    for (const Prim p : kCompare) {
      for (const unsigned scalar_args : {1u, 2u}) {
        for (const std::int64_t number : {-5, 0, 3, 17, 40, 95, 96, 2'000'000'000}) {
          Tiles tiles(f32);
          std::int64_t wide = number;
          auto narrow = static_cast<std::int32_t>(number);
          std::memcpy(tiles.pointer(kNumber), dtype == DType::i64 ? static_cast<void*>(&wide) : &narrow,
                      dtype == DType::i64 ? 8 : 4);
          tiles.pointer(13) = reinterpret_cast<char*>(std::intptr_t{2});  // the index of the first element
          Instruction index = made({.kind = Kind::index, .compute = dtype}, find_index(dtype), 5, 13);
          index.col_stride = 1;
          const std::uint16_t a = scalar_args == 1 ? kNumber : 5, b = scalar_args == 2 ? kNumber : 5;
          std::vector<Instruction> list = {index, prim(p, dtype, 6, a, b, 0, scalar_args),
                                           prim(Prim::select, f32, 8, 6, 1, 2)};
          std::vector<bool> registers(kSlots);
          registers[5] = true;
          std::vector<Instruction> fused = list;
          std::vector<std::shared_ptr<const FusedCode>> code;
          fuse_instructions({0, registers}, true, &fused, &code);
          ASSERT_EQ(fused.size(), 1u);
          fused[0].routine(fused[0], tiles.pointers(), {1, 90});
          const std::vector<float> given(reinterpret_cast<float*>(tiles.pointer(8)),
                                         reinterpret_cast<float*>(tiles.pointer(8)) + 90);
          for (const Instruction& instruction : list) instruction.routine(instruction, tiles.pointers(), {1, 90});
          EXPECT_EQ(std::memcmp(given.data(), tiles.pointer(8), 90 * 4), 0)
              << primitive(p).name << " " << scalar_args << " " << number;
        }
      }
    }
  }
}

TEST_P(FusedRoutine, UsesMoreConstantsThanThereAreRegisters) {
  std::vector<Instruction> list;
  for (int i = 0; i < 40; ++i) {
    list.push_back(prim(Prim::add, f32, 5, i == 0 ? 1 : 5, static_cast<std::uint16_t>(6 + i % 18), 0, 2));
  }
  expect_same(list, Tiles(f32));
}

TEST_P(FusedRoutine, LeavesARegisterOfBytesThatBecomesFloats) {
  Tiles tiles(f32);
  tiles.make_bools(7);
  const Meaning convert{.kind = Kind::convert, .compute = boolean, .stored = f32};
  std::vector<Instruction> list = {made(convert, find_convert(boolean, f32), 5, 7), prim(Prim::add, f32, 7, 5, 1)};
  std::vector<std::shared_ptr<const FusedCode>> code;
  fuse_instructions({kSlots, {}}, true, &list, &code);
  EXPECT_EQ(list.size(), 2u);
}

TEST_P(FusedRoutine, IsMadeOnceForEqualStretches) {
  std::vector<Instruction> first = {prim(Prim::add, f32, 5, 1, 2), prim(Prim::mul, f32, 6, 5, 3)}, second = first;
  std::vector<std::shared_ptr<const FusedCode>> code;
  fuse_instructions({kSlots, {}}, true, &first, &code);
  fuse_instructions({kSlots, {}}, true, &second, &code);
  ASSERT_EQ(code.size(), 2u);
  EXPECT_EQ(code[0], code[1]);
}

TEST_P(FusedRoutine, ComputesSingleElementsBeforeTheTilesThatNeedThem) {
  Instruction element = prim(Prim::neg, f32, kNumber + 2, kNumber, kNumber);
  element.one_col = true;
  std::vector<Instruction> list = {prim(Prim::add, f32, 5, 1, 2), element,
                                   prim(Prim::mul, f32, 6, 5, kNumber + 2, 0, 2)};
  std::vector<std::shared_ptr<const FusedCode>> code;
  fuse_instructions({7, {}}, true, &list, &code);
  ASSERT_EQ(list.size(), 2u);
  EXPECT_EQ(list[0].out, kNumber + 2);
}

}  // namespace
}  // namespace paoding
