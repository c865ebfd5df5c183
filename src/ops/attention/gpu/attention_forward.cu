// SPDX-License-Identifier: Apache-2.0
// Attention forward on Hopper: a CTA has 128 queries of a head at a time, 64 for each of two groups of four warps, and
// goes over keys in TMA tiles of 128, the last first, which a thread of a warp of its own brings. The scores of the next
// TMA tile are on their way while the softmax of this one is worked out, and its weights are a factor in registers.
// Only TMA tiles in which some query does not see some key are masked. The sums of weights are sums of rounded ones.

constexpr int kQueries = 128, kKeys = 128, kConsumers = 256, kScores = kKeys / 2, kSums = kWidth / 2;
constexpr int kRowElements = kQueries * kWidth, kTileElements = kKeys * kWidth;

struct Barriers {
  Mbarriers tiles;
  unsigned long long full[2], free[2];  // of queries
};

// Fetches queries of each item, then the TMA tiles in the order they are read in: keys, then for each of the next keys
// these and the values of those before, then the last values.
template <class Length>
PD_DEVICE void bring_items(const Map& queries, const Map& keys, const Map& values, Stored* rows, Stored* tiles,
                           Barriers* barriers, const Length* lengths, const Sizes& size) {
  Turn turn;
  Item item = {};
  int count = 0;
  const auto bring = [&](const Map& map, int tile, int head) {
    wait_for(&barriers->tiles.free[turn.stage], turn.round + 1);
    unsigned long long* const full = &barriers->tiles.full[turn.stage];
    mbarrier_arrive_expect_tx(full, kTileElements * 2);
    bring_rows<kKeys>(tiles + turn.stage * kTileElements, map, tile * kKeys, head, item.batch, full);
    turn.next();
  };
  for (int i = 0; find_item<true>(item, i, lengths, size); ++i) {
    if (item.block < 0) continue;
    const Span span = keys_of<kQueries, kKeys>(item.block * kQueries, item.length, size);
    if (span.begin >= span.end) continue;
    int head = item.head;
    next_coordinate(head, size.queries_of_key);  // what is left is the head of the keys
    const int slot = count % 2;
    wait_for(&barriers->free[slot], count / 2 + 1);
    mbarrier_arrive_expect_tx(&barriers->full[slot], kRowElements * 2);
    bring_rows<kQueries>(rows + slot * kRowElements, queries, item.block * kQueries, item.head, item.batch,
                         &barriers->full[slot]);
    ++count;
    bring(keys, span.end - 1, head);
    for (int tile = span.end - 2; tile >= span.begin; --tile) {
      bring(keys, tile, head);
      bring(values, tile + 1, head);
    }
    bring(values, span.begin, head);
  }
}

// The state of a softmax over rows that come in parts: a thread's two rows.
struct Softmax {
  float most[2], sum[2];

  // Scores become weights relative to the largest so far; returns the factors of sums over those before.
  PD_DEVICE void add(float (&score)[kScores], float scale, float (&times)[2]) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float now = most[half];
#pragma unroll
      for (int i = half * 2; i < kScores; i += 4) now = fmaxf(now, fmaxf(score[i], score[i + 1]));
      now = most_of_row(now);
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

template <class Length>
PD_DEVICE void attend_items(const Stored* rows, Stored* tiles, Barriers* barriers, const Length* lengths, Stored* out,
                            float* logs, const Sizes& size) {
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const float scale = scale_of(size) * kLog2E;
  const Tile first_rows = tile_beyond(tile_at(rows), group * 64 * 64), first_tile = tile_at(tiles);
  Turn turn;
  Item item;
  int count = 0;
  const auto leave = [&](const Turn& left) {
    if (lane == 0) mbarrier_arrive_expect_tx(&barriers->tiles.free[left.stage], 0);
  };
  for (int i = 0; find_item<true>(item, i, lengths, size); ++i) {
    if (item.block < 0) continue;
    const int row = item.block * kQueries + group * 64;
    const Span span = keys_of<kQueries, kKeys>(item.block * kQueries, item.length, size);
    float sum[kSums];
#pragma unroll
    for (int j = 0; j < kSums; ++j) sum[j] = 0;
    Softmax softmax{{-infinity(), -infinity()}, {0, 0}};
    if (span.begin < span.end) {
      const int slot = count % 2;
      const Tile queries = tile_beyond(first_rows, slot * kRowElements);
      float score[kScores], times[2];
      unsigned words[kScores / 8][4];
      const auto start_scores = [&] {
        const Tile keys = tile_beyond(first_tile, turn.stage * kTileElements);
        products_begin();
#pragma unroll
        for (int step = 0; step < kWidth / 16; ++step) add_scores(score, queries, keys, step, step > 0);
        products_start();
      };
      const auto start_values = [&] {
        const Tile values = tile_beyond(first_tile, turn.stage * kTileElements);
        products_begin();
#pragma unroll
        for (int step = 0; step < kKeys / 16; ++step) add_values(sum, words[step], values, step, true);
        products_start();
      };
      const auto mask_scores = [&](int tile) {
        if (all_count<64, kKeys>(row, tile * kKeys, item.length, size)) return;
        mask<kHasLow>(score, counted_keys(row + warp * 16, tile * kKeys, item.length, size), -infinity());
      };
      // Values past the length may be anything, and 0 times that a NaN.
      const auto clear_values = [&](int tile) {
        if constexpr (kClears) {
          if ((tile + 1) * kKeys <= item.length) return;
          clear_rows<kKeys, kConsumers>(tiles + turn.stage * kTileElements, item.length - tile * kKeys);
          barrier_wait(1, kConsumers);
        }
      };

      wait_for(&barriers->full[slot], count / 2);
      ++count;
      wait_for(&barriers->tiles.full[turn.stage], turn.round);
      start_scores();
      sums_wait<0>(score);
      leave(turn);
      turn.next();
      mask_scores(span.end - 1);
      softmax.add(score, scale, times);
      pack_factor(words, score);
      softmax.count(words, times);
      for (int tile = span.end - 2; tile >= span.begin; --tile) {
        const Turn of_keys = turn;
        wait_for(&barriers->tiles.full[turn.stage], turn.round);
        start_scores();
        turn.next();
        wait_for(&barriers->tiles.full[turn.stage], turn.round);
        clear_values(tile + 1);
        start_values();
        sums_wait<1>(score);
        leave(of_keys);
        mask_scores(tile);
        softmax.add(score, scale, times);
        sums_wait<0>(sum);
        leave(turn);
        turn.next();
#pragma unroll
        for (int j = 0; j < kSums; ++j) sum[j] *= times[j / 2 % 2];
        pack_factor(words, score);
        softmax.count(words, times);
      }
      if (lane == 0) mbarrier_arrive_expect_tx(&barriers->free[slot], 0);
      wait_for(&barriers->tiles.full[turn.stage], turn.round);
      clear_values(span.begin);
      start_values();
      sums_wait<0>(sum);
      leave(turn);
      turn.next();
    }
    float times[2];
    const int head = item.batch * size.heads + item.head;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = sum_of_row(softmax.sum[half]);
      times[half] = total == 0 ? 0 : 1 / total;
      const int query = row + warp * 16 + lane / 4 + half * 8;
      if (kHasLogs && lane % 4 == 0 && query < size.queries) {
        const float log = total == 0 ? -infinity() : softmax.most[half] * scale_of(size) + logf(total);
        logs[(long long)head * size.queries + query] = log;
      }
    }
    Stored* const to = out + item.batch * size.out_batch_wide + item.head * size.out_head_wide;
    store_rows(sum, times, to, row + warp * 16, size.queries, size.value_width, size.out_row);
  }
}

template <class Length>
PD_DEVICE void attend(const Map& queries, const Map& keys, const Map& values, const Length* lengths, Stored* out,
                      float* logs, const Sizes& size) {
  Stored* const rows = shared_for_tma<Stored>();
  Stored* const tiles = rows + 2 * kRowElements;
  Barriers* const barriers = (Barriers*)(tiles + kStages * kTileElements);
  if (threadIdx.x == kConsumers) fetch_map(queries), fetch_map(keys), fetch_map(values);
  if (threadIdx.x < kStages) {
    mbarrier_init(&barriers->tiles.full[threadIdx.x], 1);
    mbarrier_init(&barriers->tiles.free[threadIdx.x], kConsumers / 32);
  }
  if (threadIdx.x < 2) {
    mbarrier_init(&barriers->full[threadIdx.x], 1);
    mbarrier_init(&barriers->free[threadIdx.x], kConsumers / 32);
  }
  __syncthreads();
  if (threadIdx.x < kConsumers) {
    take_registers<kRegisters>();
    attend_items(rows, tiles, barriers, lengths, out, logs, size);
  } else {
    give_registers<kFewRegisters>();
    if (threadIdx.x == kConsumers) bring_items(queries, keys, values, rows, tiles, barriers, lengths, size);
  }
}
