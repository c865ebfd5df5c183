// SPDX-License-Identifier: Apache-2.0
// A store of ranks over TCP: rank 0 keeps the values, in a thread that answers the others. A request is a letter, S or
// G, and two texts, each with its length in four bytes, least first; an answer is one text. A G is answered when its
// key is set; who asked too long closes the connection and asks no more.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/one_line.h"
#include "distributed/stores.h"

namespace paoding {
namespace {

using Clock = std::chrono::steady_clock;
using Milliseconds = std::chrono::milliseconds;

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(number_, other.number_);
    return *this;
  }
  ~Descriptor() {
    if (number_ >= 0) close(number_);
  }
  int get() const { return number_; }

 private:
  int number_;
};

std::string framed(std::string_view text) {
  const auto size = static_cast<std::uint32_t>(text.size());
  std::string bytes;
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(size >> shift & 0xffu);
  return bytes.append(text);
}

// The text that the bytes begin with, and how many bytes it takes; 0: there is more to come. Error (device) when it is
// longer than any of ours.
std::size_t take_text(std::string_view bytes, std::string* text) {
  if (bytes.size() < 4) return 0;
  std::uint32_t size = 0;
  for (int i = 3; i >= 0; --i) size = size << 8 | static_cast<unsigned char>(bytes[static_cast<std::size_t>(i)]);
  if (size > kMostStoredBytes) fail(ErrorKind::device, "ranks: a message of {} bytes is none of paoding's", size);
  if (bytes.size() < 4 + std::size_t{size}) return 0;
  *text = bytes.substr(4, size);
  return 4 + std::size_t{size};
}

// Sends all of it, before the end.
bool send_all(int socket, std::string_view bytes, Clock::time_point end) {
  while (!bytes.empty()) {
    const ssize_t sent = send(socket, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      bytes.remove_prefix(static_cast<std::size_t>(sent));
      continue;
    }
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno != EAGAIN) return false;
    const auto left = std::chrono::duration_cast<Milliseconds>(end - Clock::now()).count();
    pollfd room{socket, POLLOUT, 0};
    if (left <= 0 || poll(&room, 1, static_cast<int>(std::min<long>(left, 1 << 30))) == 0) return false;
  }
  return true;
}

// The values, and who waits for one.
class StoredValues {
 public:
  void set(const std::string& key, const std::string& value) {
    {
      const std::lock_guard lock(mutex_);
      values_[key] = value;
    }
    changed_.notify_all();
  }
  std::optional<std::string> find(const std::string& key) {
    const std::lock_guard lock(mutex_);
    const auto found = values_.find(key);
    return found == values_.end() ? std::nullopt : std::optional(found->second);
  }
  std::string wait(const std::string& key, Milliseconds timeout) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, timeout, [&] { return values_.contains(key); })) fail_not_set(key, timeout);
    return values_[key];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::string> values_;
};

class TcpServer : public RankStore {
 public:
  TcpServer(const std::string& host, int port) : host_(host), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    Descriptor listening(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    const int on = 1;
    setsockopt(listening.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = host == "localhost" || host.starts_with("127.") ? htonl(INADDR_LOOPBACK) : INADDR_ANY;
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    if (bind(listening.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
        listen(listening.get(), 128) != 0) {
      fail(ErrorKind::device,
           "ranks: rank 0 cannot listen on port {}: {}\nhint: PAODING_STORE=tcp:host:port takes another", port,
           std::strerror(errno));
    }
    listening_ = std::move(listening);
    thread_ = std::thread([this] { serve(); });
  }
  ~TcpServer() override {
    const std::uint64_t one = 1;
    [[maybe_unused]] const auto written = write(wake_.get(), &one, sizeof one);
    thread_.join();
  }

  void set(const std::string& key, const std::string& value) override {
    values_.set(key, value);
    const std::uint64_t one = 0x100;  // not the end
    [[maybe_unused]] const auto written = write(wake_.get(), &one, sizeof one);
  }
  std::string get(const std::string& key, Milliseconds timeout) override { return values_.wait(key, timeout); }
  std::string local_address() const override { return host_; }

 private:
  struct Peer {
    Descriptor socket;
    std::string received;
    std::string waits_for;  // a key that is not set yet
    bool waits = false;
  };

  void serve() {
    while (true) {
      std::vector<pollfd> polled{{wake_.get(), POLLIN, 0}, {listening_.get(), POLLIN, 0}};
      for (const Peer& peer : peers_) polled.push_back({peer.socket.get(), POLLIN, 0});
      if (poll(polled.data(), polled.size(), -1) < 0 && errno != EINTR) return;
      if (polled[0].revents != 0) {
        std::uint64_t count = 0;
        [[maybe_unused]] const auto read_bytes = read(wake_.get(), &count, sizeof count);
        if ((count & 0xff) != 0) return;
      }
      std::size_t i = 2;
      for (auto peer = peers_.begin(); peer != peers_.end(); ++i) {
        const bool stays = i >= polled.size() || polled[i].revents == 0 || receive(*peer);
        peer = stays ? std::next(peer) : peers_.erase(peer);
      }
      if (polled[1].revents != 0) {
        Descriptor made(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (made.get() >= 0) peers_.push_back({std::move(made), {}, {}});
      }
      for (auto peer = peers_.begin(); peer != peers_.end();) {
        peer = !peer->waits || answer(*peer) ? std::next(peer) : peers_.erase(peer);
      }
    }
  }

  // Whether the peer stays.
  bool receive(Peer& peer) {
    char bytes[4096];
    const ssize_t got = recv(peer.socket.get(), bytes, sizeof bytes, MSG_DONTWAIT);
    if (got <= 0) return got < 0 && (errno == EAGAIN || errno == EINTR);
    peer.received.append(bytes, static_cast<std::size_t>(got));
    if (peer.received.size() > 3 * kMostStoredBytes) return false;  // of one request, and some of the next
    try {
      while (take_request(peer)) {
      }
    } catch (const Error&) {
      return false;
    }
    return true;
  }

  bool take_request(Peer& peer) {
    if (peer.received.empty() || peer.waits) return false;
    const char what = peer.received[0];
    if (what != 'S' && what != 'G') fail(ErrorKind::device, "ranks: a request is none of paoding's");
    const std::string_view all = peer.received;
    std::string key, value;
    const std::size_t first = take_text(all.substr(1), &key);
    const std::size_t second = first == 0 ? 0 : take_text(all.substr(1 + first), &value);
    if (second == 0) return false;
    peer.received.erase(0, 1 + first + second);
    if (what == 'S') {
      values_.set(key, value);
      return send_all(peer.socket.get(), framed(""), Clock::now() + std::chrono::seconds(5));
    }
    peer.waits = true;
    peer.waits_for = key;
    return false;
  }

  bool answer(Peer& peer) {
    const auto value = values_.find(peer.waits_for);
    if (!value) return true;
    peer.waits = false;
    return send_all(peer.socket.get(), framed(*value), Clock::now() + std::chrono::seconds(5)) &&
           (peer.received.empty() || receive_rest(peer));
  }
  bool receive_rest(Peer& peer) {
    try {
      take_request(peer);
    } catch (const Error&) {
      return false;
    }
    return true;
  }

  std::string host_;
  Descriptor wake_, listening_;
  std::list<Peer> peers_;
  StoredValues values_;
  std::thread thread_;
};

class TcpClient : public RankStore {
 public:
  TcpClient(const std::string& host, int port, Milliseconds timeout)
      : where_(fmt::format("{}:{}", one_line(host), port)) {
    const auto end = Clock::now() + timeout;
    std::string problem;
    do {
      if (connect_to(host, port, &problem)) return;
      std::this_thread::sleep_for(Milliseconds(20));
    } while (Clock::now() < end);
    fail(ErrorKind::device, "ranks: rank 0 is not at {} after {} s: {}", where_,
         static_cast<double>(timeout.count()) / 1e3, problem);
  }

  void set(const std::string& key, const std::string& value) override {
    if (key.size() > kMostStoredBytes || value.size() > kMostStoredBytes) {
      fail(ErrorKind::argument, "ranks: '{}' has {} bytes, at most {} can be left", one_line(key), value.size(),
           kMostStoredBytes);
    }
    ask('S', key, value, std::chrono::seconds(60));
  }
  std::string get(const std::string& key, Milliseconds timeout) override { return ask('G', key, "", timeout); }
  std::string local_address() const override { return address_; }

 private:
  bool connect_to(const std::string& host, int port, std::string* problem) {
    addrinfo hints{};
    hints.ai_family = AF_INET;
    hints.ai_socktype = SOCK_STREAM;
    addrinfo* found = nullptr;
    if (const int error = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &found); error != 0) {
      *problem = gai_strerror(error);
      return false;
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> held(found, freeaddrinfo);
    Descriptor made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (connect(made.get(), found->ai_addr, found->ai_addrlen) != 0) {
      *problem = std::strerror(errno);
      return false;
    }
    const int on = 1;
    setsockopt(made.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    sockaddr_in mine{};
    socklen_t size = sizeof mine;
    char text[INET_ADDRSTRLEN] = "";
    if (getsockname(made.get(), reinterpret_cast<sockaddr*>(&mine), &size) == 0) {
      inet_ntop(AF_INET, &mine.sin_addr, text, sizeof text);
    }
    address_ = text;
    socket_ = std::move(made);
    return true;
  }

  std::string ask(char what, const std::string& key, const std::string& value, Milliseconds timeout) {
    const std::lock_guard lock(mutex_);
    const auto end = Clock::now() + timeout;
    if (!send_all(socket_.get(), what + framed(key) + framed(value), end)) fail_gone();
    std::string received, text;
    while (take_text(received, &text) == 0) {
      const auto left = std::chrono::duration_cast<Milliseconds>(end - Clock::now()).count();
      pollfd ready{socket_.get(), POLLIN, 0};
      if (left <= 0 || poll(&ready, 1, static_cast<int>(std::min<long>(left, 1 << 30))) == 0) {
        shutdown(socket_.get(), SHUT_RDWR);  // an answer that comes later would be taken for that of another question
        fail_not_set(key, timeout);
      }
      char bytes[4096];
      const ssize_t got = recv(socket_.get(), bytes, sizeof bytes, MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN && errno != EINTR)) fail_gone();
      if (got > 0) received.append(bytes, static_cast<std::size_t>(got));
    }
    return text;
  }

  [[noreturn]] void fail_gone() const { fail(ErrorKind::device, "ranks: rank 0 at {} is gone", where_); }

  std::string where_, address_;
  Descriptor socket_;
  std::mutex mutex_;
};

}  // namespace

std::shared_ptr<RankStore> open_tcp_store(const std::string& host, int port, bool listens, Milliseconds timeout) {
  if (listens) return std::make_shared<TcpServer>(host, port);
  return std::make_shared<TcpClient>(host, port, timeout);
}

}  // namespace paoding
