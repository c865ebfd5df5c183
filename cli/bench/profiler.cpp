// SPDX-License-Identifier: Apache-2.0
// Section P: what recording costs.
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
struct Recorded {
  explicit Recorded(const Case& work, const CompileOptions& options)
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

// What a run takes, or what it takes longer. Alternating, so that what drifts drifts in both.
Samples time_recording(Program& program, How how, bool is_waited, bool on_gpu) {
  const auto time = [&] {
    const Effort few = on_gpu ? Effort{20, 20, 0} : Effort{5, 5, 0};
    return (is_waited ? time_waiting(program, 1, few) : time_back_to_back(program, 1, few)).median;
  };
  constexpr int kRounds = 7;
  const int first = on_gpu ? 24 : 1;  // runs until a recording goes on as it will
  const auto run_first = [&] {
    for (int i = 0; i < first; ++i) program.run(), program.wait();
  };
  std::vector<double> found;
  for (int round = 0; round < kRounds; ++round) {
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
  std::sort(found.begin(), found.end());
  return Samples{found[found.size() / 2], found.front(), found.back(), kRounds};
}

// What a run of a recording's first second takes longer, the recording's start among it. The first of a process is the
// most: it makes what leaves stamps, and captures every stretch twice more.
Samples time_first_second(Program& program) {
  constexpr int kRounds = 3;
  constexpr double kSecond = 1e6;
  const auto time_runs = [&](int runs, bool is_recorded) {
    const auto start = std::chrono::steady_clock::now();
    std::optional<Profiler> profiler;
    if (is_recorded) profiler.emplace();
    for (int i = 0; i < runs; ++i) program.run(), program.wait();
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count() / runs;
  };
  constexpr int kFew = 20;
  time_runs(kFew, false);
  const int runs = std::max(kFew, static_cast<int>(kSecond / time_runs(kFew, false)));
  std::vector<double> found;
  for (int round = 0; round < kRounds; ++round) {
    const double plain = time_runs(runs, false);
    found.push_back(time_runs(runs, true) - plain);
  }
  std::sort(found.begin(), found.end());
  return Samples{found[found.size() / 2], found.front(), found.back(), kRounds};
}

// What 16 runs take longer in a window under CUPTI, its two ends included: the first of a process at the most. Or what
// a run takes longer in a recording behind one.
Samples time_window(Program& program, bool is_behind) {
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
    return std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - start).count();
  };
  const auto time = [&] { return time_waiting(program, 1, {20, 20, 0}).median; };
  std::vector<double> found;
  for (int round = 0; round < kRounds; ++round) {
    Profiler profiler;
    run(kFirst);
    const double before = is_behind ? time() : time_runs(false), window = time_runs(true);
    if (is_behind) run(kFirst);
    found.push_back((is_behind ? time() : window) - before);
  }
  std::sort(found.begin(), found.end());
  return Samples{found[found.size() / 2], found.front(), found.back(), kRounds};
}

// Rows of one work: what it takes, and what it takes longer when it is recorded.
void add_recordings(const Case& work, const std::string& name, bool is_on_gpu, Cases* cases) {
  static constexpr std::pair<How, const char*> kHows[] = {{How::plain, "plain"},
                                                          {How::op, "op"},
                                                          {How::phases, "phases"},
                                                          {How::instances, "instances"},
                                                          {How::after, "after"}};
  const auto made = std::make_shared<std::unique_ptr<Recorded>>();
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
      if (*made == nullptr) *made = std::make_unique<Recorded>(work, setting.compile);
      return measure(*(*made)->program);
    };
    cases->push_back(std::move(c));
  };
  // First of all, since the first recording of a process is the most.
  add("waited/first_second", "what a run takes longer in the first second of a recording", 0,
      [](Program& program) { return time_first_second(program); });
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
  add("waited/window", "what 16 runs take longer in a window under CUPTI, with its ends", 35e3,
      [](Program& program) { return time_window(program, false); });
  add("waited/behind_window", "what a recorded run takes longer behind a window under CUPTI", 0,
      [](Program& program) { return time_window(program, true); });
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

// A stretch of the user's with two arguments.
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

// What the steps of a program on the CPU leave.
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
