// SPDX-License-Identifier: Apache-2.0
// The gradient of a recurrent layer over time. Every step each thread has the gradients of its cells' gates from what
// came back to them; the CTA multiplies these by its own units' weights, now turned over, which gives a part of what comes
// back to every unit of the team; and each CTA gets its parts of all (PartExchange), which it adds up in the order of the
// CTAs.

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
  weights.are_there();
  __syncthreads();
}

// `cta`: of the layer's.
PD_DEVICE void run_backward(const Operands& operands, const Room& room, const Sizes& size, unsigned cta) {
  PD_DYNAMIC_SHARED(unsigned char, memory);
  const Shared shared(memory);
  unsigned char* const factors = shared.work;  // gradients of the gates: kDepthPieces pieces by kRows rows
  PartExchange exchange(shared, factors + kFactorBytes, room, cta);
  constexpr int hidden = kLayerHidden;  // so that places of gates are known
  const int rank = exchange.rank, batch = size.batch, last = size.steps;
  const bool is_reverse = kIsDirectionGiven ? size.is_reverse != 0 : kIsReverse;
  PhaseClock clock;
  clock.begin();
  WarpWeights weights;
  constexpr bool kBringsFirst = kIsSettled && kFewTeams == 0;
  if constexpr (!kBringsFirst) {
    await_launch_before();
    if (is_called_off(room) || is_left_to_the_other(operands.lengths, size, (int*)shared.work)) return;
  }
  bring_weights(weights, shared, operands.u, rank, hidden);
  clock.ended(kBringing);
  if constexpr (kBringsFirst) {
    await_launch_before();
    if (is_called_off(room)) return;
  }
  clock.ended(kAwaiting);
  for (int i = threadIdx.x; i < kFactorBytes / 16; i += kThreads) ((uint4*)factors)[i] = make_uint4(0, 0, 0, 0);

  CellSums sums;
  const int team = cta / kTeam, rounds = rounds_of(size);
  int given = 0;  // parts of so many steps, in the rounds before
  for (int round = 0; round < rounds; ++round) {
    __syncthreads();  // nobody is at the rows of the round before
    shared.rows->find(operands.lengths, size, portion_of(round, team, kFewTeams));
    const int steps = kHasLengths && shared.rows->length[0] < last ? shared.rows->length[0] : last;
    const auto time_of = [&](int step) { return is_reverse ? step : steps - 1 - step; };

    Cell cell[kCells];
    CellPlace place[kCells], first_place;
    first_place.find_first(*shared.rows, rank, hidden);
    const Index step_elements = (Index)batch * hidden;
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      place[i].find(i, *shared.rows, rank, hidden);
      if (place[i].at < 0) continue;
      cell[i].start(operands, place[i].at);
      if (steps > 0) cell[i].fetch_end(operands, is_reverse ? 0 : steps * step_elements, place[i]);
    }
    const auto fetch = [&](int step) {
      if (step >= steps) return;
      const int time = time_of(step);
      const Index here = time * step_elements, next = here + step_elements;
#pragma unroll
      for (int i = 0; i < kCells; ++i) {
        if (kHasLengths && place[i].at < 0) continue;
        const Index began = time + 1 == place[i].length ? last * step_elements : next;
        const StepElements at =
            is_reverse ? StepElements{next, here, here, began} : StepElements{here, here, next, here};
        cell[i].fetch(operands, !kHasLengths || time < place[i].length, at, place[i].to_read(first_place), hidden);
      }
    };
    fetch(0);
    if (round == 0) exchange.begin();

    // What came back from a step to the state before it.
    const auto take_back = [&](int step) {
      exchange.wait(given + step);
      float sum[kCells];
      const auto counts = [&](int i) { return time_of(step) < place[i].length; };
      exchange.take(sum, given + step, place, counts);
#pragma unroll
      for (int i = 0; i < kCells; ++i) {
        if (!kHasLengths || counts(i)) cell[i].take_back(sum[i]);
      }
    };

    clock.ended(kStarting);
    for (int step = 0; step < steps; ++step) {
      const int time = time_of(step);
      if (step > 0 && threadIdx.x < kFinishers) take_back(step - 1);
      clock.ended(kWaiting);
      float gradients[kCells][kGates];
#pragma unroll
      for (int i = 0; i < kCells; ++i) {
        const bool counts = !kHasLengths || time < place[i].length;
        cell[i].retreat(operands, gradients[i], counts);
#pragma unroll
        for (int gate = 0; gate < kGates && !counts; ++gate) gradients[i][gate] = 0;
      }
#pragma unroll
      for (int i = 0; i < kCells; ++i) {
        if (place[i].at < 0) continue;
#pragma unroll
        for (int gate = 0; gate < kGates; ++gate) {
          store_factor(factors, gate * kUnits + place[i].of_cta, place[i].row, gradients[i][gate]);
        }
      }
      factors_stored();
      __syncthreads();
      clock.ended(kInGates);
      Products products;
      products.begin(weights, factors);
      fetch(step + 1);
      float sum[kTiles][kColumnTiles][4];
      products.end(sum);
      clock.ended(kMultiplying);
      exchange.give(sum, given + step);
      clock.ended(kGiving);
#pragma unroll
      for (int i = 0; i < kCells; ++i) {
        if (place[i].at < 0) continue;
        cell[i].keep(operands, gradients[i], time * step_elements, place[i], hidden);
        sums.add(i, cell[i], gradients[i]);
      }
      clock.ended(kStoring);
    }
    if (steps > 0) take_back(steps - 1);
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      if (place[i].at < 0) continue;
      float none[kGates] = {};
      cell[i].retreat(operands, none, false);
      for (int time = steps; time < last; ++time) {
        cell[i].keep(operands, none, time * step_elements, place[i], hidden);
      }
      cell[i].end(operands, place[i].at);
    }
    given += steps;
  }
  exchange.end(given);
  sums.end(operands.sums, (float*)shared.work, room, team, rank, hidden);
  clock.ended(kEnding);
  clock.tell(room, cta);
}
