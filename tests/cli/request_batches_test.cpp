// SPDX-License-Identifier: Apache-2.0
// Requests that wait are answered together, each with its own, and whoever sends nonsense gets its own error.
#include "cli/request_batches.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>

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
            [this](std::span<const std::string> lines) {
              ++runs;
              most = std::max(most.load(), lines.size());
              std::this_thread::sleep_for(takes);
              std::vector<models::Predictions> all;
              for (const std::string& line : lines) {
                if (line == "wrong") throw Error(ErrorKind::argument, "'wrong' is none");
                all.push_back({{"<" + line + ">", 0}});
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
    ASSERT_EQ(result.predictions.size(), 2u);
    EXPECT_EQ(result.predictions[0][0].text, "<" + std::to_string(i) + ">");
  }
  EXPECT_LT(echo.runs, 8);
  EXPECT_LE(echo.most, 4u);
  EXPECT_EQ(batches.counts().lines, 16);
  EXPECT_EQ(batches.counts().waiting_lines, 0);
}

TEST(RequestBatches, ARequestLargerThanABatchIsOneByItself) {
  Echo echo;
  RequestBatches batches({.most_lines = 2, .wait = 1ms}, {echo.executor()});
  EXPECT_EQ(ask(batches, {"a", "b", "c", "d", "e"}).get().predictions.size(), 5u);
}

TEST(RequestBatches, OneThatIsWrongLeavesTheOthersRight) {
  Echo echo;
  RequestBatches batches({.most_lines = 8, .wait = 50ms}, {echo.executor()});
  auto first = ask(batches, {"a"}), second = ask(batches, {"wrong"}), third = ask(batches, {"b"});
  EXPECT_EQ(first.get().predictions[0][0].text, "<a>");
  const BatchResult wrong = second.get();
  EXPECT_EQ(wrong.kind, BatchResult::Kind::wrong);
  EXPECT_EQ(wrong.problem, "'wrong' is none");
  EXPECT_EQ(third.get().predictions[0][0].text, "<b>");
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

TEST(RequestBatches, SayWhatAnExecutorCannotBeginWith) {
  const RequestBatches::Executor broken{[] { throw Error(ErrorKind::device, "no such device"); }, {}};
  Echo echo;
  EXPECT_THROW(RequestBatches({}, {echo.executor(), broken}), Error);
}

}  // namespace
}  // namespace paoding::cli
