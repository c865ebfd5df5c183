// SPDX-License-Identifier: Apache-2.0
// Exchange of the state through global memory. With few rows (kLlProtocol) warps send a word for each cell (LlWords).
// Two buffers are used in turn: a CTA that sends state s + 2 has s + 1 from all others, which then have all of state s.
// Otherwise a CTA group uses kPlaces buffers in turn. They hold zeros until a state comes, whose bits are all inverted:
// no state is a NaN of all ones, so none of its words is zero then. A CTA that has all of state s knows that all others
// have the one before, and clears its own part of that buffer. It fences this before it sends state s + kPlaces - 2, so
// that a CTA that has this state finds the buffer cleared. (With partial-sum peers it takes a step more until all have
// a state: the CTA that makes the next one had sums from all its peers, which need the parts of all that these have.)

// Cycles before the first poll, measured on an H200: data come no sooner. A thread without a cell to finish waits
// longer, since it begins earlier.
constexpr int kPauseCycles = kLlProtocol ? 100 : 0, kIdlePauseCycles = kLlProtocol ? 300 : 0;
constexpr int kSlicePieces = kLlProtocol ? kUnits / 4 * kRows : kSliceBytes / 16;
constexpr int kStatePieces = kGroupCtas * kSlicePieces, kPlaces = kLlProtocol ? 2 : 8;
constexpr int kTakenPieces = kSharesState ? kStatePieces / kSumPeers : kStatePieces;  // by a CTA
constexpr int kUntilHad = kSharesState ? 2 : 1;  // steps, by everybody
// Places in shared memory; one where all threads synchronize between the products and the next state.
constexpr int kStates = kSingleBuffered ? 1 : 2;
// Pieces are stored into shared memory before their epoch is checked, since nobody reads the buffer before all have
// come. (In 16 bits that is slower.)
constexpr bool kStoresBeside = kLlProtocol && kSimtFma && sizeof(Stored) == 4 && kStates == 2;

// Pieces that a thread asks for without waiting for one after the other.
constexpr int kEachPieces = (kTakenPieces + kThreads - 1) / kThreads;
constexpr int kAtOnce = kEachPieces <= (kSharesState ? 12 : 4) ? kEachPieces : 8;

PD_DEVICE unsigned inverted(unsigned word) { return word == ~0u ? 1u : ~word; }  // one NaN for another

// A thread's pieces of the state that a step begins with, where those go, and where its results do.
struct Aim {
  const uint4* from;
  Place to;
  unsigned epoch;
  unsigned* next;
  unsigned next_epoch;
};

struct StateExchange {
  uint4* places;   // [kPlaces][kStatePieces]
  unsigned* told;  // epochs of each place's last use; or how many CTAs have had the last state
  unsigned epochs[2];
  int rank;
  PeerSums sums;
  int multiplied = 0;  // steps

  PD_DEVICE StateExchange(const Shared&, const LaunchScratch& scratch, unsigned cta) : rank(rank_in_group(cta)) {
    const int cta_group = cta / kGroupCtas;
    places = kept_known((uint4*)scratch.tickets + cta_group * (kPlaces * kStatePieces));
    uint4* const behind = (uint4*)scratch.tickets + kCtaGroups * (kPlaces * kStatePieces);
    unsigned* const of_cta_groups = (unsigned*)(behind + kCtaGroups * PeerSums::kCtaGroupPieces);
    // From the tickets at once it is the same: else ptxas lays out the steps of lanes in 16 bits so that they take 6%
    // longer. (Those of f32 were measured as they are.)
    constexpr int kWordsBefore = kCtaGroups * ((kPlaces * kStatePieces + PeerSums::kCtaGroupPieces) * 4);
    told = (kSimtFma && sizeof(Stored) == 2 ? scratch.tickets + kWordsBefore : of_cta_groups) +
           cta_group * ((kLlProtocol ? 2 : 1) + PeerSums::kEpochWords);
    sums.find(behind + cta_group * PeerSums::kCtaGroupPieces, told + 1, rank);
  }
  PD_DEVICE bool takes_part() const { return true; }
  PD_DEVICE void come() const {}
  // The epochs are there when they are needed, after data that come meanwhile.
  PD_DEVICE void ask() {
    if constexpr (kLlProtocol) epochs[0] = load_relaxed(told), epochs[1] = load_relaxed(told + 1);
    sums.ask();
  }
  PD_DEVICE void begin() const { __syncthreads(); }
  // For all threads: the state that step `step` begins with, of all units or its part of them.
  PD_DEVICE void take(const Aim& aim, int step) const {
    if (!kLlProtocol && is_tidier() && step % (kPlaces / 2) == 0) fence_stores();
    if constexpr (kLlProtocol) pause_cycles((int)threadIdx.x < kFinishers ? kPauseCycles : kIdlePauseCycles);
#pragma unroll 1
    for (int first = 0; first < kTakenPieces; first += kAtOnce * kThreads) {
      uint4 pieces[kAtOnce];
      const auto is_asked = [&](int i) {
        const int begin = first + i * kThreads;
        return begin + kThreads <= kTakenPieces || begin + (int)threadIdx.x < kTakenPieces;
      };
      const auto store = [&](int i) {
        const uint4& piece = pieces[i];
        if constexpr (kLlProtocol) {
          const int behind = place_in_vectors(first + i * kThreads + threadIdx.x) - place_in_vectors(threadIdx.x);
          LlWords::store(aim.to + behind, piece);
        } else {
          store_piece(aim.to + (first + i * kThreads) * 16, make_uint4(~piece.x, ~piece.y, ~piece.z, ~piece.w));
        }
      };
      const auto have_come = [&] {
        bool are_there = true;
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          if (is_asked(i)) pieces[i] = load_relaxed(aim.from + first + i * kThreads);
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          if (!is_asked(i)) continue;
          if constexpr (kStoresBeside) store(i);
          are_there &= has_come(pieces[i], aim.epoch);
        }
        return are_there;
      };
      while (!have_come()) {}
#pragma unroll
      for (int i = 0; i < kAtOnce && !kStoresBeside; ++i) {
        if (is_asked(i)) store(i);
      }
    }
    factors_stored();
    __syncthreads();
    if (!kLlProtocol && is_tidier() && step > kUntilHad) {
      uint4* const slice = places + (step - kUntilHad) % kPlaces * kStatePieces + rank * kSlicePieces;
      for (int i = threadIdx.x % 32; i < kSlicePieces; i += 32) store_relaxed(slice + i, make_uint4(0, 0, 0, 0));
    }
  }
  // For step `step`, between the states `before` and `after`.
  PD_DEVICE Aim aim(unsigned char* before, unsigned char*, int step) const {
    const int first = kSharesState ? rank % kSumPeers * kTakenPieces : 0;
    return {kept_known(places + step % kPlaces * kStatePieces + first + threadIdx.x), place_of(before + place_in_vectors(threadIdx.x)),
            (unsigned)kept_known((int)epoch_of(step)), kept_known((unsigned*)places + (step + 1) % kPlaces * (kStatePieces * 4)),
            (unsigned)kept_known((int)epoch_of(step + 1))};
  }
  // The sums of this thread's cells, where partial-sum peers have parts of them; for all threads, after a barrier.
  PD_DEVICE void share(float (&of_cells)[kCells][kLaneGates], const float* own, const CellPlace (&place)[kCells],
                       int step) {
    if constexpr (!kSharesState) return;
    sums.share(of_cells, own, place, step);
    multiplied = step + 1;
  }
  PD_DEVICE void take_half(int) const {}
  PD_DEVICE void taken(int) const {}
  PD_DEVICE void stored() const {}
  // This CTA's units of it, for those that finish; they have met since they stored it.
  PD_DEVICE void give(const unsigned char* state, const Aim&, int step) const {
    const uint4* const slice = (const uint4*)state + rank * kSlicePieces;
    uint4* const to = places + step % kPlaces * kStatePieces + rank * kSlicePieces;
    for (int i = threadIdx.x; i < kSlicePieces; i += kFinishers) {
      const uint4 piece = slice[i];
      store_relaxed(to + i, make_uint4(inverted(piece.x), inverted(piece.y), inverted(piece.z), inverted(piece.w)));
    }
  }
  // Where warps give their results, a cell of every thread: its word of a place, or less than 0.
  PD_DEVICE int word_of(const CellPlace& place) const { return LlWords::place_of(place); }
  PD_DEVICE void give(const float (&h)[kCells], const int (&word)[kCells], unsigned char*, const Aim& aim, int, bool is_last) const {
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      if (word[i] >= 0 && !is_last) store_relaxed(aim.next + word[i], LlWords::made_of(h[i], aim.next_epoch));
    }
  }
  // Who is last to have had the state that the last step began with makes places zero that still have one; or epochs
  // are kept.
  PD_DEVICE void end(int steps) const {
    if constexpr (kSharesState) sums.end(multiplied);
    if (steps < 2) return;
    if constexpr (kLlProtocol) {  // everybody has begun: their last states have come
      const int last = steps - 1 - (steps - 1 - (int)threadIdx.x) % 2;  // state that used the place
      if (rank == 0 && threadIdx.x < 2 && last > 0) store_relaxed(told + threadIdx.x, epoch_of(last));
      return;
    }
    __syncthreads();
    const bool is_last = threadIdx.x == 0 && add_release(told, 1) == kGroupCtas - 1;
    if (__syncthreads_or(is_last) == 0) return;
    for (int state = steps > kUntilHad ? steps - kUntilHad : 1; state < steps; ++state) {
      uint4* const place = places + state % kPlaces * kStatePieces;
      for (int i = threadIdx.x; i < kStatePieces; i += kThreads) place[i] = make_uint4(0, 0, 0, 0);
    }
    if (threadIdx.x == 0) *told = 0;
  }

 private:
  static PD_DEVICE int place_in_vectors(int piece) { return kLlProtocol ? LlWords::place_in_vectors(piece) : piece * 16; }
  static PD_DEVICE bool is_tidier() { return threadIdx.x >= kThreads - 32; }
  PD_DEVICE unsigned epoch_of(int step) const { return ((step % 2 ? epochs[1] : epochs[0]) + 1 + (step - 1) / 2) & 1; }
  static PD_DEVICE bool has_come(const uint4& piece, unsigned epoch) {
    if constexpr (kLlProtocol) return LlWords::have_come(piece, epoch);
    else return piece.x != 0 && piece.y != 0 && piece.z != 0 && piece.w != 0;
  }
};
