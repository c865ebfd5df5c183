// SPDX-License-Identifier: Apache-2.0
// Windows over an image: which taps read it, and which windows an element is read by. Needs Index.
struct Window { Index size, kernel, stride, dilation, before, outputs; };

// The taps [first, last) with which the window at o reads the image.
struct Taps { Index first, last; };
PD_DEVICE Taps taps_of(const Window& w, Index o) {
  const Index start = o * w.stride - w.before;
  Taps taps;
  taps.first = start >= 0 ? 0 : (w.dilation - 1 - start) / w.dilation;
  taps.last = start >= w.size ? 0 : (w.size - 1 - start) / w.dilation + 1;
  if (taps.last > w.kernel) taps.last = w.kernel;
  if (taps.first > taps.last) taps.first = taps.last;
  return taps;
}

// Where tap k of the window at o reads.
PD_DEVICE Index element_of(const Window& w, Index o, Index k) { return o * w.stride + k * w.dilation - w.before; }

// The window that reads element h with tap k, -1 where there is none.
PD_DEVICE Index window_of(const Window& w, Index h, Index k) {
  const Index moved = h + w.before - k * w.dilation;
  if (moved < 0 || moved % w.stride != 0) return -1;
  const Index o = moved / w.stride;
  return o < w.outputs ? o : -1;
}

// The windows from first to last reach over element h; of those tap_of says which read it.
struct Windows { Index first, last; };
PD_DEVICE Windows windows_of(const Window& w, Index h) {
  const Index moved = h + w.before, past = moved - (w.kernel - 1) * w.dilation;
  Windows windows;
  windows.first = past <= 0 ? 0 : (past + w.stride - 1) / w.stride;
  windows.last = moved / w.stride < w.outputs ? moved / w.stride : w.outputs - 1;
  return windows;
}

// The tap with which such a window at o reads element h, -1 where that lies between two taps.
PD_DEVICE Index tap_of(const Window& w, Index h, Index o) {
  const Index moved = h + w.before - o * w.stride;
  return moved % w.dilation == 0 ? moved / w.dilation : -1;
}
