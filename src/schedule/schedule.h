// SPDX-License-Identifier: Apache-2.0
// The schedule: everything that one run starts, in order, decided when a program is made; executors only interpret it.
// It is the list of a plan's launches (unroll), and over it entries: which launches start as one, the commit guards,
// polls, choices among branches and segments on the CPU between them, and where the host has to step in.
// Addresses are a slot and an offset, which an executor resolves.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "paoding/program.h"
#include "plan/plan.h"
#include "schedule/completion.h"
#include "schedule/guards.h"
#include "schedule/host_runs.h"
#include "schedule/segment.h"

namespace paoding {

class FusedLaunches;

/// One thing that a run starts.
struct LaunchEntry {
  enum class Kind : std::uint8_t {
    launch,       // a kernel or a group
    fused,        // several launches of the plan as one (schedule/gpu/fused_launches.h, schedule/batches.cpp)
    print,        // hands a value to whoever listens
    guard,        // commit guard, after `launch`
    poll,         // cancellation poll, in front of it
    choice,       // `launch` reads an index; with bodies a conditional node comes after it
    again,        // at the end of the body of a loop: its choice once more
    host,         // a segment of steps that run on the CPU, of which `launch` is the first
    host_choice,  // a choice that the host makes
    results,      // after all launches: small results to the host
  };
  Kind kind = Kind::launch;
  std::size_t launch = 0;        // of Schedule::launches
  int fused = -1;                // Kind::fused: of Schedule::fused; `launch` is its first
  int choice = -1;               // of a choice, and of `again` its choice's: of Schedule::choices
  int body_of = -1;              // the choice, of Schedule::choices, in a body of which the entry stands; -1: in none
  int branch = -1;               // the innermost of Schedule::branches that the entry stands in; -1: in none
  bool overlaps_before = false;  // it may start before the entry in front of it has ended, by PDL
  int stream = 0;      // 1: of collectives, in which it comes after those before it and after all entries so far
  int waits_for = -1;  // the last entry of stream 1 that it needs to have ended; -1: none, or waited for before
};

/// The alternatives of a choice. Bodies are entries, in a row after the choice.
struct Choice {
  /// For a choice without a conditional node: the selects that it chooses for at once, itself the first. Their
  /// branches' kernels are all started, and those of branches not taken return at once.
  std::vector<std::size_t> selects = {};
  /// For one with it, and for the host's: the bodies to choose among, as [begin, end) of the entries, and the entry
  /// after all.
  std::vector<std::pair<std::size_t, std::size_t>> bodies = {};
  std::size_t end = 0;
  bool is_loop = false;  // without a length: its one body comes again while its condition holds
};

/// One of the ways that a choice without a conditional node chooses among: its kernels start whatever is chosen, ask
/// whether it is the one, and else return at once.
struct Branch {
  std::size_t select = 0;  // of Schedule::launches
  std::size_t number = 0;  // among the ways of the select
};

/// Launches of a plan that start as one.
struct FusedLaunch {
  std::vector<std::size_t> launches;  // in their order
  std::size_t kernel = 0;             // launches of the same steps have one; on a GPU of FusedLaunches
  bool overlaps_before = false;       // gpu::TextLaunch::overlaps_before
};

struct Schedule {
  std::vector<Launch> launches;
  std::vector<LaunchEntry> entries;
  std::vector<Choice> choices;
  std::vector<Branch> branches;
  std::vector<FusedLaunch> fused;
  /// The kernels of fused launches; nullptr where nothing is fused.
  std::shared_ptr<FusedLaunches> kernels = {};
  GuardPlan guards;
  HostRuns host;
  std::vector<Segment> segments;
  PackedResults results;  // that the entry Kind::results brings to the host
  Completion completion;
  std::vector<std::string> notes;  // on fused launches, and why others are not
  int repeats = 1;
  bool is_captured = false;  // on a GPU: each segment is a graph of ours; else entries start one by one

  bool holds_bodies(const LaunchEntry& entry) const {
    return entry.kind == LaunchEntry::Kind::choice && !choice_of(entry).bodies.empty();
  }
  /// Whether a choice has a conditional node, which only a graph can hold.
  bool needs_graph() const;
  const Choice& choice_of(const LaunchEntry& entry) const { return choices[static_cast<std::size_t>(entry.choice)]; }
  /// How many launches, choices and prints a run starts, those of all branches and of one turn of a loop counted.
  std::int64_t starts() const;
  /// The plan's launches that the entry starts.
  std::span<const std::size_t> members(const LaunchEntry& entry) const;
};

struct ScheduleOptions {
  Execution execution = Execution::captured;
  int repeats = 1;             // runs of the plan in one run of the schedule
  bool fuses_launches = true;  // on a GPU, of a captured run
  /// The run is in a stream of the caller's, who may capture it: it has no guards or polls, and brings nothing to the
  /// host. On a GPU the device makes all choices but those that have something for the CPU to do.
  bool in_callers_stream = false;
  /// On a CPU: groups may start as one where the machine has threads to share. Off: the schedule is that of any CPU.
  bool batches_groups = false;
};

/// `plan` must outlive it. Error (unsupported): as unroll's and host_runs_of's.
Schedule make_schedule(const Plan& plan, const ScheduleOptions& options = {});

/// Whether the launch is the choice of a conditional node: of a loop without a length, or of a branch that is one.
bool is_conditional(const Launch& launch);

/// The schedule as text, for `paoding dump --plan` and golden tests.
std::string to_string(const Schedule& schedule);

// ---- the parts of make_schedule, in their order ----

/// On a GPU: fills `fused`, `kernels` and `notes`.
void fuse_launches(const Plan& plan, Schedule* schedule);
/// On a CPU: fills `fused`.
void batch_groups(const Plan& plan, Schedule* schedule);
/// Fills `entries`, `choices` and `branches`; `is_stepwise`: the host makes all choices.
void order_entries(Schedule* schedule, bool is_stepwise);
/// On a GPU, of a captured run: fills LaunchEntry::stream and waits_for.
void order_streams(const Plan& plan, Schedule* schedule);
/// Fills `segments`: a run is cut where the host has something to do, and in front of every commit that values are
/// printed before.
void cut_segments(Schedule* schedule);

/// An address for every slot, as if slots outside the arena were far apart: to compare the memory of launches before
/// there is any.
std::vector<std::byte*> pretended_addresses(const Plan& plan);

}  // namespace paoding
