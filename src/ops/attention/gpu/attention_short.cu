// SPDX-License-Identifier: Apache-2.0
// Attention of short rows on Hopper, forward: a CTA has a head with all its queries and keys, 64 queries for each group
// of four warps, and other CTAs on its SM multiply while it waits for memory.

constexpr int kRows = kGroups * 64, kRowElements = kRows * kWidth, kSums = kWidth / 2;

struct Barriers {
  unsigned long long scores, values;
};

template <class Length>
PD_DEVICE void attend(const Map& queries, const Map& keys, const Map& values, const Length* lengths, const Drops& drops,
                      Stored* out, float* logs, const Sizes& size) {
  Stored* const rows = shared_for_tma<Stored>();
  Barriers* const barriers = (Barriers*)(rows + 3 * kRowElements);
  if (threadIdx.x == 0) {
    mbarrier_init(&barriers->scores, 1);
    mbarrier_init(&barriers->values, 1);
  }
  __syncthreads();
  Item item;
  find_head(item, blockIdx.x, lengths, size);
  if (threadIdx.x == 0) {
    int head = item.head;
    next_coordinate(head, size.queries_of_key);
    mbarrier_arrive_expect_tx(&barriers->scores, kRowElements * 4);
    bring_rows<kRows>(rows, queries, 0, item.head, item.batch, &barriers->scores);
    bring_rows<kRows>(rows + kRowElements, keys, 0, head, item.batch, &barriers->scores);
    mbarrier_arrive_expect_tx(&barriers->values, kRowElements * 2);
    bring_rows<kRows>(rows + 2 * kRowElements, values, 0, head, item.batch, &barriers->values);
  }
  const int group = group_of_warp(), lane = threadIdx.x % 32, row = group * 64 + threadIdx.x / 32 % 4 * 16;
  const Tile first = tile_at(rows);
  float score[kScores], sum[kSums], times[2];
  KeysLeft left;
  left.draw(blockIdx.x, row, 0, drops, size);
  wait_for(&barriers->scores, 0);
  products_begin();
#pragma unroll
  for (int step = 0; step < kWidth / 16; ++step) {
    add_scores(score, tile_beyond(first, group * 64 * 64), tile_beyond(first, kRowElements), step, step > 0);
  }
  products_start();
  sums_wait<0>(score);
  mask<kHasLow>(score, counted_keys(row, 0, item.length, size), -infinity());
  Softmax softmax{{-infinity(), -infinity()}, {0, 0}};
  softmax.add(score, scale_of(size) * kLog2E, times);
  unsigned words[kScores / 8][4];
  pack_factor(words, score);
  softmax.count(words, times);
  drop_words(words, left);
  wait_for(&barriers->values, 0);
  if constexpr (kClears) {  // values past the length may be anything, and 0 times that a NaN
    clear_rows<kRows, kRows * 2>(rows + 2 * kRowElements, item.length);
    __syncthreads();
  }
  products_begin();
#pragma unroll
  for (int step = 0; step < kRows / 16; ++step) {
    add_values(sum, words[step], tile_beyond(first, 2 * kRowElements), step, step > 0);
  }
  products_start();
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const float total = sum_of_row(softmax.sum[half]);
    times[half] = total == 0 ? 0 : kept_factor(size) / total;
    const int query = row + lane / 4 + half * 8;
    if (kHasLogs && lane % 4 == 0 && query < size.queries) {
      const float log = total == 0 ? -infinity() : softmax.most[half] * scale_of(size) + logf(total);
      logs[(long long)blockIdx.x * size.queries + query] = log;
    }
  }
  sums_wait<0>(sum);
  Stored* const to = out + item.batch * size.out_batch_wide + item.head * size.out_head_wide;
  store_rows<kWidth>(sum, times, to, row, size.queries, size.value_width, size.out_row);
}
