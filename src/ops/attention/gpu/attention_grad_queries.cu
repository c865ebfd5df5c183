// SPDX-License-Identifier: Apache-2.0
// Gradients for queries on Hopper: a CTA has 128 queries of a head at a time, with their result's gradient, and goes over
// keys and values in TMA tiles of 64. It also leaves the deltas of its rows for attention_grad_keys.cu, whose launch
// comes next. The products of scores of the next TMA tile are on their way while those of the gradient are added up.

template <class Length>
PD_DEVICE void bring_items(const Map& queries, const Map& result_grads, const Map& keys, const Map& values,
                           const Shared& shared, const Length* lengths, const Sizes& size) {
  Turn turn;
  OwnedTurn owned;
  Item item;
  for (int i = 0; find_item<true>(item, i, lengths, size); ++i) {
    if (item.block < 0) continue;
    const Span span = keys_of<kOwned, kStep>(item.block * kOwned, item.length, size);
    if (span.begin >= span.end) continue;
    int head = item.head;
    next_coordinate(head, size.queries_of_key);
    bring_owned(shared, owned, queries, result_grads, item.block * kOwned, item.head, item.batch);
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

// The sum of a row's result times its gradient, in all four lanes of the row.
PD_DEVICE float delta_of(const Stored* result, const Stored* grad, int width) {
  float sum = 0;
  for (int column = (int)threadIdx.x % 4 * 8; column < width; column += 32) {
    Pack<Stored, 8> a, b;
    load<true>(a, result + column), load<true>(b, grad + column);
#pragma unroll
    for (int i = 0; i < 8; ++i) sum += a.get(i) * b.get(i);
  }
  return sum_of_row(sum);
}

template <class Length>
PD_DEVICE void differentiate_items(const Shared& shared, const Length* lengths, const Stored* result,
                                   const Stored* result_grad, const float* logs,
                                   const float* log_grads, float* deltas, Stored* out, const Sizes& size) {
  const int group = threadIdx.x / 128, lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const float scale = scale_of(size) * kLog2E;
  const Tile first_owned = tile_beyond(tile_at(shared.owned), group * 64 * 64), first_tile = tile_at(shared.tiles);
  Turn turn;
  OwnedTurn owned;
  Item item;
  const auto leave = [&](const Turn& left) {
    if (lane == 0) mbarrier_arrive_expect_tx(&shared.barriers->tiles.free[left.stage], 0);
  };
  for (int i = 0; find_item<true>(item, i, lengths, size); ++i) {
    if (item.block < 0) continue;
    const int row = item.block * kOwned + group * 64;
    const long long head_row = (long long)(item.batch * size.heads + item.head) * size.queries;
    const Span span = keys_of<kOwned, kStep>(item.block * kOwned, item.length, size);
    float log[2], delta[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int query = row + warp * 16 + lane / 4 + half * 8;
      const bool is_there = query < size.queries;
      const int at = is_there ? query : 0;
      log[half] = is_there ? log2_of_row(logs[head_row + query]) : infinity();
      delta[half] = delta_of(
          result + item.batch * size.result_batch_wide + item.head * size.result_head_wide + (long long)at * size.result_row,
          result_grad + item.batch * size.grad_batch_wide + item.head * size.grad_head_wide + (long long)at * size.grad_row,
          size.value_width);
      if constexpr (kHasLogGrads) delta[half] -= log_grads[head_row + at];
      if (is_there && lane % 4 == 0) deltas[head_row + query] = delta[half];
    }
    float sum[kSums];
#pragma unroll
    for (int j = 0; j < kSums; ++j) sum[j] = 0;
    if (span.begin < span.end) {
      const Tile queries = tile_beyond(first_owned, owned.slot * 2 * kOwnedElements);
      float score[kScores], weight_grad[kScores];
      unsigned words[kScores / 8][4];
      const auto start_scores = [&](int tile) {
        wait_for(&shared.barriers->tiles.full[turn.stage], turn.round);
        if constexpr (kClears) {  // keys past the length may be anything
          if ((tile + 1) * kStep > item.length) {
            clear_rows<kStep, kConsumers>(shared.tiles + turn.stage * kTileElements, item.length - tile * kStep);
            barrier_wait(1, kConsumers);
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
      wait_for(&shared.barriers->full[owned.slot], owned.round);
      start_scores(span.end - 1);
      sums_wait<0>(score);
      sums_wait<0>(weight_grad);
      const auto make_factor = [&](int tile) {
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
      make_factor(span.end - 1);
      for (int tile = span.end - 1; tile > span.begin; --tile) {
        pack_factor(words, weight_grad);
        const Turn here = turn;
        turn.next();
        start_scores(tile - 1);
        start_sums(tile_beyond(first_tile, here.stage * kTileElements));
        sums_wait<1>(score);
        sums_wait<1>(weight_grad);
        make_factor(tile - 1);
        sums_wait<0>(sum);
        leave(here);
      }
      pack_factor(words, weight_grad);
      start_sums(tile_beyond(first_tile, turn.stage * kTileElements));
      turn.next();
      sums_wait<0>(sum);
      leave(before_of(turn));
      if (lane == 0) mbarrier_arrive_expect_tx(&shared.barriers->free[owned.slot], 0);
      owned.next();
    }
    if constexpr (kHasQueryGrad) {
      const float times[2] = {scale_of(size), scale_of(size)};
      Stored* const to = out + item.batch * size.out_batch_wide + item.head * size.out_head_wide;
      store_rows(sum, times, to, row + warp * 16, size.queries, size.key_width, size.out_row);
    }
  }
}

template <class Length>
PD_DEVICE void differentiate(const Map& queries, const Map& result_grads, const Map& keys, const Map& values,
                             const Length* lengths, const Stored* result, const Stored* result_grad, const float* logs,
                             const float* log_grads, float* deltas, Stored* out, const Sizes& size) {
  const Shared shared = begin_shared(queries, result_grads, keys, values);
  if (threadIdx.x < kConsumers) {
    take_registers<kRegisters>();
    differentiate_items(shared, lengths, result, result_grad, logs, log_grads, deltas, out, size);
  } else {
    give_registers<kFewRegisters>();
    if (threadIdx.x == kConsumers) bring_items(queries, result_grads, keys, values, shared, lengths, size);
  }
}
