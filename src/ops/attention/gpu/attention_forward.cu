// SPDX-License-Identifier: Apache-2.0
// Attention forward on Hopper: a CTA has some queries of a head at a time, 64 for each of its groups of four warps, and
// goes over keys in TMA tiles of 128, the last first, which a thread of a warp of its own brings. A group passes TMA
// tiles of which its queries see no key. The scores of the next
// TMA tile are on their way while the softmax of this one is worked out, and its weights are a factor in registers.
// Only TMA tiles in which some query does not see some key are masked. The sums of weights are sums of rounded ones.

constexpr int kQueries = kGroups * 64, kKeys = 128, kConsumers = kGroups * 128;
// Behind the columns of the values are 8 of ones, where there is room for them, whose sums are those of the weights.
constexpr int kSums = kWidth / 2 + (kHasOnes ? 4 : 0), kOneElements = kHasOnes ? kKeys * 64 : 0;
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
    if (!item.is_there) continue;
    const Span span = keys_of<kQueries, kKeys>(item.row, item.length, size);
    if (span.begin >= span.end) continue;
    int head = item.head;
    next_coordinate(head, size.queries_of_key);  // which leaves the head of the keys
    const int slot = count % 2;
    wait_for(&barriers->free[slot], count / 2 + 1);
    mbarrier_arrive_expect_tx(&barriers->full[slot], kRowElements * 2);
    bring_rows<kQueries>(rows + slot * kRowElements, queries, item.row, item.head, item.batch,
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

template <class Length>
PD_DEVICE void attend_items(const Stored* rows, Stored* tiles, const Stored* ones, Barriers* barriers, const Length* lengths, const Drops& drops,
                            Stored* out, float* logs, const Sizes& size) {
  const int group = group_of_warp(), lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const float scale = scale_of(size) * kLog2E;
  const Tile first_rows = tile_at(rows + group * 64 * 64), first_tile = tile_at(tiles);
  const Tile first_one = tile_at(ones);
  Turn turn;
  Item item;
  int count = 0;
  const auto leave = [&](const Turn& left) {
    if (lane == 0) mbarrier_arrive_expect_tx(&barriers->tiles.free[left.stage], 0);
  };
  const auto pass = [&](int places) {
    for (; places > 0; --places, turn.next()) {
      wait_for(&barriers->tiles.full[turn.stage], turn.round);
      leave(turn);
    }
  };
  for (int i = 0; find_item<true>(item, i, lengths, size); ++i) {
    if (!item.is_there) continue;
    const int row = item.row + group * 64;
    const Span span = keys_of<kQueries, kKeys>(item.row, item.length, size);
    float sum[kSums];
#pragma unroll
    for (int j = 0; j < kSums; ++j) sum[j] = 0;
    Softmax softmax{{-infinity(), -infinity()}, {0, 0}};
    const Span own = keys_of_group<kKeys>(row, item.length, size);
    if (span.begin < span.end && own.begin >= own.end) {
      pass(2 * (span.end - span.begin));
      if (lane == 0) mbarrier_arrive_expect_tx(&barriers->free[count % 2], 0);
      ++count;
    } else if (span.begin < span.end) {
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
        const int apart = kHasOnes ? tile_distance(values, first_one) : kKeys * 8;
        products_begin();
#pragma unroll
        for (int step = 0; step < kKeys / 16; ++step) add_values(sum, words[step], values, step, true, apart);
        products_start();
      };
      const auto mask_scores = [&](int tile) {
        if (all_count<64, kKeys>(row, tile * kKeys, item.length, size)) return;
        mask<kHasLow>(score, counted_keys(row + warp * 16, tile * kKeys, item.length, size), -infinity());
      };
      // Values past the length may be anything, and 0 times that a NaN; other groups put the same zeros there.
      const auto await_values = [&](int tile) {
        wait_for(&barriers->tiles.full[turn.stage], turn.round);
        if (!kClears || (tile + 1) * kKeys <= item.length) return;
        clear_rows<kKeys, 128>(tiles + turn.stage * kTileElements, item.length - tile * kKeys);
        barrier_wait(1 + group, 128);
      };

      KeysLeft left;
      const auto draw = [&](int tile) {
        left.draw(item.batch * size.heads + item.head, row + warp * 16, tile * kKeys, drops, size);
      };
      const int passed = span.end - own.end;
      if (passed > 0) pass(2 * passed - 1);
      wait_for(&barriers->full[slot], count / 2);
      ++count;
      wait_for(&barriers->tiles.full[turn.stage], turn.round);
      start_scores();
      draw(own.end - 1);
      sums_wait<0>(score);
      leave(turn);
      turn.next();
      if (passed > 0) pass(1);
      mask_scores(own.end - 1);
      softmax.add(score, scale, times);
      pack_factor(words, score);
      if constexpr (!kHasOnes) softmax.count(words, times);
      drop_words(words, left);
      for (int tile = own.end - 2; tile >= own.begin; --tile) {
        const Turn of_keys = turn;
        wait_for(&barriers->tiles.full[turn.stage], turn.round);
        start_scores();
        turn.next();
        await_values(tile + 1);
        start_values();
        draw(tile);
        sums_wait<1>(score);
        leave(of_keys);
        mask_scores(tile);
        softmax.add(score, scale, times);
        work_out(score);
        // Compilers put off the powers until the sums are there, unless something stands between them that may loop.
        Turn next = turn;
        next.next();
        wait_for(&barriers->tiles.full[next.stage], next.round);
        sums_wait<0>(sum);
        leave(turn);
        turn.next();
#pragma unroll
        for (int j = 0; j < kSums; ++j) sum[j] *= times[j / 2 % 2];
        pack_factor(words, score);
        if constexpr (!kHasOnes) softmax.count(words, times);
        drop_words(words, left);
        work_out(words);
      }
      if (lane == 0) mbarrier_arrive_expect_tx(&barriers->free[slot], 0);
      const int rest = own.begin - span.begin;
      if (rest > 0) pass(1);
      await_values(own.begin);
      start_values();
      sums_wait<0>(sum);
      leave(turn);
      turn.next();
      if (rest > 0) pass(2 * rest - 1);
    }
    if (row < 0) continue;
    float times[2];
    const int head = item.batch * size.heads + item.head;
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const float total = kHasOnes ? sum[kSums - 4 + half * 2] : sum_of_row(softmax.sum[half]);
      times[half] = total == 0 ? 0 : kept_factor(size) / total;
      const int query = row + warp * 16 + lane / 4 + half * 8;
      if (kHasLogs && lane % 4 == 0 && query < size.queries) {
        const float log = total == 0 ? -infinity() : softmax.most[half] * scale_of(size) + logf(total);
        logs[(long long)head * size.queries + query] = log;
      }
    }
    Stored* const to = out + item.batch * size.out_batch_wide + item.head * size.out_head_wide;
    store_rows<kWidth>(sum, times, to, row + warp * 16, size.queries, size.value_width, size.out_row);
  }
}

template <class Length>
PD_DEVICE void attend(const Map& queries, const Map& keys, const Map& values, const Length* lengths, const Drops& drops,
                      Stored* out, float* logs, const Sizes& size) {
  Stored* const rows = shared_for_tma<Stored>();
  Stored* const tiles = rows + 2 * kRowElements;
  Stored* const ones = tiles + kStages * kTileElements;
  Barriers* const barriers = (Barriers*)(ones + kOneElements);
  if (threadIdx.x == kConsumers) fetch_map(queries), fetch_map(keys), fetch_map(values);
  if (threadIdx.x < kStages) {
    mbarrier_init(&barriers->tiles.full[threadIdx.x], 1);
    mbarrier_init(&barriers->tiles.free[threadIdx.x], kConsumers / 32);
  }
  if (threadIdx.x < 2) {
    mbarrier_init(&barriers->full[threadIdx.x], 1);
    mbarrier_init(&barriers->free[threadIdx.x], kConsumers / 32);
  }
  const unsigned pair = pair_of<Stored>(1, 1);
  for (int i = threadIdx.x; i < kOneElements / 8; i += kThreads) ((uint4*)ones)[i] = make_uint4(pair, pair, pair, pair);
  fence_for_copies();
  __syncthreads();
  if (threadIdx.x < kConsumers) {
    take_registers<kRegisters>();
    attend_items(rows, tiles, ones, barriers, lengths, drops, out, logs, size);
  } else {
    give_registers<kFewRegisters>();
    if (threadIdx.x == kConsumers) bring_items(queries, keys, values, rows, tiles, barriers, lengths, size);
  }
}
