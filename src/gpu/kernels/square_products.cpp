// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/square_products.h"

#include <fmt/format.h>

namespace paoding::gpu {

std::string square_products(DType dtype, int columns) {
  const int sums = columns / 2;
  const char* const type = dtype == DType::f32 ? "tf32" : dtype == DType::bf16 ? "bf16" : "f16";
  // Whether rows of an operand lie across K; of TF32 none do.
  const char *const transposed = dtype == DType::f32 ? "" : ", 0", *const both_transposed =
                                                                       dtype == DType::f32 ? "" : ", 0, 0";
  std::string places, operands;
  for (int i = 0; i < sums; ++i) {
    places += fmt::format("{}%{}", i == 0 ? "" : ", ", i);
    operands += fmt::format("{}\"+f\"(sum[{}])", i == 0 ? "" : ", ", i);
  }
  const std::string product = fmt::format("wgmma.mma_async.sync.aligned.m64n{}k{}.f32.{}.{} {{{}}}", columns,
                                          dtype == DType::f32 ? 8 : 16, type, type, places);
  return fmt::format(R"(
#ifdef PD_EMULATE
using emulation::Squares;
using emulation::squares_of;
using emulation::squares_at;
template <bool kAdds, class Left> PD_DEVICE void add_product(float (&sum)[{0}], const Left& left, Squares right) {{
  for (int i = 0; i < {0} && !kAdds; ++i) sum[i] = 0;
  emulation::add_square_product<4 / sizeof(Stored)>(sum, left, right, [](unsigned bits) -> float {{ return value_of<Stored>(bits); }});
}}
template <int kMostLeft = 0> PD_DEVICE void products_wait(float (&)[{0}]) {{ emulation::finish_square_products(kMostLeft); }}
#else
using Squares = unsigned long long;
PD_DEVICE Squares squares_of(const void* at, int along, int across) {{
  const unsigned low = (unsigned)(along >> 4) << 16 | (shared_address(at) >> 4 & 0x3fff);
  return (unsigned long long)(across >> 4) << 32 | __shfl_sync(~0u, low, 0);  // which shows that it is the warp's
}}
// So many times 16 bytes further on.
PD_DEVICE Squares squares_at(Squares squares, int pieces) {{ return squares + pieces; }}
template <bool kAdds> PD_DEVICE void add_product(float (&sum)[{0}], const unsigned (&words)[4], Squares right) {{
  asm volatile("{1}, {{%{2}, %{3}, %{4}, %{5}}}, %{6}, %{10}, 1, 1{7};"
               : {9}
               : "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "l"(right), "n"(kAdds ? 1 : 0));
}}
template <bool kAdds> PD_DEVICE void add_product(float (&sum)[{0}], Squares left, Squares right) {{
  asm volatile("{1}, %{2}, %{3}, %{4}, 1, 1{8};" : {9} : "l"(left), "l"(right), "n"(kAdds ? 1 : 0));
}}
template <int kMostLeft = 0> PD_DEVICE void products_wait(float (&sum)[{0}]) {{
  asm volatile("wgmma.wait_group.sync.aligned %{2};" : {9} : "n"(kMostLeft) : "memory");
}}
#endif
)",
                     sums, product, sums, sums + 1, sums + 2, sums + 3, sums + 4, transposed, both_transposed, operands,
                     sums + 5);
}

}  // namespace paoding::gpu
