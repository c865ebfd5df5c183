// SPDX-License-Identifier: Apache-2.0
#include "gpu/box_products.h"

#include <fmt/format.h>

namespace paoding::gpu {

std::string box_products(DType dtype, int columns, bool is_across, std::array<int, 2> pitches) {
  const int sums = columns / 2;
  const char* const type = dtype == DType::bf16 ? "bf16" : "f16";
  std::string places, operands;
  for (int i = 0; i < sums; ++i) {
    places += fmt::format("{}%{}", i == 0 ? "" : ", ", i);
    operands += fmt::format("{}\"+f\"(sum[{}])", i == 0 ? "" : ", ", i);
  }
  return fmt::format(R"(
#ifdef PD_EMULATE
PD_DEVICE void add_product(float (&sum)[{0}], const Stored* a, const Stored* b, int step) {{
  emulation::add_box_product<{6}>(sum, a, b, step, [](unsigned bits) -> float {{ return value_of<Stored>(bits); }}, {8}, {9});
}}
PD_DEVICE void products_wait(float (&)[{0}]) {{ emulation::finish_box_products(0); }}
#else
PD_DEVICE void add_product(float (&sum)[{0}], const Stored* a, const Stored* b, int step) {{
  asm volatile("wgmma.mma_async.sync.aligned.m64n{1}k16.f32.{2}.{2} {{{3}}}, %{0}, %{4}, 1, 1, 1, {5}, {5};"
               : {7}
               : "l"(box_descriptor<{6}>(a, step, {8})), "l"(box_descriptor<{6}>(b, step, {9})));
}}
PD_DEVICE void products_wait(float (&sum)[{0}]) {{
  asm volatile("wgmma.wait_group.sync.aligned 0;" : {7} : : "memory");
}}
#endif
)",
                     sums, columns, type, places, sums + 1, is_across ? 1 : 0, is_across, operands, pitches[0],
                     pitches[1]);
}

}  // namespace paoding::gpu
