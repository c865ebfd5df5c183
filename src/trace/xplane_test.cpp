// SPDX-License-Identifier: Apache-2.0
#include "trace/xplane.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "paoding/error.h"
#include "profile/protobuf.h"
#include "profile/report.h"

namespace paoding::trace {
namespace {

using namespace profile;
using Message = ProtobufMessage;

// A plane under construction: names become numbers as they are used.
class Plane {
 public:
  explicit Plane(std::string_view name) { message_.text(2, name); }

  struct Fact {
    std::string name;
    std::uint64_t number = 0;
    std::string text = {};  // instead of the number
  };
  struct Event {
    std::string name;
    std::int64_t offset_ps, duration_ps;
    std::vector<Fact> facts = {};
  };
  void add_line(std::string_view name, std::int64_t timestamp_ns, const std::vector<Event>& events) {
    Message line;
    line.number(1, ++lines_);
    line.text(2, name);
    line.number(3, static_cast<std::uint64_t>(timestamp_ns));
    for (const Event& event : events) {
      Message own;
      own.number(1, number(event.name, &names_));
      own.number(2, static_cast<std::uint64_t>(event.offset_ps));
      if (event.duration_ps >= 0) own.number(3, static_cast<std::uint64_t>(event.duration_ps));
      for (const Fact& fact : event.facts) own.message(4, stat(fact));
      line.message(4, own);
    }
    message_.message(3, line);
  }
  void add_stat(const Fact& fact) { message_.message(6, stat(fact)); }

  Message finish() {
    Message all = message_;
    add_names(4, names_, &all);
    add_names(5, facts_, &all);
    return all;
  }

 private:
  static std::uint64_t number(const std::string& name, std::map<std::string, std::uint64_t>* names) {
    return names->try_emplace(name, names->size() + 1).first->second;
  }
  Message stat(const Fact& fact) {
    Message own;
    own.number(1, number(fact.name, &facts_));
    if (fact.text.empty()) {
      own.number(3, fact.number);
    } else {
      own.number(7, number(fact.text, &facts_));
    }
    return own;
  }
  static void add_names(std::uint32_t field, const std::map<std::string, std::uint64_t>& names, Message* to) {
    for (const auto& [name, id] : names) {
      Message own, entry;
      own.number(1, id);
      own.text(2, name);
      entry.number(1, id);
      entry.message(2, own);
      to->message(field, entry);
    }
  }

  Message message_;
  std::uint64_t lines_ = 0;
  std::map<std::string, std::uint64_t> names_, facts_;
};

Trace read_planes(std::vector<Plane> planes) {
  Message space;
  for (Plane& plane : planes) space.message(1, plane.finish());
  EXPECT_TRUE(is_xplane(space.bytes()));
  return read_xplane_text(space.bytes(), "made");
}

std::uint64_t xplane_count_of(const Trace& trace, std::string_view text) {
  for (const Note& note : trace.notes()) {
    if (note.text.find(text) != note.text.npos) return note.count;
  }
  return 0;
}

// Picoseconds one behind the other add up to what they last together, however they are rounded.
TEST(XPlane, RoundsPicosecondsWithoutDrift) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 20; ++round) {
    std::vector<Plane::Event> events;
    std::int64_t at = static_cast<std::int64_t>(random() % 5'000), first = at;
    for (int i = 0; i < 1'000; ++i) {
      const auto length = static_cast<std::int64_t>(random() % 4'000);
      events.push_back({"kernel", at, length});
      at += length;
    }
    Plane gpu("/device:GPU:0");
    gpu.add_line("Stream #7(Compute)", 1'000, events);
    const Trace trace = read_planes({std::move(gpu)});
    ASSERT_EQ(trace.size(), 1'000u);
    std::int64_t sum = 0;
    for (SpanId i = 0; i < trace.size(); ++i) sum += trace.duration(i);
    EXPECT_EQ(sum, at / 1'000 - first / 1'000);
    EXPECT_EQ(trace.first_ns(), 1'000 + first / 1'000);
    EXPECT_EQ(trace.last_ns(), 1'000 + at / 1'000);
  }
}

TEST(XPlane, CountsStreamsOnlyWhereOtherLinesAreMadeFromThem) {
  const std::vector<Plane::Event> events = {{"gemm", 1'000, 5'000}, {"gemm", 8'000, 6'000}};
  Plane gpu("/device:GPU:3");
  gpu.add_line("Stream #7(Compute)", 0, events);
  gpu.add_line("XLA Ops", 0, events);
  gpu.add_line("XLA Modules", 0, {{"jit_step", 1'000, 13'000}});
  gpu.add_line("Steps", 0, {{"1", 1'000, 13'000}});
  const Trace trace = read_planes({std::move(gpu)});
  EXPECT_EQ(measure(trace).records.gpu_ns, 11);
  EXPECT_EQ(xplane_count_of(trace, "made from others"), 3u);
  EXPECT_EQ(trace.track(0).device, 3);
  EXPECT_EQ(trace.text(trace.track(0).name), "stream 7");
}

// Of a TPU: a loop lies around what it runs, and is no work beside it.
TEST(XPlane, CountsOpsOnceWhereOthersLieAroundThem) {
  Plane tpu("/device:TPU:0");
  tpu.add_line("XLA Modules", 0, {{"jit_step", 0, 100'000}});
  tpu.add_line(
      "XLA Ops", 0,
      {{"while.1", 0, 90'000}, {"fusion.1", 1'000, 20'000}, {"fusion.2", 30'000, 50'000}, {"copy.3", 90'000, 10'000}});
  const Trace trace = read_planes({std::move(tpu)});
  EXPECT_EQ(measure(trace).records.gpu_ns, 80);
  EXPECT_EQ(xplane_count_of(trace, "ops around others"), 1u);
}

TEST(XPlane, JoinsKernelsWithTheCallsThatLaunchedThemAndMarksStepsAndFrames) {
  Plane gpu("/device:GPU:0");
  gpu.add_stat({"memory_bandwidth", 4'800'000'000'000});
  gpu.add_stat({"core_count", 132});
  gpu.add_stat({"gpu_device_name", 0, "NVIDIA H200"});
  gpu.add_line(
      "Stream #1(Compute)", 0,
      {{"saxpy.kd",
        50'000,
        9'000,
        {{"correlation_id", 5},
         {"kernel_details", 0, "regs:40 static_shared:64 dynamic_shared:0 grid:8,2,1 block:128,1,1 occ_pct:50"}}},
       {"MemcpyH2D",
        70'000,
        4'000,
        {{"correlation_id", 6}, {"memcpy_details", 0, "kind_src:pinned kind_dst:device size:4096 dest:0 async:1"}}},
       {"lost", 90'000, 1'000, {{"correlation_id", 7}}}});
  Plane host("/host:CPU");
  host.add_line("python3", 0,
                {{"train", 0, 200'000, {{"step_num", 3}}},
                 {"$model.py:12 forward", 1'000, 90'000},
                 {"cuLaunchKernel", 10'000, 3'000, {{"correlation_id", 5}}},
                 {"cuMemcpyHtoDAsync_v2", 20'000, 3'000, {{"correlation_id", 6}}},
                 {"PjitFunction(step)", 5'000, 50'000}});
  const Trace trace = read_planes({std::move(gpu), std::move(host)});
  std::map<std::string, SpanId> by_name;
  for (SpanId i = 0; i < trace.size(); ++i) by_name[std::string(trace.name(i))] = i;
  EXPECT_EQ(trace.cause(by_name.at("saxpy")), by_name.at("cuLaunchKernel"));
  EXPECT_EQ(trace.cause(by_name.at("MemcpyH2D")), by_name.at("cuMemcpyHtoDAsync_v2"));
  EXPECT_EQ(trace.bytes(by_name.at("MemcpyH2D")), 4096);
  EXPECT_EQ(trace.site(by_name.at("MemcpyH2D")).copy, Copy::host_to_device);
  EXPECT_EQ(trace.cause(by_name.at("lost")), kNone);
  EXPECT_EQ(trace.kind(by_name.at("train")), SpanKind::step);
  EXPECT_EQ(trace.kind(by_name.at("model.py:12 forward")), SpanKind::frame);
  EXPECT_EQ(trace.kind(by_name.at("step")), SpanKind::run);
  EXPECT_EQ(trace.common_limit().bytes_per_ns, 4800);
  ASSERT_EQ(trace.limits().size(), 1u);
  EXPECT_EQ(trace.limits()[0].name, "NVIDIA H200");
  EXPECT_EQ(trace.limits()[0].sms, 132);
  std::map<std::string, std::string> arguments;
  for (const ArgumentColumn& column : trace.columns()) {
    for (std::size_t i = 0; i < column.of.size(); ++i) {
      arguments[std::string(trace.text(column.name))] = column.type == ArgumentType::text
                                                            ? std::string(trace.text(column.text(i)))
                                                            : std::to_string(column.integer(i));
    }
  }
  EXPECT_EQ(arguments, (std::map<std::string, std::string>{{"grid", "8x2x1"},
                                                           {"block", "128x1x1"},
                                                           {"registers", "40"},
                                                           {"shared memory", "64"},
                                                           {"memory", "pinned"}}));
}

// Some profiles of ROCm hold what lay in memory by chance.
TEST(XPlane, LeavesOutDetailsThatCannotBe) {
  Plane gpu("/device:GPU:0");
  gpu.add_line(
      "Stream #1", 0,
      {{"k", 0, 1'000, {{"kernel_details", 0, "regs:2191500840 static_shared:99999999999 grid:1,1,1 block:64,1,1"}}}});
  const Trace trace = read_planes({std::move(gpu)});
  for (const ArgumentColumn& column : trace.columns()) {
    EXPECT_NE(trace.text(column.name), "registers");
    EXPECT_NE(trace.text(column.name), "shared memory");
  }
}

TEST(XPlane, CountsTimesThatAreNone) {
  Plane gpu("/device:GPU:0");
  gpu.add_line("Stream #1", 0,
               {{"k", 1'000, std::numeric_limits<std::int64_t>::max()},
                {"k", std::numeric_limits<std::int64_t>::min(), 5},
                {"k", 0, 2'000}});
  gpu.add_line("Stream #2", std::numeric_limits<std::int64_t>::max(), {{"k", 0, 2'000}});
  const Trace trace = read_planes({std::move(gpu)});
  EXPECT_EQ(trace.size(), 1u);
  std::uint64_t timeless = 0;
  for (const Note& note : trace.notes()) timeless += note.kind == Note::Kind::timeless ? note.count : 0;
  EXPECT_EQ(timeless, 3u);
}

TEST(XPlane, SaysWhatTheProfilerDroppedAndWarnedOf) {
  Plane gpu("/device:GPU:0");
  gpu.add_line("Stream #1", 0, {{"k", 0, 1'000}});
  gpu.add_stat({"dropped_traces", 12});
  Message space;
  space.message(1, gpu.finish());
  space.text(3, "the buffers\nwere full");
  const Trace trace = read_xplane_text(space.bytes(), "made");
  EXPECT_EQ(measure(trace).records.dropped, 12u);
  EXPECT_EQ(xplane_count_of(trace, "the buffers"), 1u);
  EXPECT_THROW(read_xplane_text("", "empty"), Error);
}

}  // namespace
}  // namespace paoding::trace
