// SPDX-License-Identifier: Apache-2.0
// The gradient's products by plain FMA in exact f32, for few rows of the batch. A CTA has the rows of u that produce
// the gradients of its own units, and receives the gradients of all gates through global memory in every step. Threads
// divide K: each loads only the pieces of the gradients that its weights multiply, straight into registers, so the CTA
// synchronizes once a step, to add up the sums of its warps. A block is 16 weights: four units that the gradient goes
// back to, by four units of a gate. Registers keep as many blocks as fit, shared memory the next ones, and the rest is
// read from global memory for each of kRowsInFlight (recurrence_stream.cu, where a block is a chunk). A CTA group has
// two buffers for the gradients, used in turn. The lowest bit of a word is an epoch, as in
// recurrence_backward_memory.cu, and the same order of steps keeps a buffer from being overwritten too early.

constexpr int kGatePieces = kHidden / 4;                 // of a row; kDepthPieces of all gates
constexpr int kPlacePieces = kRows * kDepthPieces;       // [kRows][kGates][kGatePieces]
constexpr int kPartWords = kWarps * kRows * kUnits;      // sums of the warps
constexpr int kPauseCycles = 100;                        // as forward

// `high` or `low`, without a branch: with one, which the compiler makes of a few of these, each way has shuffles of its
// own, and lanes that differ take both, one after the other.
PD_DEVICE float one_of(bool is_high, float high, float low) {
#ifdef PD_EMULATE
  return is_high ? high : low;
#else
  float one;
  asm("{\n.reg .pred is_high;\nsetp.ne.s32 is_high, %3, 0;\nselp.f32 %0, %1, %2, is_high;\n}"
      : "=f"(one)
      : "f"(high), "f"(low), "r"((int)is_high));
  return one;
#endif
}

// Sums over the lanes, each of whom has one of each: halves of them give away half of the sums, quarters half of the
// rest, and so on. Lane n is left with sum n * kCount / 32.
template <int kCount, int kReach = 16> PD_DEVICE float sum_over_lanes(const float (&sums)[kCount], int lane) {
  if constexpr (kCount == 1) {
    float sum = sums[0];
#pragma unroll
    for (int reach = kReach; reach > 0; reach /= 2) sum += __shfl_xor_sync(~0u, sum, reach);
    return sum;
  } else {
    const bool is_high = lane & kReach;
    float left[kCount / 2];
#pragma unroll
    for (int i = 0; i < kCount / 2; ++i) {
      const float low = sums[i], high = sums[i + kCount / 2];
      left[i] = one_of(is_high, high, low) + __shfl_xor_sync(~0u, one_of(is_high, low, high), kReach);
    }
    return sum_over_lanes<kCount / 2, kReach / 2>(left, lane);
  }
}

struct BackwardProducts {
  // In the order in which they are multiplied by: step * kTiles + tile.
  static constexpr int kBlocks = kTiles * kSteps, kCount = kBlocks - kStreamed;
  static constexpr int kHere = kCount < kKept ? kCount : kKept;
  float words[kHere][4][4];  // [block][unit that gets][element]
  float4* rest;
  StreamedWeights streamed;
  unsigned* places;
  PlaceEpochs epochs;
  int rank, thread, lane;
  // Addresses in the first of two places: this thread's first piece, the gradients of its cells' first gate; the sums
  // of its warp, and of its cells.
  const uint4* asked;
  unsigned* given[kCells];
  Place mine, of_warps[kCells];

  PD_DEVICE BackwardProducts(const Shared& shared, const LaunchScratch& scratch, unsigned cta) : rank(rank_in_group(cta)) {
    constexpr Index kWords = kPlacePieces * 4;
    const Index cta_group = cta / kGroupCtas;
    thread = kept_known((int)threadIdx.x), lane = kept_known(thread % 32);
    places = scratch.tickets + cta_group * (2 * kWords), epochs.told = scratch.tickets + kCtaGroups * (2 * kWords) + cta_group * 2;
    rest = (float4*)shared.weights + thread, asked = kept_known((const uint4*)places + thread);
    mine = place_of((float*)shared.work + thread / 32 * (kRows * kUnits));
    streamed.begin(shared, scratch, cta);
  }
  PD_DEVICE void bring(const Stored* u, int hidden) {
#pragma unroll
    for (int block = 0; block < kBlocks; ++block) {
      Pack<Stored, 4> rows[4];
      const int piece = piece_of(block / kTiles), gate = piece / kGatePieces, from = piece % kGatePieces * 4;
      const int units = piece < kDepthPieces ? hidden - from : 0;
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        const int unit = rank * kUnits + block % kTiles * 4 + k, count = unit < hidden ? units : 0;
        const Stored* const at = u + (count > 0 ? (Index)unit * (kGates * hidden) + gate * hidden + from : 0);
        if constexpr (kIsInPieces) load<true>(rows[k], at);
        else load_each<true>(rows[k], at, 1, count < 4 ? count : 4);
        float row[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) row[i] = i < count ? rows[k].get(i) : 0.0f;
        put(block, k, row);
      }
    }
    streamed.start();
  }
  PD_DEVICE void begin(const Shared& shared, const CellPlace (&place)[kCells]) {
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      const CellPlace& cell = place[i];
      const int row = cell.row < kRows ? cell.row : 0;
      given[i] = kept_known(places + row * kGates * kHidden + cell.unit);
      of_warps[i] = place_of((float*)shared.work + row * kUnits + cell.of_cta);
    }
    epochs.begin();
    __syncthreads();
  }
  PD_DEVICE void aim(bool is_last) { streamed.is_last = is_last; }
  PD_DEVICE bool has_cells() const { return thread < kFinishers; }
  // The gradients of this thread's cells, and zeros where there is no cell.
  template <class Beside>
  PD_DEVICE void give(const float (&gradients)[kCells][kGates], int step, const CellPlace (&place)[kCells], PhaseClock& clock,
                      const Beside&) const {
    clock.ended(kInGates);
    const unsigned epoch = epochs.of(step);
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      if (place[i].row >= kRows) continue;
      unsigned* const to = given[i] + step % 2 * (kPlacePieces * 4);
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        const float gradient = place[i].at < 0 ? 0.0f : gradients[i][gate];
        store_relaxed(to + gate * kHidden, (__float_as_uint(gradient) & ~1u) | epoch);
      }
    }
    clock.ended(kGiving);
  }
  // For all threads: the gradients that came back from a step. False for those that have no cells.
  PD_DEVICE bool take(float (&of_cells)[kCells], int step, const CellPlace (&)[kCells], PhaseClock& clock) const {
    const uint4* const from = kept_known(asked + step % 2 * kPlacePieces);
    const int parts = kept_known(step % 2 * (kPartWords * 4));
    const unsigned epoch = kept_known((int)epochs.of(step));
    if (!has_cells()) pause_cycles(kPauseCycles);  // others have had to do since they gave theirs
    Asked asked_now;
    ask(asked_now, from, 0, epoch);
#pragma unroll 1
    for (int first = 0; first < kRows; first += kRowsInFlight) {
      while (!have_come(asked_now, epoch)) ask(asked_now, from, first, epoch);
      __syncwarp();  // or there is a second, slow way for the sums over the lanes, of lanes that have not met again
      clock.ended(kWaiting);
      Asked asked_next = asked_now;  // which come while those are multiplied
      const int next = first + kRowsInFlight;
      if (next < kRows) ask(asked_next, from, next, epoch);
      multiply(mine + (parts + first * (kUnits * 4)), asked_now.pieces, kRows - first);
      asked_now = asked_next;
    }
    __syncthreads();
    if (!has_cells()) return false;
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      float total[kWarps];
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) total[warp] = load_word(of_warps[i] + (parts + warp * (kRows * kUnits * 4)));
#pragma unroll
      for (int half = kWarps / 2; half > 0; half /= 2) {
#pragma unroll
        for (int warp = 0; warp < half; ++warp) total[warp] += total[warp + half];
      }
      of_cells[i] = total[0];
    }
    clock.ended(kMultiplying);
    return true;
  }
  PD_DEVICE void end(int steps) const {
    streamed.end();
    __syncthreads();  // everybody has begun: their last gradients have come
    if (rank == 0) epochs.end(steps);
  }

 private:
  // This thread's pieces of some rows.
  struct Asked {
    uint4 pieces[kRowsInFlight][kSteps];
  };
  PD_DEVICE void ask(Asked& asked, const uint4* from, int first, unsigned epoch) const {
#pragma unroll
    for (int i = 0; i < kRowsInFlight * kSteps; ++i) {
      const int n = i / kSteps, k = i % kSteps;
      if (is_asked(first + n, k)) asked.pieces[n][k] = load_relaxed(from + (first + n) * kDepthPieces + k * kThreads);
      else asked.pieces[n][k] = make_uint4(epoch, epoch, epoch, epoch);
    }
  }
  static PD_DEVICE bool have_come(const Asked& asked, unsigned epoch) {
    unsigned wrong = 0;
#pragma unroll
    for (int i = 0; i < kRowsInFlight * kSteps; ++i) {
      const uint4& piece = asked.pieces[i / kSteps][i % kSteps];
      wrong |= (piece.x ^ epoch) | (piece.y ^ epoch) | (piece.z ^ epoch) | (piece.w ^ epoch);
    }
    return (wrong & 1) == 0;
  }
  PD_DEVICE int piece_of(int step) const { return thread + step * kThreads; }
  PD_DEVICE bool is_asked(int row, int step) const {
    const bool is_whole = (step + 1) * kThreads <= kDepthPieces, has_all = kRows % kRowsInFlight == 0;
    return (is_whole || piece_of(step) < kDepthPieces) && (has_all || row < kRows);
  }
  // So many of the blocks in front of `i` that stay are kept in registers, evenly among those that are read meanwhile.
  static PD_DEVICE constexpr int here_before(int i) { return i * kHere / kCount; }
  static PD_DEVICE constexpr bool is_here(int i) { return here_before(i + 1) > here_before(i); }
  static PD_DEVICE constexpr bool is_streamed(int block) { return StreamedWeights::has(block, kBlocks); }
  static PD_DEVICE constexpr int chunk_of(int block) { return StreamedWeights::before(block, kBlocks); }
  PD_DEVICE void put(int block, int k, const float (&row)[4]) {
    const int i = block - chunk_of(block), here = here_before(i);
    const float4 piece = {row[0], row[1], row[2], row[3]};
    if (is_streamed(block)) {
      streamed.put(chunk_of(block), k, piece);
    } else if (is_here(i)) {
#pragma unroll
      for (int n = 0; n < 4; ++n) words[here < kHere ? here : 0][k][n] = row[n];
    } else {
      rest[((i - here) * 4 + k) * kThreads] = piece;
    }
  }
  PD_DEVICE float4 weights(int block, int k) const {
    const int i = block - chunk_of(block), here = here_before(i);
    if (is_streamed(block)) return streamed.get_floats(chunk_of(block), k);
    if (!is_here(i)) return rest[((i - here) * 4 + k) * kThreads];
    const float (&w)[4] = words[here < kHere ? here : 0][k];
    return {w[0], w[1], w[2], w[3]};
  }
  // Adds up this warp's products of so many rows, of those that are there.
  PD_DEVICE void multiply(Place to, const uint4 (&pieces)[kRowsInFlight][kSteps], int rows) const {
    float part[kRowsInFlight * kUnits];
#pragma unroll
    for (int i = 0; i < kRowsInFlight * kUnits; ++i) part[i] = 0;
#pragma unroll
    for (int i = 0; i < kSteps * kTiles * 4; ++i) {
      const int step = i / (kTiles * 4), unit = i % (kTiles * 4), block = i / 4;
      if (i % 4 == 0 && is_streamed(block)) streamed.await();
      const float4 w = weights(block, i % 4);
#pragma unroll
      for (int n = 0; n < kRowsInFlight; ++n) {
        const uint4& piece = pieces[n][step];
        float& sum = part[n * kUnits + unit];
        sum += w.x * __uint_as_float(piece.x & ~1u), sum += w.y * __uint_as_float(piece.y & ~1u);
        sum += w.z * __uint_as_float(piece.z & ~1u), sum += w.w * __uint_as_float(piece.w & ~1u);
      }
      if (i % 4 == 3 && is_streamed(block)) streamed.pass(chunk_of(block));
    }
    add_up<0>(to, part, rows * kUnits);
  }
  // Over the lanes, as many sums at a time as there are lanes, and a power of two.
  template <int kFirst> PD_DEVICE void add_up(Place to, const float (&part)[kRowsInFlight * kUnits], int count) const {
    constexpr int kLeft = kRowsInFlight * kUnits - kFirst;
    constexpr int kSums = kLeft >= 32 ? 32 : kLeft >= 16 ? 16 : kLeft >= 8 ? 8 : 4;
    if constexpr (kLeft > 0) {
      float sums[kSums];
#pragma unroll
      for (int i = 0; i < kSums; ++i) sums[i] = part[kFirst + i];
      const float total = sum_over_lanes(sums, lane);
      const int i = kFirst + lane / (32 / kSums);
      if (lane % (32 / kSums) == 0 && (kRows % kRowsInFlight == 0 || i < count)) store_word(to + i * 4, total);
      add_up<kFirst + kSums>(to, part, count);
    }
  }
};
