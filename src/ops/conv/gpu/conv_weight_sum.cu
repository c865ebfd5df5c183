// SPDX-License-Identifier: Apache-2.0
// The parts of a convolution's gradient for its weights, [part, o, tap, channel], and of that for its bias, [part, o]
// after them, added up in their order and put where they lie. Threads that are kWidth apart share an element.
template <class T, class Bias> PD_DEVICE void add_parts(const float* partial, T* out, Bias* of_bias, const Sizes& size) {
  __shared__ float shared[kThreads];
  int rest = blockIdx.x * kWidth + threadIdx.x % kWidth;
  const bool is_there = rest < size.elements, is_bias = kHasBiasGradient && rest >= size.of_weights;
  const int element = rest - size.of_weights;
  const int c = next_coordinate(rest, size.channels), tap = rest;
  const float sum =
      combine_parts<Sum, kThreads>(partial + (is_bias ? size.part_bias + element : tap * size.part_c + c), size.parts,
                                   size.part_wide, is_there, kWidth, shared);
  if (threadIdx.x >= kWidth || !is_there) return;
  if constexpr (kHasBiasGradient) {
    if (is_bias) return store_one(of_bias + element * size.bias, sum);
  }
  const int l = next_coordinate(rest, size.kernel_columns), k = next_coordinate(rest, size.kernel_rows);
  store_one(out + (rest * size.weight_n + c * size.weight_c + k * size.weight_h + l * size.weight_w), sum);
}
