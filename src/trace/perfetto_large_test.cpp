// SPDX-License-Identifier: Apache-2.0
// Large Perfetto traces, whose packets a second thread reads ahead, and flows by the million.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "profile/protobuf.h"
#include "trace/perfetto_events.h"
#include "trace/perfetto_flows.h"

namespace paoding::trace {
namespace {

using profile::ProtobufMessage;

// A line for each call.
class Log final : public PerfettoTaker {
 public:
  Log(const PerfettoTexts& texts, std::size_t most) : texts_(texts), most_(most) {}
  void take(const PerfettoTrack& track) override {
    lines.push_back("track " + std::to_string(track.uuid) + " " + std::string(texts_[track.name]));
  }
  void take(const PerfettoGpuStage& stage) override { lines.push_back("stage " + std::to_string(stage.ns)); }
  void take(const PerfettoEvent& event, std::span<const PerfettoArgument> arguments,
            std::span<const std::uint64_t> flows) override {
    std::string line = std::to_string(event.ns) + " " + std::to_string(static_cast<int>(event.type)) + " " +
                       std::to_string(event.track) + " " + std::string(texts_[event.name]) + " " +
                       std::string(texts_[event.category]);
    for (const PerfettoArgument& argument : arguments) {
      line += " " + std::string(texts_[argument.name]) + "=";
      line += argument.type == PerfettoArgument::Type::text ? std::string(texts_[argument.text()])
                                                            : std::to_string(argument.number());
    }
    for (const std::uint64_t flow : flows) line += " ->" + std::to_string(flow);
    lines.push_back(line);
  }
  bool is_done() const override { return lines.size() >= most_; }

  std::vector<std::string> lines;

 private:
  const PerfettoTexts& texts_;
  const std::size_t most_;
};

// Texts by themselves and by number, numbers that mean other texts after a while and to another writer, arguments of
// few and of many bytes, packets in another order.
std::string large_trace() {
  std::mt19937_64 random(3);
  ProtobufMessage all;
  std::uint64_t ns = 1'000'000'000'000;
  for (int i = 0; all.bytes().size() < (3u << 20); ++i) {
    ProtobufMessage packet, event, interned;
    const std::uint64_t writer = 1 + random() % 2;
    packet.number(10, writer);
    if (i % 5000 < 2) {
      packet.number(13, 1);
      for (std::uint64_t id = 1; id < 40; ++id) {
        for (const std::uint32_t table : {2u, 3u, 29u}) {
          ProtobufMessage entry;
          entry.number(1, id);
          entry.text(2, "text " + std::to_string(random() % 500));
          interned.message(table, entry);
        }
      }
      packet.message(12, interned);
    }
    if (random() % 50 == 0) {
      ProtobufMessage track;
      track.number(1, 7 + random() % 3);
      track.text(2, "track " + std::to_string(i));
      packet.message(60, track);
    }
    event.number(9, 1 + random() % 3);
    event.number(11, 7 + random() % 3);
    if (random() % 2 == 0) {
      event.number(10, 1 + random() % 39);
    } else {
      event.text(23, "name " + std::string(random() % 30, 'n'));
    }
    event.text(22, random() % 3 == 0 ? "kernel" : "op");
    for (std::uint64_t count = random() % 4; count > 0; --count) {
      ProtobufMessage argument;
      if (random() % 3 == 0) {
        argument.number(1, 1 + random() % 39);
      } else {
        argument.text(10, "key" + std::to_string(random() % 5));
      }
      switch (random() % 3) {
        case 0: argument.number(4, random() >> random() % 64); break;
        case 1: argument.number(17, 1 + random() % 39); break;
        default: argument.text(6, std::string(random() % 120, static_cast<char>('a' + random() % 26))); break;
      }
      event.message(4, argument);
    }
    for (std::uint64_t count = random() % 3; count > 0; --count) event.fixed64(47, random() % 1000);
    packet.number(8, ns += random() % 1000);
    packet.message(11, event);
    all.message(1, packet);
  }
  return all.bytes();
}

TEST(PerfettoPackets, AreTheSameWhereAnotherThreadReadsThemAhead) {
  const std::string bytes = large_trace();
  TraceFile one(bytes, "one"), two(bytes, "two");
  PerfettoTexts texts, texts_ahead;
  Log here(texts, 1u << 30), ahead(texts_ahead, 1u << 30);
  read_perfetto_packets_here(one, texts, here);
  read_perfetto_packets(two, texts_ahead, ahead);
  EXPECT_GT(here.lines.size(), 20'000u);
  EXPECT_EQ(here.lines, ahead.lines);
  EXPECT_EQ(texts.size(), texts_ahead.size());
}

TEST(PerfettoPackets, AreNotReadFurtherThanIsWanted) {
  const std::string bytes = large_trace();
  TraceFile one(bytes, "one"), two(bytes, "two");
  PerfettoTexts texts, texts_ahead;
  Log here(texts, 9'000), ahead(texts_ahead, 9'000);
  read_perfetto_packets_here(one, texts, here);
  read_perfetto_packets(two, texts_ahead, ahead);
  EXPECT_GE(here.lines.size(), 9'000u);
  // One packet may bring two lines.
  EXPECT_EQ(ahead.lines.size(), 9'000u);
  here.lines.resize(9'000);
  EXPECT_EQ(here.lines, ahead.lines);
}

TEST(PerfettoPackets, ThatCannotBeTakenEndTheReadingAhead) {
  class Refusing final : public PerfettoTaker {
   public:
    void take(const PerfettoTrack&) override {}
    void take(const PerfettoGpuStage&) override {}
    void take(const PerfettoEvent&, std::span<const PerfettoArgument>, std::span<const std::uint64_t>) override {
      if (++count_ == 100) throw std::runtime_error("full");
    }
    bool is_done() const override { return false; }

   private:
    int count_ = 0;
  };
  const std::string bytes = large_trace();
  TraceFile file(bytes, "file");
  PerfettoTexts texts;
  Refusing refusing;
  EXPECT_THROW(read_perfetto_packets(file, texts, refusing), std::runtime_error);
}

// Flows are counted up, are addresses, or are any numbers; the last ones of a flow may come first.
TEST(PerfettoFlows, LeadFromEachEventToTheNextInTime) {
  std::mt19937_64 random(12);
  constexpr std::size_t kSpans = 3'000;
  using FlowOf = std::uint64_t (*)(std::uint64_t);
  const FlowOf kinds[] = {
      [](std::uint64_t i) { return i; },
      [](std::uint64_t i) { return 0x7f0000000000 + i * 64; },
      [](std::uint64_t i) { return i << 40 | 5; },
      [](std::uint64_t i) -> std::uint64_t { return i * 0x9e3779b97f4a7c15; },
      [](std::uint64_t i) { return i << 58 | i; },
  };
  for (const FlowOf flow_of : kinds) {
    profile::Trace trace;
    const profile::TrackId track = trace.add_track(profile::TrackKind::thread, "t");
    const profile::SiteId site = trace.add_site({.name = "s"});
    for (std::size_t i = 0; i < kSpans; ++i) {
      trace.add({.track = track, .site = site, .start_ns = static_cast<std::int64_t>(10 * i), .duration_ns = 5});
    }
    PerfettoFlows flows;
    std::map<std::uint64_t, std::vector<std::pair<std::int64_t, profile::SpanId>>> by_flow;
    for (int i = 0; i < 20'000; ++i) {
      const std::uint64_t flow = flow_of(random() % 6'000);
      const auto span = static_cast<profile::SpanId>(random() % kSpans);
      const auto ns = static_cast<std::int64_t>(random() % 50);
      flows.add(flow, ns, span);
      by_flow[flow].emplace_back(ns, span);
    }
    std::vector<std::pair<profile::SpanId, profile::SpanId>> expected, found;
    for (auto& [flow, ends] : by_flow) {
      std::ranges::stable_sort(ends, {}, [](const auto& end) { return end.first; });
      for (std::size_t i = 1; i < ends.size(); ++i) {
        if (ends[i - 1].second != ends[i].second) expected.emplace_back(ends[i - 1].second, ends[i].second);
      }
    }
    flows.link(trace);
    trace.finish();
    for (const profile::Flow& flow : trace.flows()) found.emplace_back(flow.from, flow.to);
    std::ranges::sort(expected);
    expected.erase(std::ranges::unique(expected).begin(), expected.end());
    EXPECT_GT(expected.size(), 1'000u);
    EXPECT_EQ(found, expected);
  }
}

}  // namespace
}  // namespace paoding::trace
