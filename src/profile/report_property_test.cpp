// SPDX-License-Identifier: Apache-2.0
// Properties of the report of any recording, tried on many that could have been: threads and GPU streams whose
// spans nest, and kernels that follow from launches.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <random>

#include "profile/intervals.h"
#include "profile/report.h"
#include "profile/row_tree.h"

namespace paoding::profile {
namespace {

class RandomRecording {
 public:
  // `has_idle_thread`: one has nothing but the recorder's work on it.
  explicit RandomRecording(unsigned seed, bool has_idle_thread = false) : random_(seed) {
    launches_early_ = seed % 2 != 0;
    threads_ = 1 + below(3);
    for (int t = 0; t < threads_; ++t) {
      host_.push_back(trace_.add_track(TrackKind::thread, fmt::format("thread{}", t)));
    }
    gpu_ = trace_.add_track(TrackKind::stream, "stream 7", 0);
    for (const TrackId track : host_) add_runs(track);
    if (has_idle_thread) {
      const TrackId idle = trace_.add_track(TrackKind::thread, "idle");
      for (int i = 0; i < 3; ++i) add(idle, "flush", SpanKind::recording, 100 * i, 100 * i + 1 + below(40));
    }
    trace_.finish();
  }
  const Trace& trace() const { return trace_; }
  /// Whether kernels may begin before the one in front of them has ended.
  bool launches_early() const { return launches_early_; }

 private:
  int below(int n) { return static_cast<int>(random_() % static_cast<unsigned>(n)); }

  void add(TrackId track, const std::string& name, SpanKind kind, std::int64_t from, std::int64_t to,
           std::uint32_t run = 0, std::uint32_t correlation = 0, const std::string& op = "") {
    SiteInfo site{.name = name, .op = op, .kind = kind, .bytes = 64};
    if (!op.empty()) site.scope = below(2) == 0 ? "encoder" : "decoder/attention";
    trace_.add({.track = track,
                .site = trace_.add_site(site),
                .start_ns = from,
                .duration_ns = to - from,
                .run = run,
                .correlation = correlation});
  }

  // Runs one after the other, with ops that hold copies and other ops, launches and waits.
  void add_runs(TrackId track) {
    std::int64_t at = below(1000);
    for (int r = 0; r < 2 + below(4); ++r) {
      const std::int64_t begin = at;
      const std::uint32_t run = ++run_;
      if (below(4) == 0) add(track, "compile", SpanKind::compile, at, at + 50), at += 60;
      const std::int64_t run_begin = std::max(begin, at);
      for (int i = 0; i < below(6); ++i) at = add_op(track, at + below(20), 0);
      if (below(2) == 0) {
        add(track, "graph launch", SpanKind::launch, at, at + 10, run);
        std::int64_t there = std::max(gpu_free_, at + 5);
        for (int k = 0; k < 1 + below(5); ++k) {
          const std::int64_t length = 1 + below(30);
          add(gpu_, "", SpanKind::kernel, there, there + length, run, run, fmt::format("op{}", below(4)));
          there += length + below(3) - (launches_early_ ? below(3) : 0);  // or before the one in front has ended
        }
        gpu_free_ = there;
        at += 12;
        if (there > at) add(track, "wait", SpanKind::wait, at, there), at = there + 1;
      }
      add(track, "run", SpanKind::run, run_begin, at + 1, run);
      at += 2 + below(200);
    }
  }

  std::int64_t add_op(TrackId track, std::int64_t from, int depth) {
    std::int64_t at = from + below(5);
    if (depth < 2 && below(3) == 0) at = add_op(track, at, depth + 1) + below(5);
    if (below(3) == 0) add(track, "copy", SpanKind::memcpy, at, at + 7), at += 8;
    at += 1 + below(40);
    add(track, "", SpanKind::op, from, at, 0, 0, fmt::format("op{}", below(4)));
    return at;
  }

  std::mt19937 random_;
  Trace trace_;
  int threads_ = 0;
  bool launches_early_ = false;
  std::uint32_t run_ = 0;
  std::int64_t gpu_free_ = 0;
  std::vector<TrackId> host_;
  TrackId gpu_ = 0;
};

// Totals and calls of the outermost rows, by name.
std::map<std::string, std::pair<double, std::uint64_t>> outermost(const std::vector<Section>& sections) {
  std::map<std::string, std::pair<double, std::uint64_t>> sums;
  for (const Section& section : sections) {
    for (const Row& row : section.rows) {
      if (row.depth > 0 || row.name == "(between events)") continue;
      sums[row.name].first += row.total;
      sums[row.name].second += row.calls;
    }
  }
  return sums;
}

TEST(ReportOfAnyRecording, AddsUp) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    const RandomRecording recording(seed);
    const Trace& trace = recording.trace();
    for (const Nesting nesting : {Nesting::op, Nesting::scope}) {
      const Measures m = measure(trace, {.nesting = nesting});
      ASSERT_EQ(m.computation + m.framework + m.recording + m.compile + m.unseen + m.yours, m.wall) << seed;
      for (const Budget& budget : m.budgets) {
        std::int64_t sum = 0;
        for (const BudgetPart& part : budget.parts) sum += part.ns;
        ASSERT_EQ(sum, trace.wall_ns()) << budget.of << " of seed " << seed;
      }
      // Every GPU's time under kernels is that of its spans' union, and the rows have all of it.
      double rows_gpu = 0, spans_gpu = 0;
      std::vector<Interval> busy;
      for (SpanId i = 0; i < trace.size(); ++i) {
        if (!trace.on_gpu(i)) continue;
        busy.push_back({trace.start(i), trace.end(i)});
        spans_gpu += static_cast<double>(trace.duration(i));
      }
      for (const Section& section : m.per_thread) {
        for (const Row& row : section.rows) rows_gpu += row.depth == 0 ? row.gpu : 0;
      }
      const double united = united_length(std::move(busy));
      if (recording.launches_early()) {  // kernels that overlap in one call, a scope's too, are there once
        ASSERT_GE(rows_gpu, united) << seed;
        ASSERT_LE(rows_gpu, spans_gpu) << seed;
      } else {
        ASSERT_DOUBLE_EQ(rows_gpu, spans_gpu) << seed;
      }
      for (const Budget& budget : m.budgets) {
        for (const BudgetPart& part : budget.parts) {
          if (part.name == "kernels") {
            ASSERT_EQ(static_cast<double>(part.ns), united) << seed;
          }
        }
      }
    }
  }
}

TEST(ReportOfAnyRecording, ParentsHoldTheirChildren) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    const RandomRecording recording(seed);
    for (const Nesting nesting : {Nesting::op, Nesting::scope}) {
      for (const Detail detail : {Detail::op, Detail::phases, Detail::instances}) {
        const Measures m = measure(recording.trace(), {.detail = detail, .nesting = nesting});
        std::vector<Section> sections = m.per_thread;
        sections.insert(sections.end(), m.merged.begin(), m.merged.end());
        for (const Section& section : sections) {
          // The total of every row around, without the rows in it or, where kernels overlap, whole: any call lies in
          // it.
          std::vector<double> left;
          for (const Row& row : section.rows) {
            ASSERT_GE(row.ratio, 0);
            ASSERT_LE(row.ratio, 1);
            left.resize(static_cast<std::size_t>(row.depth));
            if (row.depth > 0 && !row.at_compile) {
              const double least = recording.launches_early() ? row.max : row.total;
              ASSERT_GE(left.back(), least - 1e-6) << row.name << " of seed " << seed;
              if (!recording.launches_early()) left.back() -= row.total;
            }
            left.push_back(row.total);
            ASSERT_LE(row.self, row.total);
            ASSERT_GE(row.self, 0);
          }
        }
      }
    }
  }
}

TEST(ReportOfAnyRecording, SaysOfAllThreadsWhatItSaysOfEach) {
  for (unsigned seed = 0; seed < 400; ++seed) {
    const RandomRecording recording(seed);
    const Measures each = measure(recording.trace(), {.threads = Threads::per_thread});
    const Measures all = measure(recording.trace(), {.threads = Threads::merged});
    const auto of_each = outermost(each.per_thread), of_all = outermost(all.merged);
    ASSERT_EQ(of_each.size(), of_all.size()) << seed;
    for (const auto& [name, sum] : of_all) {
      ASSERT_TRUE(of_each.contains(name)) << name;
      ASSERT_EQ(of_each.at(name).second, sum.second) << name << " of seed " << seed;
      ASSERT_NEAR(of_each.at(name).first, sum.first, 1e-6) << name << " of seed " << seed;
    }
  }
}

// Rows of all threads are put together from those of each: one tree of all gives the same.
TEST(ReportOfAnyRecording, PutsRowsOfThreadsTogetherAsOneTreeDoes) {
  const auto told = [](const Row& row) {
    return fmt::format("{} {} calls {} total {} cpu {} gpu {} min {} max {} ratio {:.9f} self {} bytes {} flops {} {}",
                       row.depth, row.name, row.calls, row.total, row.cpu, row.gpu, row.min, row.max, row.ratio,
                       row.self, row.bytes, row.flops, row.at_compile);
  };
  std::size_t compared = 0;
  for (unsigned seed = 0; seed < 400; ++seed) {
    const RandomRecording recording(seed, seed % 3 == 0);
    for (const Detail detail : {Detail::op, Detail::phases, Detail::instances}) {
      for (const State state : {State::all, State::cpu, State::gpu}) {
        for (const SortBy sort : {SortBy::total, SortBy::none}) {
          const ReportOptions options{.state = state,
                                      .detail = detail,
                                      .sort = sort,
                                      .threads = Threads::merged,
                                      .share_groups = seed % 2 == 0};
          RowTree each(recording.trace(), options, true);
          each.sections();
          const std::vector<Section> all = each.merged();
          const std::vector<Section> by_itself = RowTree(recording.trace(), options, false).sections();
          ASSERT_EQ(all.size(), by_itself.size()) << seed;
          for (std::size_t s = 0; s < all.size(); ++s) {
            ASSERT_EQ(all[s].total, by_itself[s].total) << seed;
            ASSERT_EQ(all[s].rows.size(), by_itself[s].rows.size()) << seed;
            for (std::size_t i = 0; i < all[s].rows.size(); ++i, ++compared) {
              ASSERT_EQ(told(all[s].rows[i]), told(by_itself[s].rows[i])) << seed;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(compared, 10'000u);
}

// Nothing was lost on the way, and every kernel has an op.
TEST(ReportOfAnyRecording, CountsEveryRecord) {
  for (unsigned seed = 0; seed < 100; ++seed) {
    const RandomRecording recording(seed);
    const Measures m = measure(recording.trace());
    ASSERT_EQ(m.records.received, recording.trace().size());
    ASSERT_EQ(m.records.unattributed, 0u);
    ASSERT_EQ(m.records.dropped + m.records.timeless + m.records.outside, 0u);
  }
}

}  // namespace
}  // namespace paoding::profile
