// SPDX-License-Identifier: Apache-2.0
template <class T>
PD_DEVICE void convolve(const T* y, const T* w, T* x, const Window& vertical, const Window& horizontal,
                        const Sizes& size) {
  const Index at = (Index)blockIdx.x * kThreads + threadIdx.x;
  if (at >= size.total) return;
  const Place p = place_of(at, size);
  const Index group = p.c / size.group_channels, c = p.c - group * size.group_channels;
  Compute<T> sum = 0;
  for (Index o = group * size.group_outputs; o < (group + 1) * size.group_outputs; ++o) {
    for (Index k = 0; k < vertical.kernel; ++k) {
      const Index i = window_of(vertical, p.h, k);
      if (i < 0) continue;
      const T* const from = y + (p.n * size.y_n + o * size.y_c + i * size.y_h);
      const T* const weights = w + (o * size.w_n + c * size.w_c + k * size.w_h);
      for (Index l = 0; l < horizontal.kernel; ++l) {
        const Index j = window_of(horizontal, p.w, l);
        if (j >= 0) sum += load_one<true>(from + j * size.y_w) * load_one<true>(weights + l * size.w_w);
      }
    }
  }
  store_one(x + (p.n * size.x_n + p.c * size.x_c + p.h * size.x_h + p.w * size.x_w), sum);
}
