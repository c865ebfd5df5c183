// SPDX-License-Identifier: Apache-2.0
// Section P: what recording costs.
#include <algorithm>

#include "cli/bench/seq2seq.h"
#include "io/json_text.h"
#include "paoding/profile.h"
#include "profile/recorder.h"

namespace paoding::cli::bench {
namespace {

// What a run of the seq2seq step takes longer while it is recorded.
Case recording_case(DType dtype, bool tf32, double step_us) {
  Case c;
  c.section = 'P';
  c.kind = "recording";
  c.dtype = dtype;
  c.tf32 = tf32;
  c.name = fmt::format("recording/seq2seq_{}", type_text(c));
  c.what = "what a recorded seq2seq step takes longer";
  c.sizes = seq2seq_case("seq2seq", translation_size(), dtype, tf32).sizes;
  c.goal.wall = 0.03 * step_us;  // of the step as it was on 2026-11-22
  c.on_cpu = false;
  c.measure = [dtype](const Setting& setting) {
    const Seq2SeqSize size = translation_size();
    Graph graph;
    build_seq2seq_step(graph, size, dtype);
    Parameters parameters(graph, setting.compile.device, {.seed = 7});
    Program program(graph, setting.compile, &parameters);
    for (const std::string& name : program.input_names()) {
      const int index = program.input_index(name);
      program.set_input(index, feed_seq2seq(size, name, program.input_type(index)));
    }
    // Alternating, so that what drifts drifts in both.
    std::vector<double> costs;
    const Effort few{20, 20, 0};
    for (int round = 0; round < 5; ++round) {
      const double plain = time_waiting(program, 1, few).median;
      Profiler profiler(State::all);
      costs.push_back(time_waiting(program, 1, few).median - plain);
      profiler.stop();
    }
    std::sort(costs.begin(), costs.end());
    return Samples{costs[costs.size() / 2], costs.front(), costs.back(), static_cast<int>(costs.size())};
  };
  return c;
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

}  // namespace

Cases profiler_cases() {
  Case foreign;
  foreign.section = 'P';
  foreign.name = foreign.kind = "foreign_trace/1gb";
  foreign.what = "1 GB of another framework's trace (5.3 M events) to a report, 2 cores";
  foreign.on_gpu = false;
  foreign.goal.wall = 2.5e6;
  foreign.waits_for = "reading other frameworks' traces";
  return {recording_case(f32, true, 12'360), recording_case(DType::bf16, false, 8'340), span_case(true),
          span_case(false), foreign};
}

}  // namespace paoding::cli::bench
