// SPDX-License-Identifier: Apache-2.0
// The state from step to step within a cluster: of little each piece goes to every CTA by a thread, of much by the copy
// engine. Two places for the state are used in turn, each with a mailbox: who sends the state of step s + 1 has had all
// of step s, so nobody reads what it overwrites. Where each warp gives what it made (kGivesEach), that holds of warps: each
// of them sends to its own CTA too, and one that has no units does not read.

constexpr int kStates = 2;  // places

// Where warps give what they made: units of a packet, one of which a lane sends in each of so many turns.
constexpr bool kIsOneCell = !kIsByLanes || kQuadUnits > 1;  // of a packet: its units are other lanes'
constexpr int kPacket = kIsOneCell || kCells % 4 == 0 ? 4 : kCells % 2 == 0 ? 2 : 1;
constexpr int kPacketBytes = kPacket * (int)sizeof(Factor), kTurns = (kRows * kTeam + 31) / 32;

struct StateExchange {
  unsigned long long* mailboxes;
  int rank;
  int own;    // of a state, where the first packet of this warp and lane lies in the first turn
  Peer peer;  // whom this lane sends to

  PD_DEVICE StateExchange(const Shared& shared, const Room&, unsigned cta) : mailboxes(shared.mailboxes), rank(rank_in_team(cta)) {
    if (kTeam > 1 && threadIdx.x < 2) mailbox_init(&mailboxes[threadIdx.x], 1);
    const int unit = rank * kUnits + threadIdx.x / 32 * kWarpUnits;
    own = kept_known(unit / kInPiece * (kRows * 16) + unit % kInPiece * (int)sizeof(Factor) + threadIdx.x % 32 / kTeam * 16);
    peer = kTeam > 1 ? (Peer)kept_known((int)peer_of(mailboxes, threadIdx.x % kTeam)) : 0;
  }
  PD_DEVICE void begin() const {
    if constexpr (kGivesEach && kTeam > 1) {  // of the first two states
      if (threadIdx.x < 2) mailbox_expect(&mailboxes[threadIdx.x], kSliceBytes * kTeam);
    }
    meet_team();
  }
  PD_DEVICE bool takes_part() const {
    return !kGivesEach || kTeam == 1 || (int)threadIdx.x / 32 * kWarpUnits < kUnits;
  }
  // For all threads: the state that step `step` begins with, of all units.
  PD_DEVICE void take(unsigned char*, int step) const {
    if constexpr (kTeam > 1) wait_for_mail(&mailboxes[step % 2], (step - 1) / 2);
    else __syncthreads();
    if constexpr (!kIsBulk) factors_stored();  // by others
    if (kGivesEach && kTeam > 1 && threadIdx.x == 0) mailbox_expect(&mailboxes[step % 2], kSliceBytes * kTeam);
  }
  PD_DEVICE void stored() const {
    if constexpr (kIsBulk || kIsByGroups) copies_follow_stores();
  }
  // This CTA's units of it, for those that finish; they have met since they stored it.
  PD_DEVICE void give(unsigned char* state, int step) const {
    unsigned char* const slice = state + rank * kSliceBytes;
    unsigned long long* const mailbox = &mailboxes[step % 2];
    if constexpr (kIsBulk) {
      copy_to_others([&](int to) { copy_to_peer(slice, slice, kSliceBytes, mailbox, to); }, rank);
    } else {
      constexpr int kSlicePieces = kSliceBytes / 16;
      for (int i = threadIdx.x; i < kSlicePieces * (kTeam - 1); i += kFinishers) {
        const int to = i / kSlicePieces;
        uint4* const piece = (uint4*)slice + i % kSlicePieces;
        send_piece(piece, *piece, mailbox, to + (to >= rank));
      }
    }
    if (kTeam > 1 && threadIdx.x == 0) mailbox_expect(mailbox, kSliceBytes * (kTeam - 1));
  }
  PD_DEVICE int word_of(const CellPlace&) const { return -1; }
  // What this warp's threads have made of it.
  PD_DEVICE void give(const float (&h)[kCells], const int (&)[kCells], unsigned char* state, int step) const {
    const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * kWarpUnits;
    unsigned long long* const mailbox = &mailboxes[step % 2];
#pragma unroll
    for (int packet = 0; packet < kWarpUnits / kPacket; ++packet) {
      const bool has_units = first + packet * kPacket < kUnits;
#pragma unroll
      for (int turn = 0; turn < kTurns; ++turn) {
        const int row = turn * (32 / kTeam) + lane / kTeam;
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
        const int at = own + (begun + packet) / kInPieces * (kRows * 16) + ((begun + packet) % kInPieces - begun) * kPacketBytes;
        unsigned char* const to = state + at + turn * (32 / kTeam) * 16;
        if (row < kRows && has_units) {
          if constexpr (kTeam > 1) send_words(to, words, mailbox, peer);
          else put_words(to, words);
        }
      }
    }
  }
  PD_DEVICE void end(int) const {
    if constexpr (kTeam > 1) cluster_barrier();  // others may still send
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
