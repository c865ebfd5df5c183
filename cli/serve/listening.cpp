// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/listening.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>
#include <memory>

#include "base/check.h"
#include "base/one_line.h"

namespace paoding::cli {
namespace {

struct Address {
  sockaddr_storage bytes = {};
  socklen_t size = 0;
};

Address parsed(const std::string& text, int port) {
  Address address;
  sockaddr_in four = {};
  if (inet_pton(AF_INET, text.c_str(), &four.sin_addr) == 1) {
    four.sin_family = AF_INET;
    four.sin_port = htons(static_cast<std::uint16_t>(port));
    std::memcpy(&address.bytes, &four, sizeof four);
    address.size = sizeof four;
    return address;
  }
  // IPv6, where an address may name a device: fe80::1%eth0.
  addrinfo hints = {}, *found = nullptr;
  hints.ai_family = AF_INET6;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  if (getaddrinfo(text.c_str(), std::to_string(port).c_str(), &hints, &found) != 0) {
    fail(ErrorKind::argument, "'{}' is no IPv4 or IPv6 address", one_line(text));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  std::memcpy(&address.bytes, found->ai_addr, found->ai_addrlen);
  address.size = found->ai_addrlen;
  return address;
}

}  // namespace

std::string host_and_port(const std::string& address, int port) {
  const bool is_six = address.find(':') != address.npos;
  return fmt::format("{}{}{}:{}", is_six ? "[" : "", address, is_six ? "]" : "", port);
}

Descriptor listening_socket(const std::string& address, int port) {
  const Address at = parsed(address, port);
  const auto is_done = [&](int result) {
    if (result >= 0) return;
    const int error = errno;
    fail(ErrorKind::file, "{} cannot be listened at: {}{}", host_and_port(one_line(address), port),
         std::strerror(error),
         error == EADDRINUSE ? " (another program listens there; --port 0 takes a port that is free)" : "");
  };
  Descriptor made(::socket(at.bytes.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  is_done(made.number());
  const int yes = 1, no = 0;
  // On Linux this is of connections that are over: where a socket listens another one cannot.
  is_done(::setsockopt(made.number(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes));
  if (at.bytes.ss_family == AF_INET6) {
    is_done(::setsockopt(made.number(), IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof no));
  }
  is_done(::bind(made.number(), reinterpret_cast<const sockaddr*>(&at.bytes), at.size));
  is_done(::listen(made.number(), SOMAXCONN));
  return made;
}

int port_of(const Descriptor& socket) {
  sockaddr_storage bytes = {};
  socklen_t size = sizeof bytes;
  if (::getsockname(socket.number(), reinterpret_cast<sockaddr*>(&bytes), &size) != 0) return 0;
  return ntohs(bytes.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6*>(&bytes)->sin6_port
                                           : reinterpret_cast<const sockaddr_in*>(&bytes)->sin_port);
}

}  // namespace paoding::cli
