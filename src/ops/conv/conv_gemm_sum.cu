// SPDX-License-Identifier: Apache-2.0
// The parts of a convolution's gradient for its weights, [part, o, tap, channel], and of what its bias gets, [part, o]
// behind that, added up in their order and put where they lie.
template <class T, class Bias> PD_DEVICE void add_parts(const float* partial, T* out, Bias* of_bias, const Sizes& size) {
  constexpr int kWidth = 32;
  __shared__ float shared[kThreads];
  int rest = blockIdx.x * kWidth + threadIdx.x % kWidth;
  const float sum = combine_parts<Sum, kThreads>(partial + rest, size.parts, size.elements, rest < size.elements, kWidth,
                                                 shared);
  if (threadIdx.x >= kWidth || rest >= size.elements) return;
  if constexpr (kHasBiasGradient) {
    if (rest >= size.of_weights) return store_one(of_bias + (rest - size.of_weights) * size.bias, sum);
  }
  const int c = next_coordinate(rest, size.channels), l = next_coordinate(rest, size.kernel_columns);
  const int k = next_coordinate(rest, size.kernel_rows);
  store_one(out + (rest * size.weight_n + c * size.weight_c + k * size.weight_h + l * size.weight_w), sum);
}
