// SPDX-License-Identifier: Apache-2.0
template <class T, class W>
PD_DEVICE void convolve(const T* x, const T* y, W* w, const Window& vertical, const Window& horizontal,
                        const Sizes& size) {
  __shared__ Compute<T> shared[kThreads / 32];
  Index rest = blockIdx.x;
  const Index l = next_coordinate(rest, size.kernel_width), k = next_coordinate(rest, size.kernel_height);
  const Index c = next_coordinate(rest, size.weight_channels), o = rest;
  const Index channel = o / size.group_outputs * size.group_channels + c;
  Compute<T> sum = 0;
  for (Index at = threadIdx.x; at < size.windows; at += kThreads) {
    Index n = at;
    const Index j = next_coordinate(n, size.output_width), i = next_coordinate(n, size.output_height);
    const Index h = element_of(vertical, i, k), v = element_of(horizontal, j, l);
    if (h < 0 || h >= vertical.size || v < 0 || v >= horizontal.size) continue;
    sum += load_one<true>(x + (n * size.x_n + channel * size.x_c + h * size.x_h + v * size.x_w)) *
           load_one<true>(y + (n * size.y_n + o * size.y_c + i * size.y_h + j * size.y_w));
  }
  sum = combine_threads<Sum, kThreads>(sum, shared);
  if (threadIdx.x == 0) store_one(w + (o * size.w_n + c * size.w_c + k * size.w_h + l * size.w_w), sum);
}
