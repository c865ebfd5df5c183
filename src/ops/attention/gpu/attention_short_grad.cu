// SPDX-License-Identifier: Apache-2.0
// The gradients of attention of short rows on Hopper, all in one launch: a CTA has a head with all its queries and keys.
// It makes the scores twice, with queries as rows for their gradient and with keys as rows for those of keys and values,
// so that the weights are a left factor in registers each time. A row's delta is the sum of its own weights' parts.

constexpr int kRows = kGroups * 64, kRowElements = kRows * kWidth, kSums = kWidth / 2;

PD_DEVICE float log2_of_row(float log) { return log == -infinity() ? infinity() : log * kLog2E; }

PD_DEVICE void multiply_scores(float (&score)[kScores], float (&weight_grad)[kScores], Tile a, Tile b, Tile c, Tile d) {
  products_begin();
#pragma unroll
  for (int step = 0; step < kWidth / 16; ++step) add_scores(score, a, b, step, step > 0);
#pragma unroll
  for (int step = 0; step < kWidth / 16; ++step) add_scores(weight_grad, c, d, step, step > 0);
  products_start();
  sums_wait<0>(score);
  sums_wait<0>(weight_grad);
}
PD_DEVICE void start_grads(float (&sum)[kSums], const unsigned (&words)[kScores / 8][4], Tile b) {
  products_begin();
#pragma unroll
  for (int step = 0; step < kRows / 16; ++step) add_grads(sum, words[step], b, step, step > 0);
  products_start();
}

template <class Length>
PD_DEVICE void differentiate(const Map& queries, const Map& result_grads, const Map& keys, const Map& values,
                             const Length* lengths, const Drops& drops, const float* logs, const float* log_grads,
                             Stored* query_grads, Stored* key_grads, Stored* value_grads, const Sizes& size) {
  Stored* const rows = shared_for_tma<Stored>();
  float* const of_rows = (float*)(rows + 4 * kRowElements);  // the log and the delta of each query
  unsigned long long* const full = (unsigned long long*)(of_rows + 2 * kRows);
  if (threadIdx.x == 0) mbarrier_init(full, 1);
  __syncthreads();
  Item item;
  find_head(item, blockIdx.x, lengths, size);
  if (threadIdx.x == 0) {
    mbarrier_arrive_expect_tx(full, kRowElements * 8);
    bring_rows<kRows>(rows, queries, 0, item.head, item.batch, full);
    bring_rows<kRows>(rows + kRowElements, keys, 0, item.head, item.batch, full);
    bring_rows<kRows>(rows + 2 * kRowElements, result_grads, 0, item.head, item.batch, full);
    bring_rows<kRows>(rows + 3 * kRowElements, values, 0, item.head, item.batch, full);
  }
  const int group = group_of_warp(), lane = threadIdx.x % 32, row = group * 64 + threadIdx.x / 32 % 4 * 16;
  const float scale = scale_of(size) * kLog2E;
  const Tile q = tile_at(rows), k = tile_beyond(q, kRowElements), result_grad = tile_beyond(q, 2 * kRowElements);
  const Tile v = tile_beyond(q, 3 * kRowElements);
  const int own = group * 64 * 64;
  float log[2], log_grad[2];
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int query = row + lane / 4 + half * 8;
    const bool is_there = query < size.queries;
    const long long at = (long long)blockIdx.x * size.queries + query;
    log[half] = is_there ? log2_of_row(logs[at]) : infinity();
    log_grad[half] = kHasLogGrads && is_there ? log_grads[at] : 0;
  }
  KeysLeft left;
  left.draw(blockIdx.x, row, 0, drops, size);
  wait_for(full, 0);
  if constexpr (kClears) {  // rows past the length may be anything, and 0 times that a NaN
    clear_rows<kRows, kRows * 2>(rows + kRowElements, item.length);
    clear_rows<kRows, kRows * 2>(rows + 3 * kRowElements, item.length);
    __syncthreads();
  }
  float score[kScores], weight_grad[kScores], sum[kSums];
  unsigned words[kScores / 8][4];
  multiply_scores(score, weight_grad, tile_beyond(q, own), k, tile_beyond(result_grad, own), v);
  mask<kHasLow>(score, counted_keys(row, 0, item.length, size), -infinity());
  drop_grads(weight_grad, left, size);
  float delta[2] = {-log_grad[0], -log_grad[1]};
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float part = 0;
#pragma unroll
    for (int i = half * 2; i < kScores; i += 4) {
#pragma unroll
      for (int j = i; j < i + 2; ++j) {
        score[j] = power_of_2(score[j] * scale - log[half]);
        part += score[j] * weight_grad[j];
      }
    }
    delta[half] += sum_of_row(part);
    if (lane % 4 == 0) {
      const int query = row + lane / 4 + half * 8;
      of_rows[query * 2] = log[half], of_rows[query * 2 + 1] = delta[half];
    }
  }
#pragma unroll
  for (int i = 0; i < kScores; ++i) weight_grad[i] = score[i] * (weight_grad[i] - delta[i / 2 % 2]);
  pack_factor(words, weight_grad);
  start_grads(sum, words, k);
  __syncthreads();
  const float of_scores[2] = {scale_of(size), scale_of(size)}, of_values[2] = {kept_factor(size), kept_factor(size)};
  sums_wait<0>(sum);
  if constexpr (kHasQueryGrad) {
    Stored* const to = query_grads + item.batch * size.out_batch_wide + item.head * size.out_head_wide;
    store_rows<kWidth>(sum, of_scores, to, row, size.queries, size.key_width, size.out_row);
  }
  multiply_scores(score, weight_grad, tile_beyond(k, own), q, tile_beyond(v, own), result_grad);
  mask<kHasHigh>(score, counted_queries(row, 0, item.length, size), -infinity());
  QueriesLeft of_keys;
  of_keys.draw(blockIdx.x, row, 0, drops, size);
  drop_grads(weight_grad, of_keys, size);
#pragma unroll
  for (int first = 0; first < kScores; first += 4) {
    Pack<float, 4> of_queries;
    load<false>(of_queries, of_rows + first * 4 + lane % 4 * 4);
#pragma unroll
    for (int i = first; i < first + 4; ++i) {
      score[i] = power_of_2(score[i] * scale - of_queries.get(i % 2 * 2));
      weight_grad[i] = score[i] * (weight_grad[i] - of_queries.get(i % 2 * 2 + 1));
    }
  }
  pack_factor(words, score);
  drop_words(words, of_keys);
  start_grads(sum, words, result_grad);
  sums_wait<0>(sum);
  if constexpr (kHasValueGrad) {
    Stored* const to = value_grads + item.batch * size.values_batch_wide + item.head * size.values_head_wide;
    store_rows<kWidth>(sum, of_values, to, row, size.keys, size.value_width, size.values_row);
  }
  pack_factor(words, weight_grad);
  start_grads(sum, words, q);
  sums_wait<0>(sum);
  if constexpr (kHasKeyGrad) {
    Stored* const to = key_grads + item.batch * size.keys_batch_wide + item.head * size.keys_head_wide;
    store_rows<kWidth>(sum, of_scores, to, row, size.keys, size.key_width, size.keys_row);
  }
}
