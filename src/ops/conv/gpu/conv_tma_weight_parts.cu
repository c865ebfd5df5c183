// SPDX-License-Identifier: Apache-2.0
// The common part of conv_tma_weights.cu, conv_tma_patch_weights.cu and conv_tma_row_weights.cu: the part of the sums
// that a CTA makes, and where it leaves them. Stands after kTileRows and kTileColumns, in the units in which columns
// are counted: channels, or chunks of them.

// A tile of rows and columns, and the blocks of windows from `first` to `last` that are added up for it.
struct Share {
  int row, column, part, first, last;
};
PD_DEVICE Share share_of(int cta, const Sizes& size) {
  Share share;
  share.row = next_coordinate(cta, size.tiles_m) * kTileRows, share.column = next_coordinate(cta, size.tiles_n) * kTileColumns;
  share.part = cta;
  share.first = (int)((long long)cta * size.blocks / size.parts);
  share.last = (int)((long long)(cta + 1) * size.blocks / size.parts);
  return share;
}

// A CTA whose thread `consumers` fills stages, and whose warps in front of it multiply the factors in them.
struct Cta {
  Stored* stages;
  Mbarriers* mbarriers;
  Share share;
};
template <int consumers, int stage_elements>
PD_DEVICE Cta open_cta(const Map& image, const Map& gradient, const Sizes& size) {
  Cta cta;
  cta.stages = shared_for_tma<Stored>();
  cta.mbarriers = (Mbarriers*)(cta.stages + kStages * stage_elements);
  cta.share = share_of(blockIdx.x, size);
  open_stages(cta.mbarriers, image, gradient, consumers);
  return cta;
}

// Leaves the sums of a group of four warps, 64 rows by 64 channels of a tap, among the sums of its part.
PD_DEVICE void leave_sums(float* partial, const float* sum, int part, int row, int tap, int first_channel,
                          const Sizes& size) {
  const int lane = threadIdx.x % 32, first_row = row + threadIdx.x % 128 / 32 * 16 + lane / 4;
  float* const to = partial + part * size.elements_wide;
#pragma unroll
  for (int n = 0; n < 8; ++n) {
    const int channel = first_channel + n * 8 + lane % 4 * 2;
#pragma unroll
    for (int more = 0; more < 2; ++more) {
      const int r = first_row + more * 8;
      if (r >= size.rows || channel >= size.channels) continue;
      Draft<float, 2> made;
      made.put(0, sum[n * 4 + more * 2]), made.put(1, sum[n * 4 + more * 2 + 1]);
      store(to + ((r * size.taps + tap) * size.channels + channel), made);
    }
  }
}
