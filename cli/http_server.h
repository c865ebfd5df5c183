// SPDX-License-Identifier: Apache-2.0
// A small HTTP server on libmicrohttpd: one thread waits for all connections (poll), requests are answered from any
// other, and slow clients cost a connection and nothing else.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

namespace paoding::cli {

struct HttpRequest {
  std::string method, path, content_type, body;
};
struct HttpAnswer {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
};

struct HttpOptions {
  std::string address = "127.0.0.1";
  int port = 8080;                         // 0: one that is free
  int connections = 4096;                  // at a time; more wait until one is over
  std::int64_t most_body_bytes = 1 << 20;  // of a request: 413 beyond
  int seconds = 10;                        // for a client to send a request: a connection that takes longer ends
};

class HttpServer {
 public:
  /// Answers one request, once, from any thread, at any time before the server is gone.
  using Respond = std::function<void(HttpAnswer)>;
  /// Called in the server's thread, which it must not hold up.
  using Handler = std::function<void(HttpRequest, Respond)>;

  /// Listens. Error (argument) on an address that is none, (file) when the port cannot be had.
  HttpServer(const HttpOptions& options, Handler handler);
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  int port() const;
  std::int64_t connections() const;
  /// Takes no more connections; those there are get their answers.
  void stop_listening();
  /// Requests that are not answered yet.
  std::int64_t waiting() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace paoding::cli
