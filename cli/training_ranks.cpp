// SPDX-License-Identifier: Apache-2.0
#include "training_ranks.h"

#include <algorithm>
#include <array>

#include "paoding/ops.h"

namespace paoding::cli {
namespace {

constexpr auto kPatienceWithRanks = std::chrono::minutes(2);  // to start, and to read their data

}  // namespace

TrainingRanks::TrainingRanks(const RankPlace& place, const Device& device)
    : place_(place), store_(open_rank_store(place, kPatienceWithRanks)) {
  ConnectOptions options;
  options.connect_timeout = kPatienceWithRanks;
  options.store = store_;
  communicator_ = connect_ranks(place, device, options);
}

std::span<const std::int64_t> TrainingRanks::part_of(const data::BatchExamples& all, bool* counts) const {
  const auto count = static_cast<std::int64_t>(all.size());
  const std::int64_t begin = rank() * count / size(), end = (rank() + 1) * count / size();
  *counts = end > begin;
  const std::span<const std::int64_t> examples(all);
  return *counts ? examples.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(end - begin))
                 : examples.first(1);
}

Value TrainingRanks::add_input(Graph& graph) { return graph.input("rank", f32, {3}); }

Value TrainingRanks::weight_in(const Value& input) { return reshape(slice(input, 0, 0, 1), Shape{}); }

Value TrainingRanks::totals_in(const Value& input) { return all_reduce(slice(input, 0, 1, 3)); }

Tensor TrainingRanks::value_of(double weight, bool stops, std::int64_t items) {
  return Tensor::from(f32, {3}, std::array{weight, stops ? 1.0 : 0.0, static_cast<double>(items)});
}

void TrainingRanks::require_equal(const std::string& what, const std::string& text) {
  if (are_several()) require_equal_on_ranks(*store_, place_, what, text, kPatienceWithRanks);
}

void TrainingRanks::meet() {
  if (are_several()) communicator_->barrier();
}

}  // namespace paoding::cli
