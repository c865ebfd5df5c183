// SPDX-License-Identifier: Apache-2.0
// The order of a run's entries on a GPU: launches, choices among branches, guards and polls. The content of a
// conditional node stands after its choice.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace paoding {

struct GuardPlan;

struct LaunchEntry {
  enum class Kind : std::uint8_t {
    launch,
    guard,    // after `launch`
    poll,     // in front of it
    choice,   // `launch` reads an index; with bodies a conditional node comes after it
    again,    // at the end of the body of a loop: its choice once more
    host,     // a segment of steps that run on the CPU, of which `launch` is the first
    asked,    // a choice that the host makes, since such a segment is in one of its branches
    results,  // after all launches: small results to the host
  };
  /// The selects or bodies of a choice.
  struct Held {
    /// For a choice without a conditional node: the selects that it chooses for at once, itself the first.
    std::vector<std::size_t> selects = {};
    /// For one with it, and for the host's: the bodies to choose among, as segments of the order, and the place after
    /// all.
    std::vector<std::pair<std::size_t, std::size_t>> bodies = {};
    std::size_t end = 0;
    bool is_loop = false;
  };

  Kind kind = Kind::launch;
  std::size_t launch = 0;
  std::shared_ptr<Held> held = {};  // of a choice; `again` has that of its choice

  bool holds_bodies() const { return kind == Kind::choice && !held->bodies.empty(); }
};

/// Whether the launch is the choice of a conditional node: of a loop without a length, or of a branch that is one.
bool is_conditional(const Launch& launch);

/// Segments of launches that run on the CPU: the first launch, and the one after the last.
using HostLaunches = std::vector<std::pair<std::size_t, std::size_t>>;

/// `packs_results`: the last entry does.
std::vector<LaunchEntry> order_of(const std::vector<Launch>& launches, const GuardPlan& guards,
                                  const HostLaunches& on_host = {}, bool packs_results = false);

/// A part of a run.
struct Segment {
  enum class Kind : std::uint8_t {
    graph,  // one graph launch
    host,   // a segment on the CPU
    asked,  // the host reads the index of its one entry: targets[index] is next
  };
  Kind kind = Kind::graph;
  bool prints = false;             // values are handed over after it
  std::size_t first = 0, end = 0;  // of the order
  std::size_t next = 0;            // the segment after it; their number is the end of the run
  std::vector<std::size_t> targets = {};
};

/// A run is cut where the host has something to do, and in front of every commit that values are printed before.
std::vector<Segment> segments_of(const std::vector<Launch>& launches, const std::vector<LaunchEntry>& order);

}  // namespace paoding
