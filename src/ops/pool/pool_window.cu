// SPDX-License-Identifier: Apache-2.0
// Of the window at (i, j): 1 / the elements that count.
template <class Sum> PD_DEVICE Sum share_of(const Window& vertical, const Window& horizontal, Index i, Index j) {
  if constexpr (kCountsPadding) return Sum(1) / (Sum)((long long)vertical.kernel * horizontal.kernel);
  const Taps rows = taps_of(vertical, i), columns = taps_of(horizontal, j);
  return Sum(1) / (Sum)((long long)(rows.last - rows.first) * (columns.last - columns.first));
}

template <class T, class Id>
PD_DEVICE void pool(const T* from, const Id* chosen, T* to, Id* choice, const Window& vertical,
                    const Window& horizontal, const Sizes& size) {
  Index rest = (Index)blockIdx.x * kThreads + threadIdx.x;
  if (rest >= size.total) return;
  Index c = 0;
  if constexpr (kChannelsLast) c = next_coordinate(rest, size.channels);
  const Index w = next_coordinate(rest, size.width), h = next_coordinate(rest, size.height);
  if constexpr (!kChannelsLast) c = next_coordinate(rest, size.channels);
  const Index n = rest;
  using Sum = Compute<T>;
  const T* const image = from + (n * size.from_n + c * size.from_c);
  const Id* const choices = chosen + (n * size.index_n + c * size.index_c);
  const auto read = [&](Index i, Index j) { return load_one<true>(image + (i * size.from_h + j * size.from_w)); };
  Sum value = 0;
  if constexpr (kKind == kMaxForward || kKind == kAvgForward) {
    const Taps rows = taps_of(vertical, h), columns = taps_of(horizontal, w);
    Index best = -1;
    for (Index k = rows.first; k < rows.last; ++k) {
      for (Index l = columns.first; l < columns.last; ++l) {
        const Sum candidate = read(element_of(vertical, h, k), element_of(horizontal, w, l));
        if constexpr (kKind == kAvgForward) value += candidate;
        // A NaN is larger than any number, and no other NaN is larger than it.
        else if (best < 0 || candidate > value || (candidate != candidate && value == value)) {
          value = candidate;
          best = k * horizontal.kernel + l;
        }
      }
    }
    if constexpr (kKind == kAvgForward) value *= share_of<Sum>(vertical, horizontal, h, w);
    else choice[n * size.index_n + c * size.index_c + h * size.index_h + w * size.index_w] = (Id)best;
  } else if constexpr (kKind == kMaxPick) {
    const Index wanted = (Index)choices[h * size.index_h + w * size.index_w];
    const Index k = wanted / horizontal.kernel, l = wanted % horizontal.kernel;
    const Taps rows = taps_of(vertical, h), columns = taps_of(horizontal, w);
    if (wanted >= 0 && k >= rows.first && k < rows.last && l >= columns.first && l < columns.last) {
      value = read(element_of(vertical, h, k), element_of(horizontal, w, l));
    }
  } else {
    // Windows from the first to the last that the element is in: taps from the last to the first.
    for (Index k = vertical.kernel - 1; k >= 0; --k) {
      const Index i = window_of(vertical, h, k);
      if (i < 0) continue;
      for (Index l = horizontal.kernel - 1; l >= 0; --l) {
        const Index j = window_of(horizontal, w, l);
        if (j < 0) continue;
        if constexpr (kKind == kAvgGrad) value += read(i, j) * share_of<Sum>(vertical, horizontal, i, j);
        else if ((Index)choices[i * size.index_h + j * size.index_w] == k * horizontal.kernel + l) value += read(i, j);
      }
    }
  }
  store_one(to + (n * size.to_n + c * size.to_c + h * size.to_h + w * size.to_w), value);
}
