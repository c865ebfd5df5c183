// SPDX-License-Identifier: Apache-2.0
// The HTTP server by itself: clients that leave, that only stop to send, answers that never come, and no memory.
#include "cli/serve/http_server.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <future>
#include <mutex>
#include <thread>

#include "cli/serve/request_batches.h"
#include "paoding/error.h"
#include "tests/support/allocation_count.h"

namespace paoding::cli {
namespace {

using namespace std::chrono_literals;
using testing_program::AllocationCount;
using testing_program::FailingAllocation;

constexpr const char* kAsks = "POST /x HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc";

int connected(int port) {
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in to = {};
  to.sin_family = AF_INET, to.sin_port = htons(static_cast<std::uint16_t>(port));
  inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
  const timeval most = {20, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
  EXPECT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
  return fd;
}
void send_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const ssize_t sent = ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    if (sent <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
}
// Into memory that is there already.
std::string_view all_of(int fd) {
  static std::array<char, 1 << 16> buffer;
  std::size_t size = 0;
  for (ssize_t got; size < buffer.size() && (got = ::recv(fd, &buffer[size], buffer.size() - size, 0)) > 0;) {
    size += static_cast<std::size_t>(got);
  }
  ::close(fd);
  return {buffer.data(), size};
}
std::string asked(int port, const std::string& text) {
  const int fd = connected(port);
  send_all(fd, text);
  return std::string(all_of(fd));
}
template <class Condition>
bool comes(const Condition& condition) {  // within 20 s
  for (int i = 0; i < 20'000 && !condition(); ++i) std::this_thread::sleep_for(1ms);
  return condition();
}

// Holds requests until it is told to answer.
struct Waiting {
  std::mutex mutex;
  std::vector<HttpReply> replies;
  HttpServer::Handler handler() {
    return [this](const HttpRequest&, const HttpReply& reply) {
      const std::lock_guard lock(mutex);
      replies.push_back(reply);
    };
  }
  std::size_t count() {
    const std::lock_guard lock(mutex);
    return replies.size();
  }
  HttpReply reply(std::size_t i) {
    const std::lock_guard lock(mutex);
    return replies[i];
  }
};

TEST(HttpServer, KnowsAClientThatLeftFromOneThatOnlyStoppedToSend) {
  Waiting waiting;
  HttpServer server({.port = 0}, waiting.handler());
  const int leaves = connected(server.port());
  send_all(leaves, kAsks);
  ASSERT_TRUE(comes([&] { return waiting.count() == 1; }));
  const int stops = connected(server.port());
  send_all(stops, kAsks);
  ::shutdown(stops, SHUT_WR);
  ASSERT_TRUE(comes([&] { return waiting.count() == 2; }));
  EXPECT_TRUE(waiting.reply(0).is_awaited());
  ::close(leaves);
  EXPECT_TRUE(comes([&] { return !waiting.reply(0).is_awaited(); }));
  EXPECT_TRUE(comes([&] { return server.waiting() == 1 && server.connections() == 1; }));
  EXPECT_TRUE(waiting.reply(1).is_awaited());
  waiting.reply(1)({200, "text/plain", "here\n", {}});
  const std::string answer(all_of(stops));
  EXPECT_EQ(answer.substr(0, 17), "HTTP/1.1 200 OK\r\n") << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\nhere\n")) << answer;
  waiting.reply(0)({200, "text/plain", "to nobody", {}});
  EXPECT_EQ(server.waiting(), 0);
}

TEST(HttpServer, AnswersWith500WhatNobodyAnswers) {
  std::atomic<int> counted = 0;
  {
    HttpServer server(
        {.port = 0},
        [](const HttpRequest& request, const HttpReply& reply) {
          if (request.path == "/throws") throw std::bad_alloc();
          const HttpReply lost = reply;
        },
        [&](int status, auto) { counted += status == 500; });
    for (const char* path : {"/throws", "/forgets"}) {
      for (const char* method : {"GET", "HEAD"}) {
        const std::string answer = asked(server.port(), std::string(method) + " " + path + " HTTP/1.1\r\n\r\n");
        EXPECT_EQ(answer.substr(0, 12), "HTTP/1.1 500") << answer;
        EXPECT_EQ(answer.find("could not make an answer") != answer.npos, *method == 'G') << answer;
      }
    }
    EXPECT_EQ(server.waiting(), 0);
  }
  EXPECT_EQ(counted, 4);
}

TEST(HttpServer, TakesLateAnswersWhenItIsGone) {
  Waiting waiting;
  int fd = -1;
  {
    HttpServer server({.port = 0}, waiting.handler());
    fd = connected(server.port());
    send_all(fd, kAsks);
    ASSERT_TRUE(comes([&] { return waiting.count() == 1; }));
  }
  EXPECT_FALSE(waiting.reply(0).is_awaited());
  waiting.reply(0)({});
  EXPECT_EQ(all_of(fd), "");
}

TEST(HttpServer, SaysAtItsEndThatConnectionsEnd) {
  Waiting waiting;
  HttpServer server({.port = 0}, waiting.handler());
  const int idle = connected(server.port()), asks = connected(server.port());
  send_all(asks, kAsks);
  ASSERT_TRUE(comes([&] { return waiting.count() == 1 && server.connections() == 2; }));
  server.stop_listening();
  EXPECT_EQ(all_of(idle), "");
  waiting.reply(0)({200, "text/plain", "last\n", {}});
  const std::string answer(all_of(asks));
  EXPECT_NE(answer.find("Connection: close\r\n"), answer.npos) << answer;
  EXPECT_TRUE(answer.ends_with("last\n"));
  server.finish(20s);
  EXPECT_EQ(server.connections(), 0);
}

// The answer is refused before the body is read, and comes through all the same.
TEST(HttpServer, TakesInWhatItRefusesUntilItsAnswerIsRead) {
  HttpServer server({.port = 0, .most_body_bytes = 10}, [](const HttpRequest&, const HttpReply&) {});
  for (int i = 0; i < 20; ++i) {
    const std::string body(3'000'000, 'a');
    const std::string answer = asked(server.port(), "POST /x HTTP/1.1\r\nContent-Length: 3000000\r\n\r\n" + body);
    EXPECT_EQ(answer.substr(0, 12), "HTTP/1.1 413") << answer.size();
    const std::string line = asked(server.port(), "GET /" + body + " HTTP/1.1\r\n\r\n");
    EXPECT_EQ(line.substr(0, 12), "HTTP/1.1 414") << line.size();
  }
}

TEST(HttpServer, HoldsNoMoreConnectionsThanItMay) {
  HttpServer server({.port = 0, .connections = 2}, [](const HttpRequest&, const HttpReply& reply) { reply({}); });
  const int first = connected(server.port()), second = connected(server.port()), third = connected(server.port());
  send_all(third, "GET / HTTP/1.1\r\nConnection: close\r\n\r\n");
  ASSERT_TRUE(comes([&] { return server.connections() == 2; }));
  ::close(first);
  EXPECT_EQ(all_of(third).substr(0, 12), "HTTP/1.1 200");
  ::close(second);
}

// One allocation fails, whichever it is, on the way of a request through the server and the batches: its client gets an
// answer, an error or the end of its connection, the next one is answered, and all of it comes to its end.
TEST(HttpServer, GoesOnAfterAnyAllocationThatFails) {
  if (!AllocationCount::works()) GTEST_SKIP() << "NOT CHECKED: sanitizers have allocators of their own";
  RequestBatches batches({.most_lines = 4, .wait = 0ms},
                         {{[] {},
                           [](std::span<const std::string> lines, const RequestBatches::BeforeRun& before_run) {
                             before_run();
                             std::vector<LineAnswer> answers;
                             for (const std::string& line : lines) {
                               if (line.starts_with("wrong"))
                                 throw Error(ErrorKind::argument, "it is wrong, in more words than fit");
                               answers.push_back({{{"said of " + line + ", which is longer than a small text", 0}},
                                                  "a remark of some length"});
                             }
                             return answers;
                           }}});
  HttpServer server({.port = 0}, [&](const HttpRequest& request, const HttpReply& reply) {
    const auto done = [reply](BatchResult result) {
      std::string text = result.problem;
      for (const LineAnswer& answer : result.answers) text += answer.predictions[0].text + answer.remark + "\n";
      reply({result.kind == BatchResult::Kind::answered ? 200 : 400, "text/plain; charset=utf-8", text, {}});
    };
    if (!batches.add({request.body, request.body}, done, [reply] { return reply.is_awaited(); })) reply({503});
  });
  int answered = 0, refused = 0, ended = 0;
  for (const char* word : {"an input of more than a few letters", "wrong, and it has to be long as well"}) {
    const std::string request =
        "POST /x HTTP/1.1\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n"
        "Content-Length: " +
        std::to_string(std::string(word).size()) + "\r\n\r\n" + word;
    const std::string wanted = *word == 'a' ? "HTTP/1.1 200" : "HTTP/1.1 400";
    bool has_failed = true;
    for (std::int64_t number = 0; has_failed; ++number) {
      ASSERT_LT(number, 2000);
      {
        const FailingAllocation failing(number);
        const int fd = connected(server.port());
        send_all(fd, request);
        const std::string_view answer = all_of(fd);
        has_failed = failing.has_failed();
        ++(answer.starts_with(wanted) ? answered : answer.starts_with("HTTP/1.1 500") ? refused : ended);
        ASSERT_TRUE(answer.empty() || answer.starts_with("HTTP/1.1 ")) << answer;
      }
      ASSERT_TRUE(asked(server.port(), request).starts_with(wanted)) << number;
      ASSERT_TRUE(comes([&] { return server.waiting() == 0; })) << number;
    }
  }
  EXPECT_GT(refused, 3);
  EXPECT_GT(refused + ended, 20);
  server.stop_listening();
  batches.finish();
  server.finish(20s);
  EXPECT_EQ(server.connections(), 0);
}

}  // namespace
}  // namespace paoding::cli
