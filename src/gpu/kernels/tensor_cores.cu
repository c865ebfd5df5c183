// SPDX-License-Identifier: Apache-2.0
// Primitives of matrix product kernels: tiles of an operand that TMA loads into shared memory, products of a group of
// four warps, the shared memory of the other CTAs of a cluster. Stands after exchange.cu; code that is generated for a
// number of sums stands after it.

#ifdef PD_EMULATE
using emulation::TmaTile;
using emulation::tma_tile_of;
using emulation::tma_load;
using emulation::bring_patch;
using emulation::bring_windows;
using emulation::fence_for_copies;
using emulation::fetch_map;
using emulation::give_registers;
using emulation::keep;
using emulation::load_remote;
using emulation::mbarrier_try_wait_cta;
using emulation::products_begin;
using emulation::products_start;
using emulation::products_wait_but_one;
using emulation::shared_address;
using emulation::take_registers;
#else
// The TMA tile of `map` at column x and row y comes to `to`, 1024 bytes aligned, and its bytes are counted in the
// mbarrier.
template <class T> PD_DEVICE void tma_load(T* to, const Map& map, int x, int y, unsigned long long* mbarrier) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(
          shared_address(to)),
      "l"(&map), "r"(x), "r"(y), "r"(shared_address(mbarrier))
      : "memory");
}
// The same of an operand of three axes.
template <class T>
PD_DEVICE void tma_load(T* to, const Map& map, int x, int y, int z, unsigned long long* mbarrier) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4}], [%5];" ::"r"(
          shared_address(to)),
      "l"(&map), "r"(x), "r"(y), "r"(z), "r"(shared_address(mbarrier))
      : "memory");
}
// Loads the channels from `channel` on that tap (tap_row, tap_column) reads in windows of `map`, the first of which
// begins at (row, column) of image `image`.
template <class T>
PD_DEVICE void bring_windows(T* to, const Map& map, int channel, int column, int row, int image, int tap_column,
                             int tap_row, unsigned long long* mbarrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.im2col.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], "
      "[%6], {%7, %8};" ::"r"(shared_address(to)),
      "l"(&map), "r"(channel), "r"(column), "r"(row), "r"(image), "r"(shared_address(mbarrier)),
      "h"((unsigned short)tap_column), "h"((unsigned short)tap_row)
      : "memory");
}
// The channels from `channel` on of pixels of image `image`, from (row, column) on, as many as the TMA tile has rows
// and columns.
template <class T>
PD_DEVICE void bring_patch(T* to, const Map& map, int channel, int column, int row, int image,
                           unsigned long long* mbarrier) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %5}], [%6];" ::
          "r"(shared_address(to)),
      "l"(&map), "r"(channel), "r"(column), "r"(row), "r"(image), "r"(shared_address(mbarrier))
      : "memory");
}
// Orders this thread's accesses to shared memory before those of copies that are asked for after the next barrier.
PD_DEVICE void fence_for_copies() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Prefetches the tensor map of an operand before it is used.
PD_DEVICE void fetch_map(const Map& map) { asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory"); }
// Orders earlier accesses to the registers of the following products (wgmma) before them.
PD_DEVICE void products_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
// Commits the products since the last call as one group, which runs asynchronously.
PD_DEVICE void products_start() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
// Waits until at most the last group of products is in flight.
PD_DEVICE void products_wait_but_one() { asm volatile("wgmma.wait_group.sync.aligned 1;" ::: "memory"); }
// Set the number of registers per thread from here on, for all threads of a warpgroup: give_registers() releases some
// to the CTA, and take_registers() waits for registers that other warpgroups release.
template <int kRegisters> PD_DEVICE void give_registers() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
template <int kRegisters> PD_DEVICE void take_registers() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kRegisters));
}
// A TMA tile whose rows lie along K, as the tensor cores want it described: 128 bytes a row, 1024 from 8 rows to the
// next 8. The low word says where it starts, and the next 8 words of its rows are 2 further on.
using TmaTile = unsigned;
PD_DEVICE TmaTile tma_tile_of(const float* at) { return (shared_address(at) >> 4 & 0x3fff) | 1u << 16; }
PD_DEVICE unsigned long long tile_descriptor(TmaTile tile, int step) {
  return (unsigned long long)(1u << 30 | 64u) << 32 | (tile + step * 2);
}
// Elements 16 `step` and up along K of a TMA tile of 16-bit elements: of rows that lie along K, or of rows of 64 that
// lie across it, one for every k, with the TMA tiles of the next 64 after 64 k's. Eight rows lie `pitch` rows after
// the eight before, and may begin at any row: which piece of 16 bytes is where follows from the address.
template <bool kIsAcross, class T> PD_DEVICE unsigned long long tile_descriptor(const T* tile, int step, unsigned pitch) {
  const unsigned start = shared_address(tile) >> 4 & 0x3fff;
  const unsigned low = kIsAcross ? start + step * pitch * 16 | 512u << 16 : start + step * 2 | 1u << 16;
  return (unsigned long long)(1u << 30 | pitch * 8) << 32 | low;
}
// Rows of 8 elements along K of 16 bits, 16 bytes a row, and of the next 8, not in TMA tiles.
template <class T> PD_DEVICE unsigned long long rows_descriptor(const T* rows, const T* next) {
  const unsigned start = shared_address(rows), apart = shared_address(next) - start;
  return 8ull << 32 | (apart >> 4 & 0x3fff) << 16 | (start >> 4 & 0x3fff);
}
// Rows of 8 columns, 16 bytes a row, one for every k; a row has the next 8 columns of the one before it.
template <class T> PD_DEVICE unsigned long long row_columns_descriptor(const T* rows) {
  return 1ull << 32 | 8u << 16 | (shared_address(rows) >> 4 & 0x3fff);
}
// For values that are worked out once: or the compiler does so again where it finds a register too dear.
PD_DEVICE void keep(int& value) { asm volatile("" : "+r"(value)); }
// Like mbarrier_try_wait, but only for threads of this CTA and TMA: others' stores are not waited for.
PD_DEVICE bool mbarrier_try_wait_cta(unsigned long long* mbarrier, unsigned parity) {
  unsigned is_over;
  asm volatile(
      "{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
      : "=r"(is_over) : "r"(shared_address(mbarrier)), "r"(parity) : "memory");
  return is_over != 0;
}
// Loads from the same address in the shared memory of CTA `rank` of the cluster.
PD_DEVICE float4 load_remote(const float* at, unsigned rank) {
  float4 value;
  asm volatile("ld.shared::cluster.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(value.x), "=f"(value.y), "=f"(value.z), "=f"(value.w)
               : "r"(address_in(shared_address(at), rank))
               : "memory");
  return value;
}
#endif

PD_DEVICE float4 operator+(float4 a, float4 b) { return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w}; }
