// SPDX-License-Identifier: Apache-2.0
// The state from step to step within a cluster: of little each piece goes to every CTA by a thread, of much by the copy
// engine. Two places for the state are used in turn, each with a mailbox: who sends the state of step s + 1 has had all
// of step s, so nobody reads what it overwrites.

constexpr int kStates = 2;  // places

struct StateExchange {
  unsigned long long* mailboxes;
  int rank;

  PD_DEVICE StateExchange(const Shared& shared, const Room&) : mailboxes(shared.mailboxes), rank(rank_in_team()) {
    if (kTeam > 1 && threadIdx.x < 2) mailbox_init(&mailboxes[threadIdx.x], 1);
  }
  PD_DEVICE void begin() const { meet_team(); }
  // For all threads: the state that step `step` begins with, of all units.
  PD_DEVICE void take(unsigned char*, int step) const {
    if constexpr (kTeam > 1) wait_for_mail(&mailboxes[step % 2], (step - 1) / 2);
    else __syncthreads();
    if constexpr (!kIsBulk) factors_stored();  // by others
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
  PD_DEVICE void give(int, float, int) const {}
  PD_DEVICE void end(int) const {
    if constexpr (kTeam > 1) cluster_barrier();  // others may still send
  }
};
