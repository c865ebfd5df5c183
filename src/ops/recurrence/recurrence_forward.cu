// SPDX-License-Identifier: Apache-2.0
// A recurrent layer over time, forward. Every step each CTA multiplies the state of all units (kDepthPieces pieces in
// shared memory) by its own units' weights; warps share out the rows of the matrix, which are gates by units, and K
// (kParts). Threads that have cells finish them, while the others wait for what comes next, and what comes out goes to
// every CTA of the team: of little each piece by a thread, of much by the copy engine. Two places for the state are used
// in turn, each with a mailbox that counts what came: who sends the state of step s + 1 has had all of step s, so nobody
// reads what it overwrites.

constexpr int kStateBytes = kDepthPieces * kRows * 16, kSliceBytes = kUnits / kInPiece * kRows * 16;

// What lies in shared memory behind what all recurrences have there; where weights are staged at first.
PD_DEVICE unsigned char* states_of(const Shared& shared) { return shared.work; }  // two
PD_DEVICE float* sums_of(const Shared& shared) {  // [kParts][kRows][kSumStride]
  return (float*)(shared.work + 2 * kStateBytes);
}

// To all others of the team; those that finish come here.
PD_DEVICE void send_slice(unsigned char* state, int rank, unsigned long long* mailbox) {
  unsigned char* const slice = state + rank * kSliceBytes;
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
  if (threadIdx.x == 0) mailbox_expect(mailbox, kSliceBytes * (kTeam - 1));
}

PD_DEVICE void run_forward(const Operands& operands, const Room& room, const Sizes& size) {
  PD_DYNAMIC_SHARED(unsigned char, memory);
  const Shared shared(memory);
  unsigned char* const states = states_of(shared);
  float* const sums = sums_of(shared);
  const int rank = kTeam > 1 ? cluster_rank() : 0;
  const int hidden = size.hidden, batch = size.batch, last = size.steps;
  if (threadIdx.x < 2) mailbox_init(&shared.mailboxes[threadIdx.x], 1);
  ForwardWeights weights;
  if constexpr (!kIsSettled) await_launch_before();
  weights.bring(shared, operands.u, rank, hidden);
  if constexpr (kIsSettled) await_launch_before();
  if (is_called_off(room)) return;
  shared.rows->find(operands.lengths, size);
  const int steps = shared.rows->length[0] < last && kHasLengths ? shared.rows->length[0] : last;
  const auto time_of = [&](int step) { return kIsReverse ? steps - 1 - step : step; };

  // Everybody reads the whole of the state to start from.
  for (int i = threadIdx.x; i < 2 * kStateBytes / 16; i += kThreads) ((uint4*)states)[i] = make_uint4(0, 0, 0, 0);
  __syncthreads();
  constexpr int kAtOnce = kRows < 8 ? kRows : 8;
  for (int first = 0; first < kRows; first += kAtOnce) {
    for (int unit = threadIdx.x; unit < hidden; unit += kThreads) {
      Pack<Stored, 1> h[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int row = first + i < kRows ? shared.rows->row[first + i] : -1;
        if (row >= 0) load<true>(h[i], operands.h0 + (Index)row * hidden + unit);
        else h[i].put(0, 0.0f);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i < kRows) store_factor(states, unit, first + i, h[i].get(0));
      }
    }
  }

  Cell cell[kCells];
  CellPlace place[kCells];
  const Index step_elements = (Index)batch * hidden;
#pragma unroll
  for (int i = 0; i < kCells; ++i) {
    place[i].find(i, *shared.rows, rank, hidden);
    if (place[i].at >= 0) cell[i].start(operands, place[i].at, kIsReverse ? last * step_elements : 0);
  }
  const auto keep = [&](int i, int time) {
    const Index here = time * step_elements, after = kIsReverse ? here : here + step_elements;
    cell[i].keep(operands, time < place[i].length, after, here, place[i], hidden);
  };
  // Steps behind the last of the team's rows: the reverse direction passes them before it begins.
  const auto keep_behind = [&] {
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      for (int time = steps; place[i].at >= 0 && time < last; ++time) keep(i, time);
    }
  };
  if constexpr (kIsReverse) keep_behind();
  Pack<Stored, 1> ahead[kCells][kGates];  // made numbers of when they are there
  const auto fetch = [&](int step) {
    if (step >= steps) return;
    const int time = time_of(step);
    const Stored* const xw = operands.xw + time * step_elements * kGates;
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      if (time >= place[i].length) continue;
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        load<true>(ahead[i][gate], xw + (place[i].in_gates(kGates) + gate * hidden));
      }
    }
  };
  fetch(0);
  if constexpr (kTeam > 1) cluster_barrier();  // mailboxes are there, and places are zero
  else __syncthreads();

  for (int step = 0; step < steps; ++step) {
    const unsigned char* const before = states + step % 2 * kStateBytes;
    unsigned char* const after = states + (step + 1) % 2 * kStateBytes;
    if (step > 0) wait_for_mail(&shared.mailboxes[step % 2], (step - 1) / 2);
    weights.multiply(sums, before);
    if (threadIdx.x >= kFinishers) {
      barrier_pass(1, kThreads);
      continue;
    }
    barrier_wait(1, kThreads);
    const int time = time_of(step);
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      if (time < place[i].length) {
        float x[kGates], sum[kGates];
#pragma unroll
        for (int gate = 0; gate < kGates; ++gate) {
          x[gate] = ahead[i][gate].get(0);
          const float* const at = sums + place[i].row * kSumStride + gate * kUnits + place[i].of_cta;
          sum[gate] = at[0];
#pragma unroll
          for (int p = 1; p < kParts; ++p) sum[gate] += at[p * (kRows * kSumStride)];
        }
        cell[i].advance(x, sum);
      }
      if (place[i].at >= 0) store_factor(after, place[i].unit, place[i].row, cell[i].h);
    }
    if constexpr (kIsBulk) copies_follow_stores();
    if constexpr (kFinishers == 32) __syncwarp();
    else barrier_wait(2, kFinishers);
    if (step + 1 < steps) send_slice(after, rank, &shared.mailboxes[(step + 1) % 2]);
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      if (place[i].at >= 0) keep(i, time);
    }
    fetch(step + 1);
  }
  if constexpr (!kIsReverse) keep_behind();
#pragma unroll
  for (int i = 0; i < kCells; ++i) {
    if (place[i].at >= 0) cell[i].end(operands, place[i].at);
  }
  if constexpr (kTeam > 1) cluster_barrier();  // others may still send
}
