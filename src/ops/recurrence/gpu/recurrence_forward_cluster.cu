// SPDX-License-Identifier: Apache-2.0
// The state from step to step within a cluster: threads store small states to every CTA piece by piece, TMA copies
// large ones. Two places for the state are used in turn, each with an mbarrier: who sends the state of step s + 1 has
// had all of step s, so nobody reads the state that it overwrites. Where each warp gives its own cells' results
// (kGivesEach), that holds of warps: each of them sends to its own CTA too, and one that has no units does not read.

constexpr int kStates = 2;  // places

// Where warps give their results: units of a packet, one of which a lane sends in each of so many turns.
constexpr bool kIsOneCell = !kSimtFma || kQuadUnits > 1;  // of a packet: its units are other lanes'
constexpr int kPacket = kIsOneCell || kCells % 4 == 0 ? 4 : kCells % 2 == 0 ? 2 : 1;
constexpr int kPacketBytes = kPacket * (int)sizeof(Factor), kTurns = (kRows * kGroupCtas + 31) / 32;
// Else pieces of the CTA's slice, by those that finish; of few turns one of them knows beforehand who gets which.
constexpr int kSlicePieces = kSliceBytes / 16, kSends = kSlicePieces * (kGroupCtas - 1);
constexpr int kSendTurns = (kSends + kFinishers - 1) / kFinishers;
constexpr bool kHasOnePiece = kFinishers % kSlicePieces == 0;  // the same in all turns
constexpr bool kKnowsPeers = !kGivesEach && !kIsBulk && kGroupCtas > 1 && kSendTurns <= (kHasOnePiece ? 4 : 2);
constexpr int kPeers = kKnowsPeers ? kSendTurns : 1;

// The destination of this thread's part of a step's result: one CTA, where warps give their results and a lane has one
// peer.
struct Aim {
  Place at, mbarrier;
};
constexpr bool kIsOnePeer = kGivesEach && kGroupCtas > 1 && kIsNarrow;

struct StateExchange {
  unsigned long long* mbarriers;
  int rank, thread;
  int own;             // of a state, where the first packet of this warp and lane lies in the first turn; or this thread's piece
  Peer peers[kPeers];  // whom it is sent to
  int next;            // how far behind it this thread's piece of the second turn is
  Aim aims[2];         // of steps in turn, found out beforehand

  PD_DEVICE StateExchange(const Shared& shared, const LaunchScratch&, unsigned cta) : mbarriers(shared.mbarriers), rank(rank_in_group(cta)) {
    thread = kept_known((int)threadIdx.x);
    if (kGroupCtas > 1 && threadIdx.x < 2 * kHalves) mbarrier_init(&mbarriers[threadIdx.x], 1);
    const int unit = rank * kUnits + threadIdx.x / 32 * kWarpUnits;
    if constexpr (kKnowsPeers) {
      own = kept_known(rank * kSliceBytes + (int)threadIdx.x % kSlicePieces * 16);
#pragma unroll
      for (int turn = 0; turn < kPeers; ++turn) {
        const int to = ((int)threadIdx.x + turn * kFinishers) / kSlicePieces;
        peers[turn] = kept_known((int)peer_of(mbarriers, to < kGroupCtas - 1 ? to + (to >= rank) : rank));
      }
      const int second = ((int)threadIdx.x + kFinishers) % kSlicePieces;
      next = kHasOnePiece ? 0 : kept_known((second - (int)threadIdx.x % kSlicePieces) * 16);
    } else {
      own = kept_known(unit / kInPiece * (kRows * 16) + unit % kInPiece * (int)sizeof(Factor) + threadIdx.x % 32 / kGroupCtas * 16);
      peers[0] = kGroupCtas > 1 ? (Peer)kept_known((int)peer_of(mbarriers, threadIdx.x % kGroupCtas)) : 0;
    }
#pragma unroll
    for (int i = 0; i < 2 && kIsOnePeer; ++i) {
      aims[i] = {place_at(place_of(shared.work + i * kStateBytes + own), peers[0]), place_at(place_of(&mbarriers[i]), peers[0])};
    }
  }
  // For step `step`, between the states `before` and `after`.
  PD_DEVICE Aim aim(unsigned char*, unsigned char* after, int step) const {
    if constexpr (kIsOnePeer) return step % 2 ? aims[0] : aims[1];
    return {place_of(after + own), place_of(&mbarriers[(step + 1) % 2])};
  }
  // Its places and mbarriers are ready for the others' data: said early where warps give their results. (Others took up
  // to 0.4 us longer so.)
  static constexpr bool kComesEarly = kGroupCtas > 1 && kGivesEach;
  PD_DEVICE void come() const {
    if constexpr (kComesEarly) cluster_arrive_stored();
  }
  PD_DEVICE void ask() const {}
  PD_DEVICE void begin() const {
    if constexpr (kGivesEach && kGroupCtas > 1) {  // of the first two states
      if (threadIdx.x < 2) mbarrier_arrive_expect_tx(&mbarriers[threadIdx.x], kSliceBytes * kGroupCtas);
    }
    if constexpr (kComesEarly) cluster_wait(), __syncthreads();
    else synchronize_cta_group();
  }
  PD_DEVICE bool takes_part() const {
    return !kGivesEach || kGroupCtas == 1 || (int)threadIdx.x / 32 * kWarpUnits < kUnits;
  }
  // For all threads: the state that step `step` begins with, of all units.
  PD_DEVICE void take(const Aim&, int step) const {
    if constexpr (kGroupCtas > 1) wait_on_mbarrier(&mbarriers[step % 2], (step - 1) / 2);
    else __syncthreads();
    if constexpr (!kIsBulk) factors_stored();  // by others
  }
  // The other half of it.
  PD_DEVICE void take_half(int step) const { wait_on_mbarrier(&mbarriers[2 + step % 2], (step - 1) / 2); }
  // After all that others wait for: the state that comes where that of step `step` came is expected.
  PD_DEVICE void taken(int step) const {
    if (kGivesEach && kGroupCtas > 1 && thread == 0) mbarrier_arrive_expect_tx(&mbarriers[step % 2], kSliceBytes * kGroupCtas);
  }
  PD_DEVICE void stored() const {
    if constexpr (kIsBulk || kWgmma) copies_follow_stores();
  }
  // This CTA's units of it, for those that finish; they have met since they stored it.
  PD_DEVICE void give(unsigned char* state, const Aim& aim, int step) const {
    unsigned char* const slice = state + rank * kSliceBytes;
    unsigned long long* const mbarrier = &mbarriers[step % 2];
    if constexpr (kUnitsPerWarpgroup) {
      constexpr int kHalfBytes = kSliceBytes / 2, kShares = kTogether / 32;
      const int half = thread / kTogether, to = thread / 32 % kShares + thread % 32 * kShares;
      unsigned char* const own = slice + half * kHalfBytes;
      if (to < kGroupCtas - 1) copy_to_peer(own, own, kHalfBytes, mbarrier + half * 2, to + (to >= rank));
      if (thread % kTogether == 0) mbarrier_arrive_expect_tx(mbarrier + half * 2, kHalfBytes * (kGroupCtas - 1));
      return;
    }
    if constexpr (kIsBulk) {
      copy_to_others([&](int to) { copy_to_peer(slice, slice, kSliceBytes, mbarrier, to); }, rank);
    } else if constexpr (kKnowsPeers) {
      uint4 piece = load_piece(aim.at);
#pragma unroll
      for (int turn = 0; turn < kPeers; ++turn) {
        const Place at = aim.at + turn * next;
        if (turn > 0 && !kHasOnePiece) piece = load_piece(at);
        const unsigned words[4] = {piece.x, piece.y, piece.z, piece.w};
        const bool is_there = (turn + 1) * kFinishers <= kSends || thread + turn * kFinishers < kSends;
        send_words(place_at(at, peers[turn]), words, place_at(aim.mbarrier, peers[turn]), is_there);
      }
    } else {
      for (int i = threadIdx.x; i < kSends; i += kFinishers) {
        const int to = i / kSlicePieces;
        uint4* const piece = (uint4*)slice + i % kSlicePieces;
        send_piece(piece, *piece, mbarrier, to + (to >= rank));
      }
    }
    if (kGroupCtas > 1 && thread == 0) mbarrier_arrive_expect_tx(mbarrier, kSliceBytes * (kGroupCtas - 1));
  }
  PD_DEVICE void share(float (&)[kCells][kLaneGates], const float*, const CellPlace (&)[kCells], int) const {}
  PD_DEVICE int word_of(const CellPlace&) const { return -1; }
  // Sends the results of this warp's threads.
  PD_DEVICE void give(const float (&h)[kCells], const int (&)[kCells], unsigned char* state, const Aim& aim, int, bool is_last) const {
    const int lane = thread % 32, first = thread / 32 * kWarpUnits;
#pragma unroll
    for (int packet = 0; packet < kWarpUnits / kPacket; ++packet) {
      const bool has_units = first + packet * kPacket < kUnits;
#pragma unroll
      for (int turn = 0; turn < kTurns; ++turn) {
        const int row = turn * (32 / kGroupCtas) + lane / kGroupCtas;
        float of_units[kPacket];
#pragma unroll
        for (int i = 0; i < kPacket; ++i) {
          const int cell = kIsOneCell ? packet : packet * kPacket + i;
          const int from = CellPlace::lane_of(kIsOneCell ? i : 0, row < kRows ? row : 0);
          of_units[i] = __shfl_sync(~0u, h[cell < kCells ? cell : 0], from);
        }
        unsigned words[kPacketBytes / 4];
        pack(words, of_units);
        // A warp's units begin where a packet does: of 16 bits every other one in the middle of a piece.
        constexpr int kInPieces = 16 / kPacketBytes;
        const int begun = kInPieces == 1 ? 0 : own / kPacketBytes % kInPieces;
        const int behind = (begun + packet) / kInPieces * (kRows * 16) +
                           ((begun + packet) % kInPieces - begun) * kPacketBytes + turn * (32 / kGroupCtas) * 16;
        const bool is_there = row < kRows && has_units && !is_last;
        if constexpr (kIsOnePeer) send_words(aim.at + behind, words, aim.mbarrier, is_there);
        else if constexpr (kGroupCtas > 1)
          send_words(place_at(aim.at + behind, peers[0]), words, place_at(aim.mbarrier, peers[0]), is_there);
        else if (is_there) put_words(state + own + behind, words);
      }
    }
  }
  PD_DEVICE void end(int) const {
    if constexpr (kGroupCtas > 1) cluster_leave();  // others may still send
  }

 private:
  template <int kWords> static PD_DEVICE void pack(unsigned (&words)[kWords], const float (&of_units)[kPacket]) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      if constexpr (kWords == kPacket) words[i] = factor_bits(__float_as_uint(of_units[i]));
      else words[i] = pair_of<Stored>(of_units[2 * i], of_units[2 * i + 1]);
    }
  }
};
