// SPDX-License-Identifier: Apache-2.0
// What is held of memory over time: from who takes it to the counters of a trace and the numbers of a report.
#include "profile/held_over_time.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <optional>
#include <random>

#include "profile/recorder.h"
#include "profile/recording.h"
#include "profile/report.h"
#include "tests/support/temporary_folder.h"

namespace paoding::profile {
namespace {

// A device that no other test has.
constexpr int kDevice = 77;

std::vector<std::int64_t> values(const Trace& trace, int device, std::string_view name) {
  std::vector<std::int64_t> all;
  for (const Sample& sample : trace.samples()) {
    const Counter& counter = trace.counters()[sample.counter];
    if (counter.device == device && trace.text(counter.name) == name) all.push_back(sample.value);
  }
  return all;
}

using Values = std::vector<std::int64_t>;

TEST(HeldBytes, AreSamplesWhereTheyChangeAndOneAtTheStart) {
  HeldBytes before(HeldFor::arenas, kDevice, 1000);
  Recorder::start({});
  HeldBytes moved = std::move(before);
  moved.set(1000);  // nothing changes
  moved.set(3000);
  {
    const HeldBytes short_lived(HeldFor::arenas, kDevice, 50);
    const HeldBytes other(HeldFor::inputs, kDevice, 7);
  }
  const Trace trace = Recorder::stop();
  EXPECT_EQ(values(trace, kDevice, "arenas"), (Values{1000, 3000, 3050, 3000}));
  EXPECT_EQ(values(trace, kDevice, "inputs"), (Values{0, 7, 0}));
  const Sample& first = trace.samples().front();
  for (const Sample& sample : trace.samples()) {
    EXPECT_GE(sample.ns, trace.window_start());
    EXPECT_LE(sample.ns, trace.window_end());
  }
  EXPECT_EQ(first.ns, trace.window_start());
  moved.set(0);
  Recorder::start({});
  EXPECT_EQ(values(Recorder::stop(), kDevice, "arenas"), (Values{0}));
}

TEST(HeldBytes, BelongToTheSideThatIsRecorded) {
  const HeldBytes gpu(HeldFor::arenas, kDevice, 10), host(HeldFor::other, -1, 20);
  for (const State state : {State::cpu, State::gpu, State::all}) {
    Recorder::start({.state = state});
    const Trace trace = Recorder::stop();
    EXPECT_EQ(values(trace, kDevice, "arenas").empty(), state == State::cpu);
    EXPECT_EQ(values(trace, -1, "other").empty(), state == State::gpu);
  }
}

// Written while it goes, read as a whole: every change is there, in order.
TEST(HeldBytes, AreInTheFileThatARecordingGoesTo) {
  const TemporaryFolder folder;
  const std::string path = (folder / "run.paoding").string();
  Recorder::start({.file = path});
  HeldBytes held(HeldFor::parameters, kDevice, 1);  // of which nothing was held before
  Values expected{0, 1};
  for (int i = 2; i < 40'000; ++i) {
    held.set(i);
    expected.push_back(i);
  }
  EXPECT_EQ(values(Recorder::stop(), kDevice, "parameters"), expected);
  EXPECT_EQ(values(read_recording(path), kDevice, "parameters"), expected);
}

TEST(HeldBytes, AreCountedWhereThereIsNoRoomForThem) {
  constexpr std::size_t kRoom = 100, kChanges = 1000;
  HeldBytes held(HeldFor::graphs, kDevice, 1);
  Recorder::start({.max_bytes = kRoom * sizeof(Sample)});
  for (std::size_t i = 1; i <= kChanges; ++i) held.set(static_cast<std::int64_t>(i) + 1);
  const Trace trace = Recorder::stop();
  const Values seen = values(trace, kDevice, "captured graphs");
  ASSERT_GT(seen.size(), kRoom / 2);
  for (std::size_t i = 0; i < seen.size(); ++i) EXPECT_EQ(seen[i], static_cast<std::int64_t>(i) + 1);
  std::uint64_t dropped = 0;
  for (const Note& note : trace.notes()) dropped += note.kind == Note::Kind::dropped ? note.count : 0;
  EXPECT_GE(seen.size() + dropped, kChanges + 1);  // where there is a GPU, what recording it takes too
}

TEST(HeldBytes, CutToTheWindowKeepWhatWasThereBefore) {
  Trace trace;
  trace.set_window(100, 200);
  const CounterId a = trace.add_counter(0, "arenas"), b = trace.add_counter(0, "inputs");
  EXPECT_EQ(trace.add_counter(0, "arenas"), a);
  EXPECT_NE(trace.add_counter(1, "arenas"), a);
  const Sample all[] = {{b, 150, 7}, {a, 20, 5}, {a, 90, 6}, {a, 150, 8}, {a, 150, 9}, {a, 160, 9}, {a, 201, 1}};
  for (const Sample& sample : all) trace.add_sample(sample);
  trace.finish();
  EXPECT_EQ(trace.samples(), (std::vector<Sample>{{a, 100, 6}, {a, 150, 9}, {b, 150, 7}}));
}

TEST(HeldOverTime, IsTheMostOfAllAtOnceAndOfEach) {
  Trace trace;
  trace.set_window(1000, 2000);
  const CounterId a = trace.add_counter(0, "arenas"), b = trace.add_counter(0, "inputs");
  const Sample all[] = {{a, 1000, 10}, {a, 1100, 90}, {a, 1200, 20}, {b, 1200, 60}, {a, 1300, 40}, {b, 1400, 0}};
  for (const Sample& sample : all) trace.add_sample(sample);
  trace.finish();
  const std::vector<HeldOverTime> held = held_over_time(trace, State::all);
  ASSERT_EQ(held.size(), 3u);
  EXPECT_TRUE(held[0].is_all());
  EXPECT_EQ(held[0].most, 100);  // 40 + 60, though each had its most at another time
  EXPECT_EQ(held[0].most_ns, 300);
  EXPECT_EQ(held[0].at_start, 10);
  EXPECT_EQ(held[0].at_end, 40);
  EXPECT_EQ(held[0].changes, 4u);
  EXPECT_EQ(held[1].what, "arenas");
  EXPECT_EQ(held[1].most, 90);
  EXPECT_EQ(held[2].most, 60);
  EXPECT_EQ(held[2].at_start, 0);
  EXPECT_TRUE(held_over_time(trace, State::cpu).empty());
  const Measures m = measure(trace);
  const std::string text = to_text(m), json = to_json(m), csv = to_csv(m);
  EXPECT_NE(text.find("Held, MB  At start  Most     First at  At end\n"
                      "GPU 0     0.00001   0.0001   0.0003    0.00004\n"
                      "  arenas  0.00001   0.00009  0.0001    0.00004\n"),
            text.npos)
      << text;
  EXPECT_NE(json.find(R"("what":"all","start_bytes":10,"most_bytes":100,"most_at_ns":300,"end_bytes":40)"), json.npos)
      << json;
  EXPECT_NE(csv.find("held,GPU 0,0,all most,4,300,,,,,,,100,,,,,\n"), csv.npos) << csv;
}

// Against what one sees who looks at every nanosecond.
TEST(HeldOverTime, IsWhatLookingAtEveryMomentFinds) {
  constexpr std::int64_t kStart = 50, kEnd = 120;
  for (unsigned seed = 0; seed < 300; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
    Trace trace;
    trace.set_window(kStart, kEnd);
    std::map<CounterId, std::map<std::int64_t, std::int64_t>> said;
    for (int i = 0; i < 12; ++i) {
      const CounterId counter = trace.add_counter(below(2) - 1, fmt::format("of {}", below(2)));
      const std::int64_t ns = 30 + below(110), value = below(5);
      trace.add_sample({counter, ns, value});
      said[counter][ns] = value;
    }
    trace.finish();
    for (const int device : {-1, 0}) {
      std::int64_t most = 0, most_ns = 0, at_start = 0, sum = 0;
      for (std::int64_t now = kStart; now <= kEnd; ++now) {
        sum = 0;
        for (const auto& [counter, values] : said) {
          const auto behind = values.upper_bound(now);
          if (trace.counters()[counter].device == device && behind != values.begin()) sum += std::prev(behind)->second;
        }
        if (now == kStart) at_start = sum;
        if (sum > most) most = sum, most_ns = now - kStart;
      }
      std::optional<HeldOverTime> found;
      for (const HeldOverTime& held : held_over_time(trace, State::all)) {
        if (held.device == device && held.is_all()) found = held;
      }
      ASSERT_EQ(found.has_value(), most > 0) << seed;
      if (!found) continue;
      ASSERT_EQ(found->most, most) << seed;
      ASSERT_EQ(found->most_ns, most_ns) << seed;
      ASSERT_EQ(found->at_start, at_start) << seed;
      ASSERT_EQ(found->at_end, sum) << seed;
    }
  }
}

}  // namespace
}  // namespace paoding::profile
