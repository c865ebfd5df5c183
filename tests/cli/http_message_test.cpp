// SPDX-License-Identifier: Apache-2.0
// Requests of HTTP as they stand on the wire: however they are cut into pieces they are the same, and ambiguous ones
// are refused.
#include "cli/serve/http_message.h"

#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "cli/serve/media_type.h"

namespace paoding::cli {
namespace {

constexpr std::int64_t kMostBytes = 1000;

// Feeds the bytes to a reader in pieces of one size; returns each request and the final state as text.
std::string read_as(const std::string& bytes, std::size_t piece) {
  HttpReader reader(kMostBytes);
  std::string waiting, said;
  for (std::size_t at = 0; at < bytes.size(); at += piece) {
    waiting += bytes.substr(at, piece);
    while (true) {
      const HttpReader::State state = reader.read(&waiting);
      if (state == HttpReader::State::unfinished) break;
      if (state == HttpReader::State::refused) return said + std::to_string(reader.status()) + " " + reader.problem();
      const HttpRequest& request = reader.request();
      said += request.method + " " + request.path + " (" + request.content_type + ") " + request.body +
              (reader.keeps_alive() ? "\n" : " end\n");
    }
  }
  return said + (reader.is_in_request() ? "unfinished" : "");
}

int status_of(const std::string& bytes) {
  HttpReader reader(kMostBytes);
  std::string waiting = bytes;
  return reader.read(&waiting) == HttpReader::State::refused ? reader.status() : 0;
}

std::string head(const std::string& headers) { return "POST /predict HTTP/1.1\r\nHost: x\r\n" + headers + "\r\n"; }

TEST(HttpReader, TakesRequestsHoweverTheyAreCut) {
  const std::string bytes = head("content-TYPE: \t text/plain \r\nContent-Length: 5\r\n") + "ab\r\nc" + "\r\n" +
                            "GET /health?a=b HTTP/1.1\r\n\r\n" + head("Transfer-Encoding: Chunked\r\n") +
                            "3\r\nabc\r\n0a;x=\"y\"\r\n0123456789\r\n000\r\nX-Sum: 7\r\n\r\n" +
                            "HEAD http://host:80/metrics?x HTTP/1.1\r\nConnection: x, CLOSE\r\n\r\n" +
                            "GET / HTTP/1.0\r\n\r\n" + "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /half";
  const std::string wanted =
      "POST /predict (text/plain) ab\r\nc\nGET /health () \nPOST /predict () abc0123456789\nHEAD /metrics ()  end\n"
      "GET / ()  end\nGET / () \nunfinished";
  for (std::size_t piece = 1; piece <= bytes.size(); ++piece) ASSERT_EQ(read_as(bytes, piece), wanted) << piece;
}

TEST(HttpReader, RefusesWhatCouldBeReadInTwoWays) {
  const std::vector<std::pair<std::string, int>> wrong{
      {head("Content-Length: 4\r\nContent-Length: 4\r\n"), 400},
      {head("Content-Length: 4\r\ncontent-length: 5\r\n"), 400},
      {head("Content-Length: 4\r\nTransfer-Encoding: chunked\r\n"), 400},
      {head("Transfer-Encoding: chunked\r\nContent-Length: 4\r\n"), 400},
      {head("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n"), 400},
      {head("Transfer-Encoding: chunked, chunked\r\n"), 501},
      {head("Transfer-Encoding: gzip, chunked\r\n"), 501},
      {head("Transfer-Encoding: identity\r\n"), 501},
      {head("Transfer-Encoding : chunked\r\n"), 400},
      {head("Content-Length: 4, 4\r\n"), 400},
      {head("Content-Length: +4\r\n"), 400},
      {head("Content-Length: -4\r\n"), 400},
      {head("Content-Length: 0x4\r\n"), 400},
      {head("Content-Length: 4 4\r\n"), 400},
      {head("Content-Length:\r\n"), 400},
      {head("Content-Length: 99999999999999999999999999\r\n"), 413},
      {head("Content-Length: 1001\r\n"), 413},
      {head("A: b\r\n c\r\n"), 400},
      {head("Host: y\r\n"), 400},
      {head("A\r\n"), 400},
      {head(": b\r\n"), 400},
      {head("A b: c\r\n"), 400},
      {head("A: b\nContent-Length: 4\r\n"), 400},
      {head("A: b\rContent-Length: 4\r\n"), 400},
      {head(std::string("A: b\0c\r\n", 8)), 400},
      {"POST /predict HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400},
      {"GET / HTTP/1.1\n\n", 400},
      {"GET /\r\n\r\n", 400},
      {"GET ?a HTTP/1.1\r\n\r\n", 400},
      {"GET health HTTP/1.1\r\n\r\n", 400},
      {"GET  / HTTP/1.1\r\n\r\n", 400},
      {"GET / HTTP/1.1 \r\n\r\n", 400},
      {"GET / HTTP/11\r\n\r\n", 400},
      {"GET / HTTP/2.0\r\n\r\n", 505},
      {" GET / HTTP/1.1\r\n\r\n", 400},
      {"G@T / HTTP/1.1\r\n\r\n", 400},
      {"BREW / HTTP/1.1\r\n\r\n", 501},
      {std::string("\x16\x03\x01\x02\x00\x01\r\n", 8), 400},
      {head("Expect: more\r\n"), 417},
      {"GET /" + std::string(9000, 'a'), 414},
      {"GET /" + std::string(9000, 'a') + " HTTP/1.1\r\n\r\n", 414},
      {head("A: " + std::string(20000, 'a') + "\r\n"), 431},
      {"GET / HTTP/1.1\r\nA: " + std::string(20000, 'a'), 431},
  };
  for (const auto& [bytes, status] : wrong) {
    EXPECT_EQ(status_of(bytes), status) << bytes.substr(0, 200);
    EXPECT_EQ(read_as(bytes, 1), read_as(bytes, bytes.size())) << bytes.substr(0, 200);
  }
  const std::string chunked = head("Transfer-Encoding: chunked\r\n");
  for (const char* body : {"g\r\n", "-1\r\n", "\r\n", "1\r\nab\r\n", "1\r\na0\r\n\r\n", "2\nab\r\n", "0x1\r\na\r\n",
                           "ffffffffffffffffff\r\n", "1 1\r\na", "0\r\nno header\r\n\r\n"}) {
    EXPECT_NE(status_of(chunked + body), 0) << body;
  }
  EXPECT_EQ(status_of(chunked + "3e8\r\n" + std::string(1000, 'a') + "\r\n1\r\n"), 413) << "of all chunks together";
  EXPECT_EQ(status_of(chunked + "1;" + std::string(2000, 'a')), 400);
}

// Limits hold for one line and one chunk, so hundreds of them within the limits are accepted.
TEST(HttpReader, CountsNeitherChunksNorRequestsTogether) {
  std::string bytes = head("Transfer-Encoding: chunked\r\n");
  for (int i = 0; i < 1000; ++i) bytes += "1\r\na\r\n";
  bytes += "0\r\nA: b\r\n\r\n";
  for (int i = 0; i < 3000; ++i) bytes += "\r\nGET / HTTP/1.1\r\nA: " + std::string(100, 'a') + "\r\n\r\n";
  const std::string said = read_as(bytes, 4096);
  EXPECT_EQ(said.substr(0, 17), "POST /predict () ");
  EXPECT_EQ(said.size(), 17 + 1001 + 3000 * std::string("GET / () \n").size());
  EXPECT_EQ(status_of(std::string(10'000, '\r')), 414);
  std::string blank;
  for (int i = 0; i < 10'000; ++i) blank += "\r\n";
  EXPECT_EQ(status_of(blank), 414);
}

TEST(HttpReader, IsToldOnceThatTheClientWaitsForItsConsent) {
  HttpReader reader(kMostBytes);
  std::string bytes = head("Expect: 100-Continue\r\nContent-Length: 3\r\n");
  EXPECT_FALSE(reader.takes_continue());
  EXPECT_EQ(reader.read(&bytes), HttpReader::State::unfinished);
  EXPECT_TRUE(reader.takes_continue());
  EXPECT_FALSE(reader.takes_continue());
  bytes = "abc";
  EXPECT_EQ(reader.read(&bytes), HttpReader::State::request);
  EXPECT_EQ(reader.request().body, "abc");
}

TEST(HttpReader, EndsWithARequestOrARefusalOfWhateverComes) {
  const std::string good = head("Content-Length: 5\r\nA: b\r\n") + "abcde" + head("Transfer-Encoding: chunked\r\n") +
                           "5\r\nabcde\r\n0\r\n\r\n";
  std::mt19937_64 random(11);
  int refused = 0, same = 0;
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = good;
    for (std::uint64_t k = random() % 3; k < 3; ++k) {
      const std::size_t at = random() % bytes.size();
      switch (random() % 3) {
        case 0: bytes[at] = static_cast<char>(random()); break;
        case 1: bytes.erase(at, random() % 9); break;
        default: bytes.insert(at, bytes.substr(random() % bytes.size(), random() % 30)); break;
      }
      if (bytes.empty()) bytes = good;
    }
    const std::string whole = read_as(bytes, bytes.size());
    ASSERT_EQ(whole, read_as(bytes, 1 + random() % 40)) << i;
    ++(whole.find('\n') == std::string::npos && whole != "unfinished" ? refused : same);
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(same, 1000);
}

TEST(MediaType, IsACaseInsensitiveWordBeforeItsParameters) {
  EXPECT_TRUE(is_same_word(media_type(" Application/JSON ; charset=UTF-8"), "application/json"));
  EXPECT_FALSE(is_same_word(media_type("application/jsonlines"), "application/json"));
  EXPECT_EQ(media_type("  "), "");
  EXPECT_EQ(media_type(""), "");
}

}  // namespace
}  // namespace paoding::cli
