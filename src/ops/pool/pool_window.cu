// SPDX-License-Identifier: Apache-2.0
// The share of an element in the window at (i, j): 1 / the elements that count.
template <class Value> PD_DEVICE Value share_of(const Window& vertical, const Window& horizontal, Index i, Index j) {
  if constexpr (kCountsPadding) return Value(1) / (Value)((long long)vertical.kernel * horizontal.kernel);
  const Taps rows = taps_of(vertical, i), columns = taps_of(horizontal, j);
  return Value(1) / (Value)((long long)(rows.last - rows.first) * (columns.last - columns.first));
}

// A thread has kVector channels that lie side by side, or one, and reads kAhead taps of a row of its window, or windows
// of a row, at once.
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
    Draft<Id, kVector> best;
#pragma unroll
    for (int v = 0; v < kVector; ++v) best.value[v] = -1;
    bool is_first = true;
    for (Index k = 0; k < vertical.kernel; ++k) {
      const Index i = element_of(vertical, h, k);
      if (i < 0 || i >= vertical.size) continue;
      for (Index first = 0; first < horizontal.kernel; first += kAhead) {
        Pack<T, kVector> candidates[kAhead];
        bool is_there[kAhead];
#pragma unroll
        for (int u = 0; u < kAhead; ++u) {
          const Index j = element_of(horizontal, w, first + u);
          is_there[u] = first + u < horizontal.kernel && j >= 0 && j < horizontal.size;
          if (is_there[u]) candidates[u] = read(i, j);
        }
#pragma unroll
        for (int u = 0; u < kAhead; ++u) {
          if (!is_there[u]) continue;
#pragma unroll
          for (int v = 0; v < kVector; ++v) {
            const Value candidate = candidates[u].get(v);
            Value& value = made.value[v];
            if constexpr (kKind == kAvgForward) value += candidate;
            // A NaN is larger than any number, and no other NaN is larger than it.
            else if (is_first || candidate > value || (candidate != candidate && value == value)) {
              value = candidate;
              best.value[v] = (Compute<Id>)(k * horizontal.kernel + first + u);
            }
          }
          is_first = false;
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
    const Windows rows = windows_of(vertical, h), columns = windows_of(horizontal, w);
    for (Index i = rows.first; i <= rows.last; ++i) {
      const Index k = tap_of(vertical, h, i);
      if (k < 0) continue;
      for (Index first = columns.first; first <= columns.last; first += kAhead) {
        Pack<T, kVector> gradients[kAhead];
        Pack<Id, kVector> chosen_taps[kAhead];
        Index taps[kAhead];
#pragma unroll
        for (int u = 0; u < kAhead; ++u) {
          taps[u] = first + u <= columns.last ? tap_of(horizontal, w, first + u) : -1;
          if (taps[u] < 0) continue;
          gradients[u] = read(i, first + u);
          if constexpr (kKind == kMaxGrad) chosen_taps[u] = chosen_at(i, first + u);
        }
#pragma unroll
        for (int u = 0; u < kAhead; ++u) {
          if (taps[u] < 0) continue;
          if constexpr (kKind == kAvgGrad) {
            const Value share = share_of<Value>(vertical, horizontal, i, first + u);
#pragma unroll
            for (int v = 0; v < kVector; ++v) made.value[v] += gradients[u].get(v) * share;
          } else {
#pragma unroll
            for (int v = 0; v < kVector; ++v) {
              if ((Index)chosen_taps[u].get(v) == k * horizontal.kernel + taps[u])
                made.value[v] += gradients[u].get(v);
            }
          }
        }
      }
    }
  }
  store(to + (n * size.to_n + c * size.to_c + h * size.to_h + w * size.to_w), made);
}
