// SPDX-License-Identifier: Apache-2.0
// Gradients for keys and values on Hopper: a CTA has 128 keys of a head at a time, and goes over the queries that see
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
    if (item.block < 0) continue;
    const Span span = queries_of<kOwned, kStep>(item.block * kOwned, item.length, size);
    if (span.begin >= span.end) continue;
    if (lane == 0) bring_owned(shared, owned, keys, values, item.block * kOwned, item.head, item.batch);
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
          delta[half] = is_there ? deltas[head_row + query] : 0;
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
PD_DEVICE void differentiate_items(const Shared& shared, const Length* lengths, Stored* key_grads, Stored* value_grads,
                                   const Sizes& size) {
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const float scale = scale_of(size) * kLog2E;
  const Tile first_owned = tile_beyond(tile_at(shared.owned), group * 64 * 64), first_tile = tile_at(shared.tiles);
  Turn turn;
  OwnedTurn owned;
  Item item;
  const auto leave = [&](const Turn& left) {
    if (lane == 0) mbarrier_arrive_expect_tx(&shared.barriers->tiles.free[left.stage], 0);
  };
  for (int i = 0; find_item<false>(item, i, lengths, size); ++i) {
    if (item.block < 0) continue;
    const int row = item.block * kOwned + group * 64;
    const Span span = queries_of<kOwned, kStep>(item.block * kOwned, item.length, size);
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
      const auto start_sums = [&](Tile queries) {
        products_begin();
#pragma unroll
        for (int step = 0; step < kStep / 16; ++step) {
          add_grads(value_sum, weight_words[step], tile_beyond(queries, kStepElements), step, true);
        }
#pragma unroll
        for (int step = 0; step < kStep / 16; ++step) add_grads(key_sum, score_words[step], queries, step, true);
        products_start();
      };
      const auto end_sums = [&](const Turn& of_tile) {
        sums_wait<0>(key_sum);
        sums_wait<0>(value_sum);
        leave(of_tile);
      };
      const auto pack_factors = [&] {
        pack_factor(weight_words, score);
        pack_factor(score_words, weight_grad);
      };
      const int tiles = (span.end - span.begin) * size.group;
      wait_for(&shared.barriers->full[owned.slot], owned.round);
      int tile = span.begin;
      start_scores();
      sums_wait<0>(score);
      sums_wait<0>(weight_grad);
      make_factors(tile);
      for (int left = tiles - 1; left > 0; --left) {
        if (++tile == span.end) tile = span.begin;
        pack_factors();
        const Turn here = turn;
        const Tile queries = tile_beyond(first_tile, here.stage * kTileElements);
        turn.next();
        if constexpr (kIsAhead) {
          start_scores();
          start_sums(queries);
          sums_wait<1>(score);
          sums_wait<1>(weight_grad);
          make_factors(tile);
          end_sums(here);
        } else {
          start_sums(queries);
          end_sums(here);
          start_scores();
          sums_wait<0>(score);
          sums_wait<0>(weight_grad);
          make_factors(tile);
        }
      }
      pack_factors();
      start_sums(tile_beyond(first_tile, turn.stage * kTileElements));
      end_sums(turn);
      turn.next();
      if (lane == 0) mbarrier_arrive_expect_tx(&shared.barriers->free[owned.slot], 0);
      owned.next();
    }
    const float of_keys[2] = {scale_of(size), scale_of(size)}, of_values[2] = {1, 1};
    if constexpr (kHasKeyGrad) {
      Stored* const to = key_grads + item.batch * size.keys_batch_wide + item.head * size.keys_head_wide;
      store_rows(key_sum, of_keys, to, row + warp * 16, size.keys, size.key_width, size.keys_row);
    }
    if constexpr (kHasValueGrad) {
      Stored* const to = value_grads + item.batch * size.values_batch_wide + item.head * size.values_head_wide;
      store_rows(value_sum, of_values, to, row + warp * 16, size.keys, size.value_width, size.values_row);
    }
  }
}

template <class Length>
PD_DEVICE void differentiate(const Map& queries, const Map& result_grads, const Map& keys, const Map& values,
                             const Length* lengths, const float* logs, const float* deltas, Stored* key_grads,
                             Stored* value_grads, const Sizes& size) {
  const Shared shared = begin_shared(queries, result_grads, keys, values);
  if (threadIdx.x < kConsumers) {
    take_registers<kRegisters>();
    differentiate_items(shared, lengths, key_grads, value_grads, size);
  } else {
    give_registers<kFewRegisters>();
    if (threadIdx.x < kConsumers + 32) {
      bring_items(queries, result_grads, keys, values, shared, lengths, logs, deltas, size);
    }
  }
}
