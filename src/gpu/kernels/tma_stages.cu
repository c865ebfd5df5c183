// SPDX-License-Identifier: Apache-2.0
// Shared memory as kStages stages, which one thread has filled by TMA while warps multiply the contents of others.
// Stands after tensor_cores.cu and kStages.

// The CTA's dynamic shared memory from where TMA tiles may lie: they want whole KBs.
template <class T>
PD_DEVICE T* shared_for_tma() {
  PD_DYNAMIC_SHARED(T, dynamic);
  return dynamic + (1024 - shared_address(dynamic) % 1024) % 1024 / (int)sizeof(T);
}

struct Mbarriers {
  unsigned long long full[kStages], free[kStages];
};

// The stage of a block, and how often the stages were gone through before it.
struct Turn {
  int stage = 0, round = 0;
  PD_DEVICE void next(int stages = 1) {  // no more than there are
    if ((stage += stages) >= kStages) stage -= kStages, ++round;
  }
};

// Called by all threads of a CTA, before a stage is filled: thread `consumers` will fill them through two tensor maps,
// and the warps in front of it multiply, in `parts` that take turns at stages.
PD_DEVICE void open_stages(Mbarriers* mbarriers, const Map& a, const Map& b, int consumers, int parts = 1) {
  if (threadIdx.x == consumers) fetch_map(a), fetch_map(b);
  if (threadIdx.x < kStages) {
    mbarrier_init(&mbarriers->full[threadIdx.x], 1);
    mbarrier_init(&mbarriers->free[threadIdx.x], consumers / parts / 32);
  }
  __syncthreads();
}

// Waits for TMA or for warps of this CTA, which come whatever others do.
PD_DEVICE void wait_for(unsigned long long* mbarrier, int round) {
  while (!mbarrier_try_wait_cta(mbarrier, round & 1)) {}
}
