// SPDX-License-Identifier: Apache-2.0
// Requests that wait are answered together, each with its own, and whoever sends nonsense gets its own error.
#include "cli/serve/request_batches.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

#include "paoding/cancellation.h"
#include "paoding/error.h"

namespace paoding::cli {
namespace {

using namespace std::chrono_literals;
using Lines = std::vector<std::string>;

// Says every line in capitals; "wrong" is an error.
struct Echo {
  std::atomic<int> runs = 0;
  std::atomic<std::size_t> most = 0;
  std::chrono::milliseconds takes{0};
  RequestBatches::Executor executor() {
    return {[] {},
            [this](std::span<const std::string> lines, const RequestBatches::BeforeRun&) {
              ++runs;
              most = std::max(most.load(), lines.size());
              std::this_thread::sleep_for(takes);
              std::vector<LineAnswer> all;
              for (const std::string& line : lines) {
                if (line == "wrong") throw Error(ErrorKind::argument, "'wrong' is none");
                all.push_back({{{"<" + line + ">", 0}}});
              }
              return all;
            }};
  }
};

std::future<BatchResult> ask(RequestBatches& batches, const Lines& lines) {
  const auto promise = std::make_shared<std::promise<BatchResult>>();
  if (!batches.add(lines, [promise](BatchResult result) { promise->set_value(std::move(result)); })) {
    promise->set_value({BatchResult::Kind::failed, {}, "refused"});
  }
  return promise->get_future();
}

TEST(RequestBatches, AnswerTogetherWhatWaits) {
  Echo echo;
  echo.takes = 20ms;
  RequestBatches batches({.most_lines = 4, .wait = 10ms}, {echo.executor()});
  std::vector<std::future<BatchResult>> answers;
  for (int i = 0; i < 8; ++i) answers.push_back(ask(batches, {std::to_string(i), "x"}));
  for (int i = 0; i < 8; ++i) {
    const BatchResult result = answers[static_cast<std::size_t>(i)].get();
    ASSERT_EQ(result.kind, BatchResult::Kind::answered);
    ASSERT_EQ(result.answers.size(), 2u);
    EXPECT_EQ(result.answers[0].predictions[0].text, "<" + std::to_string(i) + ">");
  }
  EXPECT_LT(echo.runs, 8);
  EXPECT_LE(echo.most, 4u);
  EXPECT_EQ(batches.counts().lines, 16);
  EXPECT_EQ(batches.counts().waiting_lines, 0);
}

TEST(RequestBatches, ARequestLargerThanABatchIsOneByItself) {
  Echo echo;
  RequestBatches batches({.most_lines = 2, .wait = 1ms}, {echo.executor()});
  EXPECT_EQ(ask(batches, {"a", "b", "c", "d", "e"}).get().answers.size(), 5u);
}

TEST(RequestBatches, OneThatIsWrongLeavesTheOthersRight) {
  Echo echo;
  RequestBatches batches({.most_lines = 8, .wait = 50ms}, {echo.executor()});
  auto first = ask(batches, {"a"}), second = ask(batches, {"wrong"}), third = ask(batches, {"b"});
  EXPECT_EQ(first.get().answers[0].predictions[0].text, "<a>");
  const BatchResult wrong = second.get();
  EXPECT_EQ(wrong.kind, BatchResult::Kind::wrong);
  EXPECT_EQ(wrong.problem, "'wrong' is none");
  EXPECT_EQ(third.get().answers[0].predictions[0].text, "<b>");
}

TEST(RequestBatches, RefuseWhatIsTooMuchAndWhatIsTooOld) {
  Echo echo;
  echo.takes = 100ms;
  RequestBatches batches({.most_lines = 1, .wait = 0ms, .most_waiting = 2, .most_age = 150ms}, {echo.executor()});
  auto first = ask(batches, {"a"});
  std::this_thread::sleep_for(20ms);  // it is under way
  auto second = ask(batches, {"b"}), third = ask(batches, {"c"}), fourth = ask(batches, {"d"});
  EXPECT_EQ(fourth.get().problem, "refused");
  EXPECT_EQ(first.get().kind, BatchResult::Kind::answered);
  EXPECT_EQ(second.get().kind, BatchResult::Kind::answered);
  EXPECT_EQ(third.get().kind, BatchResult::Kind::too_late);
}

TEST(RequestBatches, AnswerWhatWaitsWhenTheyEnd) {
  Echo echo;
  echo.takes = 5ms;
  std::vector<std::future<BatchResult>> answers;
  {
    RequestBatches batches({.most_lines = 1, .wait = 10s}, {echo.executor(), echo.executor()});
    for (int i = 0; i < 10; ++i) answers.push_back(ask(batches, {"x"}));
    batches.finish();
    EXPECT_EQ(ask(batches, {"late"}).get().problem, "refused");
  }
  for (auto& answer : answers) EXPECT_EQ(answer.get().kind, BatchResult::Kind::answered);
}

// Three clients that send much and leave, again and again, are in nobody's way: neither in the queue nor in an
// executor.
TEST(RequestBatches, RunNothingThatNobodyWaitsFor) {
  Echo echo;
  std::promise<void> goes_on;
  std::atomic<bool> is_first = true, is_under_way = false;
  RequestBatches::Executor executor = echo.executor();
  RequestBatches batches({.most_lines = 4, .wait = 0ms, .most_waiting = 8},
                         {{executor.begin, [&](std::span<const std::string> lines, const auto& before_run) {
                             if (is_first.exchange(false)) {
                               is_under_way = true;
                               goes_on.get_future().wait();
                             }
                             return executor.predict(lines, before_run);
                           }}});
  auto first = ask(batches, {"a"});
  while (!is_under_way) std::this_thread::yield();
  std::atomic<bool> is_there = true;
  std::atomic<int> told = 0;
  for (int i = 0; i < 8; ++i) {
    EXPECT_TRUE(batches.add(
        {"x"}, [&](BatchResult) { ++told; }, [&] { return is_there.load(); }))
        << i;
  }
  EXPECT_EQ(ask(batches, {"b"}).get().problem, "refused") << "the queue is full";
  is_there = false;
  auto second = ask(batches, {"b"});
  EXPECT_EQ(batches.counts().waiting_lines, 1);
  for (int i = 0; i < 4; ++i)
    batches.add(
        {"x"}, [&](BatchResult) { ++told; }, [&] { return is_there.load(); });
  goes_on.set_value();
  EXPECT_EQ(first.get().answers[0].predictions[0].text, "<a>");
  EXPECT_EQ(second.get().answers[0].predictions[0].text, "<b>");
  batches.finish();
  EXPECT_EQ(echo.runs, 2);
  EXPECT_EQ(told, 0);
  EXPECT_EQ(batches.counts().left_requests, 12);
  EXPECT_EQ(batches.counts().lines, 2);
}

// An executor whose model ends when it is called off, and not before.
RequestBatches::Executor endless(std::atomic<int>* begun) {
  return {[] {},
          [begun](std::span<const std::string> lines, const RequestBatches::BeforeRun& before_run) {
            before_run();
            ++*begun;
            while (lines[0] == "endless") CancelScope::poll(), std::this_thread::sleep_for(1ms);
            return std::vector<LineAnswer>(lines.size());
          }};
}

TEST(RequestBatches, CallOffARunThatTakesTooLongAndNoOther) {
  std::atomic<int> begun = 0;
  RequestBatches batches({.most_lines = 1, .wait = 0ms, .most_run = 100ms}, {endless(&begun)});
  for (int i = 0; i < 2; ++i) {
    const BatchResult result = ask(batches, {"endless"}).get();
    EXPECT_EQ(result.kind, BatchResult::Kind::too_late);
    EXPECT_EQ(result.problem, "the model ran for more than 0.1 s and was called off");
    EXPECT_EQ(ask(batches, {"short"}).get().kind, BatchResult::Kind::answered);
  }
}

TEST(RequestBatches, EndWhateverTheModelDoes) {
  std::atomic<int> begun = 0;
  RequestBatches batches({.most_lines = 1, .wait = 0ms, .most_run = 24h, .most_last_run = 100ms}, {endless(&begun)});
  auto under_way = ask(batches, {"endless"}), waits = ask(batches, {"endless"}), short_one = ask(batches, {"short"});
  while (begun == 0) std::this_thread::yield();
  batches.finish();
  for (auto* each : {&under_way, &waits}) {
    const BatchResult result = each->get();
    EXPECT_EQ(result.kind, BatchResult::Kind::too_late);
    EXPECT_EQ(result.problem, "the model was called off: the server ends");
  }
  EXPECT_EQ(short_one.get().kind, BatchResult::Kind::answered);
}

TEST(RequestBatches, CallOffARunThatNobodyWaitsForAnymore) {
  std::atomic<int> begun = 0;
  std::atomic<bool> is_there = true;
  RequestBatches batches({.most_lines = 1, .wait = 0ms, .most_run = 1h}, {endless(&begun)});
  batches.add(
      {"endless"}, [](BatchResult) {}, [&] { return is_there.load(); });
  while (begun == 0) std::this_thread::yield();
  auto waits = ask(batches, {"short"});
  EXPECT_EQ(waits.wait_for(50ms), std::future_status::timeout);
  is_there = false;
  EXPECT_EQ(waits.get().kind, BatchResult::Kind::answered);
}

TEST(RequestBatches, SayWhatAnExecutorCannotBeginWith) {
  const RequestBatches::Executor broken{[] { throw Error(ErrorKind::device, "no such device"); }, {}};
  Echo echo;
  EXPECT_THROW(RequestBatches({}, {echo.executor(), broken}), Error);
}

}  // namespace
}  // namespace paoding::cli
