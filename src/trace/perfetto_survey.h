// SPDX-License-Identifier: Apache-2.0
// Facts of a Perfetto trace that reach beyond one event: facts about its texts, and about the file as a whole.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "profile/trace.h"
#include "trace/perfetto_events.h"

namespace paoding::trace {

bool contains_lowered(std::string_view text, std::string_view part);
/// The number behind a word, "GPU 3" and "AGENT [3]"; nothing where the word is missing.
std::optional<std::int64_t> track_number(std::string_view text, std::string_view word);

/// Facts about the events of a category.
struct PerfettoCategory {
  explicit PerfettoCategory(std::string_view category);
  std::optional<profile::SpanKind> own;  // as paoding's own traces have it
  bool is_copy = false, is_fill = false, is_kernel = false, is_op = false, is_frame = false, is_range = false;

  /// The kind where it is a GPU's work, by the categories of rocprofv3 and others.
  std::optional<profile::SpanKind> gpu_kind(std::string_view name) const;
};

/// Facts about texts, each found once.
template <class T>
class PerPerfettoText {
 public:
  template <class Make>
  T& of(PerfettoText text, Make&& make) {
    if (text >= all_.size()) all_.resize(std::max<std::size_t>(text + 1, 2 * all_.size()));
    std::optional<T>& one = all_[text];
    if (!one) one.emplace(make());
    return *one;
  }

 private:
  std::vector<std::optional<T>> all_;
};

/// What has to be known of a trace before the first of its events becomes a span. A reader takes for granted what is
/// true of nearly all files; where it is not, the file is looked through as a whole, and read once more.
struct PerfettoFacts {
  bool is_all = false;      // rather than taken for granted
  bool is_own = true;       // every event has one of our kinds
  bool is_in_order = true;  // of every track the events come in the order of their times
  std::unordered_map<std::uint64_t, PerfettoTrack> tracks;  // as they are described in the end
  std::unordered_set<std::uint64_t> gpu_works;              // tracks with a GPU's work on them
};

/// All of a file that is to be read from its beginning on.
PerfettoFacts survey_perfetto(TraceFile& file, PerfettoTexts& texts);

}  // namespace paoding::trace
