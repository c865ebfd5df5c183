// SPDX-License-Identifier: Apache-2.0
template <class T>
PD_DEVICE void convolve(const T* x, const T* w, const T* bias, const T* added, T* y, const Window& vertical,
                        const Window& horizontal, const Sizes& size) {
  const Index first = (Index)blockIdx.x * kThreads + threadIdx.x;
  if (first >= size.total) return;
  const Place p = place_of(first, size);
  const Index channel = p.c / size.group_outputs * size.group_channels;
  const Taps rows = taps_of(vertical, p.h), columns = taps_of(horizontal, p.w);
  Compute<T> sum = 0;
  for (Index c = 0; c < size.group_channels; ++c) {
    for (Index k = rows.first; k < rows.last; ++k) {
      const T* const from =
          x + (p.n * size.x_n + (channel + c) * size.x_c + element_of(vertical, p.h, k) * size.x_h);
      const T* const weights = w + (p.c * size.w_n + c * size.w_c + k * size.w_h);
      for (Index l = columns.first; l < columns.last; ++l) {
        sum += load_one<true>(from + element_of(horizontal, p.w, l) * size.x_w) * load_one<true>(weights + l * size.w_w);
      }
    }
  }
  if constexpr (kHasBias) sum += load_one<true>(bias + p.c * size.bias);
  if constexpr (kHasAdded) {
    sum += load_one<true>(added + (p.n * size.added_n + p.c * size.added_c + p.h * size.added_h + p.w * size.added_w));
  }
  sum = activated(sum);
  store_one(y + (p.n * size.y_n + p.c * size.y_c + p.h * size.y_h + p.w * size.y_w), sum);
}
