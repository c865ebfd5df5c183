// SPDX-License-Identifier: Apache-2.0
// Where the time goes before, in and after the steps, as one thread sees it: ns by phase, added to those of earlier
// launches, where the plan asks for it (kTellsPhases). Else nothing is left of it.
enum Phase {
  kBringing,  // weights
  kAwaiting,  // the launch before
  kStarting,
  kWaiting,
  kMultiplying,
  kInGates,
  kGiving,
  kStoring,
  kEnding,
  kPhases
};

struct PhaseClock {
  unsigned long long since = 0, ns[kPhases] = {};

  PD_DEVICE void begin() {
    if constexpr (kTellsPhases) since = gpu_clock();
  }
  PD_DEVICE void ended(Phase phase) {
    if constexpr (kTellsPhases) {
      const unsigned long long now = gpu_clock();
      ns[phase] += now - since;
      since = now;
    }
  }
  PD_DEVICE void tell(const LaunchScratch& scratch, unsigned cta) const {
    if constexpr (kTellsPhases) {
      if (threadIdx.x != 0 || cta != 0) return;
      unsigned long long* const sums = (unsigned long long*)((unsigned*)scratch.tickets + kPhasesAt);
#pragma unroll
      for (int i = 0; i < kPhases; ++i) sums[i] += ns[i];
    }
  }
};
