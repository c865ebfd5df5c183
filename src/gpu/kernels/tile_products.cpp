// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/tile_products.h"

#include <fmt/format.h>

namespace paoding::gpu {
namespace {

// %0, %1, .. of so many: where an instruction has its sums; and "+f"(sum[0]), .. for them.
std::string sum_places(int count) {
  std::string list;
  for (int i = 0; i < count; ++i) list += fmt::format("{}%{}", i == 0 ? "" : ", ", i);
  return list;
}
std::string sum_operands(int count) {
  std::string list;
  for (int i = 0; i < count; ++i) list += fmt::format("{}\"+f\"(sum[{}])", i == 0 ? "" : ", ", i);
  return list;
}

constexpr int kInPiece = 8, kInRow = 64;  // elements of 16 bytes, and of a row

}  // namespace

std::string tile_text() {
  return R"(
#ifdef PD_EMULATE
using Tile = const Stored*;
PD_DEVICE Tile tile_at(const Stored* at) { return at; }
PD_DEVICE Tile tile_beyond(Tile tile, int elements) { return tile + elements; }
PD_DEVICE int tile_distance(Tile from, Tile to) { return (int)(to - from) / 8; }
template <class Value> PD_DEVICE void work_out(Value&) {}
#else
using Tile = unsigned;
PD_DEVICE Tile tile_at(const Stored* at) { return __shfl_sync(~0u, shared_address(at) >> 4 & 0x3fff, 0); }
PD_DEVICE Tile tile_beyond(Tile tile, int elements) { return tile + elements / 8; }
PD_DEVICE int tile_distance(Tile from, Tile to) { return (int)(to - from); }
// Values are worked out before this, and so beside products that are waited for after it, in place of where they are
// used.
PD_DEVICE void work_out(float& value) { asm volatile("" : "+f"(value)); }
PD_DEVICE void work_out(unsigned& value) { asm volatile("" : "+r"(value)); }
template <class Value, int kCount> PD_DEVICE void work_out(Value (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) work_out(values[i]);
}
// Rows of 128 bytes whose pieces change places, 1024 bytes from 8 rows to the next 8; so many 16 bytes to the next 64
// elements of rows that lie across K.
PD_DEVICE unsigned long long described_tile(Tile tile, unsigned apart) {
  return (unsigned long long)(1u << 30 | 64u) << 32 | (tile | apart << 16);
}
#endif
)";
}

std::string product_text(const TileProduct& product) {
  const int sums = product.columns / 2;
  const bool has_words = product.a_rows == 0, is_apart = product.b_rows == 0;
  const char* const type = product.dtype == DType::bf16 ? "bf16" : "f16";
  // 16 k's further on: rows further down, or elements of the same rows, then of those behind the TMA tile.
  const auto along = [](const char* tile, int rows) {
    return fmt::format("described_tile({} + step / 4 * {} + step % 4 * 2, 1)", tile, rows * kInRow / kInPiece);
  };
  const std::string b = product.is_b_across ? fmt::format("described_tile(b + step * {}, {})", 16 * kInRow / kInPiece,
                                                          is_apart ? "(unsigned)apart"
                                                                   : std::to_string(product.b_rows * kInRow / kInPiece))
                                            : along("b", product.b_rows);
  const std::string left = has_words ? fmt::format("{{%{}, %{}, %{}, %{}}}", sums + 2, sums + 3, sums + 4, sums + 5)
                                     : fmt::format("%{}", sums + 2);
  const std::string inputs = has_words ? std::string(R"("r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]))")
                                       : fmt::format("\"l\"({})", along("a", product.a_rows));
  return fmt::format(R"(
#ifdef PD_EMULATE
PD_DEVICE void {0}(float (&sum)[{1}], {2}, Tile b, int step, bool adds{16}) {{
  emulation::add_tile_product(sum, a, {3}, b, {4}, {5}, step, adds, [](unsigned bits) -> float {{ return value_of<Stored>(bits); }});
}}
#else
PD_DEVICE void {0}(float (&sum)[{1}], {2}, Tile b, int step, bool adds{16}) {{
  asm volatile("{{\n.reg .pred p;\nsetp.ne.b32 p, %{1}, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n{6}k16.f32.{7}.{7} {{{8}}}, {9}, %{10}, p, 1, 1{11}, {12};\n}}"
               : {13}
               : "r"(adds ? 1 : 0), "l"({14}), {15});
}}
#endif
)",
                     product.name, sums, has_words ? "const unsigned (&a)[4]" : "Tile a", product.a_rows,
                     is_apart ? fmt::format("apart / {}", kInRow / kInPiece) : std::to_string(product.b_rows),
                     product.is_b_across, product.columns, type, sum_places(sums), left, sums + 1,
                     has_words ? "" : ", 0", product.is_b_across ? 1 : 0, sum_operands(sums), b, inputs,
                     is_apart ? ", int apart" : "");
}

std::string sums_text(int sums) {
  return fmt::format(R"(
#ifdef PD_EMULATE
template <int kLeft> PD_DEVICE void sums_wait(float (&)[{0}]) {{ emulation::finish_wgmma_products(kLeft); }}
#else
template <int kLeft> PD_DEVICE void sums_wait(float (&sum)[{0}]) {{
  asm volatile("wgmma.wait_group.sync.aligned %{0};" : {1} : "n"(kLeft) : "memory");
}}
#endif
)",
                     sums, sum_operands(sums));
}

}  // namespace paoding::gpu
