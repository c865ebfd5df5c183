// SPDX-License-Identifier: Apache-2.0
// A candidate is handed over by a rule: facts, evidence, and edits of the replay from which the gain follows. A rule
// computes no gain.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "findings/finding.h"
#include "findings/steps.h"

namespace paoding::findings {

/// One change to a trace before it is replayed. Spans that are not replayed make it void.
struct Edit {
  enum class What : std::uint8_t {
    duration,    // the span takes `ns`: work of a GPU, or a stretch of the host's time
    remove,      // work of a GPU, and its launch where that launched nothing else; or a stretch of the host's time
    no_wait,     // the host goes on without waiting at this span
    defer_wait,  // the host waits here for the work that `other`, an earlier wait, waits for; kNone: for nothing
    move,        // onto a worker beside it, which does one after the other and begins with the first step
    host,        // the stretch from `start` to `end` of a thread's time takes `ns`
    gap,         // work of a GPU follows the work in front of it on its stream by `ns`
  };
  What what = What::remove;
  SpanId span = kNone, other = kNone;
  TrackId track = kNone;
  std::int64_t start = 0, end = 0, ns = 0;

  static Edit duration(SpanId span, std::int64_t ns) { return {.what = What::duration, .span = span, .ns = ns}; }
  static Edit remove(SpanId span) { return {.what = What::remove, .span = span}; }
  static Edit no_wait(SpanId span) { return {.what = What::no_wait, .span = span}; }
  static Edit defer_wait(SpanId span, SpanId to) { return {.what = What::defer_wait, .span = span, .other = to}; }
  static Edit move(SpanId span) { return {.what = What::move, .span = span}; }
  static Edit move_host(TrackId track, std::int64_t start, std::int64_t end) {
    return {.what = What::move, .track = track, .start = start, .end = end};
  }
  static Edit host(TrackId track, std::int64_t start, std::int64_t end, std::int64_t ns) {
    return {.what = What::host, .track = track, .start = start, .end = end, .ns = ns};
  }
  static Edit gap(SpanId span, std::int64_t ns) { return {.what = What::gap, .span = span, .ns = ns}; }
};

struct Candidate {
  Kind kind = Kind::late_data;
  std::string title = {};  // "the GPU waits for data": without a gain, the core adds that
  std::string text = {};   // sentences with the numbers that are the evidence
  Where where = {};        // steps.h
  Examples evidence = {};
  std::string lost_is = {};  // the time that is lost at one of those spans is this: "idle time of the GPU after it"
  std::string change = {}, verify = {};
  std::vector<Edit> least = {};  // that the change achieves at least
  std::vector<Edit> most = {};   // all of it, down to the floor
};

/// A rule adds to these.
struct Candidates {
  std::vector<Candidate> all = {};
  std::vector<Silence> silent = {};
  void add(Candidate candidate) { all.push_back(std::move(candidate)); }
  /// That the rule could not look.
  void say_nothing(Kind kind, std::string why) { silent.push_back({kind, std::move(why)}); }
};

/// A rule is one file in rules/.
using Rule = void (*)(const Steps& steps, Candidates* out);

}  // namespace paoding::findings
