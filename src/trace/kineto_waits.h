// SPDX-License-Identifier: Apache-2.0
// Rows of Kineto's that say which stream or event a call waited for (cuda_sync): they are about calls that have spans,
// and become arguments of those, since the row of a wait on a GPU is no work of the GPU.
#pragma once

#include <cstdint>
#include <string_view>
#include <utility>
#include <vector>

#include "trace/sink.h"

namespace paoding::trace {

class KinetoWaits {
 public:
  /// Numbers are -1 where the row does not say.
  struct Row {
    std::uint32_t correlation = 0;
    profile::StringId kind = 0;      // "Stream Wait Event"
    std::int64_t stream = -1;        // that was waited for, or that waits for an event
    std::int64_t event_stream = -1;  // on which the event was recorded
    std::int64_t recorded_by = -1;   // correlation of the call that did
  };
  void add(const Row& row) { rows_.push_back(row); }
  /// Whether a row may be about calls of this name.
  static bool may_wait(std::string_view name);
  /// One of those.
  void add_call(std::uint32_t correlation, profile::SpanId span);
  /// Behind the last call and row. Rows whose call is not there are counted.
  void finish(TraceSink& sink);

 private:
  std::vector<Row> rows_;
  using Call = std::pair<std::uint32_t, profile::SpanId>;
  std::vector<Call> calls_;  // with their correlations; of equal ones the last counts
};

}  // namespace paoding::trace
