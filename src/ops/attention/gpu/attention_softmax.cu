// SPDX-License-Identifier: Apache-2.0
// The softmax of attention forward, over scores that come in parts. Stands after attention_tiles.cu and kScores, the
// scores of a thread.

// The state of a softmax over rows that come in parts: a thread's two rows.
struct Softmax {
  float most[2], sum[2];

  // Scores become weights relative to the largest so far; returns the factors of sums over those before.
  PD_DEVICE void add(float (&score)[kScores], float scale, float (&times)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float among[4] = {most[half], most[half], most[half], most[half]};
#pragma unroll
      for (int i = half * 2; i < kScores; i += 4) {
        float& now = among[i / 4 % 4];
        now = fmaxf(now, fmaxf(score[i], score[i + 1]));
      }
      const float now = most_of_row(fmaxf(fmaxf(among[0], among[1]), fmaxf(among[2], among[3])));
      const float shift = now == -infinity() ? 0 : now * scale;  // of a row without keys so far
      times[half] = power_of_2(most[half] * scale - shift);
      most[half] = now;
#pragma unroll
      for (int i = half * 2; i < kScores; i += 4) {
        score[i] = power_of_2(score[i] * scale - shift);
        score[i + 1] = power_of_2(score[i + 1] * scale - shift);
      }
    }
  }
  // The rounded weights, as words of a factor.
  PD_DEVICE void count(const unsigned (&words)[kScores / 8][4], const float (&times)[2]) {
    float total[2] = {};
#pragma unroll
    for (int i = 0; i < kScores / 2; ++i) total[i % 2] += sum_of_pair(words[i / 4][i % 4]);
    sum[0] = sum[0] * times[0] + total[0], sum[1] = sum[1] * times[1] + total[1];
  }
};
