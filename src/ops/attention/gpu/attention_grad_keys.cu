// SPDX-License-Identifier: Apache-2.0
// Gradients for keys and values on Hopper: a CTA has some keys of a head at a time, and goes over the queries that see
// them, and their result's gradient, in TMA tiles of 64, of all heads that share the keys, in one order. Scores come out
// with keys as rows, so weights and the scores' gradients are left factors in registers. Nothing is shared with other
// CTAs: sums have the same bits in every run.

// A warp brings rows: its first thread by TMA, and all of it the queries' logs and deltas.
template <class Length>
PD_DEVICE void bring_items(const Map& queries, const Map& result_grads, const Map& keys, const Map& values,
                           const Shared& shared, const Length* lengths, const float* logs, const float* deltas,
                           const Sizes& size) {
  const int lane = threadIdx.x % 32;
  Turn turn;
  OwnedTurn owned;
  Item item;
  for (int i = 0; find_item<false>(item, i, lengths, size); ++i) {
    if (!item.is_there) continue;
    const Span span = queries_of<kOwned, kStep>(item.row, item.length, size);
    if (span.begin >= span.end) continue;
    if (lane == 0) bring_owned(shared, owned, keys, values, item.row, item.head, item.batch);
    owned.next();
    for (int group = 0; group < size.group; ++group) {
      const int head = item.head * size.group + group;
      const long long head_row = (long long)(item.batch * size.heads + head) * size.queries;
      for (int tile = span.begin; tile < span.end; ++tile, turn.next()) {
        float log[2], delta[2];
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const int query = tile * kStep + lane + half * 32;
          const bool is_there = query < size.queries;
          log[half] = is_there ? log2_of_row(logs[head_row + query]) : infinity();
          delta[half] = log[half] < infinity() ? deltas[head_row + query] : 0;
        }
        wait_for(&shared.barriers->tiles.free[turn.stage], turn.round + 1);
        float* const rows = shared.rows + turn.stage * kRowFloats;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          rows[(lane + half * 32) * 2] = log[half], rows[(lane + half * 32) * 2 + 1] = delta[half];
        }
        __syncwarp();
        if (lane == 0) {
          unsigned long long* const full = &shared.barriers->tiles.full[turn.stage];
          Stored* const to = shared.tiles + turn.stage * kTileElements;
          mbarrier_arrive_expect_tx(full, kTileElements * 2);
          bring_rows<kStep>(to, queries, tile * kStep, head, item.batch, full);
          bring_rows<kStep>(to + kStepElements, result_grads, tile * kStep, head, item.batch, full);
        }
      }
    }
  }
}

template <class Length>
PD_DEVICE void differentiate_items(const Shared& shared, const Length* lengths, const Drops& drops, Stored* key_grads,
                                   Stored* value_grads, const Sizes& size) {
  const int group = group_of_warp(), lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const float scale = scale_of(size) * kLog2E;
  const Tile first_owned = tile_at(shared.owned + group * 64 * 64), first_tile = tile_at(shared.tiles);
  Turn turn;
  OwnedTurn owned;
  Item item;
  for (int i = 0; find_item<false>(item, i, lengths, size); ++i) {
    if (!item.is_there) continue;
    const int row = item.row + group * 64;
    const Span span = queries_of<kOwned, kStep>(item.row, item.length, size);
    float key_sum[kSums], value_sum[kSums];
#pragma unroll
    for (int j = 0; j < kSums; ++j) key_sum[j] = value_sum[j] = 0;
    if (span.begin < span.end) {
      const Tile keys = tile_beyond(first_owned, owned.slot * 2 * kOwnedElements);
      float score[kScores], weight_grad[kScores];
      unsigned weight_words[kScores / 8][4], score_words[kScores / 8][4];
      const auto start_scores = [&] {
        wait_for(&shared.barriers->tiles.full[turn.stage], turn.round);
        const Tile queries = tile_beyond(first_tile, turn.stage * kTileElements);
        products_begin();
#pragma unroll
        for (int step = 0; step < kWidth / 16; ++step) add_scores(score, keys, queries, step, step > 0);
#pragma unroll
        for (int step = 0; step < kWidth / 16; ++step) {
          add_scores(weight_grad, tile_beyond(keys, kOwnedElements), tile_beyond(queries, kStepElements), step, step > 0);
        }
        products_start();
      };
      const auto make_factors = [&](int tile) {
        const bool all = all_seen<64, kStep>(row, tile * kStep, item.length, size);
        if (!all) {
          const Counted counted = counted_queries(row + warp * 16, tile * kStep, item.length, size);
          mask<kHasHigh>(score, counted, -infinity());
          if constexpr (kClears) mask<kHasHigh>(weight_grad, counted, 0);
        }
        const float* const rows = shared.rows + turn.stage * kRowFloats + lane % 4 * 4;
#pragma unroll
        for (int first = 0; first < kScores; first += 4) {
          Pack<float, 4> of_queries;  // the log and the delta of two
          load<false>(of_queries, rows + first * 4);
#pragma unroll
          for (int k = first; k < first + 4; ++k) {
            score[k] = power_of_2(score[k] * scale - of_queries.get(k % 2 * 2));
            weight_grad[k] = score[k] * (weight_grad[k] - of_queries.get(k % 2 * 2 + 1));
          }
        }
      };
      const auto start_sum = [&](float (&sum)[kSums], const unsigned (&words)[kScores / 8][4], Tile rows) {
        products_begin();
#pragma unroll
        for (int step = 0; step < kStep / 16; ++step) add_grads(sum, words[step], rows, step, true);
        products_start();
      };
      const Span own = queries_of<64, kStep>(row, item.length, size);
      const bool has_own = own.begin < own.end;
      const int before = has_own ? own.begin - span.begin : span.end - span.begin, after = has_own ? span.end - own.end : 0;
      wait_for(&shared.barriers->full[owned.slot], owned.round);
      for (int head = 0; head < size.group; ++head) {
        pass_tiles(shared, turn, before);
        for (int tile = own.begin; tile < own.end; ++tile, turn.next()) {
          start_scores();
          QueriesLeft left;
          left.draw(item.batch * size.heads + item.head * size.group + head, row + warp * 16, tile * kStep, drops, size);
          sums_wait<0>(score);
          sums_wait<0>(weight_grad);
          drop_grads(weight_grad, left, size);
          make_factors(tile);
          const Tile queries = tile_beyond(first_tile, turn.stage * kTileElements);
          pack_factor(weight_words, score);
          drop_words(weight_words, left);
          start_sum(value_sum, weight_words, tile_beyond(queries, kStepElements));
          pack_factor(score_words, weight_grad);
          start_sum(key_sum, score_words, queries);
          sums_wait<0>(key_sum);
          sums_wait<0>(value_sum);
          leave_tile(shared, turn);
        }
        pass_tiles(shared, turn, after);
      }
      if (lane == 0) mbarrier_arrive_expect_tx(&shared.barriers->free[owned.slot], 0);
      owned.next();
    }
    const float of_keys[2] = {scale_of(size), scale_of(size)}, of_values[2] = {kept_factor(size), kept_factor(size)};
    if constexpr (kHasKeyGrad) {
      Stored* const to = key_grads + item.batch * size.keys_batch_wide + item.head * size.keys_head_wide;
      store_rows<kWidth>(key_sum, of_keys, to, row + warp * 16, size.keys, size.key_width, size.keys_row);
    }
    if constexpr (kHasValueGrad) {
      Stored* const to = value_grads + item.batch * size.values_batch_wide + item.head * size.values_head_wide;
      store_rows<kWidth>(value_sum, of_values, to, row + warp * 16, size.keys, size.value_width, size.values_row);
    }
  }
}

template <class Length>
PD_DEVICE void differentiate(const Map& queries, const Map& result_grads, const Map& keys, const Map& values,
                             const Length* lengths, const Drops& drops, const float* logs, const float* deltas,
                             Stored* key_grads, Stored* value_grads, const Sizes& size) {
  const Shared shared = begin_shared(queries, result_grads, keys, values);
  if (threadIdx.x < kConsumers) {
    take_registers<kRegisters>();
    differentiate_items(shared, lengths, drops, key_grads, value_grads, size);
  } else {
    give_registers<kFewRegisters>();
    if (threadIdx.x < kConsumers + 32) {
      bring_items(queries, result_grads, keys, values, shared, lengths, logs, deltas, size);
    }
  }
}
