// SPDX-License-Identifier: Apache-2.0
// What both directions of a recurrence over time are written with. A team of kTeam CTAs (a cluster) has kRows rows of the
// batch for all steps, and each CTA kUnits of the hidden units: their weights stay in its registers and its shared
// memory from the first step to the last. Vectors that the tensor cores multiply by them lie in pieces of 16 bytes,
// piece p of row n at place p * kRows + n, so what a CTA makes for the others lies side by side.
// A cell is one unit of one row; cell i of a thread is number threadIdx.x + i * kThreads, units side by side.

constexpr int kInPiece = 16 / (int)sizeof(Stored);       // elements
constexpr int kInStep = 2 * kInPiece;                    // elements along K that are multiplied at once
constexpr int kHidden = kTeam * kUnits;                  // what is behind the last unit is zero
constexpr int kCells = (kUnits * kRows + kThreads - 1) / kThreads;
constexpr int kColumnTiles = (kRows + 7) / 8;
// Threads that have cells, whole warps; all multiply.
constexpr int kFinishers = kIsBulk || kCells > 1 ? kThreads : (kUnits * kRows + 31) / 32 * 32;

#ifdef PD_EMULATE
using emulation::barrier_pass;
using emulation::barrier_wait;
using emulation::copy_to_peer;
using emulation::send_piece;
PD_DEVICE void copies_follow_stores() {}
PD_DEVICE float fast_tanh(float a) { return tanhf(a); }
#else
// A barrier of so many threads: some wait for all, others only let them know that they have come.
PD_DEVICE void barrier_wait(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
PD_DEVICE void barrier_pass(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
// Puts 16 bytes where `at` is in CTA `rank` of the cluster, and counts them in the mailbox there.
PD_DEVICE void send_piece(uint4* at, uint4 value, unsigned long long* mailbox, unsigned rank) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
          address_in(shared_address(at), rank)),
      "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w), "r"(address_in(shared_address(mailbox), rank))
      : "memory");
}
// The copy engine brings so many bytes from here to where `to` is in CTA `rank`.
PD_DEVICE void copy_to_peer(void* to, const void* from, unsigned bytes, unsigned long long* mailbox, unsigned rank) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          address_in(shared_address(to), rank)),
      "r"(shared_address(from)), "r"(bytes), "r"(address_in(shared_address(mailbox), rank))
      : "memory");
}
// The copy engine sees what this thread has stored before.
PD_DEVICE void copies_follow_stores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// Differs from tanh by at most 1.1e-5 of it, a fiftieth of what is lost by TF32.
PD_DEVICE float fast_tanh(float a) {
  float value;
  asm("tanh.approx.f32 %0, %1;" : "=f"(value) : "f"(a));
  return value;
}
#endif

// Where nothing else rounds, no approximation does.
PD_DEVICE float cell_tanh(float a) { return kIsExact ? pd_tanh(a) : fast_tanh(a); }
PD_DEVICE float cell_sigmoid(float a) { return kIsExact ? pd_sigmoid(a) : 0.5f + 0.5f * fast_tanh(0.5f * a); }

// What a step needs from CTAs of its team, this one too, comes whatever happens: all of a cluster run.
PD_DEVICE void wait_for_mail(unsigned long long* mailbox, int round) {
  while (!mailbox_try(mailbox, round & 1)) {}
}

// As a factor of the products: f32 is rounded to TF32 where it may be.
PD_DEVICE unsigned factor_bits(unsigned bits) {
  if constexpr (sizeof(Stored) == 4 && !kIsExact) return round_to_tf32(bits);
  else return bits;
}
// Element `element` of row `row`'s vector.
PD_DEVICE void store_factor(unsigned char* vectors, int element, int row, float value) {
  unsigned char* const at = vectors + (element / kInPiece * kRows + row) * 16 + element % kInPiece * sizeof(Stored);
  if constexpr (sizeof(Stored) == 4) *(unsigned*)at = factor_bits(__float_as_uint(value));
  else *(unsigned short*)at = (unsigned short)stored_bits<Stored>(value);
}

// The rows of the batch that a team has, and how many steps of each count. Sorted by their lengths, longest first, so
// that a team may end early.
struct TeamRows {
  int row[kRows], length[kRows];

  PD_DEVICE void find(const int* lengths, const Sizes& size) {
    const int batch = size.batch, steps = size.steps, first = blockIdx.x / kTeam * kRows;
    for (int n = threadIdx.x; n < kRows; n += kThreads) {
      const bool is_there = first + n < batch;
      row[n] = is_there ? first + n : -1, length[n] = is_there ? steps : 0;
    }
    if constexpr (kHasLengths) {
      __syncthreads();
      for (int n = threadIdx.x; n < batch; n += kThreads) {
        const int mine = length_of(lengths, n, steps);
        int place = 0;
        for (int other = 0; other < batch; ++other) {
          const int theirs = length_of(lengths, other, steps);
          place += theirs > mine || (theirs == mine && other < n);
        }
        if (place >= first && place < first + kRows) row[place - first] = n, length[place - first] = mine;
      }
    }
    __syncthreads();
  }
  static PD_DEVICE int length_of(const int* lengths, int row, int steps) {
    const int length = lengths[row];
    return length < 0 ? 0 : length > steps ? steps : length;
  }
};

// Where things lie in shared memory. While the weights come, `work` is theirs too.
struct Shared {
  unsigned long long* mailboxes;  // two
  TeamRows* rows;
  uint4* weights;  // those that registers have no room for
  unsigned char* work;

  PD_DEVICE explicit Shared(unsigned char* memory) {
    mailboxes = (unsigned long long*)memory;
    rows = (TeamRows*)(memory + 16);
    weights = (uint4*)(memory + (16 + sizeof(TeamRows) + 15) / 16 * 16);
    work = (unsigned char*)(weights + kWarps * kRestFragments * 32);
  }
};

// copy(rank) for every other CTA of the team. One thread of a warp after the other would take the time of all, so the
// warps that finish share them.
template <class Copy> PD_DEVICE void copy_to_others(const Copy& copy, int rank) {
  constexpr int kShares = kFinishers / 32;
  const int lane = threadIdx.x % 32, to = threadIdx.x / 32 + lane * kShares;
  if (to < kTeam - 1) copy(to + (to >= rank));
}

// Where a thread's cell is.
struct CellPlace {
  Index at = -1;   // of its row and unit in [batch, hidden]; -1: there is none
  int unit;        // of the layer
  int of_cta;      // unit of the CTA
  int row;         // of the team
  int length = 0;  // steps that count

  PD_DEVICE void find(int i, const TeamRows& rows, int rank, int hidden) {
    const int cell = threadIdx.x + i * kThreads;
    row = cell / kUnits, of_cta = cell % kUnits, unit = rank * kUnits + of_cta;
    if (row >= kRows || rows.row[row] < 0 || unit >= hidden) return;
    at = (Index)rows.row[row] * hidden + unit, length = rows.length[row];
  }
  // Of the first gate in [batch, gates, hidden].
  PD_DEVICE Index in_gates(int gates) const { return at + (at - unit) * (gates - 1); }
};
