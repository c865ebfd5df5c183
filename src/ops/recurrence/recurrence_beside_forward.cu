// SPDX-License-Identifier: Apache-2.0
// A layer whose input is multiplied beside it: each step waits until its rows of xw are there.

#ifdef PD_EMULATE
PD_DEVICE void let_next_launch_start() {}
PD_DEVICE bool wait_for_count(const Room& room, const unsigned* at, unsigned count) {
  emulation::does_not_poll();  // what a CTA that ran before has loaded is no poll of this one
  return wait_until(room, [&] { return load_acquire(at) == count; });
}
#else
PD_DEVICE void let_next_launch_start() { asm volatile("griddepcontrol.launch_dependents;" ::: "memory"); }
// wait_until() that the compiler makes no loops of its own of: what is around it is compiled as without it.
PD_DEVICE bool wait_for_count(const Room&, const unsigned* at, unsigned count) {
  unsigned polls = PD_MOST_POLLS;
  asm volatile(
      "{\n.reg .pred p;\n.reg .u32 value;\nagain:\nld.acquire.gpu.global.u32 value, [%1];\nsetp.eq.u32 p, value, %2;\n"
      "@p bra there;\nsub.u32 %0, %0, 1;\nsetp.ne.u32 p, %0, 0;\n@p bra again;\nthere:\n}"
      : "+r"(polls) : "l"(at), "r"(count) : "memory");
  return polls > 0;
}
#endif

// A layer whose input is multiplied while its steps run.
struct WithProduct : Apart {
  const Room& room;
  const Sizes& size;
  int known = 0;  // stretches that are there

  PD_DEVICE WithProduct(const Room& room, const Sizes& size) : room(room), size(size) {}
  static PD_DEVICE void ask(Part& part, Source from) { part = load_written(from); }
  // The product has waited for all that was in front of it and goes on beside this launch.
  PD_DEVICE void start() const { let_next_launch_start(); }
  // Of two launches of a layer the second is over when both are.
  PD_DEVICE void leave() const {
    if constexpr (kIsFew) await_launch_before();
  }
  PD_DEVICE void begin(const CellPlace (&)[kCells]) {
    const Beside beside(room);
    if (threadIdx.x == 0) beside.places[multiprocessor()] = *beside.runs + 1;
  }
  // In front of what is loaded of a step's input, by each thread that does. Of a launch that is called off there is none.
  PD_DEVICE void reach(int time, unsigned called_off) {
    if (called_off != 0) return;
    const bool is_reverse = kIsDirectionGiven ? size.is_reverse != 0 : kIsReverse;
    const int batch = size.batch, row = is_reverse ? time * batch : (time + 1) * batch - 1;
    const int in_order = is_reverse ? (int)size.row_tiles - 1 - row / kTileRows : row / kTileRows;
#pragma unroll 1
    while (known * (int)size.tiles_of_stretch <= in_order) {
      const int left = size.row_tiles - known * size.tiles_of_stretch;
      const int tiles = known + 1 < size.stretches ? (int)size.tiles_of_stretch : left;
      if (!wait_for_count(room, Beside(room).there + known, tiles * kTilesAcross)) atomicMin(room.fault, 0ull);
      ++known;
    }
  }
  PD_DEVICE void end() const {
    __syncthreads();
    const Beside beside(room);
    if (threadIdx.x != 0 || atomicAdd(beside.passed, 1u) + 1 < gridDim.x) return;
    if (!wait_for_count(room, beside.ended, size.product_ctas)) atomicMin(room.fault, 0ull);
    beside.reset(size.stretches);
  }

 private:
  static PD_DEVICE Part load_written(Source from) {
    Part part;
#ifdef PD_EMULATE
    load<false>(part, from);
#else
    unsigned short bits;
    asm volatile("ld.global.u16 %0, [%1];" : "=h"(bits) : "l"(from) : "memory");
    part.word[0] = bits;
#endif
    return part;
  }
};
