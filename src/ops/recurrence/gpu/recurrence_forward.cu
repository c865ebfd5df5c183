// SPDX-License-Identifier: Apache-2.0
// A recurrent layer over time, forward. Every step each CTA multiplies the state of all units (kDepthPieces pieces in
// shared memory) by its own units' weights; warps share out the rows of the matrix, which are gates by units, and K
// (kParts). Threads that have cells finish them, while the others wait for the next state, and the results go to every
// CTA of the CTA group (StateExchange).

// Shared memory after the parts that all recurrences have; weights are staged here at first.
PD_DEVICE unsigned char* states_of(const Shared& shared) { return shared.work; }  // kStates
PD_DEVICE float* sums_of(const Shared& shared) {  // [kParts][kRows][kSumStride]
  return (float*)(shared.work + (kSharesState ? 0 : kStates * kStateBytes));
}
// Where the state is shared out, this CTA's part of the next one.
PD_DEVICE unsigned char* slice_of(const Shared& shared) {
  constexpr int kSumBytes = kParts * kRows * kSumStride * 4;
  constexpr int kTileBytes = kStateBytes + (kWgmma ? (kColumnTiles * 8 - kRows) * 16 : 0);
  return shared.work + (kTileBytes > kSumBytes ? kTileBytes : kSumBytes);
}
PD_DEVICE unsigned char* behind_sums(const Shared& shared) {
  return kSharesState ? slice_of(shared) + kSliceBytes : (unsigned char*)(sums_of(shared) + kParts * kRows * kSumStride);
}

// Rows of [batch, hidden], of each the units that this CTA multiplies, as vectors to multiply; for all threads, which
// wait for their copies.
PD_DEVICE void bring_start(unsigned char* start, const Stored* h0, const CtaGroupRows& rows, int rank, int hidden) {
  const int behind = kSharesState ? rank % kSumPeers * kStateUnits : 0, left = hidden - behind;
  const int units = left < kStateUnits ? left : kStateUnits;
  h0 += behind;
  if constexpr (kIsInPieces && sizeof(Factor) == 2) {
    const int pieces = units / kInPiece;  // of a row
    for (int i = threadIdx.x; i < kRows * pieces; i += kThreads) {
      const int n = i / pieces, piece = i % pieces, row = rows.row[n];
      const Stored* const from = h0 + (row >= 0 ? (Index)row * hidden + piece * kInPiece : 0);
      copy_beside<16>(start + (piece * kRows + n) * 16, from, row >= 0);
    }
    copies_end_group();
    return;
  }
  constexpr int kAtOnce = kRows < 8 ? kRows : 8;
  for (int first = 0; first < kRows; first += kAtOnce) {
    for (int unit = threadIdx.x; unit < units; unit += kThreads) {
      Pack<Stored, 1> h[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int row = first + i < kRows ? rows.row[first + i] : -1;
        if (row >= 0) load<true>(h[i], h0 + (Index)row * hidden + unit);
        else h[i].put(0, 0.0f);
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        if (first + i < kRows) store_factor(start, unit, first + i, h[i].get(0));
      }
    }
  }
}

// A layer whose input's part of all steps is there before the launch, and that nobody waits for. (Layers of a pipeline:
// recurrence_pipelined.cu.)
struct NotPipelined {
  using Part = Pack<Stored, 1>;  // of a cell's gate
  using Source = const Stored*;

  PD_DEVICE Source input_of(const Operands& operands, int, Index time, Index elements) const {
    return operands.xw + time * elements;
  }
  PD_DEVICE Index stride(bool is_reverse, Index elements) const { return is_reverse ? -elements : elements; }
  static PD_DEVICE void ask(Part& part, Source from) { load<true>(part, from); }
  static PD_DEVICE float number(const Part& part) { return part.get(0); }
  template <class SourceOf> PD_DEVICE void await(Part (&)[kCells][kLaneGates], const SourceOf&) const {}
  PD_DEVICE void begin(const CellPlace (&)[kCells]) {}
  PD_DEVICE void give(const Cell (&)[kCells], const CellPlace (&)[kCells], int) const {}
  PD_DEVICE void pass(int, int) const {}
  PD_DEVICE void end() const {}
};

// The input's values for a later step, where they are in registers; else InputAhead has them.
template <class Part> struct Ahead {
  Part x[kCells][kLaneGates];
};
constexpr bool kAsksEarly =
    !kCopiesAhead && (kUnitsPerWarpgroup ? kCells * kLaneGates <= 12 : kCells * kLaneGates <= 8 && (kKeepsSums || kRows <= 8));

// Whether a thread asks for much by itself, while groups multiply; it asks for little in front of that.
constexpr bool kAsksBeside = kWgmma && kCells * kLaneGates > 8;

template <class AnyCell, int kCount>
PD_DEVICE void advance(AnyCell& cell, const float (&x)[kCount], const float (&sum)[kCount], int lane, bool counts) {
  if constexpr (kHasGateLanes) cell.advance_by_fma(x[0], sum[0], lane, counts);
  else if constexpr (kHasGatePairs) cell.advance_by_pairs(x, sum, lane, counts);
  else if (counts) cell.advance(x, sum);
}

// `cta`: of the layer's. `pipeline`: where the input's part comes from, and who waits for the states.
template <class Pipeline>
PD_DEVICE void run_forward(const Operands& operands, const LaunchScratch& scratch, const Sizes& size, unsigned cta, Pipeline pipeline) {
  PD_DYNAMIC_SHARED(unsigned char, memory);
  const Shared shared(memory);
  unsigned char* const states = states_of(shared);
  float* const sums = sums_of(shared);
  StateExchange exchange(shared, scratch, cta);
  constexpr int hidden = kLayerHidden;  // so that places of gates are known
  const int rank = exchange.rank, batch = size.batch, last = size.steps;
  const bool is_reverse = kIsDirectionGiven ? size.is_reverse != 0 : kIsReverse;
  const bool takes_part = exchange.takes_part();
  const int thread = kept_known((int)threadIdx.x), lane = kept_known(thread % 32);
  ForwardWeights weights;
  PhaseClock clock;
  clock.begin();
  constexpr bool kBringsFirst = kUnmodifiedByPrevious && kFewCtaGroups == 0 && kStreamed == 0;
  if constexpr (!kBringsFirst) {
    grid_dependency_wait();
    if (is_left_to_the_other(operands.lengths, size, (int*)shared.work)) return;
  }
  InputAhead input;
  input.bring(shared, operands, rank);
  weights.bring(shared, scratch, cta, operands.u, rank, hidden);
  input.turn();
  for (int i = threadIdx.x; i < kStates * kStateBytes / 16; i += kThreads) ((uint4*)states)[i] = make_uint4(0, 0, 0, 0);
  for (int i = threadIdx.x; kSharesState && i < kSliceBytes / 16; i += kThreads) {
    ((uint4*)slice_of(shared))[i] = make_uint4(0, 0, 0, 0);
  }
  exchange.come();
  clock.ended(kBringing);
  if constexpr (kBringsFirst) grid_dependency_wait();
  clock.ended(kAwaiting);
  const unsigned called_off = called_off_word(scratch);
  exchange.ask();

  const int cta_group = cta / kGroupCtas, batch_tiles = batch_tiles_of(size);
  int given = 0;  // states, for the batch tiles before
  for (int turn = 0; turn < batch_tiles; ++turn) {
    __syncthreads();  // nobody is at the rows or the state of the batch tile before
    shared.rows->find(operands.lengths, size, batch_tile_of(turn, cta_group, kFewCtaGroups));
    const int steps = shared.rows->length[0] < last && kHasLengths ? shared.rows->length[0] : last;
    const auto time_of = [&](int step) { return is_reverse ? steps - 1 - step : step; };

    // All loads are under way before the first of them is waited for.
    Cell cell[kCells];
    CellPlace place[kCells], first_place;
    first_place.find_first(*shared.rows, rank, hidden);
    int word[kCells];
    // Threads whose cells are of one unit have one bias.
    constexpr int kBiases = !kKeepsSums && kCellsAtOnce % kOwnUnits == 0 ? 1 : kCells;
    float bias[kBiases][kLaneGates];
    const Index step_elements = (Index)batch * hidden, input_elements = step_elements * kGates;
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      place[i].find(i, *shared.rows, rank, hidden);
      word[i] = kept_known(exchange.word_of(place[i]));
#pragma unroll
      for (int k = 0; k < kLaneGates && i < kBiases; ++k) {
        const int gate = CellPlace::gate_of(k);
        const bool is_there = kHasBias && place[i].unit < hidden && gate < kGates;
        bias[i % kBiases][k] = is_there ? load_one<true>(operands.bias + gate * hidden + place[i].unit) : 0.0f;
      }
      if (place[i].at >= 0) cell[i].start(operands, place[i]);
    }
    pipeline.begin(place);
    const auto keep = [&](int i, int time) {
      const Index here = time * step_elements, after = is_reverse ? here : here + step_elements;
      cell[i].keep(operands, !kHasLengths || time < place[i].length, after, here, place[i], hidden);
    };
    // Steps after the last of the CTA group's rows: the reverse direction passes them before it begins.
    const auto keep_behind = [&] {
#pragma unroll
      for (int i = 0; i < kCells; ++i) {
        for (int time = steps; place[i].finishes && time < last; ++time) keep(i, time);
      }
    };
    // The input's values, made numbers once they are there: of this step and, for few rows, of the next one. Those are
    // asked for beside the products: polling does not begin before all that was asked for is there.
    Ahead<typename Pipeline::Part> ahead, next;
    typename Pipeline::Source from[kCells];  // of the step that is asked for next, this thread's first gate
    const Index input_stride = pipeline.stride(is_reverse, input_elements);
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      const int gate = CellPlace::gate_of(0) < kGates ? CellPlace::gate_of(0) : 0;
      const Index at = place[i].to_read(first_place).in_gates(kGates) + gate * hidden;
      from[i] = pipeline.input_of(operands, 0, time_of(0), input_elements) + at;
      if constexpr (kAsksEarly) from[i] = kept_known(from[i]);
    }
    const auto fetch = [&](auto& to, int step, bool is_there) {
      if (!is_there) return;
      const int time = time_of(step);
      const auto xw = pipeline.input_of(operands, step, time, input_elements);
#pragma unroll
      for (int i = 0; i < kCells; ++i) {
        if constexpr (kAsksEarly) {
#pragma unroll
          for (int k = 0; k < kLaneGates; ++k) {
            const int gate = CellPlace::gate_of(k), behind = kHasGatePairs ? 2 : 1;  // from one to the next
            Pipeline::ask(to.x[i][k], from[i] + (gate < kGates ? k * behind * hidden : 0));
          }
          from[i] = kept_known(from[i] + input_stride);
          continue;
        }
        if (kHasLengths && time >= place[i].length) continue;
        const Index at = place[i].to_read(first_place).in_gates(kGates);
#pragma unroll
        for (int k = 0; k < kLaneGates; ++k) {
          const int gate = CellPlace::gate_of(k) < kGates ? CellPlace::gate_of(k) : 0;
          Pipeline::ask(to.x[i][k], xw + (at + gate * hidden));
        }
      }
    };
    if constexpr (kCopiesAhead) {
      input.find(behind_sums(shared), *shared.rows, rank, place);
      input.start(operands, size, steps, time_of);
    } else {
      fetch(ahead, 0, steps > 0);
    }
    // Everybody reads the whole of the state to start from. The other place may be where the next one comes by now.
    bring_start(states + given % kStates * kStateBytes, operands.h0, *shared.rows, rank, hidden);
    copies_wait<0>();
    if (called_off != 0) return;
    factors_stored();
    if (turn == 0) exchange.begin();
    else __syncthreads();
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      if (place[i].finishes) cell[i].keep_start(operands, place[i], is_reverse ? last * step_elements : 0);
    }
    if (is_reverse) keep_behind();
    clock.ended(kStarting);

    // Counted down, so that the last step is known without reading the launch's sizes.
    [[maybe_unused]] int left = steps;
    for (int step = 0; (kIsNarrow ? left > 0 : step < steps) && takes_part; ++step) {
      const bool is_last = kIsNarrow ? left == 1 : step + 1 >= steps;
      if constexpr (kIsNarrow) left = kept_known(left - 1);
      const int state = given + step;
      unsigned char* const before = states + state % kStates * kStateBytes;
      // The address is as if the whole state lay there.
      unsigned char* const after = kSharesState ? slice_of(shared) - rank * kSliceBytes
                                                : states + (state + 1) % kStates * kStateBytes;
      const Aim aim = exchange.aim(before, after, state);
      weights.aim(before, is_last);
      if (step > 0) exchange.take(aim, state);
      clock.ended(kWaiting);
      if constexpr (kAsksEarly && !kAsksBeside) fetch(next, step + 1, !is_last);
      float sum[kCells][kLaneGates];
      const auto await_half = [&] {
        if (step > 0) exchange.take_half(state);
      };
      const auto beside = [&] {
        if constexpr (kAsksEarly && kAsksBeside) fetch(next, step + 1, !is_last);
      };
      if (!weights.multiply(sum, sums, before, thread, place, await_half, beside)) continue;
      exchange.share(sum, sums, place, state);
      clock.ended(kMultiplying);
      const int time = time_of(step);
      pipeline.await(ahead.x, [&](int i, int k) {
        const int gate = CellPlace::gate_of(k) < kGates ? CellPlace::gate_of(k) : 0;
        const Index at = place[i].to_read(first_place).in_gates(kGates) + gate * hidden;
        return pipeline.input_of(operands, step, time, input_elements) + at;
      });
#pragma unroll
      for (int i = 0; i < kCells; ++i) {
        const bool counts = !kHasLengths || time < place[i].length;
        float x[kLaneGates];
#pragma unroll
        for (int k = 0; k < kLaneGates; ++k) {
          x[k] = (kCopiesAhead ? input.get(i, k, step) : Pipeline::number(ahead.x[i][k])) + bias[i % kBiases][k];
        }
        advance(cell[i], x, sum[i], lane, counts);
      }
      clock.ended(kInGates);
      if constexpr (kGivesEach) {
        float h[kCells];
#pragma unroll
        for (int i = 0; i < kCells; ++i) h[i] = place[i].at >= 0 ? cell[i].h : 0.0f;
        // Without a branch, after which lanes would have to synchronize.
        if (kIsNarrow || !is_last) exchange.give(h, word, after, aim, state + 1, kIsNarrow && is_last);
      } else {
#pragma unroll
        for (int i = 0; i < kCells; ++i) {
          if (place[i].at >= 0) store_factor(after, place[i].unit, place[i].row, cell[i].h);
        }
        exchange.stored();
        if constexpr (kFinishers == 32) __syncwarp();
        else if constexpr (kUnitsPerWarpgroup) barrier_wait(3 + thread / kTogether, kTogether);
        else barrier_wait(2, kFinishers);
        if (!is_last) exchange.give(after, aim, state + 1);
      }
      if (step > 0) exchange.taken(state);
      pipeline.give(cell, place, step);
      clock.ended(kGiving);
#pragma unroll
      for (int i = 0; i < kCells; ++i) {
        if (place[i].finishes) keep(i, time);
      }
      if constexpr (kAsksEarly) ahead = next;
      else if constexpr (kCopiesAhead) input.next(operands, size, step + 1, steps, time_of);
      else fetch(ahead, step + 1, !is_last);
      clock.ended(kStoring);
    }
    if (!is_reverse) keep_behind();
    if constexpr (kHasLengths) pipeline.pass(steps, last);
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      if (place[i].finishes) cell[i].end(operands, place[i].at);
    }
    given += steps > 0 ? steps - 1 : 0;
  }
  weights.end();
  exchange.end(given + 1);
  pipeline.end();
  clock.ended(kEnding);
  clock.tell(scratch, cta);
}
