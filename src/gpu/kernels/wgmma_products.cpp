// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/wgmma_products.h"

#include <fmt/format.h>

#include <algorithm>

namespace paoding::gpu {

namespace {

// "+f"(sum[first]), .. of so many.
std::string operands_of(int first, int count) {
  std::string list;
  for (int i = 0; i < count; ++i) list += fmt::format("{}\"+f\"(sum[{}])", i == 0 ? "" : ", ", first + i);
  return list;
}

// %0, %1, .. of so many: where an instruction has its sums.
std::string places_of(int count) {
  std::string list;
  for (int i = 0; i < count; ++i) list += fmt::format("{}%{}", i == 0 ? "" : ", ", i);
  return list;
}

const char* type_of(DType dtype) { return dtype == DType::bf16 ? "bf16" : "f16"; }

}  // namespace

std::string wgmma_products(DType dtype, int columns, std::array<bool, 2> is_across, std::array<int, 2> pitches,
                           int at_once) {
  const int sums = columns / 2, width = std::min(columns, at_once), of_width = width / 2;
  std::string products;
  for (int first = 0; first < columns; first += width) {
    const std::string tile = first == 0 ? "b" : fmt::format("b + {}", first * 64);
    products += fmt::format(R"(
  asm volatile("wgmma.mma_async.sync.aligned.m64n{0}k16.f32.{1}.{1} {{{2}}}, %{3}, %{4}, 1, 1, 1, {5}, {6};"
               : {7}
               : "l"(tile_descriptor<{8}>(a, step, {10})), "l"(tile_descriptor<{9}>({12}, step, {11})));)",
                            width, type_of(dtype), places_of(of_width), of_width, of_width + 1, is_across[0] ? 1 : 0,
                            is_across[1] ? 1 : 0, operands_of(first / 2, of_width), is_across[0], is_across[1],
                            pitches[0], pitches[1], tile);
  }
  return fmt::format(R"(
#ifdef PD_EMULATE
PD_DEVICE void add_product(float (&sum)[{0}], const Stored* a, const Stored* b, int step) {{
  emulation::add_wgmma_product<{1}, {2}>(sum, a, b, step, [](unsigned bits) -> float {{ return value_of<Stored>(bits); }}, {3}, {4});
}}
PD_DEVICE void products_wait(float (&)[{0}]) {{ emulation::finish_wgmma_products(0); }}
#else
PD_DEVICE void add_product(float (&sum)[{0}], const Stored* a, const Stored* b, int step) {{{5}
}}
PD_DEVICE void products_wait(float (&sum)[{0}]) {{
  asm volatile("wgmma.wait_group.sync.aligned 0;" : {6} : : "memory");
}}
#endif
)",
                     sums, is_across[0], is_across[1], pitches[0], pitches[1], products, operands_of(0, sums));
}

std::string row_products(DType dtype, int columns) {
  return fmt::format(R"(
#ifdef PD_EMULATE
PD_DEVICE void add_row_product(float (&sum)[{0}], const Stored* a, const Stored* next, const Stored* b, int step) {{
  emulation::add_row_product(sum, a, next, b, step, [](unsigned bits) -> float {{ return value_of<Stored>(bits); }});
}}
#else
PD_DEVICE void add_row_product(float (&sum)[{0}], const Stored* a, const Stored* next, const Stored* b, int step) {{
  asm volatile("wgmma.mma_async.sync.aligned.m64n{1}k16.f32.{2}.{2} {{{3}}}, %{0}, %{4}, 1, 1, 1, 0, 0;"
               : {5}
               : "l"(rows_descriptor(a, next)), "l"(tile_descriptor<false>(b, step, 8)));
}}
#endif
)",
                     columns / 2, columns, type_of(dtype), places_of(columns / 2), columns / 2 + 1,
                     operands_of(0, columns / 2));
}

std::string row_sums(DType dtype, int columns) {
  return fmt::format(R"(
#ifdef PD_EMULATE
PD_DEVICE void add_rows_product(float (&sum)[{0}], const Stored* a, const Stored* b, int step) {{
  emulation::add_rows_product(sum, a, b, step, [](unsigned bits) -> float {{ return value_of<Stored>(bits); }});
}}
PD_DEVICE void rows_wait(float (&)[{0}]) {{ emulation::finish_wgmma_products(0); }}
#else
PD_DEVICE void add_rows_product(float (&sum)[{0}], const Stored* a, const Stored* b, int step) {{
  asm volatile("wgmma.mma_async.sync.aligned.m64n{1}k16.f32.{2}.{2} {{{3}}}, %{0}, %{4}, 1, 1, 1, 1, 1;"
               : {5}
               : "l"(tile_descriptor<true>(a, step, 8)), "l"(row_columns_descriptor(b)));
}}
PD_DEVICE void rows_wait(float (&sum)[{0}]) {{
  asm volatile("wgmma.wait_group.sync.aligned 0;" : {5} : : "memory");
}}
#endif
)",
                     columns / 2, columns, type_of(dtype), places_of(columns / 2), columns / 2 + 1,
                     operands_of(0, columns / 2));
}

}  // namespace paoding::gpu
