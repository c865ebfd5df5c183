// SPDX-License-Identifier: Apache-2.0
// `paoding export`, a model file predicted from, and `paoding serve` over sockets: many clients, wrong ones and slow
// ones, and its end.
#include <atomic>
#include <chrono>
#include <thread>

#include "tests/cli/serving_run.h"

namespace paoding {
namespace {

using namespace std::chrono_literals;

using Serve = ServingWords;

TEST_F(Serve, AModelFilePredictsWhatItsCheckpointDoes) {
  folder_.write("words.txt", "bada\nkeno\n\nxyz\nlasesa\n");
  const Ran expected = shell("paoding predict g2p a words.txt");
  EXPECT_EQ(shell("paoding predict g2p.pd words.txt").out, expected.out);
  EXPECT_EQ(shell("paoding predict g2p.pd < words.txt").out, expected.out);
  ASSERT_EQ(shell("paoding export a beams.pd --beam 3").code, 0);
  EXPECT_EQ(shell("paoding predict beams.pd words.txt --best 2").out,
            shell("paoding predict g2p a words.txt --beam 3 --best 2").out);
  const Ran other = shell("paoding predict g2p.pd words.txt --beam 7");
  EXPECT_EQ(other.code, 1);
  EXPECT_TRUE(has(other.err, "there is no graph 'search[4,1,7]'; there are: ") || has(other.err, "',7]'") ||
              has(other.err, "there is no graph 'search["))
      << other.err;
}

TEST_F(Serve, DamagedFilesAreSaidSo) {
  std::string bytes = slurp(folder_.path() / "g2p.pd");
  folder_.write("short.pd", bytes.substr(0, bytes.size() / 2));
  bytes[bytes.size() - 9] = static_cast<char>(bytes[bytes.size() - 9] ^ 4);
  folder_.write("bad.pd", bytes);
  Ran ran = shell("echo bada | paoding predict bad.pd");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "bad.pd: it is damaged: its checksum is")) << ran.err;
  EXPECT_EQ(shell("echo bada | paoding predict short.pd").code, 1);
  EXPECT_EQ(shell("paoding serve short.pd").code, 1);
  EXPECT_EQ(shell("paoding serve none.pd").code, 1);
  EXPECT_EQ(shell("paoding export a missing/g2p.pd").code, 1);
}

TEST_F(Serve, AnswersManyClientsWhatPredictSays) {
  std::vector<std::string> words;
  for (const std::string& line : lines_of(dictionary(40))) words.push_back(line.substr(0, line.find(' ')));
  std::string text;
  for (const std::string& word : words) text += word + "\n";
  folder_.write("words.txt", text);
  const auto expected = lines_of(shell("paoding predict g2p.pd words.txt").out);
  start({"--executors", "2", "--wait", "5"});
  std::atomic<int> wrong = 0;
  std::vector<std::thread> clients;
  for (std::size_t c = 0; c < 8; ++c) {
    clients.emplace_back([&, c] {
      for (std::size_t i = c; i < words.size(); i += 4)
        wrong += body_of(ask("POST", "/predict", words[i])) != expected[i] + "\n";
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(wrong, 0);
  EXPECT_EQ(
      body_of(ask("POST", "/predict", text)), slurp(folder_.path() / "words.txt").empty() ? "" : [&] {
        std::string all;
        for (const std::string& line : expected) all += line + "\n";
        return all;
      }());
  const std::string json = ask("POST", "/predict", R"({"inputs": ["bada", "keno"], "best": 1})", "application/json");
  EXPECT_TRUE(has(json, R"({"predictions":[[{"text":")")) << json;
  EXPECT_TRUE(has(ask("GET", "/health"), R"({"model":"g2p"})"));
  const std::string metrics = ask("GET", "/metrics");
  EXPECT_TRUE(has(metrics, "paoding_requests_total{code=\"200\"} 79")) << metrics;
  EXPECT_TRUE(has(metrics, "paoding_request_seconds_bucket{le=\"+Inf\"} 79")) << metrics;
  EXPECT_TRUE(has(metrics, "paoding_lines_total 118")) << metrics;
  EXPECT_EQ(end(), 0);
}

TEST_F(Serve, WrongRequestsGetTheirErrors) {
  start({"--most-bytes", "2000", "--seconds", "1"});
  const auto said = [&](const std::string& answer, const char* status, const char* words) {
    EXPECT_TRUE(has(answer, std::string("HTTP/1.1 ") + status) && has(answer, words)) << answer;
  };
  said(ask("GET", "/predict"), "405", "/predict wants POST");
  said(ask("POST", "/none", "x"), "404", "there are /predict, /metrics and /health");
  said(ask("POST", "/predict", ""), "400", "there is no input");
  said(ask("POST", "/predict", "\xff\xfe"), "400", "the body is not UTF-8");
  said(ask("POST", "/predict", "{", "application/json"), "400", "the body is no JSON");
  said(ask("POST", "/predict", "[1]", "application/json"), "400", "no JSON object with");
  said(ask("POST", "/predict", R"({"inputs": [1]})", "application/json"), "400", "something that is no text");
  said(ask("POST", "/predict", R"({"inputs": "a", "bset": 1})", "application/json"), "400", "there is no member");
  said(ask("POST", "/predict", R"({"inputs": "a", "best": 2})", "application/json"), "400", "keeps 1 hypotheses");
  said(ask("POST", "/predict", std::string(3000, 'a')), "413", "more than 2000 bytes");
  EXPECT_EQ(send_text("nonsense\r\n\r\n").find("HTTP/1.1 200"), std::string::npos);
  // A header of no end, and clients that go away in the middle.
  send_text("GET /health HTTP/1.1\r\nX: " + std::string(100'000, 'x'));
  for (int i = 0; i < 50; ++i) {
    const int fd = connected();
    const std::string half = "POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\nba";
    ::send(fd, half.data(), half.size(), MSG_NOSIGNAL);
    ::close(fd);
  }
  EXPECT_TRUE(has(ask("POST", "/predict", "bada"), "HTTP/1.1 200"));
  EXPECT_EQ(end(SIGINT), 0);
}

TEST_F(Serve, SlowClientsHoldUpNobody) {
  start({"--seconds", "1"});
  std::vector<int> slow;
  for (int i = 0; i < 300; ++i) {
    slow.push_back(connected());
    ::send(slow.back(), "POST /pre", 9, MSG_NOSIGNAL);
  }
  const auto began = std::chrono::steady_clock::now();
  EXPECT_TRUE(has(ask("POST", "/predict", "bada"), "HTTP/1.1 200"));
  EXPECT_LT(std::chrono::steady_clock::now() - began, 1s);
  // A byte now and then does not keep a connection.
  for (int i = 0; i < 12; ++i) {
    std::this_thread::sleep_for(250ms);
    for (const int fd : slow) ::send(fd, "d", 1, MSG_NOSIGNAL);
  }
  const std::string metrics = ask("GET", "/metrics");
  EXPECT_TRUE(has(metrics, "paoding_connections 1\n")) << metrics;
  for (const int fd : slow) ::close(fd);
  EXPECT_EQ(end(), 0);
}

// Clients that keep their connections and ask again the moment an answer is there: none waits for a time limit.
TEST_F(Serve, AConnectionThatAsksAgainAtOnceIsAnswered) {
  start({"--executors", "2", "--seconds", "30"});
  const std::string request = "POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbada";
  std::atomic<int> answers = 0, unanswered = 0;
  std::vector<std::thread> clients;
  for (int c = 0; c < 16; ++c) {
    clients.emplace_back([&] {
      const int fd = connected();
      const timeval most = {10, 0};
      setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &most, sizeof most);
      for (int i = 0; i < 200; ++i) {
        if (::send(fd, request.data(), request.size(), MSG_NOSIGNAL) < 0 || !takes_answer(fd)) {
          ++unanswered;
          break;
        }
        ++answers;
      }
      ::close(fd);
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(unanswered, 0);
  EXPECT_EQ(answers, 16 * 200);
  EXPECT_EQ(end(), 0);
}

}  // namespace
}  // namespace paoding
