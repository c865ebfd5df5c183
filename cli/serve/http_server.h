// SPDX-License-Identifier: Apache-2.0
// A small HTTP server: one thread waits for all connections (epoll), requests are answered from any other, and slow
// clients cost a connection and nothing else.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "cli/serve/http_message.h"

namespace paoding::cli {

struct HttpOptions {
  std::string address = "127.0.0.1";
  int port = 8080;                         // 0: one that is free
  int connections = 4096;                  // at a time; more wait until one is over
  std::int64_t most_body_bytes = 1 << 20;  // of a request: 413 beyond
  int seconds = 10;                        // for a client to send a request, and to take its answer
};

/// Where the answer of one request goes. Copies are the same; the first answer counts, from any thread, at any time.
/// When the last copy is destroyed without an answer the client gets 500, so an exception leaves no request waiting
/// forever.
class HttpReply {
 public:
  /// Allocates nothing.
  void operator()(HttpAnswer answer) const noexcept;
  /// Whether the client is still there.
  bool is_awaited() const noexcept;

 private:
  friend class HttpServer;
  struct Promise;
  struct Holder;
  std::shared_ptr<Holder> holder_;
};

class HttpServer {
 public:
  /// Called in the server's thread, which it must not block; an exception becomes status 500.
  using Handler = std::function<void(HttpRequest, HttpReply)>;
  /// Told of every answer, the server's own refusals too, and how long after the request it came; of a refusal < 0.
  using Observer = std::function<void(int status, std::chrono::nanoseconds latency)>;

  /// Listens. Errors: as listening_socket.
  HttpServer(const HttpOptions& options, Handler handler, Observer observer = {});
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const { return port_; }
  std::int64_t connections() const;
  /// Takes no more connections. Those that ask for nothing end; the others get their answers, and end then.
  void stop_listening();
  /// Until all clients have their answers, or some have not taken theirs within `most`. After stop_listening().
  void finish(std::chrono::milliseconds most);
  /// Requests that are not answered yet.
  std::int64_t waiting() const;

 private:
  friend class HttpReply;
  struct Connection;
  struct Answered;
  struct State;
  std::unique_ptr<State> state_;
  int port_ = 0;
};

}  // namespace paoding::cli
