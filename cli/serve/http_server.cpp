// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/http_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <list>
#include <mutex>
#include <thread>
#include <utility>

#include "base/check.h"
#include "cli/serve/listening.h"

namespace paoding::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kReadBytes = 16 << 10;
constexpr int kTickMs = 250;  // between looks at how long clients take
// When another answer cannot be made: of memory, for one, which this takes none of.
constexpr std::string_view kNoAnswerHead =
    "HTTP/1.1 500 Internal Server Error\r\nContent-Type: application/json\r\nContent-Length: 48\r\n"
    "Connection: close\r\n\r\n";
constexpr std::string_view kNoAnswerBody = "{\"error\":\"the server could not make an answer\"}\n";
static_assert(kNoAnswerBody.size() == 48);
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

void raise_open_files(int connections) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  const auto wanted = static_cast<rlim_t>(connections) + 256;
  if (limit.rlim_cur >= wanted) return;
  limit.rlim_cur = std::min(wanted, limit.rlim_max);
  setrlimit(RLIMIT_NOFILE, &limit);
}

Descriptor made_descriptor(int number, const char* what) {
  if (number < 0) fail(ErrorKind::file, "{}: {}", what, std::strerror(errno));
  return Descriptor(number);
}

}  // namespace

// Promises that were kept, for the server's thread: a list through themselves, so that nothing is allocated.
struct HttpServer::Answered {
  Answered() : wake(made_descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK), "eventfd")) {}
  void notify() const {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = ::write(wake.number(), &one, sizeof one);
  }
  Descriptor wake;
  std::mutex mutex;
  std::shared_ptr<HttpReply::Promise> last;
  bool is_over = false;  // nobody looks anymore
};

struct HttpReply::Promise {
  explicit Promise(std::shared_ptr<HttpServer::Answered> given) : answered(std::move(given)) {}
  // `given` is null when there is none.
  static void keep(const std::shared_ptr<Promise>& promise, HttpAnswer* given) noexcept {
    if (promise->is_kept.exchange(true)) return;
    if (given != nullptr) promise->answer = std::move(*given), promise->has_answer = true;
    HttpServer::Answered& answered = *promise->answered;
    const std::lock_guard lock(answered.mutex);
    if (answered.is_over) return;
    promise->before = std::move(answered.last);
    answered.last = promise;
    answered.notify();
  }

  const std::shared_ptr<HttpServer::Answered> answered;
  HttpServer::Connection* connection = nullptr;  // of the server's thread alone; null when it is gone
  const Clock::time_point came = Clock::now();
  std::atomic<bool> is_kept = false, is_awaited = true;
  HttpAnswer answer;
  bool has_answer = false;
  std::shared_ptr<Promise> before;  // kept before this one
};

struct HttpReply::Holder {
  explicit Holder(std::shared_ptr<Promise> given) : promise(std::move(given)) {}
  ~Holder() { Promise::keep(promise, nullptr); }
  Holder(const Holder&) = delete;
  Holder& operator=(const Holder&) = delete;
  const std::shared_ptr<Promise> promise;
};

void HttpReply::operator()(HttpAnswer answer) const noexcept { Promise::keep(holder_->promise, &answer); }
bool HttpReply::is_awaited() const noexcept { return holder_->promise->is_awaited; }

struct HttpServer::Connection {
  Connection(Descriptor given, std::int64_t most_body_bytes) : socket(std::move(given)), reader(most_body_bytes) {}

  // Lingering: the answer is sent, and further bytes are dropped until the client is done. A socket that is closed with
  // unread bytes sends a reset, by which the client could lose the answer.
  enum class Phase { reading, waiting, sending, lingering, ended };
  Phase phase = Phase::reading;
  Descriptor socket;
  HttpReader reader;
  std::string in;                               // for the reader
  std::shared_ptr<HttpReply::Promise> promise;  // while waiting
  std::string head, body;
  std::array<std::string_view, 2> parts;  // of the answer: head and body
  std::size_t sent = 0;                   // of them
  bool closes = false, lingers = false;   // after the answer
  bool is_head = false;                   // the request was, so the answer has no body
  bool has_ended = false;                 // all that the client sent was read
  bool was_seen_to_end = false;           // it sends nothing more; something may be unread
  Clock::time_point since = Clock::now();
  std::uint32_t events = EPOLLIN | EPOLLRDHUP;
  std::list<Connection>::iterator self;
};

struct HttpServer::State {
  using Phase = Connection::Phase;

  State(const HttpOptions& given, Handler given_handler, Observer given_observer)
      : options(given),
        handler(std::move(given_handler)),
        observer(std::move(given_observer)),
        listener(listening_socket(options.address, options.port)),
        poll(made_descriptor(epoll_create1(EPOLL_CLOEXEC), "epoll")),
        answered(std::make_shared<Answered>()) {
    watch(listener, EPOLLIN, nullptr);
    watch(answered->wake, EPOLLIN, answered.get());
  }

  // ---- the thread ----
  void run() noexcept {
    std::array<epoll_event, 256> events{};
    Clock::time_point looked = Clock::now();
    while (!is_over) {
      const bool has_clocks = !all.empty() || (listens && !is_accepting);
      const int count =
          epoll_wait(poll.number(), events.data(), static_cast<int>(events.size()), has_clocks ? kTickMs : -1);
      for (int i = 0; i < count; ++i) {
        void* const of = events[static_cast<std::size_t>(i)].data.ptr;
        if (of == nullptr) {
          accept_all();
        } else if (of == answered.get()) {
          std::uint64_t times = 0;
          [[maybe_unused]] const auto got = ::read(answered->wake.number(), &times, sizeof times);
        } else {
          safely(*static_cast<Connection*>(of),
                 [&](Connection& c) { on_event(c, events[static_cast<std::size_t>(i)].events); });
        }
      }
      give_answers();
      if (is_stopping && listens) stop();
      if (Clock::now() - looked >= std::chrono::milliseconds(kTickMs)) {
        looked = Clock::now();
        look_at_clocks();
      }
      ended.clear();
    }
    while (!all.empty()) end(all.front());
    ended.clear();
  }

  // An exception, std::bad_alloc as a rule, ends the connection.
  template <class Work>
  void safely(Connection& c, const Work& work) noexcept {
    try {
      work(c);
    } catch (...) {
      end(c);
    }
  }

  void watch(const Descriptor& what, std::uint32_t events, void* name) const {
    epoll_event event = {};
    event.events = events;
    event.data.ptr = name;
    if (epoll_ctl(poll.number(), EPOLL_CTL_ADD, what.number(), &event) != 0) {
      fail(ErrorKind::file, "epoll: {}", std::strerror(errno));
    }
  }
  void change(const Descriptor& what, std::uint32_t events, void* name) const {
    epoll_event event = {};
    event.events = events;
    event.data.ptr = name;
    epoll_ctl(poll.number(), EPOLL_CTL_MOD, what.number(), &event);
  }
  void set_events(Connection& c, std::uint32_t events) const {
    if (c.events == events) return;
    c.events = events;
    change(c.socket, events, &c);
  }

  // ---- connections ----
  void set_accepting(bool accepts) {
    if (!listens || is_accepting == accepts) return;
    is_accepting = accepts;
    change(listener, accepts ? std::uint32_t{EPOLLIN} : 0u, nullptr);
  }

  void accept_all() noexcept {
    while (true) {
      if (connections >= options.connections) return set_accepting(false);
      Descriptor socket(::accept4(listener.number(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (socket.number() < 0) {
        if (errno == EINTR || errno == ECONNABORTED) continue;
        if (errno != EAGAIN && errno != EWOULDBLOCK) set_accepting(false);  // no descriptors: at the next tick
        return;
      }
      const int yes = 1;
      ::setsockopt(socket.number(), IPPROTO_TCP, TCP_NODELAY, &yes, sizeof yes);
      try {
        Connection& made = all.emplace_back(std::move(socket), options.most_body_bytes);
        made.self = std::prev(all.end());
        ++connections;
        safely(made, [&](Connection& c) { watch(c.socket, c.events, &c); });
      } catch (const std::exception&) {
        // of memory: the socket is closed
      }
    }
  }

  void end(Connection& c) noexcept {
    if (c.phase == Phase::ended) return;
    if (c.promise) {
      c.promise->is_awaited = false;
      forget_promise(c);
    }
    c.phase = Phase::ended;
    c.socket.close();
    ended.splice(ended.end(), all, c.self);  // an event of it may be under way
    --connections;
    set_accepting(true);
  }
  void forget_promise(Connection& c) noexcept {
    c.promise->connection = nullptr;
    c.promise.reset();
    --waiting;
  }

  void on_event(Connection& c, std::uint32_t events) {
    if ((events & (EPOLLERR | EPOLLHUP)) != 0) return end(c);
    switch (c.phase) {
      case Phase::reading: return read_some(c, (events & EPOLLRDHUP) != 0);
      case Phase::waiting: return is_seen_while_waiting(c, (events & EPOLLRDHUP) != 0);
      case Phase::sending: return send_more(c);
      case Phase::lingering: return discard(c);
      case Phase::ended: return;
    }
  }

  // After a request nothing more comes: the client is gone, or it only waits. Every answer begins in the same way: on
  // that the system of one that is gone answers with a reset.
  void find_out_who_left(Connection& c) {
    if (std::exchange(c.was_seen_to_end, true) || c.sent > 0) return;
    const auto sent = ::send(c.socket.number(), kHttpVersion.data(), kHttpVersion.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      c.sent = static_cast<std::size_t>(sent);
    } else if (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) {
      end(c);
    }
  }
  void is_seen_while_waiting(Connection& c, bool sends_no_more) {
    set_events(c,
               sends_no_more ? 0u : std::uint32_t{EPOLLRDHUP});  // bytes before the answer belong to the next request
    if (sends_no_more) find_out_who_left(c);
  }

  // Bytes that came, 0 at the end; < 0: none now, or the connection is over.
  ssize_t receive(Connection& c) {
    const ssize_t got = ::recv(c.socket.number(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (got < 0 && errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR) end(c);
    return got;
  }

  void read_some(Connection& c, bool sends_no_more) {
    const ssize_t got = receive(c);
    if (got < 0) return;
    if (got == 0) c.has_ended = true;
    c.in.append(buffer.data(), static_cast<std::size_t>(got));
    // A look at the request is worth it only when its client is still there: the answer to that comes first.
    if (got > 0 && sends_no_more && !c.was_seen_to_end) return find_out_who_left(c);
    go_on(c);
  }

  void go_on(Connection& c) {
    switch (c.reader.read(&c.in)) {
      case HttpReader::State::request: return hand_over(c);
      case HttpReader::State::refused:
        c.lingers = true;
        c.closes = true;
        c.is_head = false;
        return give(c, http_problem(c.reader.status(), c.reader.problem()), std::chrono::nanoseconds(-1));
      case HttpReader::State::unfinished: break;
    }
    if (c.has_ended && c.reader.is_in_request()) {
      c.closes = true;
      c.is_head = false;
      return give(c, http_problem(400, "the request ends too early"), std::chrono::nanoseconds(-1));
    }
    if (c.has_ended) return end(c);
    if (c.in.empty() && c.sent == 0 && c.reader.takes_continue()) {
      const auto sent = ::send(c.socket.number(), kContinue.data(), kContinue.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent != static_cast<ssize_t>(kContinue.size())) return end(c);
    }
    set_events(c, EPOLLIN | EPOLLRDHUP);
  }

  void hand_over(Connection& c) {
    auto promise = std::make_shared<HttpReply::Promise>(answered);
    HttpReply reply;
    reply.holder_ = std::make_shared<HttpReply::Holder>(promise);
    promise->connection = &c;
    c.promise = std::move(promise);
    ++waiting;
    c.phase = Phase::waiting;
    c.is_head = c.reader.request().method == "HEAD";
    if (c.has_ended) is_seen_while_waiting(c, true);
    if (c.phase == Phase::ended) return;
    try {
      handler(std::move(c.reader.request()), std::move(reply));
    } catch (...) {
      // The reply, which is gone now, has given 500.
    }
  }

  void give_answers() noexcept {
    std::shared_ptr<HttpReply::Promise> last, first;
    {
      const std::lock_guard lock(answered->mutex);
      last = std::move(answered->last);
    }
    while (last) {  // in the order in which they came
      std::shared_ptr<HttpReply::Promise> before = std::exchange(last->before, std::move(first));
      first = std::exchange(last, std::move(before));
    }
    while (first) {
      if (first->connection != nullptr) {
        safely(*first->connection, [&](Connection& c) {
          c.closes = !c.reader.keeps_alive() || is_stopping;
          forget_promise(c);
          const auto took = Clock::now() - first->came;
          first->has_answer ? give(c, std::move(first->answer), took) : give_none(c, took);
        });
      }
      first = std::exchange(first->before, nullptr);
    }
  }

  void give(Connection& c, HttpAnswer answer, std::chrono::nanoseconds latency) {
    try {
      c.head = http_head(answer, c.closes, c.reader.is_version_1_0());
      c.body = std::move(answer.body);
    } catch (const std::exception&) {
      return give_none(c, latency);
    }
    c.parts = {c.head, c.is_head ? std::string_view() : c.body};
    begin_to_send(c, answer.status, latency);
  }
  void give_none(Connection& c, std::chrono::nanoseconds latency) {
    c.closes = true;
    c.parts = {kNoAnswerHead, c.is_head ? std::string_view() : kNoAnswerBody};
    begin_to_send(c, 500, latency);
  }
  void begin_to_send(Connection& c, int status, std::chrono::nanoseconds latency) {
    if (observer) observer(status, latency);
    c.phase = Phase::sending;
    c.since = Clock::now();
    send_more(c);
  }

  void send_more(Connection& c) {
    while (c.sent < c.parts[0].size() + c.parts[1].size()) {
      std::array<iovec, 2> left{};
      std::size_t skipped = c.sent;
      for (std::size_t i = 0; i < 2; ++i) {
        const std::size_t skips = std::min(skipped, c.parts[i].size());
        left[i] = {const_cast<char*>(c.parts[i].data() + skips), c.parts[i].size() - skips};
        skipped -= skips;
      }
      msghdr message = {};
      message.msg_iov = left.data();
      message.msg_iovlen = left.size();
      const ssize_t sent = ::sendmsg(c.socket.number(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
      if (sent < 0 && errno == EINTR) continue;
      if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return set_events(c, EPOLLOUT);
      if (sent < 0) return end(c);
      c.sent += static_cast<std::size_t>(sent);
    }
    c.sent = 0;
    c.since = Clock::now();
    if (c.closes) return close_behind(c);
    c.phase = Phase::reading;
    if (is_stopping && c.in.empty()) return end(c);
    if (!c.in.empty() || c.has_ended) return go_on(c);
    set_events(c, EPOLLIN | EPOLLRDHUP);
  }

  void close_behind(Connection& c) {
    char byte = 0;
    const bool is_unread = !c.in.empty() || ::recv(c.socket.number(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0;
    if (c.has_ended || (!c.lingers && !is_unread)) return end(c);
    ::shutdown(c.socket.number(), SHUT_WR);
    c.phase = Phase::lingering;
    c.in.clear();
    set_events(c, EPOLLIN);
  }
  void discard(Connection& c) {
    if (receive(c) == 0) end(c);
  }

  template <class Work>
  void for_each(const Work& work) noexcept {
    for (auto at = all.begin(); at != all.end();) safely(*at++, work);
  }

  void look_at_clocks() noexcept {
    set_accepting(true);
    const auto latest = Clock::now() - std::chrono::seconds(options.seconds);
    for_each([&](Connection& c) {
      if (c.phase == Phase::waiting || c.since >= latest) return;
      if (c.phase == Phase::reading && c.reader.is_in_request()) {
        c.closes = true;
        give(c, http_problem(408, fmt::format("a request takes at most {} seconds", options.seconds)),
             std::chrono::nanoseconds(-1));
      }
      end(c);
    });
  }

  void stop() noexcept {
    accept_all();  // whoever the system has connected already
    listens = false;
    listener.close();
    for_each([&](Connection& c) {
      if (c.phase == Phase::reading) read_some(c, false);
      if (c.phase == Phase::reading && !c.reader.is_in_request()) end(c);
    });
    give_answers();
  }

  const HttpOptions options;
  const Handler handler;
  const Observer observer;
  Descriptor listener, poll;
  const std::shared_ptr<Answered> answered;
  std::atomic<bool> is_stopping = false, is_over = false;
  std::atomic<std::int64_t> connections = 0, waiting = 0;
  // Used by the server's thread alone.
  std::list<Connection> all, ended;
  bool listens = true, is_accepting = true;
  std::array<char, kReadBytes> buffer{};
  std::thread thread;
};

HttpServer::HttpServer(const HttpOptions& options, Handler handler, Observer observer) {
  raise_open_files(options.connections);
  state_ = std::make_unique<State>(options, std::move(handler), std::move(observer));
  port_ = port_of(state_->listener);
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

HttpServer::~HttpServer() {
  state_->is_over = true;
  state_->answered->notify();
  state_->thread.join();
  std::shared_ptr<HttpReply::Promise> left;
  {
    const std::lock_guard lock(state_->answered->mutex);
    state_->answered->is_over = true;
    left = std::move(state_->answered->last);
  }
  while (left) left = std::exchange(left->before, nullptr);
}

std::int64_t HttpServer::connections() const { return state_->connections; }
std::int64_t HttpServer::waiting() const { return state_->waiting; }

void HttpServer::stop_listening() {
  state_->is_stopping = true;
  state_->answered->notify();
}

void HttpServer::finish(std::chrono::milliseconds most) {
  const auto until = Clock::now() + most;
  while (connections() > 0 && Clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

}  // namespace paoding::cli
