// SPDX-License-Identifier: Apache-2.0
// Common code of g2p and translate: pairs of sequences of ids, an attention seq2seq, and searching with it.
#pragma once

#include "models/seq2seq.h"
#include "models/task.h"

namespace paoding::models {

using Sequence = std::vector<std::int64_t>;

struct Pair {
  Sequence source, target;  // the target without start and end
};

class PairTask : public Task {
 public:
  Options options() override;
  std::vector<std::int64_t> buckets(Part part) const override;
  Batch batch(Part part, std::span<const std::int64_t> examples, std::int64_t bucket, std::int64_t rows) const override;
  Value loss(Graph& graph, std::int64_t bucket, std::int64_t rows, bool is_training) const override;

 protected:
  // A derived task sets these before anything else is called: vocabularies and bounds by its constructor or read().
  Seq2SeqOptions model_;
  std::int64_t start_ = 1, end_ = 2;                         // words of the target
  std::vector<std::int64_t> source_bounds_, target_bounds_;  // of buckets, ascending; targets with their end
  double length_power_ = 0;                                  // see hypotheses()
  std::vector<Pair> pairs_[3];                               // by part

  static constexpr std::uint64_t kSplitSeed = 1;  // the same parts whatever the training's seed is
  // Leaves `limit` of the examples, chosen at random; all of them for 0.
  static void keep_some(std::vector<std::int64_t>* examples, std::int64_t limit);

  const std::vector<Pair>& pairs(Part part) const { return pairs_[static_cast<std::size_t>(part)]; }

 private:
  friend class PairSearch;
  struct Steps {
    std::int64_t source, target;
  };
  Steps steps_of(std::int64_t bucket) const;
};

/// Searches with the parameters of a PairTask.
class PairSearch {
 public:
  PairSearch(const PairTask& task, const Trained& trained);
  /// The hypotheses of each source, the best first. Sources longer than the longest bucket are cut.
  std::vector<std::vector<Hypothesis>> operator()(std::span<const Sequence> sources, std::int64_t beam,
                                                  bool packs = false);
  Graphs graphs(std::int64_t beam) const;
  void prepare(std::int64_t beam);

 private:
  const PairTask& task_;
  std::vector<Programs::Key> keys(std::int64_t beam) const;
  void run(std::span<const Sequence> sources, const std::vector<std::int64_t>& batch, const Programs::Key& key,
           std::vector<std::vector<Hypothesis>>* found);
  std::function<void()> before_run_;
  Programs::Build build_;
  Programs programs_;  // by source bound, rows, beam
};

}  // namespace paoding::models
