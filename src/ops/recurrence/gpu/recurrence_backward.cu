// SPDX-License-Identifier: Apache-2.0
// The gradient of a recurrent layer over time. Every step each thread computes the gradients of its cells' gates from
// those that came back to its cells, and gives them to be multiplied by the weights; it takes its cells' part of the
// products at the start of the next one (BackwardProducts).

// `cta`: of the layer's.
PD_DEVICE void run_backward(const Operands& operands, const LaunchScratch& scratch, const Sizes& size, unsigned cta) {
  PD_DYNAMIC_SHARED(unsigned char, memory);
  const Shared shared(memory);
  BackwardProducts products(shared, scratch, cta);
  constexpr int hidden = kLayerHidden;  // so that places of gates are known
  const int rank = products.rank, batch = size.batch, last = size.steps;
  const bool is_reverse = kIsDirectionGiven ? size.is_reverse != 0 : kIsReverse;
  PhaseClock clock;
  clock.begin();
  constexpr bool kBringsFirst = kUnmodifiedByPrevious && kFewCtaGroups == 0 && kStreamed == 0;
  if constexpr (!kBringsFirst) {
    grid_dependency_wait();
    if (is_called_off(scratch) || is_left_to_the_other(operands.lengths, size, (int*)shared.work)) return;
  }
  products.bring(operands.u, hidden);
  clock.ended(kBringing);
  if constexpr (kBringsFirst) {
    grid_dependency_wait();
    if (is_called_off(scratch)) return;
  }
  clock.ended(kAwaiting);

  CellSums sums;
  const int cta_group = cta / kGroupCtas, batch_tiles = batch_tiles_of(size);
  int given = 0;  // parts of so many steps, for the batch tiles before
  for (int turn = 0; turn < batch_tiles; ++turn) {
    __syncthreads();  // nobody is at the rows of the batch tile before
    shared.rows->find(operands.lengths, size, batch_tile_of(turn, cta_group, kFewCtaGroups));
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
      if (step >= steps && (!kSimtFma || steps == 0)) return;
      const int time = time_of(step < steps ? step : steps - 1);  // lanes ask without a branch: it would wait at its end
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
    if (turn == 0) products.begin(shared, place);

    // Computes the part of a step that needs no gradients from the step after it, when its loads are there.
    const auto prepare = [&](int step) {
      if (step >= steps) return;
#pragma unroll
      for (int i = 0; i < kCells; ++i) cell[i].prepare(operands);
    };
    // Takes the gradient of the state before a step.
    const auto take_back = [&](int step) {
      float sum[kCells];
      if (!products.take(sum, given + step, place, clock)) return;
#pragma unroll
      for (int i = 0; i < kCells; ++i) {
        if (!kHasLengths || time_of(step) < place[i].length) cell[i].take_back(sum[i]);
      }
    };

    if constexpr (kSimtFma) prepare(0), fetch(1);
    clock.ended(kStarting);
    for (int step = 0; step < steps; ++step) {
      const int time = time_of(step);
      if (step > 0) take_back(step - 1);
      clock.ended(kWaiting);
      products.aim(step + 1 == steps);
      if (!products.has_cells()) continue;
      if constexpr (!kSimtFma) prepare(step);
      float gradients[kCells][kGates];
#pragma unroll
      for (int i = 0; i < kCells; ++i) {
        const bool counts = !kHasLengths || time < place[i].length;
        cell[i].retreat(operands, gradients[i], counts);
#pragma unroll
        for (int gate = 0; gate < kGates && !counts; ++gate) gradients[i][gate] = 0;
      }
      products.give(gradients, given + step, place, clock, [&] { fetch(step + 1); });
#pragma unroll
      for (int i = 0; i < kCells; ++i) {
        if (place[i].at < 0) continue;
        cell[i].keep(operands, gradients[i], time * step_elements, place[i], hidden);
        sums.add(i, cell[i], gradients[i]);
      }
      if constexpr (kSimtFma) prepare(step + 1), fetch(step + 2);
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
  products.end(given);
  sums.end(operands.sums, (float*)shared.work, scratch, cta_group, rank, hidden);
  clock.ended(kEnding);
  clock.tell(scratch, cta);
}
