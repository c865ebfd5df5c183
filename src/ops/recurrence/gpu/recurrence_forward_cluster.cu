// SPDX-License-Identifier: Apache-2.0
// Exchange of the state within a cluster. Threads store a small state into the shared memory of every CTA in pieces of
// 16 bytes; TMA copies a large one. The state is double-buffered, with an mbarrier for each buffer. A CTA sends the
// state of step s + 1 only after it has received all of step s, so no CTA still reads the buffer that is overwritten.
// With kGivesEach every warp sends the results of its own cells. The same then holds for warps: each one also sends to
// its own CTA, and a warp without units reads nothing.

constexpr int kStates = 2;  // buffers

// With kGivesEach a lane sends one packet of kPacket units in each of kTurns turns.
constexpr bool kIsOneCell = !kSimtFma || kQuadUnits > 1;  // a packet has one cell of this lane, the others' by shuffles
constexpr int kPacket = kIsOneCell || kCells % 4 == 0 ? 4 : kCells % 2 == 0 ? 2 : 1;
constexpr int kPacketBytes = kPacket * (int)sizeof(Factor), kTurns = (kRows * kGroupCtas + 31) / 32;
// Otherwise the threads that finish cells send the CTA's slice in pieces. With few turns each thread knows its
// destinations before the first step.
constexpr int kSlicePieces = kSliceBytes / 16, kSends = kSlicePieces * (kGroupCtas - 1);
constexpr int kSendTurns = (kSends + kFinishers - 1) / kFinishers;
constexpr bool kHasOnePiece = kFinishers % kSlicePieces == 0;  // the same in all turns
constexpr bool kKnowsPeers = !kGivesEach && !kIsBulk && kGroupCtas > 1 && kSendTurns <= (kHasOnePiece ? 4 : 2);
constexpr int kPeers = kKnowsPeers ? kSendTurns : 1;

// The destination of this thread's part of a step's result. With kIsOnePeer it is a place in one other CTA.
struct Aim {
  Place at, mbarrier;
};
constexpr bool kIsOnePeer = kGivesEach && kGroupCtas > 1 && kIsNarrow;

struct StateExchange {
  unsigned long long* mbarriers;
  int rank, thread;
  int own;             // byte offset in a state of this thread's first packet or piece
  Peer peers[kPeers];  // its destinations
  int next;            // from there to this thread's piece of the second turn
  Aim aims[2];         // for even and odd steps, computed once

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
  // Announces that this CTA's buffers and mbarriers are ready for the others' data. Only kGivesEach announces it early,
  // since the other ways took up to 0.4 us longer so.
  static constexpr bool kComesEarly = kGroupCtas > 1 && kGivesEach;
  PD_DEVICE void come() const {
    if constexpr (kComesEarly) cluster_arrive_stored();
  }
  PD_DEVICE void ask() const {}
  PD_DEVICE void begin() const {
    if constexpr (kGivesEach && kGroupCtas > 1) {  // expect the first two states
      if (threadIdx.x < 2) mbarrier_arrive_expect_tx(&mbarriers[threadIdx.x], kSliceBytes * kGroupCtas);
    }
    if constexpr (kComesEarly) cluster_wait(), __syncthreads();
    else synchronize_cta_group();
  }
  PD_DEVICE bool takes_part() const {
    return !kGivesEach || kGroupCtas == 1 || (int)threadIdx.x / 32 * kWarpUnits < kUnits;
  }
  // All threads wait for the state of all units that step `step` begins with.
  PD_DEVICE void take(const Aim&, int step) const {
    if constexpr (kGroupCtas > 1) wait_on_mbarrier(&mbarriers[step % 2], (step - 1) / 2);
    else __syncthreads();
    if constexpr (!kIsBulk) factors_stored();  // by other CTAs
  }
  // Waits for the other half of that state.
  PD_DEVICE void take_half(int step) const { wait_on_mbarrier(&mbarriers[2 + step % 2], (step - 1) / 2); }
  // Expects the next state in the buffer of step `step`. It comes last in a step, since no other CTA waits for it.
  PD_DEVICE void taken(int step) const {
    if (kGivesEach && kGroupCtas > 1 && thread == 0) mbarrier_arrive_expect_tx(&mbarriers[step % 2], kSliceBytes * kGroupCtas);
  }
  PD_DEVICE void stored() const {
    if constexpr (kIsBulk || kWgmma) copies_follow_stores();
  }
  // Sends this CTA's units of the state. For the threads that finish cells, which have synchronized after storing it.
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
  // With kGivesEach: sends the results of this warp's cells.
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
        // A warp's units begin at a packet. In 16 bits a piece holds two packets, so every other warp begins in its
        // middle.
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
