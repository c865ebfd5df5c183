// SPDX-License-Identifier: Apache-2.0
// A layer pipeline: layers one above the other in one launch, each some steps behind the one below. The input of an
// upper layer is multiplied in the same launch by as many more CTAs, which keep the weights of the input as the layer's
// own CTAs keep those of the state. States and products go through global memory, with words of their own for each
// step, so a layer never waits for the one above, and all data come from CTAs of lower index. A word's epoch (LlWords;
// a product is f32) is that of the launch.

constexpr int kHandsOn = 1, kHasBelow = 2, kIsInput = 4;  // Sizes::part: the tasks of the CTAs
constexpr int kLayerCtas = kCtaGroups * kGroupCtas, kCtaGroupWords = kHidden * kRows;
// Among the tickets: of each CTA of the layer, and of its input, the launches that it was in; states; products.
PD_DEVICE unsigned* launches_of(const LaunchScratch& scratch, bool is_input, unsigned cta) {
  return scratch.tickets + kPipelineAt + (is_input ? kLayerCtas : 0) + cta;
}
PD_DEVICE unsigned* states_of_pipeline(unsigned* tickets) { return tickets + kPipelineAt + (2 * kLayerCtas + 3) / 4 * 4; }
PD_DEVICE unsigned* products_of_pipeline(unsigned* tickets, const Sizes& size) {
  return states_of_pipeline(tickets) + (Index)size.steps * (kCtaGroups * kCtaGroupWords);
}

// Which launch a CTA is in.
struct LaunchEpoch {
  unsigned* launches;
  unsigned epoch;

  // After those before.
  PD_DEVICE void begin(unsigned* own) {
    launches = own;
    epoch = (load_relaxed(launches) + 1) & 1;
  }
  // When all threads have begun.
  PD_DEVICE void end() const {
    if (threadIdx.x == 0) store_relaxed(launches, epoch);
  }
};

// The lowest layer of a pipeline, and the parts that all layers have.
struct Lowest : NotPipelined {
  unsigned* own;     // word of this CTA
  unsigned* states;  // of the CTA group, in the first step
  bool hands_on;
  LaunchEpoch launch;
  int word[kCells];

  PD_DEVICE Lowest(const LaunchScratch& scratch, const Sizes& size, unsigned cta)
      : own(launches_of(scratch, false, cta)), states(states_of_pipeline(scratch.tickets) + cta / kGroupCtas * kCtaGroupWords),
        hands_on((size.part & kHandsOn) != 0) {}
  PD_DEVICE void begin(const CellPlace (&place)[kCells]) {
    launch.begin(own);
#pragma unroll
    for (int i = 0; i < kCells; ++i) word[i] = kept_known(LlWords::place_of(place[i]));
  }
  PD_DEVICE void give(const Cell (&cell)[kCells], const CellPlace (&place)[kCells], int step) const {
    if (!hands_on) return;
    unsigned* const to = states + (Index)step * (kCtaGroups * kCtaGroupWords);
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      if (word[i] >= 0) store_relaxed(to + word[i], LlWords::made_of(place[i].at >= 0 ? cell[i].h : 0.0f, launch.epoch));
    }
  }
  // Steps first .. end-1, which are not made: their words have the launch's epoch too, or the launch after the next
  // would take their old contents for its own.
  PD_DEVICE void pass(int first, int end) const {
    if (!hands_on) return;
    for (int step = first; step < end; ++step) {
      unsigned* const to = states + (Index)step * (kCtaGroups * kCtaGroupWords);
#pragma unroll
      for (int i = 0; i < kCells; ++i) {
        if (word[i] >= 0) store_relaxed(to + word[i], launch.epoch);
      }
    }
  }
  PD_DEVICE void end() const { launch.end(); }
};

// A layer with one below.
struct Above : Lowest {
  using Part = unsigned;
  using Source = const unsigned*;
  const unsigned* products;

  PD_DEVICE Above(const LaunchScratch& scratch, const Sizes& size, unsigned cta) : Lowest(scratch, size, cta) {
    products = products_of_pipeline(scratch.tickets, size);
  }
  PD_DEVICE Source input_of(const Operands&, int step, Index, Index elements) const { return products + step * elements; }
  PD_DEVICE Index stride(bool, Index elements) const { return elements; }
  static PD_DEVICE void ask(Part& part, Source from) { part = load_relaxed(from); }
  static PD_DEVICE float number(Part part) { return __uint_as_float(part & ~1u); }
  // Waits for the words that had not come when they were asked for.
  template <class SourceOf>
  PD_DEVICE void await(Part (&parts)[kCells][kLaneGates], const SourceOf& source_of) const {
    unsigned others = 0;
#pragma unroll
    for (int i = 0; i < kCells * kLaneGates; ++i) others |= parts[i / kLaneGates][i % kLaneGates] ^ launch.epoch;
    if ((others & 1) == 0) return;
#pragma unroll
    for (int i = 0; i < kCells * kLaneGates; ++i) {
      unsigned& part = parts[i / kLaneGates][i % kLaneGates];
      const Source from = source_of(i / kLaneGates, i % kLaneGates);
      while (((part ^ launch.epoch) & 1) != 0) part = load_relaxed(from);
    }
  }
};

// The states of the layer below, of which each thread brings some pieces: those of the next step are asked for beside
// the products.
struct StatesBelow {
  static constexpr int kPieces = kCtaGroupWords / 4, kEach = (kPieces + kThreads - 1) / kThreads;
  const uint4* from;
  uint4 pieces[kEach];

  PD_DEVICE StatesBelow(unsigned* tickets, int cta_group) {
    from = (const uint4*)(states_of_pipeline(tickets) + cta_group * kCtaGroupWords) + threadIdx.x;
  }
  static PD_DEVICE bool is_asked(int i) {
    return (i + 1) * kThreads <= kPieces || i * kThreads + (int)threadIdx.x < kPieces;
  }
  PD_DEVICE const uint4* source_of(int i, int step) const {
    return from + ((Index)step * (kCtaGroups * kCtaGroupWords / 4) + i * kThreads);
  }
  PD_DEVICE void ask(int step) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (is_asked(i)) pieces[i] = load_relaxed(source_of(i, step));
    }
  }
  PD_DEVICE void take(unsigned char* vectors, int step, unsigned epoch) {
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (!is_asked(i)) continue;
      while (!LlWords::have_come(pieces[i], epoch)) pieces[i] = load_relaxed(source_of(i, step));
      LlWords::store(place_of(vectors + LlWords::place_in_vectors(i * kThreads + (int)threadIdx.x)), pieces[i]);
    }
    factors_stored();
    __syncthreads();
  }
};

// The product of a layer's input, whose weights are in place of its own. `scratch.workspace`: the tickets of the layer
// below.
PD_DEVICE void run_input(const Operands& operands, const LaunchScratch& scratch, const Sizes& size, unsigned cta) {
  PD_DYNAMIC_SHARED(unsigned char, memory);
  const Shared shared(memory);
  unsigned char* const vectors = states_of(shared);
  float* const sums = sums_of(shared);
  const int rank = rank_in_group(cta), thread = kept_known((int)threadIdx.x), last = size.steps;
  if constexpr (!kUnmodifiedByPrevious) {
    grid_dependency_wait();
    if (is_called_off(scratch)) return;
  }
  ForwardWeights weights;
  weights.bring(shared, scratch, cta, operands.u, rank, kLayerHidden);
  if constexpr (kUnmodifiedByPrevious) {
    grid_dependency_wait();
    if (is_called_off(scratch)) return;
  }
  LaunchEpoch launch;
  launch.begin(launches_of(scratch, true, cta));
  for (int i = threadIdx.x; i < 2 * kStateBytes / 16; i += kThreads) ((uint4*)vectors)[i] = make_uint4(0, 0, 0, 0);
  shared.rows->find(operands.lengths, size, cta / kGroupCtas);
  const int steps = shared.rows->length[0] < last && kHasLengths ? shared.rows->length[0] : last;
  CellPlace place[kCells];
  const Index step_products = (Index)size.batch * (kLayerHidden * kGates);
  unsigned* const products = products_of_pipeline(scratch.tickets, size);
  Index to[kCells];  // this thread's first gate of the step that is made
#pragma unroll
  for (int i = 0; i < kCells; ++i) {
    place[i].find(i, *shared.rows, rank, kLayerHidden);
    to[i] = place[i].in_gates(kGates);
  }
  const auto give = [&](int i, int step, float product) {  // of each of this thread's cells' gates
    const int cell = i / kLaneGates, gate = CellPlace::gate_of(i % kLaneGates);
    const unsigned word = (__float_as_uint(product) & ~1u) | launch.epoch;
    if (place[cell].at < 0 || gate >= kGates) return;
    store_relaxed(products + (step * step_products + to[cell] + gate * kLayerHidden), word);
  };
  StatesBelow below((unsigned*)scratch.workspace, cta / kGroupCtas);
  if (steps > 0) below.ask(0);
  for (int step = 0; step < steps; ++step) {
    unsigned char* const state = vectors + step % 2 * kStateBytes;
    below.take(state, step, launch.epoch);
    if (step + 1 < steps) below.ask(step + 1);
    weights.aim(state, step + 1 == steps);
    float sum[kCells][kLaneGates];
    if (!weights.multiply(sum, sums, state, thread, place, [] {}, [] {})) continue;
#pragma unroll
    for (int i = 0; i < kCells * kLaneGates; ++i) give(i, step, sum[i / kLaneGates][i % kLaneGates]);
  }
  for (int step = steps; kHasLengths && step < last; ++step) {
#pragma unroll
    for (int i = 0; i < kCells * kLaneGates; ++i) give(i, step, 0);
  }
  weights.end();
  launch.end();
}

PD_DEVICE void run_pipelined(const Operands& operands, const LaunchScratch& scratch, const Sizes& size, unsigned cta) {
  if (size.part == kIsInput) run_input(operands, scratch, size, cta);
  else if ((size.part & kHasBelow) != 0) run_forward(operands, scratch, size, cta, Above(scratch, size, cta));
  else run_forward(operands, scratch, size, cta, Lowest(scratch, size, cta));
}
