// SPDX-License-Identifier: Apache-2.0
// Weights that a CTA has no room for. They come out of memory every step, that is, out of L2 as far as they have room
// there. Before the first step they are laid out as they are multiplied by, in groups of kGroupPieces pieces of 16
// bytes a lane; then each lane copies its own pieces into a ring in shared memory, kAhead groups before it multiplies
// by them. So lanes wait for no others; and as the weights are the same every step, what the next one begins with is
// under way while the team still waits for its state. Where they are more than L2 keeps, reads that go round would find
// nothing there: each line would be gone before its turn comes again. So kNear groups stay there, evenly among the
// others, which make room first. The last step gives back what they had.

// As createpolicy makes them; the compiler knows them then, and they take no registers.
constexpr unsigned long long kMakesRoomFirst = 0x12F0000000000000ull, kStaysLongest = 0x14F0000000000000ull;

#ifdef PD_EMULATE
PD_DEVICE void copy_from_l2(Place to, const uint4* from, unsigned long long) { copy_beside<16>(to, from, true); }
#else
PD_DEVICE void copy_from_l2(Place to, const uint4* from, unsigned long long policy) {
  if constexpr (kNear == 0 || kNear == kStreamed) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
  } else {
    asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "l"(policy)
                 : "memory");
  }
}
#endif

struct StreamedWeights {
  static_assert(kStreamed % kAhead == 0, "a group's place in the ring is the same every step");
  static constexpr int kGroups = kStreamed > 0 ? kStreamed : 1, kGroupLanes = kGroupPieces * 32;
  uint4* groups;  // of this lane
  Place ring;
  bool is_last = false;  // step

  // Of `all` that are multiplied by in turn so many are in front of `i`, evenly among the others.
  static PD_DEVICE constexpr int before(int i, int all) { return i * kStreamed / all; }
  static PD_DEVICE constexpr bool has(int i, int all) { return before(i + 1, all) > before(i, all); }

  PD_DEVICE void begin(const Shared& shared, const LaunchScratch& scratch, unsigned cta) {
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    groups = (uint4*)scratch.workspace + ((long long)cta * kWarps + warp) * (kGroups * kGroupLanes) + lane;
    ring = place_of((uint4*)(shared.work + kRingAt) + warp * (kAhead * kGroupLanes) + lane);
  }
  PD_DEVICE void put(int group, int piece, uint4 words) { groups[group * kGroupLanes + piece * 32] = words; }
  PD_DEVICE void put(int group, int piece, float4 w) {
    put(group, piece, make_uint4(__float_as_uint(w.x), __float_as_uint(w.y), __float_as_uint(w.z), __float_as_uint(w.w)));
  }
  // Behind the last of them, when nobody stages weights any more.
  PD_DEVICE void start() {
    if constexpr (kStreamed == 0) return;
    fence_stores();
    groups = kept_known(groups);
#pragma unroll
    for (int group = 0; group < kAhead; ++group) ask(group);
  }
  // For the next group.
  PD_DEVICE void await() const { copies_wait<kAhead - 1>(); }
  PD_DEVICE uint4 get(int group, int piece) const { return load_piece(place(group, piece)); }
  PD_DEVICE float4 get_floats(int group, int piece) const {
    const uint4 w = get(group, piece);
    return {__uint_as_float(w.x), __uint_as_float(w.y), __uint_as_float(w.z), __uint_as_float(w.w)};
  }
  // Behind the last piece of a group: asks for the one that comes in its place.
  PD_DEVICE void pass(int group) const { ask((group + kAhead) % kGroups); }
  // What was asked for in the last step comes too.
  PD_DEVICE void end() const {
    if constexpr (kStreamed > 0) copies_wait<0>();
  }

 private:
  PD_DEVICE Place place(int group, int piece) const {
    return ring + (group % kAhead * kGroupPieces + piece) * (32 * 16);
  }
  static PD_DEVICE constexpr bool is_near(int group) {
    return (group + 1) * kNear / kGroups > group * kNear / kGroups;
  }
  PD_DEVICE void ask(int group) const {
    const unsigned long long policy = is_near(group) && !is_last ? kStaysLongest : kMakesRoomFirst;
#pragma unroll
    for (int piece = 0; piece < kGroupPieces; ++piece) {
      copy_from_l2(place(group, piece), groups + (group * kGroupLanes + piece * 32), policy);
    }
    copies_end_group();
  }
};
