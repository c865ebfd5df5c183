// SPDX-License-Identifier: Apache-2.0
// Primitives of kernels whose warps multiply on their own, from compute capability 8 on: copies into shared memory that
// go on beside other work, and products of 16 by 8 tiles. T is how factors are stored: float, whose products are of
// factors rounded to TF32, F16 or BF16; sums are f32. A warp's lane has words of k and of k + 4 of rows g = lane / 4
// and g + 8, with k = lane % 4 and 4 or 2 bytes an element; of the sums it has columns 2 k and 2 k + 1.

#ifdef PD_EMULATE
using emulation::copies_end_group;
using emulation::copies_wait;
using emulation::copy_beside;
using emulation::load_squares;
using emulation::load_transposed;
using emulation::round_to_tf32;
template <class T> PD_DEVICE void add_tile(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  emulation::add_tile<4 / sizeof(T)>(sum, a, b, [](unsigned bits) { return value_of<T>(bits); });
}
#else
PD_DEVICE unsigned address_in_shared(const void* at) { return (unsigned)__cvta_generic_to_shared(at); }
// kBytes (4, 8 or 16) from `from` to shared memory; zeros where !is_there. It is there when its group has been waited
// for.
template <int kBytes> PD_DEVICE void copy_beside(void* to, const void* from, bool is_there) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address_in_shared(to)), "l"(from), "n"(kBytes),
               "r"(is_there ? kBytes : 0)
               : "memory");
}
// The copies that this thread has begun since the last call become a group.
PD_DEVICE void copies_end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most kGroups of this thread's groups are under way.
template <int kGroups> PD_DEVICE void copies_wait() { asm volatile("cp.async.wait_group %0;" ::"n"(kGroups) : "memory"); }

// Rounds to the nearest TF32; NaN stays NaN. (The tensor cores would cut off.)
PD_DEVICE unsigned round_to_tf32(unsigned word) {
  unsigned rounded;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(rounded) : "f"(__uint_as_float(word)));
  return rounded;
}
template <class T> PD_DEVICE void add_tile(float (&sum)[4], const unsigned (&a)[4], const unsigned (&b)[2]) {
  if constexpr (kSame<T, float>) {
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else if constexpr (kSame<T, F16>) {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  } else {
    asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
                 : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
  }
}
// Squares of 8 rows of 16 bytes: lane i says where row i % 8 of square i / 8 lies, and gets word k of row g of each.
PD_DEVICE void load_squares(unsigned (&words)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address_in_shared(row))
               : "memory");
}
PD_DEVICE void load_squares(unsigned (&words)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(words[0]), "=r"(words[1])
               : "r"(address_in_shared(row))
               : "memory");
}
// The same of 8 elements of 16 bits a row, transposed: the elements 2 k and 2 k + 1 of column g.
PD_DEVICE void load_transposed(unsigned (&words)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(address_in_shared(row))
               : "memory");
}
PD_DEVICE void load_transposed(unsigned (&words)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(words[0]), "=r"(words[1])
               : "r"(address_in_shared(row))
               : "memory");
}
#endif
