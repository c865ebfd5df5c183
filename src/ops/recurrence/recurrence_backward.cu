// SPDX-License-Identifier: Apache-2.0
// The gradient of a recurrent layer over time. Every step each thread has the gradients of its cells' gates from what
// came back to them; the CTA multiplies these by its own units' weights, now turned over, which gives a part of what comes
// back to every unit of the team; and the copy engine brings each CTA its parts of all others, which it adds up in the
// order of the CTAs. Two places for what is sent and for what comes are used in turn: who sends the parts of step s + 1
// has had all of step s.

constexpr int kPartStride = kUnits + 4, kPartFloats = kRows * kPartStride;  // lanes of a warp go to different banks
constexpr int kPartBytes = kPartFloats * 4;
constexpr int kFactorBytes = kDepthPieces * kRows * 16;

// This warp's weights: of its rows, which are units that something comes back to, what belongs to this CTA's gates.
PD_DEVICE void bring_weights(WarpWeights& weights, const Shared& shared, const Stored* u, int rank, int hidden) {
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  weights.begin(shared.weights);
#pragma unroll
  for (int begin = 0; begin < kTiles; begin += kStaged) {
    if (begin > 0) __syncthreads();
    stage_weights<kWarps, kTiles * 16, kStaged * 16>(shared.work, u, rank, begin * 16, hidden);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kStaged * kSteps; ++i) {
      const int tile = begin + i / kSteps, step = i % kSteps;
      if (tile >= kTiles) continue;
      const int row = (warp * kStaged + i / kSteps) * 16 + lane / 8 % 2 * 8 + lane % 8;
      unsigned fragment[4];
      load_squares(fragment, shared.work + row * kStageStride + step * 32 + lane / 16 * 16);
      weights.put(tile * kSteps + step, fragment);
    }
  }
  __syncthreads();
}

// Of 16 rows of a tile, 8 are units of one CTA.
PD_DEVICE void store_parts(const float (&sum)[kTiles][kColumnTiles][4], float* parts, int first_row) {
  const int lane = threadIdx.x % 32;
  // Where a warp's rows are all of one CTA, or CTAs' all of one warp, it is known how they go on.
  constexpr bool kIsRegular = kTiles * 16 % kUnits == 0 || kUnits % (kTiles * 16) == 0;
  const int first = first_row / kUnits * kPartFloats + first_row % kUnits + lane % 4 * 2 * kPartStride + lane / 4;
#pragma unroll
  for (int i = 0; i < kTiles * 2; ++i) {
    const int row = first_row + i * 8;
    if (row >= kHidden) break;
    const int known = i * 8 / kUnits * kPartFloats + i * 8 % kUnits;
    float* const to = kIsRegular ? parts + first + known
                                 : parts + row / kUnits * kPartFloats + row % kUnits + lane % 4 * 2 * kPartStride + lane / 4;
#pragma unroll
    for (int k = 0; k < kColumnTiles * 2; ++k) {
      const int n = k / 2 * 8 + lane % 4 * 2 + k % 2;
      if (n < kRows) to[(k / 2 * 8 + k % 2) * kPartStride] = sum[i / 2][k / 2][i % 2 * 2 + k % 2];
    }
  }
}

PD_DEVICE void run_backward(const Operands& operands, const Room& room, const Sizes& size) {
  PD_DYNAMIC_SHARED(unsigned char, memory);
  const Shared shared(memory);
  unsigned char* const factors = shared.work;             // gradients of the gates: kDepthPieces pieces by kRows rows
  float* const come = (float*)(factors + kFactorBytes);   // two of [kTeam][kRows][kPartStride], from each CTA
  float* const sent = come + 2 * (kTeam * kPartFloats);   // the same for each CTA, its own too
  const int rank = kTeam > 1 ? cluster_rank() : 0, first_row = threadIdx.x / 32 * (kTiles * 16);
  const int hidden = size.hidden, batch = size.batch, last = size.steps;
  if (threadIdx.x < 2) mailbox_init(&shared.mailboxes[threadIdx.x], 1);
  WarpWeights weights;
  if constexpr (!kIsSettled) await_launch_before();
  bring_weights(weights, shared, operands.u, rank, hidden);
  if constexpr (kIsSettled) await_launch_before();
  if (is_called_off(room)) return;
  shared.rows->find(operands.lengths, size);
  const int steps = kHasLengths && shared.rows->length[0] < last ? shared.rows->length[0] : last;
  const auto time_of = [&](int step) { return kIsReverse ? step : steps - 1 - step; };
  for (int i = threadIdx.x; i < kFactorBytes / 16; i += kThreads) ((uint4*)factors)[i] = make_uint4(0, 0, 0, 0);

  Cell cell[kCells];
  CellPlace place[kCells];
  const Index step_elements = (Index)batch * hidden;
#pragma unroll
  for (int i = 0; i < kCells; ++i) {
    place[i].find(i, *shared.rows, rank, hidden);
    if (place[i].at < 0) continue;
    cell[i].start(operands, place[i].at);
    if (steps > 0) cell[i].fetch_end(operands, kIsReverse ? 0 : steps * step_elements, place[i]);
  }
  const auto fetch = [&](int step) {
    if (step >= steps) return;
    const int time = time_of(step);
    const Index here = time * step_elements, before = kIsReverse ? here + step_elements : here;
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      if (place[i].at >= 0) cell[i].fetch(operands, time < place[i].length, before, here, place[i], hidden);
    }
  };
  fetch(0);
  if constexpr (kTeam > 1) cluster_barrier();
  else __syncthreads();

  // What came back from a step to the state before it.
  const auto take_back = [&](int step) {
    wait_for_mail(&shared.mailboxes[step % 2], step / 2);
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      if (time_of(step) >= place[i].length) continue;
      const int at = step % 2 * (kTeam * kPartFloats) + place[i].row * kPartStride + place[i].of_cta;
      float sum = (rank == 0 ? sent : come)[at];
#pragma unroll
      for (int other = 1; other < kTeam; ++other) sum += (rank == other ? sent : come)[at + other * kPartFloats];
      cell[i].take_back(sum);
    }
  };

  for (int step = 0; step < steps; ++step) {
    const int time = time_of(step);
    if (step > 0 && threadIdx.x < kFinishers) take_back(step - 1);
    float gradients[kCells][kGates];
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      if (place[i].at < 0) continue;
      const bool counts = time < place[i].length;
      cell[i].retreat(operands, gradients[i], counts);
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        if (!counts) gradients[i][gate] = 0;
        store_factor(factors, gate * kUnits + place[i].of_cta, place[i].row, gradients[i][gate]);
      }
    }
    __syncthreads();
    fetch(step + 1);
    float sum[kTiles][kColumnTiles][4];
    multiply_by(sum, weights, factors);
    store_parts(sum, sent + step % 2 * (kTeam * kPartFloats), first_row);
    if constexpr (kTeam > 1) copies_follow_stores();
    __syncthreads();
    copy_to_others(
        [&](int to) {
          copy_to_peer(come + (step % 2 * kTeam + rank) * kPartFloats, sent + (step % 2 * kTeam + to) * kPartFloats,
                       kPartBytes, &shared.mailboxes[step % 2], to);
        },
        rank);
    if (threadIdx.x == 0) mailbox_expect(&shared.mailboxes[step % 2], kPartBytes * (kTeam - 1));
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      if (place[i].at >= 0) cell[i].keep(operands, gradients[i], time * step_elements, place[i], hidden);
    }
  }
  if (steps > 0) take_back(steps - 1);
#pragma unroll
  for (int i = 0; i < kCells; ++i) {
    if (place[i].at < 0) continue;
    const float none[kGates] = {};
    for (int time = steps; time < last; ++time) {
      cell[i].keep(operands, none, time * step_elements, place[i], hidden);
    }
    cell[i].end(operands, place[i].at);
  }
  if constexpr (kTeam > 1) cluster_barrier();
}
