// SPDX-License-Identifier: Apache-2.0
// The text report of a Trace, and the numbers it is made of.
//
// The numbers mean this (all are lengths of unions of intervals, so nothing is counted twice):
//   Total time      the wall time of the recording: the sum of the parts below.
//   under way       when anything was besides compiling: runs from call to return, GPU work, feeds, fetches.
//   Computation     when a compute phase or a GPU kernel was under way. An op without recorded phases computes whenever
//                   it is not inferring, preparing, copying, waiting or feeding.
//   Recording       the recorder at work, and no computation.
//   Framework       under way and neither of them; never negative, because computation lies inside of it.
//   Compiling       and nothing else was under way.
//   Only your code  the rest, which is not paoding's: a data loader, say.
//   GpuMemcpy       when a copy from or to a GPU was under way: on the host, or on the GPU.
//   ~               in part scaled: of most replays of a graph only the ends are stamped, and their time is shared out
//                   as in those that are stamped in full.
//   a call          its host span and the GPU spans it caused. GPU time: when those were under way. CPU time: the rest
//                   of the host span. Total = CPU + GPU.
//   a row           the sum, smallest, largest and average of its calls; Ratio is the share of the time that was under
//   way (per
//                   thread: of that thread's) in which one of its calls was under way, so 0 <= Ratio <= 1. Rows of
//                   threads or streams that worked at the same time may add up to more than 1.
//   a scope's row   (Nesting::scope) one call per run, with all that ran in the scope; a name ending in (backward) is
//                   the part of a scope that belongs to gradients.
//   (between events)  the part of the total time that no row covers, gap by gap.
#pragma once

#include <algorithm>
#include <cstdint>
#include <future>
#include <string>
#include <vector>

#include "paoding/profile.h"
#include "profile/budget.h"
#include "profile/held_over_time.h"
#include "profile/step_times.h"
#include "profile/trace.h"

namespace paoding::profile {

/// Which Event Summaries: `automatic` is per thread for one thread, else merged first and then per thread.
enum class Threads { automatic, merged, per_thread };

struct ReportOptions {
  State state = State::all;  // of a trace with more, only this side
  Detail detail = Detail::op;
  SortBy sort = SortBy::total;
  Threads threads = Threads::automatic;
  Nesting nesting = Nesting::op;
  int width = 0;              // event names are cut to this many characters, so that they still differ; 0: to 512
  bool share_groups = false;  // time of a fused group goes to its ops by their bytes (evenly when unknown)
  bool rates = false;         // columns GB/s, GFLOP/s and the loss against the limits of a GPU where those are known
  bool self = false;          // a column for the part of a row that is in none of those below it
  bool kernels = false;       // rows under ops for the kernels that they ran as, where those are known
  int line_width = 0;         // that lines have to fit in, as far as they can; 0: any
  bool findings = false;      // with a section of src/findings
  ReportFormat format = ReportFormat::text;
};
ReportOptions report_options(State state, Detail detail, SortBy sort, const ReportLayout& layout);

/// One line of an Event Summary. Times in ns; fractions of one appear only when groups are shared out.
struct Row {
  std::string name;         // rows beside each other that it would not tell apart are "name #1", "name #2"
  int depth = 0;            // 0 is outermost
  std::uint64_t calls = 0;  // with share_groups each op of a group counts the group's call
  double total = 0, cpu = 0, gpu = 0;
  double min = 0, max = 0;
  double ratio = 0;
  double self = 0;              // of total: in none of the rows below it
  double bytes = 0, flops = 0;  // of its calls, as far as they are known
  double floor_ns = 0;          // a GPU takes so long for those at least; 0 where that is not known
  double scaled = 0;            // of total: by shares of other replays (ReplayPart)
  bool at_compile = false;      // happened when the program was compiled, takes no run time
  bool has_floor() const { return floor_ns > 0 && gpu > 0; }
  /// The time on a GPU beyond that; never negative.
  double lost() const { return has_floor() ? std::max(0.0, gpu - floor_ns) : 0; }
  double average() const { return calls == 0 ? 0 : total / static_cast<double>(calls); }
};

/// The Event Summary of one thread, or of all; or of a GPU: its work that no thread's ops are known to have launched.
struct Section {
  std::string thread;  // "thread1", "GPU 0"; empty when merged
  bool is_gpu = false;
  double total = 0;       // ns that `ratio` refers to
  std::vector<Row> rows;  // in printing order: parents before children
};

struct CopyTotals {
  std::uint64_t calls = 0;
  double total = 0;
};

/// A part of making programs: a pass, the plan, kernels.
struct CompilePart {
  std::string name;
  std::uint64_t calls = 0;
  double ns = 0;
};

/// Moments of one name.
struct Instants {
  std::string name;
  std::uint64_t count = 0;
  std::int64_t first_ns = 0, last_ns = 0;  // of them, from the start of the window
};

/// One argument of ranges of one name.
struct RangeArgument {
  std::string range, name;
  ArgumentType type = ArgumentType::integer;
  std::uint64_t count = 0;
  std::uint64_t values = 0;  // of text: that differ; of numbers: that are finite, of which the rest is
  double least = 0, most = 0, sum = 0;
};

/// The records that the recording consists of.
struct Records {
  std::uint64_t received = 0, dropped = 0, timeless = 0, outside = 0;
  std::uint64_t on_host = 0;               // of those received
  std::uint64_t unattributed = 0;          // kernels that are no op's ...
  std::uint64_t unlaunched = 0;            // ... of which the call that launched them is not known
  double unattributed_ns = 0, gpu_ns = 0;  // their time, and that of all kernels and replays
};

/// A section about the same trace that is made elsewhere: in text behind the Overhead Summary, in JSON a member.
struct ExtraSection {
  std::string title, text;  // lines
  std::string key, json;
};

struct Measures {
  std::string recorded_by;  // "PyTorch (Kineto)"; empty where paoding did
  // In ns: wall = total + compile + unseen + yours, total = computation + recording + framework.
  double wall = 0;
  double total = 0, computation = 0, framework = 0;
  double recording = 0;  // the recorder's own time, and no computation
  double compile = 0;    // and nothing else under way
  double unseen = 0;     // a run that was under way when the recording began, and nothing else
  double yours = 0;
  std::uint64_t runs = 0;
  bool has_gpu = false;  // whether anything on a GPU is in the trace
  CopyTotals copies, async_copies, sync_copies;
  std::vector<Section> merged;      // none or one
  std::vector<Section> per_thread;  // none or one per thread
  std::vector<Budget> budgets;      // of every thread, then of every GPU
  StepTimes steps;
  StepsBeside beside;                              // none where no loop of steps was recorded
  double span_cost_ns = 0;                         // of one span on the host; 0 is not known
  std::uint64_t replays = 0, stamped_replays = 0;  // of graphs on GPUs; those that were stamped in full
  std::uint64_t estimated_replays = 0;             // whose ends were not stamped either
  double stamps_ns = 0;  // that those took longer than the others of their graph, by the average of each
  Limit limit;           // Trace::common_limit()
  std::vector<Memory> memory;
  std::vector<HeldOverTime> held;
  std::vector<Instants> instants;  // in the order of the first of each
  std::vector<RangeArgument> arguments;
  std::vector<CompilePart> compiling;  // parts of making programs, the longest first
  Records records;
  std::vector<Note> notes;
  std::vector<ExtraSection> extra;
};

/// The section of findings. src/findings, which is built on traces and their steps, defines it.
/// `times`: thread_times() of the trace. `other_work`: of another thread, behind which findings may use a second one.
ExtraSection findings_section(const Trace& trace, const ReportOptions& options, SharedThreadTimes times,
                              std::shared_future<void> other_work);

/// The numbers of a report.
Measures measure(const Trace& trace, const ReportOptions& options = {});
/// Their text.
std::string to_text(const Measures& measures, const ReportOptions& options = {});
/// One JSON object; times are whole nanoseconds.
std::string to_json(const Measures& measures, const ReportOptions& options = {});
/// The same JSON of some sections alone, which to_json() has under "threads": an array.
std::string sections_json(const std::vector<Section>& sections);
/// One table with a line per number of the summaries and per row; times are whole nanoseconds.
std::string to_csv(const Measures& measures, const ReportOptions& options = {});
/// In the format of the options.
std::string report(const Measures& measures, const ReportOptions& options);
/// Both.
std::string report(const Trace& trace, const ReportOptions& options = {});

/// "group: mul+sub+sum", or the site's op in place of "group": the ops of a fused group in order, repeats counted
/// (mul*3), those of one origin together ("softmax_grad{mul+sub}+sum"), long lists cut.
std::string group_name(const Trace& trace, const Site& site);

}  // namespace paoding::profile
