// SPDX-License-Identifier: Apache-2.0
// Gradients for queries on Hopper: a CTA has some queries of a head at a time, with their result's gradient, and goes over
// keys and values in TMA tiles of 64. It also leaves the deltas of its rows for attention_grad_keys.cu, whose launch
// comes next. The products of scores of the next TMA tile are on their way while those of the gradient are added up.

template <class Length>
PD_DEVICE void bring_items(const Map& queries, const Map& result_grads, const Map& keys, const Map& values,
                           const Shared& shared, const Length* lengths, const Sizes& size) {
  Turn turn;
  OwnedTurn owned;
  Item item;
  for (int i = 0; find_item<true>(item, i, lengths, size); ++i) {
    if (!item.is_there) continue;
    const Span span = keys_of<kOwned, kStep>(item.row, item.length, size);
    if (span.begin >= span.end) continue;
    int head = item.head;
    next_coordinate(head, size.queries_of_key);
    bring_owned(shared, owned, queries, result_grads, item.row, item.head, item.batch);
    owned.next();
    for (int tile = span.end - 1; tile >= span.begin; --tile, turn.next()) {
      wait_for(&shared.barriers->tiles.free[turn.stage], turn.round + 1);
      unsigned long long* const full = &shared.barriers->tiles.full[turn.stage];
      Stored* const to = shared.tiles + turn.stage * kTileElements;
      mbarrier_arrive_expect_tx(full, kTileElements * 2);
      bring_rows<kStep>(to, keys, tile * kStep, head, item.batch, full);
      bring_rows<kStep>(to + kStepElements, values, tile * kStep, head, item.batch, full);
    }
  }
}

// A quarter of a row of the result, from memory, in a lane; and the sum of all of it times the row's gradient, which is
// the one at `row` in shared memory, in all four lanes.
struct QuarterRow {
  Pack<Stored, 8> piece[kWidth / 32];

  PD_DEVICE void ask(const Stored* from, int width) {
#pragma unroll
    for (int i = 0; i < kWidth / 32; ++i) {
      const int column = i * 32 + (int)threadIdx.x % 4 * 8;
      piece[i] = {};
      if (column < width) load<true>(piece[i], from + column);
    }
  }
  PD_DEVICE float times(const Stored* rows, int row) const {
    float sum = 0;
#pragma unroll
    for (int i = 0; i < kWidth / 32; ++i) {
      const int at = i % 2 * 4 + (int)threadIdx.x % 4;
      Pack<Stored, 8> other;
      load<false>(other, rows + i / 2 * kOwned * 64 + row * 64 + (at ^ row % 8) * 8);
#pragma unroll
      for (int j = 0; j < 8; ++j) sum += piece[i].get(j) * other.get(j);
    }
    return sum_of_row(sum);
  }
};

template <class Length>
PD_DEVICE void differentiate_items(const Shared& shared, const Length* lengths, const Drops& drops, const Stored* result, const float* logs,
                                   const float* log_grads, float* deltas, Stored* out, const Sizes& size) {
  const int group = group_of_warp(), lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const float scale = scale_of(size) * kLog2E;
  const Tile first_owned = tile_at(shared.owned + group * 64 * 64), first_tile = tile_at(shared.tiles);
  Turn turn;
  OwnedTurn owned;
  Item item;
  for (int i = 0; find_item<true>(item, i, lengths, size); ++i) {
    if (!item.is_there) continue;
    const int row = item.row + group * 64;
    const long long head_row = (long long)(item.batch * size.heads + item.head) * size.queries;
    const Span span = keys_of<kOwned, kStep>(item.row, item.length, size);
    float log[2], delta[2];
    QuarterRow results[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = row + warp * 16 + lane / 4 + half * 8, at = most(least(query, size.queries - 1), 0);
      log[half] = query < size.queries ? log2_of_row(logs[head_row + at]) : infinity();
      delta[half] = kHasLogGrads ? -log_grads[head_row + at] : 0;
      results[half].ask(
          result + item.batch * size.result_batch_wide + item.head * size.result_head_wide + (long long)at * size.result_row,
          size.value_width);
    }
    float sum[kSums];
#pragma unroll
    for (int j = 0; j < kSums; ++j) sum[j] = 0;
    const Span own = keys_of_group<kStep>(row, item.length, size);
    if (span.begin < span.end && own.begin >= own.end) {
      pass_tiles(shared, turn, span.end - span.begin);
      if (lane == 0) mbarrier_arrive_expect_tx(&shared.barriers->free[owned.slot], 0);
      owned.next();
    } else if (span.begin < span.end) {
      const Tile queries = tile_beyond(first_owned, owned.slot * 2 * kOwnedElements);
      float score[kScores], weight_grad[kScores];
      unsigned words[kScores / 8][4];
      const auto start_scores = [&](int tile) {
        wait_for(&shared.barriers->tiles.full[turn.stage], turn.round);
        if constexpr (kClears) {  // keys past the length may be anything; other groups put the same zeros there
          if ((tile + 1) * kStep > item.length) {
            clear_rows<kStep, 128>(shared.tiles + turn.stage * kTileElements, item.length - tile * kStep);
            barrier_wait(1 + group, 128);
          }
        }
        const Tile keys = tile_beyond(first_tile, turn.stage * kTileElements);
        products_begin();
#pragma unroll
        for (int step = 0; step < kWidth / 16; ++step) add_scores(score, queries, keys, step, step > 0);
#pragma unroll
        for (int step = 0; step < kWidth / 16; ++step) {
          add_scores(weight_grad, tile_beyond(queries, kOwnedElements), tile_beyond(keys, kStepElements), step, step > 0);
        }
        products_start();
      };
      KeysLeft left;
      const auto draw = [&](int tile) {
        left.draw(item.batch * size.heads + item.head, row + warp * 16, tile * kStep, drops, size);
      };
      pass_tiles(shared, turn, span.end - own.end);
      wait_for(&shared.barriers->full[owned.slot], owned.round);
      start_scores(own.end - 1);
      draw(own.end - 1);
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int in_block = group * 64 + warp * 16 + lane / 4 + half * 8;
        const Stored* const grads = shared.owned + (owned.slot * 2 + 1) * kOwnedElements;
        delta[half] += results[half].times(grads, in_block);
        const int query = item.row + in_block;
        if (query < size.queries && lane % 4 == 0) deltas[head_row + query] = delta[half];
      }
      work_out(delta);
      sums_wait<0>(score);
      sums_wait<0>(weight_grad);
      const auto make_factor = [&](int tile) {
        drop_grads(weight_grad, left, size);
        const bool all = all_count<64, kStep>(row, tile * kStep, item.length, size);
        if (!all) {
          const Counted counted = counted_keys(row + warp * 16, tile * kStep, item.length, size);
          mask<kHasLow>(score, counted, -infinity());
          if constexpr (kClears) mask<kHasLow>(weight_grad, counted, 0);
        }
#pragma unroll
        for (int j = 0; j < kScores; ++j) {
          const float weight = power_of_2(score[j] * scale - log[j / 2 % 2]);
          weight_grad[j] = weight * (weight_grad[j] - delta[j / 2 % 2]);
        }
      };
      const auto start_sums = [&](Tile keys) {
        products_begin();
#pragma unroll
        for (int step = 0; step < kStep / 16; ++step) add_grads(sum, words[step], keys, step, true);
        products_start();
      };
      make_factor(own.end - 1);
      for (int tile = own.end - 1; tile > own.begin; --tile) {
        pack_factor(words, weight_grad);
        work_out(words);
        const Turn here = turn;
        turn.next();
        start_scores(tile - 1);
        start_sums(tile_beyond(first_tile, here.stage * kTileElements));
        draw(tile - 1);
        sums_wait<1>(score);
        sums_wait<1>(weight_grad);
        make_factor(tile - 1);
        work_out(weight_grad);
        // Compilers put the factor off until the sums are there, unless something stands between them that may loop.
        if (tile - 1 > own.begin) {
          Turn next = turn;
          next.next();
          wait_for(&shared.barriers->tiles.full[next.stage], next.round);
        }
        sums_wait<0>(sum);
        leave_tile(shared, here);
      }
      pack_factor(words, weight_grad);
      start_sums(tile_beyond(first_tile, turn.stage * kTileElements));
      sums_wait<0>(sum);
      leave_tile(shared, turn);
      turn.next();
      pass_tiles(shared, turn, own.begin - span.begin);
      if (lane == 0) mbarrier_arrive_expect_tx(&shared.barriers->free[owned.slot], 0);
      owned.next();
    }
    if constexpr (kHasQueryGrad) {
      if (row < 0) continue;
      const float times[2] = {scale_of(size), scale_of(size)};
      Stored* const to = out + item.batch * size.out_batch_wide + item.head * size.out_head_wide;
      store_rows<kWidth>(sum, times, to, row + warp * 16, size.queries, size.key_width, size.out_row);
    }
  }
}

template <class Length>
PD_DEVICE void differentiate(const Map& queries, const Map& result_grads, const Map& keys, const Map& values,
                             const Length* lengths, const Drops& drops, const Stored* result, const float* logs,
                             const float* log_grads, float* deltas, Stored* out, const Sizes& size) {
  const Shared shared = begin_shared(queries, result_grads, keys, values);
  if (threadIdx.x < kConsumers) {
    take_registers<kRegisters>();
    differentiate_items(shared, lengths, drops, result, logs, log_grads, deltas, out, size);
  } else {
    give_registers<kFewRegisters>();
    if (threadIdx.x == kConsumers) bring_items(queries, result_grads, keys, values, shared, lengths, size);
  }
}
