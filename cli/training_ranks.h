// SPDX-License-Identifier: Apache-2.0
// The ranks of a training: which examples of a batch are this rank's, and the numbers that all ranks add up in every
// step.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "models/task.h"
#include "paoding/data/batches.h"
#include "paoding/distributed.h"
#include "paoding/graph.h"

namespace paoding::cli {

/// Batches are those of all ranks together, whatever their number, and in one order. Of the examples of a batch each
/// rank takes those in its place of as many equal parts.
class TrainingRanks {
 public:
  /// One rank, which is all.
  TrainingRanks() = default;
  /// Waits for the others. Errors: as connect_ranks().
  TrainingRanks(const RankPlace& place, const Device& device);

  int rank() const { return place_.rank; }
  int size() const { return place_.size; }
  bool are_several() const { return place_.size > 1; }
  /// Whether it is the one that writes files, prints and scores.
  bool is_first() const { return place_.rank == 0; }
  const std::shared_ptr<Communicator>& communicator() const { return communicator_; }

  /// Rows of a rank's step where all ranks together have so many.
  std::int64_t rows_of(std::int64_t all) const { return (all + size() - 1) / size(); }
  /// The rank's part of a batch; where there are fewer examples than ranks, it may be one that does not count.
  std::span<const std::int64_t> part_of(const data::BatchExamples& all, bool* counts) const;

  /// Adds the input that has the weight of the rank's part, and whether the rank is to stop, as the last of the
  /// batch's.
  static Value add_input(Graph& graph);
  static Value weight_in(const Value& input);
  /// [stop votes, items] of all ranks.
  static Value totals_in(const Value& input);
  /// The input's value.
  static Tensor value_of(double weight, bool stops, std::int64_t items);

  /// Error (argument) that names the rank and the setting, where one differs between ranks.
  void require_equal(const std::string& what, const std::string& text);
  /// Waits for all.
  void meet();

 private:
  RankPlace place_;
  std::shared_ptr<RankStore> store_;
  std::shared_ptr<Communicator> communicator_;
};

}  // namespace paoding::cli
