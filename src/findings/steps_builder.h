// SPDX-License-Identifier: Apache-2.0
// Fills Steps: one pass or two over the spans for each of its parts.
#pragma once

#include "findings/steps.h"

namespace paoding::findings {

class StepsBuilder {
 public:
  StepsBuilder(const profile::Trace& trace, Steps* steps) : trace_(trace), made_(*steps) {}
  void build();

 private:
  bool is_work(SpanId i) const;
  void find_tracks();
  void find_launches();
  void find_steps();
  void find_device_spans();
  void find_lengths();
  void find_idle();
  void add_idle(int device, const std::vector<SpanId>& spans);
  void find_waits();

  const profile::Trace& trace_;
  Steps& made_;
};

/// Steps where none are marked and nothing of paoding's ran: ranges of one name, at the top of the thread that launches
/// most, between whose beginnings about the same is launched each time. `*by`: their name.
std::vector<Interval> repeated_ranges(const Steps& steps, TrackId* track, std::string* by);

/// Finds the work that a host call waited for, the one that ended last first; without any it is no wait.
class WaitFinder {
 public:
  explicit WaitFinder(const Steps& steps);
  static constexpr std::size_t kMost = 4;
  std::vector<SpanId> waited_for(SpanId call) const;
  bool may_wait(SpanId call) const;
  /// A call that also copies the value on the host once it has come.
  bool reads_value(SpanId call) const { return reads_[steps_.trace().site_id(call)]; }

 private:
  struct Stream {
    std::vector<SpanId> spans;
    std::vector<std::int64_t> launched;  // when each was, or one in front of it later
  };
  const Steps& steps_;
  std::vector<Stream> streams_;
  std::vector<bool> reads_;  // of each site: it reads a value of a GPU's, by work that another thread launches for it
};

}  // namespace paoding::findings
