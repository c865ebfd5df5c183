// SPDX-License-Identifier: Apache-2.0
#include "http_server.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/one_line.h"
#include "io/json_text.h"

namespace paoding::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kHeaderBytes = 16 << 10;  // of a connection: a longer header is 431

std::string error_json(const std::string& what) { return JsonObject().add("error", what).text() + "\n"; }

// One request on its way through.
struct Exchange {
  HttpRequest request;
  std::mutex mutex;
  HttpAnswer answer;
  bool is_answered = false, is_handed_over = false;
};

// A connection as the watch sees it: the socket, and since when a request has been on its way in.
struct Watched {
  int socket;
  Clock::time_point since;
  bool is_waiting = false;  // for us
};

void raise_open_files(int connections) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto wanted = static_cast<rlim_t>(connections) + 256;
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace

struct HttpServer::State {
  HttpOptions options;
  Handler handler;
  MHD_Daemon* daemon = nullptr;
  std::atomic<std::int64_t> waiting = 0, connections = 0;
  std::mutex mutex;
  std::map<MHD_Connection*, Watched> watched;
  bool is_over = false;
  std::condition_variable over;
  std::thread watch;

  // Ends connections whose client takes too long; how libmicrohttpd counts, a byte now and then would keep one.
  void keep_watch() {
    std::unique_lock lock(mutex);
    while (!is_over) {
      over.wait_for(lock, std::chrono::milliseconds(250));
      const auto latest = Clock::now() - std::chrono::seconds(options.seconds);
      for (auto& [connection, seen] : watched) {
        if (!seen.is_waiting && seen.since < latest) ::shutdown(seen.socket, SHUT_RDWR);
      }
    }
  }
  void set_waiting(MHD_Connection* connection, bool is_waiting) {
    const std::lock_guard lock(mutex);
    const auto found = watched.find(connection);
    if (found == watched.end()) return;
    found->second.is_waiting = is_waiting;
    found->second.since = Clock::now();
  }

  static MHD_Result queue(MHD_Connection* connection, const HttpAnswer& answer, bool closes = false) {
    MHD_Response* response = MHD_create_response_from_buffer(answer.body.size(), const_cast<char*>(answer.body.data()),
                                                             MHD_RESPMEM_MUST_COPY);
    if (response == nullptr) return MHD_NO;
    MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, answer.content_type.c_str());
    if (closes) MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
    const MHD_Result queued = MHD_queue_response(connection, static_cast<unsigned>(answer.status), response);
    MHD_destroy_response(response);
    return queued;
  }

  MHD_Result begin(MHD_Connection* connection, const char* url, const char* method, void** own) {
    const char* length = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_LENGTH);
    if (length != nullptr && std::strtoll(length, nullptr, 10) > options.most_body_bytes) return refuse(connection);
    auto exchange = std::make_shared<Exchange>();
    exchange->request = {method, url, {}, {}};
    const char* type = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_CONTENT_TYPE);
    if (type != nullptr) exchange->request.content_type = type;
    *own = new std::shared_ptr<Exchange>(std::move(exchange));
    return MHD_YES;
  }
  MHD_Result refuse(MHD_Connection* connection) const {
    return queue(connection,
                 {413, "application/json",
                  error_json(fmt::format("the request has more than {} bytes", options.most_body_bytes))},
                 true);
  }

  MHD_Result go_on(MHD_Connection* connection, const std::shared_ptr<Exchange>& exchange, const char* upload,
                   std::size_t* upload_bytes) {
    if (*upload_bytes > 0) {
      exchange->request.body.append(upload, *upload_bytes);
      *upload_bytes = 0;
      // Without a length that says so beforehand there is no place for an answer.
      return static_cast<std::int64_t>(exchange->request.body.size()) > options.most_body_bytes ? MHD_NO : MHD_YES;
    }
    if (!exchange->is_handed_over) {
      exchange->is_handed_over = true;
      ++waiting;
      set_waiting(connection, true);
      MHD_suspend_connection(connection);
      handler(std::move(exchange->request), [this, exchange, connection](HttpAnswer answer) {
        {
          const std::lock_guard lock(exchange->mutex);
          if (exchange->is_answered) return;
          exchange->answer = std::move(answer);
          exchange->is_answered = true;
        }
        set_waiting(connection, false);
        MHD_resume_connection(connection);
        --waiting;
      });
      return MHD_YES;
    }
    const std::lock_guard lock(exchange->mutex);
    return exchange->is_answered ? queue(connection, exchange->answer) : MHD_YES;
  }

  static MHD_Result on_request(void* self, MHD_Connection* connection, const char* url, const char* method,
                               const char* /*version*/, const char* upload, std::size_t* upload_bytes, void** own) {
    auto& state = *static_cast<State*>(self);
    try {
      if (*own == nullptr) return state.begin(connection, url, method, own);
      return state.go_on(connection, *static_cast<std::shared_ptr<Exchange>*>(*own), upload, upload_bytes);
    } catch (const std::exception&) {
      return MHD_NO;  // of memory: the connection ends
    }
  }
  static void on_completed(void* self, MHD_Connection* connection, void** own, MHD_RequestTerminationCode) {
    delete static_cast<std::shared_ptr<Exchange>*>(*own);
    *own = nullptr;
    static_cast<State*>(self)->set_waiting(connection, false);
  }
  static void on_connection(void* self, MHD_Connection* connection, void**, MHD_ConnectionNotificationCode code) {
    auto& state = *static_cast<State*>(self);
    const std::lock_guard lock(state.mutex);
    if (code == MHD_CONNECTION_NOTIFY_CLOSED) {
      state.watched.erase(connection);
      --state.connections;
      return;
    }
    const MHD_ConnectionInfo* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    if (info != nullptr) state.watched[connection] = {info->connect_fd, Clock::now()};
    ++state.connections;
  }
};

HttpServer::HttpServer(const HttpOptions& options, Handler handler) : state_(std::make_unique<State>()) {
  state_->options = options;
  state_->handler = std::move(handler);
  raise_open_files(options.connections);
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(options.port));
  if (inet_pton(AF_INET, options.address.c_str(), &address.sin_addr) != 1) {
    fail(ErrorKind::argument, "'{}' is no IPv4 address", one_line(options.address));
  }
  // By poll: waiting by epoll, 0.9.75 forgets a resumed connection whose client asks again before the answer before has
  // been put away, until a time limit ends it.
  state_->daemon = MHD_start_daemon(
      MHD_USE_POLL_INTERNAL_THREAD | MHD_ALLOW_SUSPEND_RESUME, static_cast<std::uint16_t>(options.port), nullptr,
      nullptr, &State::on_request, state_.get(), MHD_OPTION_SOCK_ADDR, reinterpret_cast<sockaddr*>(&address),
      MHD_OPTION_CONNECTION_LIMIT, static_cast<unsigned>(options.connections), MHD_OPTION_CONNECTION_MEMORY_LIMIT,
      kHeaderBytes, MHD_OPTION_NOTIFY_COMPLETED, &State::on_completed, state_.get(), MHD_OPTION_NOTIFY_CONNECTION,
      &State::on_connection, state_.get(), MHD_OPTION_LISTENING_ADDRESS_REUSE, 1u, MHD_OPTION_END);
  if (state_->daemon == nullptr) {
    fail(ErrorKind::file, "{}:{} cannot be listened at: {}", options.address, options.port, std::strerror(errno));
  }
  state_->watch = std::thread([state = state_.get()] { state->keep_watch(); });
}

HttpServer::~HttpServer() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->is_over = true;
  }
  state_->over.notify_all();
  state_->watch.join();
  MHD_stop_daemon(state_->daemon);
}

int HttpServer::port() const {
  const MHD_DaemonInfo* info = MHD_get_daemon_info(state_->daemon, MHD_DAEMON_INFO_BIND_PORT);
  return info == nullptr ? state_->options.port : info->port;
}

std::int64_t HttpServer::connections() const { return state_->connections; }
std::int64_t HttpServer::waiting() const { return state_->waiting; }

void HttpServer::stop_listening() {
  const int socket = MHD_quiesce_daemon(state_->daemon);
  if (socket >= 0) ::close(socket);
}

}  // namespace paoding::cli
