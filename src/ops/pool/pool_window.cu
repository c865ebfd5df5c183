// SPDX-License-Identifier: Apache-2.0
// Of the window at (i, j): 1 / the elements that count.
template <class Value> PD_DEVICE Value share_of(const Window& vertical, const Window& horizontal, Index i, Index j) {
  if constexpr (kCountsPadding) return Value(1) / (Value)((long long)vertical.kernel * horizontal.kernel);
  const Taps rows = taps_of(vertical, i), columns = taps_of(horizontal, j);
  return Value(1) / (Value)((long long)(rows.last - rows.first) * (columns.last - columns.first));
}

// A thread has kVector channels that lie side by side, or one.
template <class T, class Id>
PD_DEVICE void pool(const T* from, const Id* chosen, T* to, Id* choice, const Window& vertical,
                    const Window& horizontal, const Sizes& size) {
  Index rest = (Index)blockIdx.x * kThreads + threadIdx.x;
  if (rest >= size.total) return;
  Index c = 0;
  if constexpr (kChannelsLast) c = next_coordinate(rest, size.channels) * kVector;
  const Index w = next_coordinate(rest, size.width), h = next_coordinate(rest, size.height);
  if constexpr (!kChannelsLast) c = next_coordinate(rest, size.channels) * kVector;
  const Index n = rest;
  using Value = Compute<T>;
  const T* const image = from + (n * size.from_n + c * size.from_c);
  const Id* const choices = chosen + (n * size.index_n + c * size.index_c);
  const auto read = [&](Index i, Index j) {
    Pack<T, kVector> pack;
    load<true>(pack, image + (i * size.from_h + j * size.from_w));
    return pack;
  };
  const auto chosen_at = [&](Index i, Index j) {
    Pack<Id, kVector> pack;
    load<true>(pack, choices + (i * size.index_h + j * size.index_w));
    return pack;
  };
  Draft<T, kVector> made;
  clear<Sum>(made.value);
  if constexpr (kKind == kMaxForward || kKind == kAvgForward) {
    const Taps rows = taps_of(vertical, h), columns = taps_of(horizontal, w);
    Draft<Id, kVector> best;
#pragma unroll
    for (int v = 0; v < kVector; ++v) best.value[v] = -1;
    for (Index k = rows.first; k < rows.last; ++k) {
      for (Index l = columns.first; l < columns.last; ++l) {
        const auto candidates = read(element_of(vertical, h, k), element_of(horizontal, w, l));
        const bool is_first = k == rows.first && l == columns.first;
#pragma unroll
        for (int v = 0; v < kVector; ++v) {
          const Value candidate = candidates.get(v);
          Value& value = made.value[v];
          if constexpr (kKind == kAvgForward) value += candidate;
          // A NaN is larger than any number, and no other NaN is larger than it.
          else if (is_first || candidate > value || (candidate != candidate && value == value)) {
            value = candidate;
            best.value[v] = (Compute<Id>)(k * horizontal.kernel + l);
          }
        }
      }
    }
    if constexpr (kKind == kAvgForward) {
      const Value share = share_of<Value>(vertical, horizontal, h, w);
#pragma unroll
      for (int v = 0; v < kVector; ++v) made.value[v] *= share;
    } else store(choice + (n * size.index_n + c * size.index_c + h * size.index_h + w * size.index_w), best);
  } else if constexpr (kKind == kMaxPick) {
    const auto wanted = chosen_at(h, w);
    const Taps rows = taps_of(vertical, h), columns = taps_of(horizontal, w);
#pragma unroll
    for (int v = 0; v < kVector; ++v) {
      const Index k = (Index)wanted.get(v) / horizontal.kernel, l = (Index)wanted.get(v) % horizontal.kernel;
      if (wanted.get(v) < 0 || k < rows.first || k >= rows.last || l < columns.first || l >= columns.last) continue;
      made.value[v] = load_one<true>(image + (element_of(vertical, h, k) * size.from_h +
                                              element_of(horizontal, w, l) * size.from_w + v * size.from_c));
    }
  } else {
    // Windows from the first to the last that the element is in: taps from the last to the first.
    for (Index k = vertical.kernel - 1; k >= 0; --k) {
      const Index i = window_of(vertical, h, k);
      if (i < 0) continue;
      for (Index l = horizontal.kernel - 1; l >= 0; --l) {
        const Index j = window_of(horizontal, w, l);
        if (j < 0) continue;
        const auto gradient = read(i, j);
        if constexpr (kKind == kAvgGrad) {
          const Value share = share_of<Value>(vertical, horizontal, i, j);
#pragma unroll
          for (int v = 0; v < kVector; ++v) made.value[v] += gradient.get(v) * share;
        } else {
          const auto tap = chosen_at(i, j);
#pragma unroll
          for (int v = 0; v < kVector; ++v) {
            if ((Index)tap.get(v) == k * horizontal.kernel + l) made.value[v] += gradient.get(v);
          }
        }
      }
    }
  }
  store(to + (n * size.to_n + c * size.to_c + h * size.to_h + w * size.to_w), made);
}
