// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/http_message.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <ctime>
#include <utility>

#include "base/one_line.h"
#include "cli/serve/media_type.h"
#include "io/json_text.h"
#include "paoding/error.h"

namespace paoding::cli {
namespace {

constexpr std::size_t kLineBytes = 8 << 10;    // of a request line: 414 beyond
constexpr std::size_t kHeadBytes = 16 << 10;   // of all headers, and of trailers after chunks: 431 beyond
constexpr std::size_t kChunkLineBytes = 1024;  // of a chunk's length with its extensions
constexpr std::size_t kShownBytes = 100;       // of a client's text that is quoted in a message

constexpr std::array<std::pair<int, const char*>, 15> kReasons{{{200, "OK"},
                                                                {400, "Bad Request"},
                                                                {404, "Not Found"},
                                                                {405, "Method Not Allowed"},
                                                                {408, "Request Timeout"},
                                                                {413, "Content Too Large"},
                                                                {414, "URI Too Long"},
                                                                {415, "Unsupported Media Type"},
                                                                {417, "Expectation Failed"},
                                                                {431, "Request Header Fields Too Large"},
                                                                {500, "Internal Server Error"},
                                                                {501, "Not Implemented"},
                                                                {503, "Service Unavailable"},
                                                                {504, "Gateway Timeout"},
                                                                {505, "HTTP Version Not Supported"}}};
constexpr std::array<std::string_view, 9> kMethods{"GET",   "HEAD",    "POST",    "PUT",  "DELETE",
                                                   "PATCH", "OPTIONS", "CONNECT", "TRACE"};

bool is_token_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         std::string_view("!#$%&'*+-.^_`|~").find(c) != std::string_view::npos;
}
bool is_token(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), is_token_character);
}

bool is_control(char c) { return (static_cast<unsigned char>(c) < 0x20 && c != '\t') || c == 0x7f; }

// Whether a list such as "keep-alive, Upgrade" has the token.
bool lists(std::string_view list, std::string_view token) {
  while (!list.empty()) {
    const std::size_t comma = std::min(list.find(','), list.size());
    if (is_same_word(without_blanks(list.substr(0, comma)), token)) return true;
    list.remove_prefix(std::min(comma + 1, list.size()));
  }
  return false;
}

// Reads a whole number written in digits alone; one that does not fit becomes the largest.
bool number_of(std::string_view digits, int base, std::int64_t* number) {
  const auto is_digit = [&](char c) {
    return (c >= '0' && c <= '9') || (base == 16 && ((c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F')));
  };
  if (digits.empty() || !std::all_of(digits.begin(), digits.end(), is_digit)) return false;
  const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), *number, base);
  if (read.ec == std::errc::result_out_of_range) *number = INT64_MAX;
  return true;
}

std::string shown(std::string_view text) {
  return one_line(text.substr(0, kShownBytes)) + (text.size() > kShownBytes ? ".." : "");
}

std::string date() {
  static constexpr std::array kDays{"Sun", "Mon", "Tue", "Wed", "Thu", "Fri", "Sat"};
  static constexpr std::array kMonths{"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                      "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  const std::time_t now = std::time(nullptr);
  std::tm utc = {};
  gmtime_r(&now, &utc);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT", kDays[static_cast<std::size_t>(utc.tm_wday)], utc.tm_mday,
                     kMonths[static_cast<std::size_t>(utc.tm_mon)], utc.tm_year + 1900, utc.tm_hour, utc.tm_min,
                     utc.tm_sec);
}

}  // namespace

std::string HttpRequest::header(std::string_view name) const {
  const auto is_it = [&](const auto& each) { return is_same_word(each.first, name); };
  const auto found = std::find_if(headers.begin(), headers.end(), is_it);
  if (found == headers.end()) return "";
  if (std::find_if(std::next(found), headers.end(), is_it) != headers.end()) {
    throw Error(ErrorKind::argument, fmt::format("{} is there more than once", name));
  }
  return found->second;
}

HttpAnswer http_problem(int status, const std::string& message) {
  return {status, "application/json", JsonObject().add("error", message).text() + "\n", {}};
}

std::string http_head(const HttpAnswer& answer, bool closes, bool says_keep_alive) {
  const auto known =
      std::find_if(kReasons.begin(), kReasons.end(), [&](const auto& each) { return each.first == answer.status; });
  return fmt::format("{}{} {}\r\nDate: {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n{}{}\r\n", kHttpVersion,
                     answer.status, known == kReasons.end() ? "" : known->second, date(), answer.content_type,
                     answer.body.size(), answer.headers,
                     closes            ? "Connection: close\r\n"
                     : says_keep_alive ? "Connection: keep-alive\r\n"
                                       : "");
}

bool HttpReader::takes_continue() {
  return (at_ == At::body || at_ == At::chunk_size) && std::exchange(expects_continue_, false);
}

void HttpReader::refuse(int status, std::string problem) {
  at_ = At::refused;
  status_ = status;
  problem_ = std::move(problem);
  keeps_alive_ = false;
}

// The most bytes that a line may have, and the answer to a longer one.
struct HttpReader::Limit {
  std::size_t bytes;
  int status;
  const char* problem;
};
HttpReader::Limit HttpReader::limit() const {
  switch (at_) {
    case At::request_line: return {kLineBytes - std::min(head_bytes_, kLineBytes), 414, "the request line is too long"};
    case At::chunk_size: return {kChunkLineBytes, 400, "the length of a chunk is too long"};
    case At::chunk_end: return {1, 400, "a chunk is longer than it says"};
    default: return {kHeadBytes - std::min(head_bytes_, kHeadBytes), 431, "the headers are too long"};
  }
}

// The line that `rest` begins with, without its end. False when it is not whole yet, and when it was refused.
bool HttpReader::take_line(std::string_view rest, std::string_view* line, std::size_t* taken) {
  const std::size_t end = rest.find('\n', line_bytes_);
  const Limit most = limit();
  if (std::min(end, rest.size()) > most.bytes) return refuse(most.status, most.problem), false;
  if (end == rest.npos) {
    line_bytes_ = rest.size();
    return false;
  }
  line_bytes_ = 0;
  *taken = end + 1;
  if (end == 0 || rest[end - 1] != '\r') return refuse(400, "a line ends without a carriage return"), false;
  *line = rest.substr(0, end - 1);
  if (std::any_of(line->begin(), line->end(), is_control)) return refuse(400, "a line has a control character"), false;
  return true;
}

void HttpReader::take_request_line(std::string_view line) {
  const std::size_t first = line.find(' '), second = line.find(' ', first == line.npos ? first : first + 1);
  if (second == line.npos) return refuse(400, fmt::format("'{}' is no request of HTTP", shown(line)));
  const std::string_view method = line.substr(0, first), version = line.substr(second + 1);
  std::string_view target = line.substr(first + 1, second - first - 1);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  if (!is_token(method) || target.empty() || version.size() != 8 || !version.starts_with("HTTP/") ||
      !is_digit(version[5]) || version[6] != '.' || !is_digit(version[7])) {
    return refuse(400, fmt::format("'{}' is no request of HTTP", shown(line)));
  }
  if (version[5] != '1') return refuse(505, fmt::format("{} is not spoken here, HTTP/1.1 is", version));
  if (std::find(kMethods.begin(), kMethods.end(), method) == kMethods.end()) {
    return refuse(501, fmt::format("there is no method '{}'", shown(method)));
  }
  is_version_1_0_ = version[7] == '0';
  keeps_alive_ = !is_version_1_0_;
  // http://host/path is /path, whose query nobody here asks for.
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (target.size() < scheme.size() || !is_same_word(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(std::min(target.find('/', scheme.size()), target.size()));
    if (target.empty()) target = "/";
  }
  if (target.front() != '/' && target != "*" && method != "CONNECT") {
    return refuse(400, fmt::format("'{}' is no path", shown(target)));
  }
  request_.method = method;
  request_.path = target.substr(0, target.find('?'));
  at_ = At::header;
}

void HttpReader::take_header(std::string_view line) {
  if (line.front() == ' ' || line.front() == '\t') return refuse(400, "a header goes on in the next line");
  const std::size_t colon = line.find(':');
  const std::string_view name = line.substr(0, colon);
  if (colon == line.npos || !is_token(name)) return refuse(400, fmt::format("'{}' is no header", shown(line)));
  const std::string_view value = without_blanks(line.substr(colon + 1));
  if (is_same_word(name, "content-length")) {
    lengths_ += 1;
    if (!number_of(value, 10, &length_)) {
      return refuse(400, fmt::format("Content-Length is '{}', no whole number", shown(value)));
    }
  } else if (is_same_word(name, "transfer-encoding")) {
    codings_ += 1;
    is_chunked_ = is_same_word(value, "chunked");
  } else if (is_same_word(name, "host")) {
    hosts_ += 1;
  } else if (is_same_word(name, "content-type")) {
    types_ += 1;
    request_.content_type = value;
  } else if (is_same_word(name, "connection")) {
    if (is_version_1_0_ && lists(value, "keep-alive")) keeps_alive_ = true;
    if (lists(value, "close")) keeps_alive_ = false;
  } else if (is_same_word(name, "expect") && !is_version_1_0_) {
    if (!is_same_word(value, "100-continue")) {
      return refuse(417, fmt::format("Expect: {} is nothing that is known here", shown(value)));
    }
    expects_continue_ = true;
  } else {
    request_.headers.emplace_back(name, value);
  }
}

// The end of the body must be given once: a proxy may have read the other of two lengths, and the rest of the body
// would then be a request that the proxy never saw (request smuggling).
void HttpReader::take_end_of_headers() {
  if (lengths_ > 1) return refuse(400, "Content-Length is there more than once");
  if (codings_ > 0 && lengths_ > 0) return refuse(400, "Content-Length and Transfer-Encoding are both there");
  if (codings_ > 1) return refuse(400, "Transfer-Encoding is there more than once");
  if (hosts_ > 1) return refuse(400, "Host is there more than once");
  if (types_ > 1) return refuse(400, "Content-Type is there more than once");
  if (codings_ > 0 && is_version_1_0_) return refuse(400, "HTTP/1.0 has no Transfer-Encoding");
  if (codings_ > 0 && !is_chunked_) return refuse(501, "of all Transfer-Encodings only 'chunked' is known here");
  if (length_ > most_body_bytes_)
    return refuse(413, fmt::format("the request has more than {} bytes", most_body_bytes_));
  head_bytes_ = 0;
  left_ = length_;
  at_ = codings_ > 0 ? At::chunk_size : At::body;
  if (at_ == At::body && left_ == 0) expects_continue_ = false;
}

void HttpReader::take_chunk_size(std::string_view line) {
  const std::string_view digits = without_blanks(line.substr(0, line.find(';')));
  if (!number_of(digits, 16, &left_)) return refuse(400, fmt::format("'{}' is no length of a chunk", shown(line)));
  if (left_ > most_body_bytes_ - static_cast<std::int64_t>(request_.body.size())) {
    return refuse(413, fmt::format("the request has more than {} bytes", most_body_bytes_));
  }
  at_ = left_ == 0 ? At::trailer : At::chunk;
}

void HttpReader::take(std::string_view line) {
  if (at_ != At::chunk_size && at_ != At::chunk_end) head_bytes_ += line.size() + 2;
  switch (at_) {
    case At::request_line:
      if (line.empty()) return;  // some clients end a body with one; they count
      head_bytes_ = 0;
      take_request_line(line);
      return;
    case At::header: line.empty() ? take_end_of_headers() : take_header(line); return;
    case At::chunk_size: take_chunk_size(line); return;
    case At::chunk_end: at_ = At::chunk_size; return;
    default:
      if (line.empty()) {
        at_ = At::done;
      } else if (const std::size_t colon = line.find(':'); colon == line.npos || !is_token(line.substr(0, colon))) {
        refuse(400, fmt::format("'{}' is no header", shown(line)));
      }
  }
}

HttpReader::State HttpReader::read(std::string* bytes) {
  if (at_ == At::done) *this = HttpReader(most_body_bytes_);
  std::size_t at = 0;
  while (at_ != At::done && at_ != At::refused) {
    if (at_ == At::body || at_ == At::chunk) {
      const std::size_t there = std::min(static_cast<std::size_t>(left_), bytes->size() - at);
      request_.body.append(*bytes, at, there);
      at += there;
      left_ -= static_cast<std::int64_t>(there);
      if (left_ > 0) break;
      at_ = at_ == At::body ? At::done : At::chunk_end;
      continue;
    }
    std::string_view line;
    std::size_t taken = 0;
    if (!take_line(std::string_view(*bytes).substr(at), &line, &taken)) break;
    take(line);
    at += taken;
  }
  bytes->erase(0, at);
  return at_ == At::done ? State::request : at_ == At::refused ? State::refused : State::unfinished;
}

}  // namespace paoding::cli
