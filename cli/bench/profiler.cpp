// SPDX-License-Identifier: Apache-2.0
// Section P: the cost of recording.
#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "cli/bench/recurrent.h"
#include "cli/bench/seq2seq.h"
#include "io/json_text.h"
#include "paoding/profile.h"
#include "profile/recorder.h"

namespace paoding::cli::bench {
namespace {

// A program that is measured in several ways, made once.
struct RunWithProfiler {
  explicit RunWithProfiler(const Case& work, const CompileOptions& options)
      : parameters(build(work), options.device, {.seed = 7}) {
    CompileOptions compile = options;
    compile.allow_tf32 = work.tf32;
    program.emplace(graph, compile, &parameters);
    for (const std::string& name : program->input_names()) {
      const int index = program->input_index(name);
      program->set_input(index, work.feed(name, program->input_type(index)));
    }
  }
  const Graph& build(const Case& work) {
    work.build(graph, work.dtype, "");
    return graph;
  }
  Graph graph;
  Parameters parameters;
  std::optional<Program> program;
};

enum class How { plain, op, phases, instances, after };  // not recorded; recorded so; when a recording is over

Detail detail_of(How how) {
  return how == How::instances ? Detail::instances : how == How::phases ? Detail::phases : Detail::op;
}

Samples samples_of(std::vector<double> found) {
  std::sort(found.begin(), found.end());
  return Samples{found[found.size() / 2], found.front(), found.back(), static_cast<int>(found.size())};
}

double us_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
}

// The time of a run, or the time that recording adds. Runs alternate, so that a drift of the clock falls on both.
Samples time_recording(Program& program, How how, bool is_waited, bool on_gpu) {
  const auto time = [&] {
    const Effort few = on_gpu ? Effort{20, 20, 0} : Effort{9, 9, 0};
    return (is_waited ? time_waiting(program, 1, few) : time_back_to_back(program, 1, few)).median;
  };
  const int rounds = on_gpu ? 7 : 21;  // whoever else uses the cores is not the recording's
  const int first = on_gpu ? 24 : 1;   // runs until a recording goes on as it will
  const auto run_first = [&] {
    for (int i = 0; i < first; ++i) program.run(), program.wait();
  };
  std::vector<double> found;
  for (int round = 0; round < rounds; ++round) {
    const double plain = time();
    if (how == How::plain) {
      found.push_back(plain);
      continue;
    }
    Profiler profiler(State::all, detail_of(how));
    run_first();
    const double recorded = time();
    profiler.end();
    if (how == How::after) run_first();
    found.push_back((how == How::after ? time() : recorded) - plain);
  }
  return samples_of(std::move(found));
}

// How much the first second of a recording slows its program.
struct FirstSecond {
  Samples more;     // added time of a run, with the recording's start in it
  Samples longest;  // added time of the longest run, over the longest one before the recording
  Samples start;    // of the recording
  Samples end;
};

// The first recording of a process costs the most: it compiles the time stamp kernels and captures every segment twice
// more.
FirstSecond time_first_second(Program& program) {
  constexpr int kRounds = 3;
  constexpr double kSecond = 1e6;
  struct Runs {
    double us = 0, longest = 0, start = 0, end = 0;
  };
  const auto time_runs = [&](int runs, bool is_recorded) {
    Runs made;
    const auto start = std::chrono::steady_clock::now();
    std::optional<Profiler> profiler;
    if (is_recorded) profiler.emplace();
    made.start = us_since(start);
    for (int i = 0; i < runs; ++i) {
      const auto before = std::chrono::steady_clock::now();
      program.run(), program.wait();
      made.longest = std::max(made.longest, us_since(before));
    }
    made.us = us_since(start) / runs;
    const auto over = std::chrono::steady_clock::now();
    if (profiler) profiler->end();
    made.end = us_since(over);
    return made;
  };
  constexpr int kFew = 20;
  time_runs(kFew, false);
  const int runs = std::max(kFew, static_cast<int>(kSecond / time_runs(kFew, false).us));
  std::vector<double> more, longest, start, end;
  for (int round = 0; round < kRounds; ++round) {
    const Runs plain = time_runs(runs, false), recorded = time_runs(runs, true);
    more.push_back(recorded.us - plain.us);
    longest.push_back(recorded.longest - plain.longest);
    start.push_back(recorded.start), end.push_back(recorded.end);
  }
  return {samples_of(more), samples_of(longest), samples_of(start), samples_of(end)};
}

// Windows under CUPTI.
struct Windows {
  Samples first;  // the process's first window: added time of 16 runs, with its start and end
  Samples later;  // the same of later windows
  Samples after;  // added time of a recorded run after a window
};

Windows time_windows(Program& program) {
  constexpr int kRounds = 7, kRuns = 16, kFirst = 24;
  const auto run = [&](int runs) {
    for (int i = 0; i < runs; ++i) program.run(), program.wait();
  };
  const auto time_runs = [&](bool has_cupti) {
    const auto start = std::chrono::steady_clock::now();
    std::optional<CuptiWindow> window;
    if (has_cupti) window.emplace();
    run(kRuns);
    window.reset();
    return us_since(start);
  };
  const auto time = [&] { return time_waiting(program, 1, {20, 20, 0}).median; };
  std::vector<double> windows, after;
  for (int round = 0; round <= kRounds; ++round) {
    Profiler profiler;
    run(kFirst);
    const double before = time(), plain = time_runs(false);
    windows.push_back(time_runs(true) - plain);
    run(kFirst);
    after.push_back(time() - before);
  }
  return {samples_of({windows[0]}), samples_of({windows.begin() + 1, windows.end()}), samples_of(after)};
}

// Rows of one work: its time, and the time that recording adds.
void add_recordings(const Case& work, const std::string& name, bool is_on_gpu, Cases* cases) {
  static constexpr std::pair<How, const char*> kHows[] = {{How::plain, "plain"},
                                                          {How::op, "op"},
                                                          {How::phases, "phases"},
                                                          {How::instances, "instances"},
                                                          {How::after, "after"}};
  const auto made = std::make_shared<std::unique_ptr<RunWithProfiler>>();
  const auto add = [&](const std::string& of, const char* what, double goal_us, auto measure) {
    Case c;
    c.section = 'P';
    c.kind = "recording";
    c.dtype = work.dtype;
    c.tf32 = work.tf32;
    c.name = fmt::format("recording/{}/{}", name, of);
    c.what = what;
    c.sizes = work.sizes;
    c.on_cpu = !is_on_gpu;
    c.on_gpu = is_on_gpu;
    c.goal.wall = goal_us;
    c.measure = [work, made, measure](const Setting& setting) {
      if (*made == nullptr) *made = std::make_unique<RunWithProfiler>(work, setting.compile);
      return measure(*(*made)->program);
    };
    cases->push_back(std::move(c));
  };
  // First of all, since the first recording of a process is the most.
  const auto first = std::make_shared<std::optional<FirstSecond>>();
  const auto add_first = [&](const char* of, const char* what, double goal_us, Samples FirstSecond::*part) {
    add(of, what, goal_us, [first, part](Program& program) {
      if (!*first) *first = time_first_second(program);
      return (**first).*part;
    });
  };
  add_first("waited/first_second", "what a run takes longer in the first second of a recording", 0, &FirstSecond::more);
  add_first("waited/longest", "what the longest run of that second takes longer than the longest that nobody records",
            5e3, &FirstSecond::longest);
  add_first("waited/start", "the start of a recording", 0, &FirstSecond::start);
  add_first("waited/end", "the end of a recording of a second", 50e3, &FirstSecond::end);
  for (const bool is_waited : {true, false}) {
    if (!is_waited && !is_on_gpu) continue;
    for (const auto& [how, of] : kHows) {
      add(fmt::format("{}/{}", is_waited ? "waited" : "in_flight", of),
          how == How::plain ? "a run that nobody records" : "what a run takes longer than one that nobody records", 0,
          [how = how, is_waited, is_on_gpu](Program& program) {
            return time_recording(program, how, is_waited, is_on_gpu);
          });
    }
  }
  if (!is_on_gpu) return;
  const auto windows = std::make_shared<std::optional<Windows>>();
  const auto add_window = [&](const char* of, const char* what, double goal_us, Samples Windows::*part) {
    add(of, what, goal_us, [windows, part](Program& program) {
      if (!*windows) *windows = time_windows(program);
      return (**windows).*part;
    });
  };
  add_window("waited/first_window", "what 16 runs take longer in the first window under CUPTI, with its ends", 60e3,
             &Windows::first);
  add_window("waited/window", "the same in windows after it", 35e3, &Windows::later);
  add_window("waited/behind_window", "what a recorded run takes longer after a window under CUPTI", 0, &Windows::after);
}

Case span_case(bool is_on) {
  Case c;
  c.section = 'P';
  c.kind = "span";
  c.name = is_on ? "span/on" : "span/off";
  c.what = is_on ? "one span on the CPU, recorded" : "one span on the CPU, nothing being recorded";
  c.sizes = "{}";
  c.on_gpu = false;
  c.goal.wall = is_on ? 0.025 : 0.0005;
  c.measure = [is_on](const Setting& setting) {
    static const profile::SiteId site = profile::Recorder::add_site({.name = "span", .kind = profile::SpanKind::feed});
    constexpr int kSpans = 10'000;
    const Effort effort{std::min(setting.effort.least, 20), 20, 0};
    const Samples loop = time_work(
        [] {
          for (int i = 0; i < kSpans; ++i) asm volatile("" ::: "memory");  // each of them happens
        },
        kSpans, effort);
    if (is_on) start_profiler(State::cpu);
    Samples samples = time_work(
        [&] {
          for (int i = 0; i < kSpans; ++i) {
            const profile::SpanScope seen(site);
            asm volatile("" ::: "memory");
          }
        },
        kSpans, effort);
    if (is_on) stop_profiler();
    for (double* us : {&samples.median, &samples.min, &samples.max}) *us = std::max(*us - loop.median, 0.0);
    return samples;
  };
  return c;
}

// A segment of the user's with two arguments.
Case range_case(bool is_on) {
  Case c;
  c.section = 'P';
  c.kind = "span";
  c.name = is_on ? "span/range_on" : "span/range_off";
  c.what = is_on ? "a range of the user's with two arguments, recorded" : "the same, nothing being recorded";
  c.sizes = "{}";
  c.on_gpu = false;
  c.measure = [is_on](const Setting& setting) {
    constexpr int kRanges = 10'000;
    if (is_on) start_profiler(State::cpu);
    const Samples samples = time_work(
        [] {
          for (int i = 0; i < kRanges; ++i) {
            ProfileRange range("range");
            range.set("rows", i).set("share", 0.5);
            asm volatile("" ::: "memory");
          }
        },
        kRanges, {std::min(setting.effort.least, 20), 20, 0});
    if (is_on) stop_profiler();
    return samples;
  };
  return c;
}

// The cost of recording the steps of a program on the CPU.
Case list_case() {
  Case c;
  c.section = 'P';
  c.kind = "span";
  c.name = "span/list";
  c.what = "one span of a list of steps on the CPU, recorded";
  c.sizes = "{}";
  c.on_gpu = false;
  c.goal.wall = 0.025;
  c.measure = [](const Setting& setting) {
    static const profile::SiteId site = profile::Recorder::add_site({.op = "step", .kind = profile::SpanKind::op});
    constexpr int kSpans = 10'000;
    const Effort effort{std::min(setting.effort.least, 20), 20, 0};
    start_profiler(State::cpu);
    const Samples samples = time_work(
        [] {
          profile::SpanList spans;
          for (int i = 0; i < kSpans; ++i) {
            asm volatile("" ::: "memory");
            spans.complete(site);
          }
        },
        kSpans, effort);
    stop_profiler();
    return samples;
  };
  return c;
}

}  // namespace

Cases profiler_cases() {
  Case foreign;
  foreign.section = 'P';
  foreign.name = foreign.kind = "foreign_trace/1gb";
  foreign.what = "1 GB of another framework's trace (5.3 M events) to a report, 2 cores";
  foreign.on_gpu = false;
  foreign.goal.wall = 2.5e6;
  foreign.waits_for = "reading other frameworks' traces";
  Cases cases;
  const RecurrentLayers layer{.steps = 64, .batch = 32, .hidden = 512};
  RecurrentLayers training = layer;
  training.is_training = true;
  add_recordings(seq2seq_case("seq2seq", translation_size(), f32, true), "seq2seq_tf32", true, &cases);
  add_recordings(recurrent_case(training, f32, false), "lstm_training_f32", true, &cases);
  add_recordings(recurrent_case(layer, DType::bf16, false), "lstm_bf16", true, &cases);
  add_recordings(seq2seq_case("g2p", g2p_size(), f32, false), "g2p", false, &cases);
  cases.insert(cases.end(),
               {span_case(true), list_case(), span_case(false), range_case(true), range_case(false), foreign});
  return cases;
}

}  // namespace paoding::cli::bench
