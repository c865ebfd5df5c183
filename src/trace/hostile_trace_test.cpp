// SPDX-License-Identifier: Apache-2.0
// Traces that are broken in the ways in which files of others were, or made to be: what is there is read, what is lost
// is counted, nothing is counted twice.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <zlib.h>

#include <fstream>
#include <map>
#include <random>

#include "paoding/error.h"
#include "profile/report.h"
#include "tests/support/report_rows.h"
#include "trace/json_events.h"
#include "trace/reader.h"

namespace paoding::trace {
namespace {

using namespace profile;

std::map<std::string, std::uint64_t> notes(const Trace& trace) {
  std::map<std::string, std::uint64_t> all = notes_of(trace);
  all.erase("spans of GPUs whose launch is not in the file");
  return all;
}

struct Case {
  const char* what;
  const char* json;
  std::size_t spans;
  std::map<std::string, std::uint64_t> lost;
};

#define KERNEL(ts, dur) \
  R"({"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":)" ts R"(,"dur":)" dur R"(,"args":{"correlation":1}})"

const Case kCases[] = {
    {"an array alone", "[" KERNEL("1.5", "2.25") "," KERNEL("4", "1") "]", 2, {}},
    {"an array that nobody closed",
     "[" KERNEL("1.5", "2.25") ",\n" KERNEL("4", "1") ",\n",
     2,
     {{"the file's rest: it ends in the middle", 1}}},
    {"a process that was killed",
     R"({"schemaVersion":1,"traceEvents":[)" KERNEL("1.5", "2.25") R"(,{"ph":"X","cat":"ker)",
     1,
     {{"the file's rest: it ends in the middle", 1}}},
    {"N/A in place of a number",
     R"([{"ph":"X","cat":"Kernel","name":"k","pid":0,"tid":"stream 7","ts":1,"dur":1,"args":{"x": N/A,"correlation":1}}])",
     1,
     {}},
    {"NaN and infinity",
     R"([{"ph":"X","cat":"gpu_memcpy","name":"m","pid":0,"tid":7,"ts":1,"dur":0,"args":{"x": inf,"y":NaN}}])",
     1,
     {}},
    {"a mark of bytes' order", "\xef\xbb\xbf{\"traceEvents\":[]}", 0, {}},
    {"control characters in a name",
     "[{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"a\nb\x01\",\"pid\":1,\"tid\":2,\"ts\":1,\"dur\":1}]",
     1,
     {}},
    {"a name that is no UTF-8",
     "[{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"a\xff\xfe\",\"pid\":1,\"tid\":2,\"ts\":1,\"dur\":1}]",
     1,
     {{"names that are no UTF-8", 1}}},
    {"a path of Windows",
     R"([{"ph":"X","cat":"python_function","name":"torch\cuda\__init__.py","pid":1,"tid":2,"ts":1,"dur":1}])",
     1,
     {}},
    {"quotes in a name",
     R"({"traceEvents":[{"ph":"X","cat":"cpu_op","name":"{"device": "cpu"}","pid":1,"tid":2,"ts":1,"dur":1},)" KERNEL(
         "4", "1") "]}",
     1,
     {{"events that are no JSON, the first at byte 16", 1}}},
    {"a quote that is missing",
     R"([{"name":"add","ph":"X","ts":1,"dur":2,tid":0,"pid":1},{"name":"mul","ph":"X","ts":4,"dur":2,"tid":0,"pid":1}])",
     1,
     {{"events that are no JSON, the first at byte 1", 1}}},
    {"keys that come twice",
     R"({"distributedInfo":{"rank":0},"distributedInfo":{"rank":3},"traceEvents":[{"ph":"X","cat":"cpu_op","name":"o","pid":1,"tid":2,"ts":1,"ts":2,"dur":1,"args":{"External id":1,"External id":2}}]})",
     1,
     {{"keys that an event has twice, of which the last counts", 2}}},
    {"a process that is a text, then a number",
     R"([{"ph":"X","cat":"cpu_op","name":"o","pid":"one of many","pid":70000,"tid":2,"ts":1,"dur":1}])",
     1,
     {{"keys that an event has twice, of which the last counts", 1}}},
    {"what ends before it starts", "[" KERNEL("100", "-3") "]", 0, {{"events that end before they start", 1}}},
    {"what was not stamped",
     "[" KERNEL("0", "0") "," KERNEL("1615207264505000", "6") "]",
     1,
     {{"work of GPUs that was not stamped", 1}}},
    {"times beyond all reason",
     "[" KERNEL("1e30", "1") "," KERNEL("9e15", "1") "," KERNEL("5", "1") "]",
     1,
     {{"events whose time is no number", 2}}},
    {"a time that cannot be",
     "[" KERNEL("100", "2000000") "," KERNEL("105", "3") "," KERNEL("110", "3") "]",
     3,
     {{"spans of GPUs that last for more than 1 ms beyond the start of what follows on their stream", 1}}},
    {"keys behind the events",
     R"({"traceEvents":[)" KERNEL("1", "1") R"(],"baseTimeNanoseconds":1711964646000000000,"schemaVersion":1})",
     1,
     {}},
    {"braces in names",
     R"([{"ph":"X","cat":"cpu_op","name":"}, {","pid":1,"tid":2,"ts":1,"dur":1},)" KERNEL("4", "1") "]",
     2,
     {}},
};

TEST(HostileTrace, IsReadAsFarAsItGoesAndCountsWhatIsLost) {
  for (const Case& one : kCases) {
    const Trace trace = read_trace_text(one.json, "test");
    EXPECT_EQ(trace.size(), one.spans) << one.what;
    EXPECT_EQ(notes(trace), one.lost) << one.what;
    EXPECT_GE(measure(trace).framework, 0) << one.what;
  }
}

TEST(HostileTrace, MayBeNestedWithoutEnd) {
  const std::string deep(100'000, '[');
  const Trace trace = read_trace_text("{\"traceEvents\":[" + deep, "test");
  EXPECT_EQ(trace.size(), 0u);
  EXPECT_EQ(notes(trace).at("the file's rest: it ends in the middle"), 1u);
  const std::string in_args = R"([{"ph":"X","cat":"kernel","name":"k","pid":0,"tid":7,"ts":1,"dur":1,"args":{"x":)" +
                              deep + std::string(100'000, ']') + "}}]";
  EXPECT_EQ(read_trace_text(in_args, "test").size(), 1u);
}

std::string many_events(int count) {
  std::string json = "{\"schemaVersion\": 1, \"traceEvents\": [\n";
  for (int i = 0; i < count; ++i) {
    json += fmt::format(
        R"(  {{"ph": "X", "cat": "cpu_op", "name": "aten::op{}", "pid": 1, "tid": {}, "ts": {}.{:03}, "dur": 1.5,
    "args": {{"External id": {}, "list": [{{"name": "x"}}, {{"name": "y"}}], "text": "}}, {{\"ph\": 1"}}}},
)",
        i % 97, 10 + i % 3, i, i % 1000, i);
  }
  json += "  {\"ph\": \"i\", \"name\": \"end\", \"pid\": 1, \"tid\": 10, \"ts\": 99999999}\n]}";
  return json;
}

// Of lists within events too a block may be cut at their elements: then the file is read as one block.
TEST(HostileTrace, IsTheSameWhereverItIsCutIntoBlocks) {
  constexpr int kEvents = 60'000;  // about 11 MB: several blocks, two threads
  const std::string json = many_events(kEvents);
  const Trace trace = read_trace_text(json, "test");
  EXPECT_EQ(trace.size(), static_cast<std::size_t>(kEvents) + 1);
  EXPECT_TRUE(notes(trace).empty());
  std::int64_t sum = 0;
  for (SpanId i = 0; i < trace.size(); ++i) sum += trace.duration(i);
  EXPECT_EQ(sum, std::int64_t{kEvents} * 1500);
  const Trace cut = read_trace_text(std::string_view(json).substr(0, json.size() / 2), "test");
  EXPECT_EQ(notes(cut), (std::map<std::string, std::uint64_t>{{"the file's rest: it ends in the middle", 1}}));
  EXPECT_NEAR(static_cast<double>(cut.size()), kEvents / 2, kEvents / 20);
}

std::string packed(std::string_view text) {
  std::string out(compressBound(text.size()) + 64, '\0');
  z_stream stream{};
  EXPECT_EQ(deflateInit2(&stream, 6, Z_DEFLATED, 15 + 16, 8, Z_DEFAULT_STRATEGY), Z_OK);
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

TEST(HostileTrace, ThatIsPackedIsReadUpToWhereItIsCutOrBroken) {
  const std::string json = many_events(30'000), whole = packed(json);
  EXPECT_EQ(read_trace_text(whole, "test").size(), 30'001u);
  const Trace cut = read_trace_text(std::string_view(whole).substr(0, whole.size() / 2), "test");
  EXPECT_EQ(notes(cut), (std::map<std::string, std::uint64_t>{{"the file's rest: its packed content is cut off", 1}}));
  EXPECT_GT(cut.size(), 1000u);
  const std::size_t half = json.size() / 2;
  EXPECT_EQ(read_trace_text(packed(json.substr(0, half)) + packed(json.substr(half)), "test").size(), 30'001u);
  const Trace more = read_trace_text(whole + "something", "test");
  EXPECT_EQ(more.size(), 30'001u);
  EXPECT_EQ(notes(more), (std::map<std::string, std::uint64_t>{
                             {"the file's rest: something that is not packed follows its packed content", 1}}));
  EXPECT_EQ(read_trace_text(whole + std::string(512, '\0'), "test").size(), 30'001u);
}

// Whatever changes in a trace: an error, or a report that adds up.
TEST(HostileTrace, ThatWasChangedAtRandomIsATraceOrAnError) {
  std::string json;
  for (const Case& one : kCases) json += std::string(one.json) + ",";
  json = "{\"schemaVersion\":1,\"traceEvents\":[" + json.substr(0, 200) + many_events(40).substr(40);
  std::mt19937 random(7);
  const std::string_view words[] = {"{",  "}",  "[",   "]",      "\"", ",",    ":",        "\\",     "e308", "-",
                                    "\0", "ts", "dur", "\"ph\"", "99", "null", "\"args\"", "kernel", "NaN",  "1e9"};
  int read = 0, refused = 0;
  for (int round = 0; round < 3000; ++round) {
    std::string changed = json;
    for (std::uint32_t i = 0; i < 1 + random() % 6; ++i) {
      const std::size_t at = random() % changed.size();
      switch (random() % 4) {
        case 0: changed.erase(at, 1 + random() % 20); break;
        case 1: changed.insert(at, words[random() % std::size(words)]); break;
        case 2: changed[at] = static_cast<char>(random()); break;
        case 3: changed.resize(std::max<std::size_t>(at, 60)); break;
      }
    }
    try {
      const Trace trace = read_trace_text(changed, "test");
      const Measures m = measure(trace);
      ASSERT_GE(m.framework, 0);
      ASSERT_EQ(m.wall, m.total + m.compile + m.unseen + m.yours);
      ++read;
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::file);
      ++refused;
    }
  }
  EXPECT_GT(read, 1000);
  EXPECT_LT(refused, 2000);
}

}  // namespace
}  // namespace paoding::trace
