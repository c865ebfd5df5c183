// SPDX-License-Identifier: Apache-2.0
// From a model's results to text for people.
#pragma once

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cstddef>
#include <string>
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

/// The inputs that training never saw, each named once: "never seen in training: 'x', 'y'"; "" for none.
inline std::string remark_of_unseen(const std::vector<std::string>& unseen) {
  constexpr std::size_t kNamed = 20;
  std::vector<std::string> each;
  for (const std::string& one : unseen) {
    if (std::find(each.begin(), each.end(), one) == each.end()) each.push_back(one);
  }
  if (each.empty()) return "";
  const std::size_t more = each.size() - std::min(each.size(), kNamed);
  each.resize(each.size() - more);
  return fmt::format("never seen in training: '{}'{}", fmt::join(each, "', '"),
                     more > 0 ? fmt::format(" and {} more", more) : "");
}

/// The remark with another part added.
inline std::string with_remark(std::string remark, const std::string& more) {
  return remark.empty() || more.empty() ? remark + more : remark + "; " + more;
}

/// An empty input, of no words or letters, has an empty prediction, for certain.
template <class Source>
void say_nothing_of_nothing(const std::vector<Source>& sources, std::vector<Predictions>* all) {
  for (std::size_t i = 0; i < sources.size(); ++i) {
    if (sources[i].empty()) (*all)[i] = {Prediction{}};
  }
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
