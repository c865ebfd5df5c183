// SPDX-License-Identifier: Apache-2.0
// Brings the word that calls runs off from the host's memory, which takes a microsecond to read, to the device's, where
// every kernel of a long run polls it.
PD_DEVICE void poll_cancellation(const unsigned* flag, unsigned* cancelled) {
  if (threadIdx.x == 0) *cancelled = *(const volatile unsigned*)flag;
}
