// SPDX-License-Identifier: Apache-2.0
// From what a model found to what people read.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "models/beam_search.h"
#include "models/task.h"

namespace paoding::models {

/// At most `count` of the items, spread evenly over them.
template <class T>
std::vector<T> spread(const std::vector<T>& items, std::int64_t count) {
  const auto wanted = std::min(static_cast<std::size_t>(count), items.size());
  std::vector<T> some;
  for (std::size_t i = 0; i < wanted; ++i) some.push_back(items[i * items.size() / wanted]);
  return some;
}

/// The first `best` hypotheses of each row as predictions; `text` makes words one.
template <class Text>
std::vector<Predictions> predictions_of(const std::vector<std::vector<Hypothesis>>& found, std::int64_t best,
                                        const Text& text) {
  std::vector<Predictions> all(found.size());
  for (std::size_t i = 0; i < found.size(); ++i) {
    const auto count = std::min(static_cast<std::size_t>(best), found[i].size());
    for (std::size_t k = 0; k < count; ++k) all[i].push_back({text(found[i][k].words), found[i][k].log_probability});
  }
  return all;
}

}  // namespace paoding::models
