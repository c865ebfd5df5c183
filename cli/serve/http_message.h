// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1 as it stands on the wire (RFC 9112): requests from the bytes of a client, which may be any, and answers.
// An ambiguous request, such as one with two lengths, is refused.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace paoding::cli {

struct HttpRequest {
  std::string method, path, content_type, body;
  std::vector<std::pair<std::string, std::string>> headers = {};  // those that the reader itself has no use for

  /// The value of a header, "" where there is none. Error (argument) when it is there more than once.
  std::string header(std::string_view name) const;
};
struct HttpAnswer {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  std::string headers = {};  // more of them, each with its line end: "Allow: POST\r\n"
};

/// {"error": message} with a status.
HttpAnswer http_problem(int status, const std::string& message);

/// Reads the requests of one connection, one after the other.
class HttpReader {
 public:
  explicit HttpReader(std::int64_t most_body_bytes) : most_body_bytes_(most_body_bytes) {}

  enum class State { unfinished, request, refused };
  /// Takes the request's bytes from the front of `bytes`. After `request` the next call begins another one;
  /// after `refused` the connection is of no more use.
  State read(std::string* bytes);

  HttpRequest& request() { return request_; }
  /// Whether the client wants the connection for more requests.
  bool keeps_alive() const { return keeps_alive_; }
  /// A client of HTTP/1.0 must be told so.
  bool is_version_1_0() const { return is_version_1_0_; }
  /// Whether the client waits for "100 Continue" before it sends the body that is now to come. Says so once.
  bool takes_continue();
  /// Status and message of a refused request.
  int status() const { return status_; }
  const std::string& problem() const { return problem_; }
  /// Whether a part of a request has been taken.
  bool is_in_request() const { return at_ == At::request_line ? line_bytes_ > 0 : at_ != At::done; }

 private:
  enum class At { request_line, header, body, chunk_size, chunk, chunk_end, trailer, done, refused };
  struct Limit;
  Limit limit() const;
  bool take_line(std::string_view rest, std::string_view* line, std::size_t* taken);
  void take(std::string_view line);
  void take_request_line(std::string_view line);
  void take_header(std::string_view line);
  void take_end_of_headers();
  void take_chunk_size(std::string_view line);
  void refuse(int status, std::string problem);

  std::int64_t most_body_bytes_;
  At at_ = At::request_line;
  HttpRequest request_;
  std::size_t line_bytes_ = 0;  // of the line that is not whole yet: looked at
  std::size_t head_bytes_ = 0;  // of lines so far
  std::int64_t left_ = 0;       // of the body, or of the chunk
  int lengths_ = 0, codings_ = 0, hosts_ = 0, types_ = 0;
  std::int64_t length_ = 0;
  bool is_chunked_ = false, keeps_alive_ = true, is_version_1_0_ = false, expects_continue_ = false;
  int status_ = 0;
  std::string problem_;
};

/// The head of an answer: status, headers and the blank line. Each begins with kHttpVersion.
std::string http_head(const HttpAnswer& answer, bool closes, bool says_keep_alive);
inline constexpr std::string_view kHttpVersion = "HTTP/1.1 ";

}  // namespace paoding::cli
