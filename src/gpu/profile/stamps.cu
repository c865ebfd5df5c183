// SPDX-License-Identifier: Apache-2.0
// Stamps of a replay of a captured graph: when each of its launches began. Most leave their own (leave_stamp); these
// are for those of libraries, for loops, and for the host, which gets them all when the replay is over.
using Word = unsigned long long;

// Runs in front of a launch that leaves no stamp.
PD_DEVICE void stamp(Word* at) {
  if (threadIdx.x == 0) *at = gpu_clock();
}

// In a loop, where a launch has many: list[0] is how many there are, after it are pairs of which and when.
PD_DEVICE void list_stamp(Word* list, Word which, Word most) {
  if (threadIdx.x != 0) return;
  const Word at = list[0]++;
  if (at < most) list[1 + 2 * at] = which, list[2 + 2 * at] = gpu_clock();
}

// Runs after all other kernels and copies the stamps into the next place of a ring in the host's memory, which is
// whole once its first word is the number of the replay. Stamps are reset to 0.
PD_DEVICE void keep_stamps(Word* stamps, Word* replays, Word* ring, Word words, Word places) {
  const Word end = gpu_clock(), number = *replays + 1;
  Word* const place = ring + (number - 1) % places * (words + 2);
  for (Word i = threadIdx.x; i < words; i += kThreads) place[2 + i] = stamps[i], stamps[i] = 0;
  __threadfence_system();
  __syncthreads();
  if (threadIdx.x != 0) return;
  *replays = number;
  place[1] = end;
  __threadfence_system();
  *(volatile Word*)place = number;
}

// Tells the host the GPU's time: once at the beginning, then whenever it asks before patience_ns have passed.
PD_DEVICE void answer_clock(const Word* asked, Word* answers, Word rounds, Word patience_ns) {
  if (threadIdx.x != 0) return;
  *(volatile Word*)answers = gpu_clock();
  for (Word round = 1; round <= rounds; ++round) {
    const Word since = gpu_clock();
    while (*(const volatile Word*)asked < round) {
      if (gpu_clock() - since > patience_ns) return;
    }
    ((volatile Word*)answers)[round] = gpu_clock();
  }
}
