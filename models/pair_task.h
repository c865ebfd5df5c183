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
  Extents extents() const override { return extents_; }
  Extents::Key sizes(std::int64_t bucket) const override;
  std::int64_t bucket_of(const Extents::Key& sizes) const override;
  Value loss(Graph& graph, std::int64_t bucket, std::int64_t rows, bool is_training) const override;

 protected:
  // A derived task sets these before anything else is called: vocabularies and extents by its constructor or read().
  Seq2SeqOptions model_;
  std::int64_t start_ = 1, end_ = 2;  // words of the target
  double length_power_ = 0;           // see hypotheses()
  std::vector<Pair> pairs_[3];        // by part

  // Source and target, with the lengths that programs are made for, ascending; targets with their end.
  void set_lengths(std::vector<std::int64_t> source, std::vector<std::int64_t> target);
  std::int64_t longest_source() const { return extents_.specs()[0].maximum; }
  std::int64_t longest_target() const { return extents_.specs()[1].maximum; }

  static constexpr std::uint64_t kSplitSeed = 1;  // the same parts whatever the training's seed is
  // Leaves `limit` of the examples, chosen at random; all of them for 0.
  static void keep_some(std::vector<std::int64_t>* examples, std::int64_t limit);

  /// The model: that of Seq2Seq, unless a derived task has another.
  virtual Value loss_of(Graph& graph, const Value& source, const Value& lengths, const Value& written,
                        const Value& labels, bool is_training) const;
  virtual BeamSearch search_of(Graph& graph, const Value& source, const Value& lengths,
                               const BeamSearchOptions& options) const;

  const std::vector<Pair>& pairs(Part part) const { return pairs_[static_cast<std::size_t>(part)]; }

 private:
  friend class PairSearch;
  // A longer source is cut.
  std::int64_t source_bucket(const Sequence& source) const;
  Extents extents_;
  std::vector<Extents::Key> every_bucket_;  // by number
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
  Programs programs_;
};

}  // namespace paoding::models
