// SPDX-License-Identifier: Apache-2.0
// Coordinates of an element of an image, in the order in which it lies.
struct Place { Index n, c, h, w; };
PD_DEVICE Place place_of(Index rest, const Sizes& size) {
  Place p{};
  if constexpr (kChannelsLast) p.c = next_coordinate(rest, size.channels);
  p.w = next_coordinate(rest, size.width), p.h = next_coordinate(rest, size.height);
  if constexpr (!kChannelsLast) p.c = next_coordinate(rest, size.channels);
  p.n = rest;
  return p;
}
