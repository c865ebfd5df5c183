// SPDX-License-Identifier: Apache-2.0
// Behind exchange.cu: a barrier over the grid, for kernels that have a launch of their own.

// For all threads of all CTAs of a cooperative grid: what each stored before, all see behind it. `counter` is the
// launch's own, and keeps its value from launch to launch: its highest bit turns with every round.
PD_DEVICE bool grid_barrier(unsigned* counter, const Room& room) {
  __syncthreads();
  bool has_failed = false;
  if (threadIdx.x == 0) {
    const unsigned before = add_release(counter, blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u);
    has_failed = !wait_until(room, [&] { return ((before ^ load_acquire(counter)) & 0x80000000u) != 0; });
  }
  return __syncthreads_or(has_failed) == 0;
}
