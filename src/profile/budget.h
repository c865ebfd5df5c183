// SPDX-License-Identifier: Apache-2.0
// Where the wall time of a recording went: for every thread and every GPU parts that add up to it, to the nanosecond.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "profile/trace.h"

namespace paoding::profile {

/// The use of a thread's time, by its innermost span.
enum class HostUse : std::uint8_t {
  ops,        // kernels on the CPU, and other work for an op
  run,        // a run, without its ops
  launch,     // handing work to a GPU
  wait,       // for a GPU, or for the other threads of a parallel region
  feed,       // values handed in
  fetch,      // values handed out
  copy,       // between devices, outside of ops, feeds and fetches
  compile,    // making programs
  recording,  // the recorder's own work
  unseen,     // a run that was under way when the recording began; and where other processes only were recorded
  blocked,  // it waits, in no call of the GPU's API: for another thread, in a lock, a poll, a sleep, a read of a value
  idle,     // of another framework's thread: nothing is known of it, as between the spans of one that only helps
  yours,    // whatever is not paoding's
};
inline constexpr int kHostUses = static_cast<int>(HostUse::yours) + 1;

/// Whether a thread is at nothing that a framework or paoding does.
inline bool is_users(HostUse use) { return use == HostUse::yours || use == HostUse::blocked || use == HostUse::idle; }

/// The use of a GPU's time.
enum class GpuUse : std::uint8_t {
  kernels,       // at least one kernel was under way
  copies,        // copies, and no kernel
  fills,         // fills (memset), and neither of them
  inside_graph,  // idle between two parts of one launch
  queued,        // idle between two works, of which the second had been handed over before the first ended
  launch,        // idle: the next work was being launched, until it began
  feed,          // idle: the thread that launches fed
  fetch,         // idle: it fetched
  sync,          // idle: it waited
  compile,       // idle: it compiled
  recording,     // idle: it recorded
  blocked,       // idle: it was blocked
  yours,         // idle: it ran code that is not paoding's
  unseen,        // idle as far as is known: the thread was not recorded
};
inline constexpr int kGpuUses = static_cast<int>(GpuUse::unseen) + 1;

/// "ops", "run, between ops", ..., "blocked", "idle or not recorded", "your code".
std::string_view to_string(HostUse use);
/// "kernels", "exposed copies", "exposed fills", "idle: between kernels", "idle: launch", ...
std::string_view to_string(GpuUse use);

/// A part of a thread's time in which it was at one thing.
struct UseSegment {
  std::int64_t start, end;  // ns
  HostUse use;
  SpanId span;  // the innermost; kNone where there is none
};

/// The window of the trace as a thread spent it: without gaps, nothing twice.
struct ThreadTime {
  /// The part of the thread in a program of another framework's: it has the loop, or it is the engine that runs
  /// gradients while the loop's thread is blocked (PyTorch's autograd).
  enum class Role : std::uint8_t { other, loop, engine };
  std::vector<UseSegment> segments;
  Role role = Role::other;
  bool is_worker = false;  // nothing but its part of parallel regions; in between it waits
  bool is_none = false;    // kOverheadTrack: no stretches either
};

/// Per track; empty for those that are no threads.
std::vector<ThreadTime> thread_times(const Trace& trace);
/// The same, for several who read it.
using SharedThreadTimes = std::shared_ptr<const std::vector<ThreadTime>>;

struct BudgetPart {
  std::string_view name;
  std::int64_t ns = 0;
};

/// One thread's or one GPU's wall time; parts of 0 ns are left out.
struct Budget {
  std::string of;                 // "thread0", "GPU 0"
  int device = -1;                // -1: a thread
  bool is_worker = false;         // of a ThreadTime
  int workers = 0;                // of together(): how many there are
  std::vector<BudgetPart> parts;  // add up to the trace's wall_ns()
};

/// "GPU 0"; "rank 1 GPU 0" where there are several processes.
std::string gpu_name(const Trace& trace, ProcessId process, int device);

/// The budget of every thread, then of every GPU.
std::vector<Budget> budgets(const Trace& trace, const std::vector<ThreadTime>& threads);

/// The workers as one: parts add up to as many times wall_ns(). None: `workers` is 0.
Budget together(const std::vector<Budget>& budgets);

}  // namespace paoding::profile
