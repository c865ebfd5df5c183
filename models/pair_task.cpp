// SPDX-License-Identifier: Apache-2.0
#include "models/pair_task.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "paoding/data/batches.h"
#include "paoding/model.h"

namespace paoding::models {
namespace {

constexpr std::int64_t kSearchRows = 64;  // hypotheses of all sources in one run, about

std::int64_t most_rows(std::int64_t beam) { return std::max<std::int64_t>(1, kSearchRows / beam); }

// Rows that there are programs for, ascending.
std::vector<std::int64_t> row_counts(std::int64_t beam) {
  const std::int64_t most = most_rows(beam);
  std::vector<std::int64_t> counts;
  for (const std::int64_t rows : {std::int64_t{1}, most / 8, most}) {
    if (rows >= 1 && (counts.empty() || rows > counts.back())) counts.push_back(rows);
  }
  return counts;
}

// Sources that run together, padded to a length.
struct PackedBatch {
  std::int64_t bound, rows;
  std::vector<std::int64_t> examples;
};

// Sources in the order of their lengths, cut where all runs together take the least: steps times rows, and the time
// that a step takes however few rows there are.
std::vector<PackedBatch> packed(const std::vector<std::int64_t>& bounds, const std::vector<std::int64_t>& row_counts) {
  constexpr std::int64_t kStep = 16;  // rows that take as long
  std::vector<std::int64_t> order(bounds.size());
  std::iota(order.begin(), order.end(), std::int64_t{0});
  const auto bound_of = [&](std::size_t i) { return bounds[static_cast<std::size_t>(order[i])]; };
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
    return bounds[static_cast<std::size_t>(a)] < bounds[static_cast<std::size_t>(b)];
  });
  const auto rows_for = [&](std::size_t count) {
    return *std::lower_bound(row_counts.begin(), row_counts.end(), static_cast<std::int64_t>(count));
  };
  std::vector<std::int64_t> least(order.size() + 1, 0);  // of the first i
  std::vector<std::size_t> begin(order.size() + 1, 0);   // where the last run of those begins
  for (std::size_t i = 1; i <= order.size(); ++i) {
    least[i] = -1;
    for (std::size_t count = 1; count <= i && count <= static_cast<std::size_t>(row_counts.back()); ++count) {
      const std::int64_t work = least[i - count] + bound_of(i - 1) * (kStep + rows_for(count));
      if (least[i] < 0 || work < least[i]) least[i] = work, begin[i] = i - count;
    }
  }
  std::vector<PackedBatch> batches;
  for (std::size_t end = order.size(); end > 0; end = begin[end]) {
    PackedBatch& batch = batches.emplace_back();
    batch.bound = bound_of(end - 1);
    batch.rows = rows_for(end - begin[end]);
    batch.examples.assign(order.begin() + static_cast<std::ptrdiff_t>(begin[end]),
                          order.begin() + static_cast<std::ptrdiff_t>(end));
  }
  return batches;
}

// Sources side by side, time first, and their lengths.
struct Sources {
  Tensor numbers, lengths;
  Sources(std::int64_t steps, std::int64_t rows) : numbers(i64, {steps, rows}), lengths(i64, {rows}) {
    std::fill_n(numbers.data<std::int64_t>(), steps * rows, 0);
    std::fill_n(lengths.data<std::int64_t>(), rows, 0);
  }
  void set(std::int64_t row, const Sequence& source) {
    const std::int64_t steps = numbers.shape()[0], rows = numbers.shape()[1];
    const std::int64_t length = std::min(steps, static_cast<std::int64_t>(source.size()));
    for (std::int64_t t = 0; t < length; ++t) {
      numbers.data<std::int64_t>()[t * rows + row] = source[static_cast<std::size_t>(t)];
    }
    lengths.data<std::int64_t>()[row] = length;
  }
};

}  // namespace

Options PairTask::options() {
  return {{.name = "hidden",
           .meaning = "Width of embeddings and states",
           .value = &model_.hidden,
           .least = 1,
           .most = 1 << 16,
           .is_fixed = true},
          {.name = "layers",
           .meaning = "Of the encoder, and of the decoder",
           .value = &model_.layers,
           .least = 1,
           .most = 64,
           .is_fixed = true},
          {"dropout", "Share of what is dropped: of embeddings, and between layers", &model_.dropout, 0, 0.99},
          {"length-power", "Searching divides a log probability by the length to this power", &length_power_, 0, 10}};
}

void PairTask::set_lengths(std::vector<std::int64_t> source, std::vector<std::int64_t> target) {
  const std::int64_t longest_source = source.back(), longest_target = target.back();
  extents_ = Extents({{"source", 0, longest_source, bucket_sizes(std::move(source))},
                      {"target", 0, longest_target, bucket_sizes(std::move(target))}});
  every_bucket_ = extents_.every_bucket();
}

std::vector<std::int64_t> PairTask::buckets(Part part) const {
  std::vector<std::int64_t> made;
  made.reserve(pairs(part).size());
  for (const Pair& pair : pairs(part)) {
    const std::int64_t source = std::min(longest_source(), static_cast<std::int64_t>(pair.source.size()));
    const std::int64_t target = std::min(longest_target(), static_cast<std::int64_t>(pair.target.size()) + 1);
    made.push_back(bucket_of(extents_.bucket_of({source, target})));
  }
  return made;
}

Extents::Key PairTask::sizes(std::int64_t bucket) const { return every_bucket_[static_cast<std::size_t>(bucket)]; }

std::int64_t PairTask::bucket_of(const Extents::Key& sizes) const {
  return std::ranges::lower_bound(every_bucket_, sizes) - every_bucket_.begin();
}

std::int64_t PairTask::source_bucket(const Sequence& source) const {
  return extents_.bucket_of({std::min(longest_source(), static_cast<std::int64_t>(source.size())), 0})[0];
}

void PairTask::keep_some(std::vector<std::int64_t>* examples, std::int64_t limit) {
  const auto count = static_cast<std::int64_t>(examples->size());
  if (limit <= 0 || limit >= count) return;
  const double share = static_cast<double>(limit) / static_cast<double>(count);
  const std::vector<std::int64_t> kept = data::split(count, std::array{share}, kSplitSeed)[0];
  std::vector<std::int64_t> fewer;
  for (const std::int64_t i : kept) fewer.push_back((*examples)[static_cast<std::size_t>(i)]);
  *examples = std::move(fewer);
}

Batch PairTask::batch(Part part, std::span<const std::int64_t> examples, std::int64_t bucket, std::int64_t rows) const {
  const Extents::Key steps = sizes(bucket);
  const std::int64_t S = steps[0], T = steps[1];
  Sources sources(S, rows);
  Tensor written(i64, {T, rows}), labels(i64, {T, rows});
  std::fill_n(written.data<std::int64_t>(), T * rows, end_);
  std::fill_n(labels.data<std::int64_t>(), T * rows, -1);
  Batch made;
  made.bucket = bucket;
  for (std::size_t i = 0; i < examples.size(); ++i) {
    const Pair& pair = pairs(part)[static_cast<std::size_t>(examples[i])];
    const auto row = static_cast<std::int64_t>(i);
    sources.set(row, pair.source);
    const std::int64_t words = std::min(T - 1, static_cast<std::int64_t>(pair.target.size()));
    for (std::int64_t t = 0; t <= words; ++t) {
      const auto word = [&](std::int64_t at) { return pair.target[static_cast<std::size_t>(at)]; };
      written.data<std::int64_t>()[t * rows + row] = t == 0 ? start_ : word(t - 1);
      labels.data<std::int64_t>()[t * rows + row] = t == words ? end_ : word(t);
    }
    made.weight += static_cast<double>(words + 1);
  }
  made.items = static_cast<std::int64_t>(examples.size());
  made.feeds = {sources.numbers, sources.lengths, written, labels};
  return made;
}

Value PairTask::loss(Graph& graph, std::int64_t bucket, std::int64_t rows, bool is_training) const {
  const Extents::Key steps = sizes(bucket);
  const std::int64_t S = steps[0], T = steps[1];
  const Value source = graph.input("source", i64, {S, rows}), lengths = graph.input("lengths", i64, {rows});
  const Value written = graph.input("written", i64, {T, rows}), labels = graph.input("labels", i64, {T, rows});
  return loss_of(graph, source, lengths, written, labels, is_training);
}

Value PairTask::loss_of(Graph& graph, const Value& source, const Value& lengths, const Value& written,
                        const Value& labels, bool is_training) const {
  Seq2SeqOptions options = model_;
  if (!is_training) options.dropout = 0;
  const Seq2Seq model(graph, options);
  return model.loss(model.encode(source, lengths), written, labels);
}

BeamSearch PairTask::search_of(Graph& graph, const Value& source, const Value& lengths,
                               const BeamSearchOptions& search) const {
  Seq2SeqOptions options = model_;
  options.dropout = 0;
  const Seq2Seq model(graph, options);
  return model.search(model.encode(source, lengths), search);
}

PairSearch::PairSearch(const PairTask& task, const Trained& trained)
    : task_(task),
      before_run_(trained.before_run),
      build_([&task](const Programs::Key& key) {
        auto graph = std::make_unique<Graph>();
        const std::int64_t S = key[0], rows = key[1], beam = key[2];
        const Value source = graph->input("source", i64, {S, rows}), lengths = graph->input("lengths", i64, {rows});
        // Half as long again as the source, and at most as long as targets were in training.
        const std::int64_t steps = std::min(task.longest_target(), S + S / 2 + 6);
        fetch(*graph, task.search_of(*graph, source, lengths,
                                     {.beam = beam, .steps = steps, .start = task.start_, .end = task.end_}));
        return graph;
      }),
      programs_({task.extents_.specs()[0], {"rows", 1, kSearchRows}, {"beam"}}, trained.graphs_of("search", build_),
                trained.compile, trained.parameters) {}

std::vector<Programs::Key> PairSearch::keys(std::int64_t beam) const {
  std::vector<Programs::Key> all;
  for (const std::int64_t bound : task_.extents_.buckets(0)) {
    for (const std::int64_t rows : row_counts(beam)) all.push_back({bound, rows, beam});
  }
  return all;
}

Graphs PairSearch::graphs(std::int64_t beam) const {
  Graphs all;
  for (const Programs::Key& key : keys(beam)) all[graph_name("search", key)] = build_(key);
  return all;
}

void PairSearch::prepare(std::int64_t beam) {
  programs_.prepare(keys(beam));
  for (const Programs::Key& key : keys(beam)) programs_.at(key);
}

void PairSearch::run(std::span<const Sequence> sources, const std::vector<std::int64_t>& batch,
                     const Programs::Key& key, std::vector<std::vector<Hypothesis>>* found) {
  Sources fed(key[0], key[1]);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    fed.set(static_cast<std::int64_t>(i), sources[static_cast<std::size_t>(batch[i])]);
  }
  Program& program = programs_.at(key);
  program.set_input(0, fed.numbers);
  program.set_input(1, fed.lengths);
  if (before_run_) before_run_();
  program.run();
  auto all = hypotheses(program, task_.end_, task_.length_power_);
  for (std::size_t i = 0; i < batch.size(); ++i) {
    const auto at = static_cast<std::size_t>(batch[i]);
    (*found)[at] = std::move(all[i]);
    if (!sources[at].empty()) check_found((*found)[at]);
  }
}

std::vector<std::vector<Hypothesis>> PairSearch::operator()(std::span<const Sequence> sources, std::int64_t beam,
                                                            bool packs) {
  std::vector<std::int64_t> buckets;
  for (const Sequence& source : sources) buckets.push_back(task_.source_bucket(source));
  std::vector<std::pair<Programs::Key, std::vector<std::int64_t>>> batches;
  if (packs) {
    for (PackedBatch& batch : packed(buckets, row_counts(beam))) {
      batches.emplace_back(Programs::Key{batch.bound, batch.rows, beam}, std::move(batch.examples));
    }
  } else {
    const std::int64_t most = most_rows(beam);
    for (data::BatchExamples& batch : data::batches_in_order(buckets, most)) {
      const std::int64_t bound = buckets[static_cast<std::size_t>(batch[0])];
      const std::int64_t rows = batch.size() == 1 ? 1 : most;  // two shapes of a bucket: one source, and many
      batches.emplace_back(Programs::Key{bound, rows, beam}, std::move(batch));
    }
  }
  std::vector<Programs::Key> keys;
  for (const auto& [key, batch] : batches) keys.push_back(key);
  programs_.prepare(keys);
  std::vector<std::vector<Hypothesis>> found(sources.size());
  for (const auto& [key, batch] : batches) run(sources, batch, key, &found);
  return found;
}

}  // namespace paoding::models
