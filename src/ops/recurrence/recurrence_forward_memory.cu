// SPDX-License-Identifier: Apache-2.0
// The state from step to step through memory. A team has places for kPlaces of them in turn, which hold zeros until a
// state comes, with every bit turned over: no state is a NaN of all ones, so no word of it is zero then. A CTA that has had
// all of state s knows that everybody has had the one before, and makes its own part of that place zero again. Before it
// gives state s + kPlaces - 2 it has fenced that, so that who has it finds the place empty.

constexpr int kStatePieces = kTeam * (kSliceBytes / 16), kPlaces = 8;
// Places in shared memory; one where all threads meet between the products and what comes next.
constexpr int kStates = kKeepsSums ? 2 : 1;

// Pieces that a thread asks for without waiting for one after the other.
constexpr int kEachPieces = (kStatePieces + kThreads - 1) / kThreads, kAtOnce = kEachPieces > 4 ? 8 : kEachPieces;

PD_DEVICE unsigned turned_over(unsigned word) { return word == ~0u ? 1u : ~word; }  // one NaN for another

struct StateExchange {
  uint4* places;      // [kPlaces][kStatePieces]
  unsigned* arrived;  // CTAs that have had the last state
  int rank;

  PD_DEVICE StateExchange(const Shared&, const Room& room) : rank(rank_in_team()) {
    const int team = blockIdx.x / kTeam, teams = gridDim.x / kTeam;
    places = (uint4*)room.tickets + team * (kPlaces * kStatePieces);
    arrived = room.tickets + teams * (kPlaces * kStatePieces * 4) + team;
  }
  PD_DEVICE void begin() const { __syncthreads(); }
  // For all threads: the state that step `step` begins with, of all units.
  PD_DEVICE void take(unsigned char* state, int step) const {
    if (is_tidier() && step % (kPlaces / 2) == 0) fence_stores();
    const uint4* const from = places + step % kPlaces * kStatePieces;
#pragma unroll 1
    for (int first = threadIdx.x; first < kStatePieces; first += kAtOnce * kThreads) {
      uint4 pieces[kAtOnce];
      const auto have_come = [&] {
        bool are_there = true;
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          if (first + i * kThreads < kStatePieces) pieces[i] = load_relaxed(from + first + i * kThreads);
        }
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const uint4& piece = pieces[i];
          are_there &= first + i * kThreads >= kStatePieces ||
                       (piece.x != 0 && piece.y != 0 && piece.z != 0 && piece.w != 0);
        }
        return are_there;
      };
      while (!have_come()) {}
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const uint4& piece = pieces[i];
        uint4* const to = (uint4*)state + first + i * kThreads;
        if (first + i * kThreads < kStatePieces) *to = make_uint4(~piece.x, ~piece.y, ~piece.z, ~piece.w);
      }
    }
    factors_stored();
    __syncthreads();
    if (is_tidier() && step > 1) {
      uint4* const slice = places + (step - 1) % kPlaces * kStatePieces + rank * (kSliceBytes / 16);
      for (int i = threadIdx.x % 32; i < kSliceBytes / 16; i += 32) store_relaxed(slice + i, make_uint4(0, 0, 0, 0));
    }
  }
  PD_DEVICE void stored() const {}
  // This CTA's units of it, for those that finish; they have met since they stored it.
  PD_DEVICE void give(const unsigned char* state, int step) const {
    const uint4* const slice = (const uint4*)state + rank * (kSliceBytes / 16);
    uint4* const to = places + step % kPlaces * kStatePieces + rank * (kSliceBytes / 16);
    for (int i = threadIdx.x; i < kSliceBytes / 16; i += kFinishers) {
      const uint4 piece = slice[i];
      store_relaxed(to + i, make_uint4(turned_over(piece.x), turned_over(piece.y), turned_over(piece.z), turned_over(piece.w)));
    }
  }
  // Where sums are kept, a cell of every thread: its word of a place, or less than 0.
  PD_DEVICE int word_of(const CellPlace& place) const {
    return place.row < kRows ? (place.unit / 4 * kRows + place.row) * 4 + place.unit % 4 : -1;
  }
  PD_DEVICE void give(int word, float h, int step) const {
    if (word < 0) return;
    store_relaxed((unsigned*)(places + step % kPlaces * kStatePieces) + word, turned_over(__float_as_uint(h)));
  }
  // Who is last to have had the state that the last step began with makes its place zero.
  PD_DEVICE void end(int steps) const {
    if (steps < 2) return;
    __syncthreads();
    const bool is_last = threadIdx.x == 0 && add_release(arrived, 1) == kTeam - 1;
    if (__syncthreads_or(is_last) == 0) return;
    uint4* const place = places + (steps - 1) % kPlaces * kStatePieces;
    for (int i = threadIdx.x; i < kStatePieces; i += kThreads) place[i] = make_uint4(0, 0, 0, 0);
    if (threadIdx.x == 0) *arrived = 0;
  }

 private:
  static PD_DEVICE bool is_tidier() { return threadIdx.x >= kThreads - 32; }
};
