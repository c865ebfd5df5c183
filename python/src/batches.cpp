// SPDX-License-Identifier: Apache-2.0
// The parts of paoding.data and paoding.metrics that the library has: batches of examples, scores of predictions.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.h"
#include "paoding/data.h"

namespace paoding::python {

void bind_data(nb::module_& module) {
  using namespace nb::literals;
  module.def(
      "shuffled_batches",
      [](const std::vector<std::int64_t>& buckets, std::int64_t size, std::uint64_t seed, std::int64_t epoch) {
        return data::shuffled_batches(buckets, size, seed, epoch);
      },
      "buckets"_a, "size"_a, "seed"_a, "epoch"_a,
      "The batches of an epoch by the numbers of their examples, shuffled by seed and epoch alone; those of one batch "
      "have "
      "one number in `buckets`.");
  module.def(
      "batches_in_order",
      [](const std::vector<std::int64_t>& buckets, std::int64_t size) { return data::batches_in_order(buckets, size); },
      "buckets"_a, "size"_a, "The same in the order of the examples.");
  module.def(
      "split_at_random",
      [](std::int64_t count, const std::vector<double>& shares, std::uint64_t seed) {
        return data::split(count, shares, seed);
      },
      "count"_a, "shares"_a, "seed"_a,
      "Example numbers 0 .. count - 1 split at random into one part per share and one more for the rest, each in "
      "ascending "
      "order; only the seed decides. ArgumentError unless shares are in 0 .. 1 and add up to at most 1.");
  module.def(
      "edit_distance",
      [](const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) { return data::edit_distance(a, b); },
      "a"_a, "b"_a,
      "The least number of insertions, deletions and replacements that makes one list of integers the other.");
  module.def(
      "bleu",
      [](const std::vector<std::string>& predicted, const std::vector<std::string>& references) {
        return data::bleu(predicted, references);
      },
      "predicted"_a, "references"_a,
      "The BLEU score of sentences with one reference each, in 0 .. 100, as sacrebleu's with its tokenizer 13a.");
}

}  // namespace paoding::python
