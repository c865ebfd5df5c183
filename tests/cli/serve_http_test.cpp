// SPDX-License-Identifier: Apache-2.0
// `paoding serve` over raw sockets: ports, addresses, methods, lengths, media types, clients that stop sending, and
// little memory.
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "tests/cli/serving_run.h"
#include "tests/support/allocation_count.h"

namespace paoding {
namespace {

using testing_program::AllocationCount;
using ServeHttp = ServingWords;

void said(const std::string& answer, const char* status, const char* words) {
  EXPECT_TRUE(answer.starts_with(std::string("HTTP/1.1 ") + status) && has(answer, words)) << answer.substr(0, 500);
}

TEST_F(ServeHttp, APortThatIsTakenIsAnErrorAndOneThatWasIsNone) {
  start({});
  EXPECT_TRUE(has(ask("POST", "/predict", "bada"), "HTTP/1.1 200"));
  const int kept = connected();  // the server ends it: its side of the connection stays for a minute
  const std::string request = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
  ::send(kept, request.data(), request.size(), MSG_NOSIGNAL);
  ASSERT_TRUE(takes_answer(kept));
  const std::string port = std::to_string(port_);
  const std::string serve = "timeout -s KILL 30 " + program_.string() + " serve g2p.pd --port " + port;
  const Ran second = shell(serve);
  EXPECT_EQ(second.code, 1);
  EXPECT_TRUE(has(second.err, "127.0.0.1:" + port + " cannot be listened at: Address already in use")) << second.err;
  EXPECT_EQ(shell(serve + " --address 0.0.0.0").code, 1) << "an address within the other";
  for (int i = 0; i < 10; ++i)
    EXPECT_TRUE(has(ask("GET", "/health"), "HTTP/1.1 200")) << "it is the first that answers";
  EXPECT_EQ(end(), 0);
  start({"--port", port});
  EXPECT_EQ(std::to_string(port_), port);
  EXPECT_TRUE(has(ask("GET", "/health"), "HTTP/1.1 200"));
  ::close(kept);
  EXPECT_EQ(end(), 0);
}

TEST_F(ServeHttp, AddressesAreOfBothKinds) {
  for (const char* wrong : {"localhost.", "1.2.3", "::1::", "[::1]", "1.2.3.4.5", ""}) {
    const Ran ran = shell(std::string("paoding serve g2p.pd --port 0 --address '") + wrong + "'");
    EXPECT_NE(ran.code, 0) << wrong;
    EXPECT_TRUE(has(ran.err, "is no IPv4 or IPv6 address") || *wrong == 0) << ran.err;
  }
  const int probe = socket(AF_INET6, SOCK_STREAM, 0);
  sockaddr_in6 to = {};
  to.sin6_family = AF_INET6;
  to.sin6_addr = in6addr_loopback;
  const bool has_six = probe >= 0 && ::bind(probe, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0;
  ::close(probe);
  if (!has_six) GTEST_SKIP() << "NOT CHECKED: there is no IPv6 here";
  for (const char* address : {"::1", "::"}) {
    start({"--address", address});
    const int fd = socket(AF_INET6, SOCK_STREAM, 0);
    to.sin6_port = htons(static_cast<std::uint16_t>(port_));
    ASSERT_EQ(::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to), 0) << address;
    const std::string request = "GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    ::send(fd, request.data(), request.size(), MSG_NOSIGNAL);
    said(all_of(fd), "200", "{\"model\":\"g2p\"}");
    EXPECT_EQ(has(ask("GET", "/health"), "HTTP/1.1 200"), std::string(address) == "::") << "by IPv4";
    EXPECT_EQ(end(), 0);
  }
}

TEST_F(ServeHttp, EveryRequestHasItsAnswerWhichIsCounted) {
  start({"--most-bytes", "2000", "--seconds", "2"});
  const std::string post = "POST /predict HTTP/1.1\r\nHost: x\r\n", next = "GET /health HTTP/1.1\r\nHost: x\r\n\r\n";
  // Methods.
  const std::string head = ask("HEAD", "/health"), got = ask("GET", "/health");
  said(head, "200", "Content-Length: 16\r\n");
  EXPECT_EQ(body_of(head), "");
  EXPECT_EQ(body_of(got), "{\"model\":\"g2p\"}\n");
  EXPECT_EQ(body_of(ask("HEAD", "/metrics")), "");
  said(ask("GET", "/predict"), "405", "\r\nAllow: POST\r\n");
  said(ask("DELETE", "/health"), "405", "\r\nAllow: GET, HEAD\r\n");
  said(ask("BREW", "/health"), "501", "there is no method 'BREW'");
  // A body has one length; the bytes after it are no request.
  for (const char* lengths :
       {"Content-Length: 4\r\nContent-Length: 4\r\n\r\nbada", "Content-Length: 4\r\nContent-Length: 9\r\n\r\nbada",
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 4\r\n\r\n0\r\n\r\n"}) {
    const std::string answer = send_text(post + lengths + next);
    said(answer, "400", "\r\nConnection: close\r\n");
    EXPECT_FALSE(has(answer, "{\"model\"")) << answer;
  }
  said(send_text(post + "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n2\r\nba\r\n2\r\nda\r\n0\r\n\r\n"),
       "200", "B A D A");
  said(send_text(post + "Transfer-Encoding: gzip\r\n\r\n"), "501", "Transfer-Encoding");
  // A body that is too long, and sent whole all the same.
  said(ask("POST", "/predict", std::string(3'000'000, 'a')), "413", "more than 2000 bytes");
  std::string chunks = post + "Transfer-Encoding: chunked\r\n\r\n";
  for (int i = 0; i < 3000; ++i) chunks += "3e8\r\n" + std::string(1000, 'a') + "\r\n";
  said(send_text(chunks + "0\r\n\r\n"), "413", "more than 2000 bytes");
  said(send_text("GET /" + std::string(300'000, 'a') + " HTTP/1.1\r\n\r\n"), "414", "too long");
  said(send_text("GET / HTTP/1.1\r\nA: " + std::string(300'000, 'a') + "\r\n\r\n"), "431", "too long");
  said(send_text("GET /hea"), "408", "at most 2 seconds");
  // Media types.
  const std::string json = R"({"inputs": ["bada"]})";
  const std::string wanted = body_of(ask("POST", "/predict", json, "application/json"));
  EXPECT_TRUE(has(wanted, R"([[{"text":"B A D A")")) << wanted;
  for (const char* type : {"Application/JSON", "APPLICATION/JSON;charset=utf-8", "application/json ; a=b"}) {
    EXPECT_EQ(body_of(ask("POST", "/predict", json, type)), wanted) << type;
  }
  for (const char* type :
       {"application/jsonlines", "application/json-seq", "multipart/form-data; boundary=a", "image/png"}) {
    said(ask("POST", "/predict", json, type), "415", "needed is text/plain, or application/json");
  }
  EXPECT_EQ(body_of(ask("POST", "/predict", "bada", "application/x-www-form-urlencoded")), "B A D A\n") << "curl -d";
  EXPECT_EQ(body_of(ask("POST", "/predict", "bada", "TEXT/x; charset=utf-8")), "B A D A\n");
  // Keys.
  for (const char* twice :
       {R"({"inputs": ["bada"], "inputs": "keno"})", R"({"best": 1, "inputs": "bada", "best": 1})"}) {
    said(ask("POST", "/predict", twice, "application/json"), "400", "there is more than one");
  }
  // Clients that send no more, and one that asks whether it may.
  const int half = connected();
  const std::string whole = post + "Content-Length: 4\r\n\r\nbada" + next;
  ::send(half, whole.data(), whole.size(), MSG_NOSIGNAL);
  ::shutdown(half, SHUT_WR);
  const std::string both = all_of(half);
  said(both, "200", "B A D A");
  EXPECT_TRUE(has(both, "{\"model\":\"g2p\"}")) << both;
  const int careful = connected();
  const std::string asks = post + "Expect: 100-continue\r\nConnection: close\r\nContent-Length: 4\r\n\r\n";
  ::send(careful, asks.data(), asks.size(), MSG_NOSIGNAL);
  char consent[25];
  ASSERT_EQ(::recv(careful, consent, sizeof consent, MSG_WAITALL), static_cast<ssize_t>(sizeof consent));
  EXPECT_EQ(std::string(consent, sizeof consent), "HTTP/1.1 100 Continue\r\n\r\n");
  ::send(careful, "bada", 4, MSG_NOSIGNAL);
  said(all_of(careful), "200", "B A D A");
  // All of it was counted.
  const std::string metrics = ask("GET", "/metrics");
  for (const char* counted :
       {"200\"} 13", "400\"} 6", "405\"} 2", "408\"} 1", "413\"} 2", "414\"} 1", "415\"} 4", "431\"} 1", "501\"} 2"}) {
    EXPECT_TRUE(has(metrics, std::string("paoding_requests_total{code=\"") + counted + "\n")) << counted << metrics;
  }
  EXPECT_EQ(end(), 0);
}

TEST_F(ServeHttp, LettersItDoesNotKnowAreRemarkedInTheAnswer) {
  start({});
  const std::string json =
      ask("POST", "/predict", "{\"inputs\": [\"bada\", \"b\xc3\xa9x\", \"\"]}", "application/json");
  EXPECT_TRUE(has(json, "\"remarks\":[\"\",\"never seen in training: '\xc3\xa9', 'x'\",\"\"]}")) << json;
  const std::string text = ask("POST", "/predict", "bada\nb\xc3\xa9x\n\n" + std::string(60, 'b') + "\n");
  EXPECT_TRUE(has(text,
                  "\r\nPaoding-Remark: 2: never seen in training: '\\xc3\\xa9', 'x'; "
                  "4: 60 letters, only the first 36 count\r\n"))
      << text;
  EXPECT_EQ(lines_of(body_of(text)).size(), 4u);
  EXPECT_EQ(lines_of(body_of(text))[2], "");
  const std::string order = ask("POST", "/predict", std::string("b\x1b[2J\rb\x01", 8));
  EXPECT_TRUE(has(order, "Paoding-Remark: 1: never seen in training: '\\x1b', '[', '2', 'j', '\\x0d', '\\x01'\r\n"))
      << order;
  for (const std::string& quiet :
       {ask("POST", "/predict", "bada\nkeno"), ask("POST", "/predict", R"({"inputs": "bada"})", "application/json")}) {
    EXPECT_FALSE(has(quiet, "emark")) << quiet;
  }
  EXPECT_EQ(end(), 0);
}

// Three clients that send all that a request may have and leave, over and over, and one that does everything right:
// abandoned requests are not run, so the model runs little more than the last client's.
TEST_F(ServeHttp, ClientsThatSendAndLeaveStarveNobody) {
  start({"--executors", "1", "--wait", "0"});
  std::string many;
  for (int i = 0; i < 4000; ++i) many += "badakelodobanesi\n";
  const std::string request =
      "POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(many.size()) + "\r\n\r\n" + many;
  std::atomic<bool> is_over = false;
  std::atomic<int> sent = 0;
  std::vector<std::thread> leaving;
  for (int c = 0; c < 3; ++c) {
    leaving.emplace_back([&] {
      for (int i = 0; i < 1000 && !is_over; ++i) {
        const int fd = connected();
        for (std::size_t at = 0; at < request.size();) {
          const ssize_t got = ::send(fd, request.data() + at, request.size() - at, MSG_NOSIGNAL);
          if (got <= 0) break;
          at += static_cast<std::size_t>(got);
        }
        ++sent;
        ::close(fd);
      }
    });
  }
  for (int i = 0; i < 40; ++i) EXPECT_EQ(body_of(ask("POST", "/predict", "bada")), "B A D A\n") << i;
  is_over = true;
  for (std::thread& each : leaving) each.join();
  EXPECT_GT(sent, 3);
  EXPECT_EQ(end(), 0);
}

// No memory to be had while clients ask for much: each gets an answer or the end of its connection, and when there is
// memory again all goes on.
TEST_F(ServeHttp, OutlivesALackOfMemory) {
  if (!AllocationCount::works()) GTEST_SKIP() << "NOT CHECKED: sanitizers reserve terabytes of addresses";
  start({"--most-bytes", "8000000"});
  ASSERT_EQ(body_of(ask("POST", "/predict", "bada")), "B A D A\n");
  std::string lines;
  while (lines.size() < 3'000'000) lines += std::string(1000, 'b') + "\n";
  for (int round = 0; round < 3; ++round) {
    std::ifstream status("/proc/" + std::to_string(server_) + "/statm");
    rlim_t pages = 0;
    status >> pages;
    const rlimit none{pages * static_cast<rlim_t>(sysconf(_SC_PAGESIZE)), RLIM_INFINITY};
    const rlimit all{RLIM_INFINITY, RLIM_INFINITY};
    ASSERT_EQ(prlimit(server_, RLIMIT_AS, &none, nullptr), 0);
    for (const std::size_t size : {1'000u, 100'000u, 1'000'000u, 3'000'000u}) {
      const std::string answer = ask("POST", "/predict", lines.substr(0, size));
      EXPECT_TRUE(answer.empty() || answer.starts_with("HTTP/1.1 ")) << answer.substr(0, 200);
      EXPECT_FALSE(size > 1'000'000 && answer.starts_with("HTTP/1.1 200")) << "there was memory";
    }
    ASSERT_EQ(prlimit(server_, RLIMIT_AS, &all, nullptr), 0);
    EXPECT_EQ(body_of(ask("POST", "/predict", "bada")), "B A D A\n");
  }
  EXPECT_EQ(end(), 0);
}

}  // namespace
}  // namespace paoding
