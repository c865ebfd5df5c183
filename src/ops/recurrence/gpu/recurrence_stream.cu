// SPDX-License-Identifier: Apache-2.0
// Streamed weights: those that do not fit a CTA's registers and shared memory are read in every step, from L2 as far as
// they fit there. Before the first step they are laid out in the order of the products, in chunks of kChunkPieces
// pieces of 16 bytes a lane. Then each lane copies its own pieces into a ring in shared memory, kAhead chunks before it
// needs them, so lanes do not wait for each other. The weights are the same in every step, so the next step's first
// chunks are in flight while the CTA group still waits for its state. Weights larger than L2, read in a cycle, would
// always evict a line before it is read again. So kL2Resident chunks, spread evenly, get a cache hint to stay, and the
// others one to be evicted first. The last step releases them.

// These are createpolicy's values; the compiler knows them here, and they take no registers.
constexpr unsigned long long kMakesRoomFirst = 0x12F0000000000000ull, kStaysLongest = 0x14F0000000000000ull;

#ifdef PD_EMULATE
PD_DEVICE void copy_from_l2(Place to, const uint4* from, unsigned long long) { copy_beside<16>(to, from, true); }
#else
PD_DEVICE void copy_from_l2(Place to, const uint4* from, unsigned long long policy) {
  if constexpr (kL2Resident == 0 || kL2Resident == kStreamed) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "l"(policy)
                 : "memory");
  }
}
#endif

struct StreamedWeights {
  static_assert(kStreamed % kAhead == 0, "a chunk's place in the ring is the same every step");
  static constexpr int kChunks = kStreamed > 0 ? kStreamed : 1, kChunkLanes = kChunkPieces * 32;
  uint4* chunks;  // of this lane
  Place ring;
  bool is_last = false;  // step

  // So many of the `all` chunks are streamed in front of chunk `i`, evenly among the others.
  static PD_DEVICE constexpr int before(int i, int all) { return i * kStreamed / all; }
  static PD_DEVICE constexpr bool has(int i, int all) { return before(i + 1, all) > before(i, all); }

  PD_DEVICE void begin(const Shared& shared, const LaunchScratch& scratch, unsigned cta) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    chunks = (uint4*)scratch.workspace + ((long long)cta * kWarps + warp) * (kChunks * kChunkLanes) + lane;
    ring = place_of((uint4*)(shared.work + kRingAt) + warp * (kAhead * kChunkLanes) + lane);
  }
  PD_DEVICE void put(int chunk, int piece, uint4 words) { chunks[chunk * kChunkLanes + piece * 32] = words; }
  PD_DEVICE void put(int chunk, int piece, float4 w) {
    put(chunk, piece, make_uint4(__float_as_uint(w.x), __float_as_uint(w.y), __float_as_uint(w.z), __float_as_uint(w.w)));
  }
  // After the last of them, when nobody stages weights any more.
  PD_DEVICE void start() {
    if constexpr (kStreamed == 0) return;
    fence_stores();
    chunks = kept_known(chunks);
#pragma unroll
    for (int chunk = 0; chunk < kAhead; ++chunk) ask(chunk);
  }
  // For the next chunk.
  PD_DEVICE void await() const { copies_wait<kAhead - 1>(); }
  PD_DEVICE uint4 get(int chunk, int piece) const { return load_piece(place(chunk, piece)); }
  PD_DEVICE float4 get_floats(int chunk, int piece) const {
    const uint4 w = get(chunk, piece);
    return {__uint_as_float(w.x), __uint_as_float(w.y), __uint_as_float(w.z), __uint_as_float(w.w)};
  }
  // After the last piece of a chunk: asks for the one that comes in its place.
  PD_DEVICE void pass(int chunk) const { ask((chunk + kAhead) % kChunks); }
  // Waits for the chunks that the last step asked for.
  PD_DEVICE void end() const {
    if constexpr (kStreamed > 0) copies_wait<0>();
  }

 private:
  PD_DEVICE Place place(int chunk, int piece) const {
    return ring + (chunk % kAhead * kChunkPieces + piece) * (32 * 16);
  }
  static PD_DEVICE constexpr bool is_l2_resident(int chunk) {
    return (chunk + 1) * kL2Resident / kChunks > chunk * kL2Resident / kChunks;
  }
  PD_DEVICE void ask(int chunk) const {
    const unsigned long long policy = is_l2_resident(chunk) && !is_last ? kStaysLongest : kMakesRoomFirst;
#pragma unroll
    for (int piece = 0; piece < kChunkPieces; ++piece) {
      copy_from_l2(place(chunk, piece), chunks + (chunk * kChunkLanes + piece * 32), policy);
    }
    copies_end_group();
  }
};
