// SPDX-License-Identifier: Apache-2.0
// A file descriptor that is closed with its owner, and sockets that listen.
#pragma once

#include <unistd.h>

#include <string>
#include <utility>

namespace paoding::cli {

class Descriptor {
 public:
  explicit Descriptor(int number = -1) : number_(number) {}
  ~Descriptor() { close(); }
  Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    close();
    number_ = std::exchange(other.number_, -1);
    return *this;
  }
  int number() const { return number_; }
  void close() {
    if (number_ >= 0) ::close(number_);
    number_ = -1;
  }

 private:
  int number_;
};

/// A socket that listens at an IPv4 or IPv6 address; "::" is every address of both. Connections of a server before that
/// are still going away are in nobody's way, a server that listens is. Error (argument) on an address that is none,
/// (file) when the port cannot be had.
Descriptor listening_socket(const std::string& address, int port);
int port_of(const Descriptor& socket);
/// "127.0.0.1:8080", "[::1]:8080".
std::string host_and_port(const std::string& address, int port);

}  // namespace paoding::cli
