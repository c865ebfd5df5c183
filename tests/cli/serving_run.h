// SPDX-License-Identifier: Apache-2.0
// `paoding serve` in a test's folder, and clients that send any bytes over sockets.
#pragma once

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstring>

#include "tests/cli/training_run.h"

namespace paoding {

class ServingRun : public TrainingRun {
 protected:
  void TearDown() override {
    if (server_ > 0) kill(server_, SIGKILL), waitpid(server_, nullptr, 0);
    TrainingRun::TearDown();
  }

  // The port, which it says when it listens.
  void start(const std::string& model, const std::vector<std::string>& options) {
    int ends[2];
    ASSERT_EQ(pipe(ends), 0);
    server_ = fork();
    if (server_ == 0) {
      dup2(ends[1], STDOUT_FILENO);
      close(ends[0]);
      if (chdir(folder_.path().c_str()) != 0) _exit(1);
      setenv("OMP_NUM_THREADS", "2", 1);
      std::vector<std::string> words{"paoding", "serve", model};
      words.insert(words.end(), options.begin(), options.end());
      if (std::find(options.begin(), options.end(), "--port") == options.end()) {
        words.insert(words.end(), {"--port", "0"});
      }
      std::vector<char*> arguments;
      for (std::string& word : words) arguments.push_back(word.data());
      arguments.push_back(nullptr);
      execv(program_.c_str(), arguments.data());
      _exit(1);
    }
    close(ends[1]);
    out_ = ends[0];
    std::string line;
    for (char c = 0; c != '\n' && read(out_, &c, 1) == 1;) line += c;
    const std::size_t at = line.find("/predict: ");
    ASSERT_NE(at, std::string::npos) << line;
    port_ = std::stoi(line.substr(line.rfind(':', at) + 1));
  }
  // The exit code after a signal; -1 when another one ends it, within a minute.
  int end(int signal = SIGTERM) {
    kill(server_, signal);
    int status = 0;
    for (int i = 0; waitpid(server_, &status, WNOHANG) == 0; ++i) {
      if (i == 6000) kill(server_, SIGKILL);
      usleep(10'000);
    }
    server_ = 0;
    close(out_);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

  int connected() const {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in to = {};
    to.sin_family = AF_INET, to.sin_port = htons(static_cast<std::uint16_t>(port_));
    inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
    return ::connect(fd, reinterpret_cast<sockaddr*>(&to), sizeof to) == 0 ? fd : -1;
  }
  static std::string all_of(int fd) {
    std::string text;
    char buffer[4096];
    for (ssize_t got; (got = ::recv(fd, buffer, sizeof buffer, 0)) > 0;)
      text.append(buffer, static_cast<std::size_t>(got));
    ::close(fd);
    return text;
  }
  // Whether one whole answer came; the connection stays.
  static bool takes_answer(int fd) {
    std::string text;
    for (char buffer[4096];;) {
      const std::size_t head = text.find("\r\n\r\n"), length = text.find("Content-Length: ");
      if (head != std::string::npos && length < head &&
          text.size() >= head + 4 + std::stoul(text.substr(length + std::strlen("Content-Length: "))))
        return text.rfind("HTTP/1.1 200", 0) == 0;
      const ssize_t got = ::recv(fd, buffer, sizeof buffer, 0);
      if (got <= 0) return false;
      text.append(buffer, static_cast<std::size_t>(got));
    }
  }
  std::string send_text(const std::string& text) const {
    const int fd = connected();
    if (fd < 0) return "no connection";
    ::send(fd, text.data(), text.size(), MSG_NOSIGNAL);
    return all_of(fd);
  }
  std::string ask(const std::string& method, const std::string& path, const std::string& body = "",
                  const std::string& type = "text/plain") const {
    return send_text(method + " " + path + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Type: " + type +
                     "\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  }
  static std::string body_of(const std::string& answer) {
    const std::size_t at = answer.find("\r\n\r\n");
    return at == std::string::npos ? answer : answer.substr(at + 4);
  }

  pid_t server_ = 0;
  int out_ = -1, port_ = 0;
};

/// With a small g2p model in g2p.pd, of the run in a.
class ServingWords : public ServingRun {
 protected:
  void SetUp() override {
    ServingRun::SetUp();
    ASSERT_EQ(shell("paoding train g2p --hidden=24 --layers=1 --batch-size=8 --epochs=10 --learning-rate 0.02 "
                    "--dropout 0 --show 0 --out a")
                  .code,
              0);
    const Ran made = shell("paoding export a g2p.pd");
    ASSERT_EQ(made.code, 0) << made.err;
    EXPECT_TRUE(has(made.out, "g2p.pd: g2p of step ")) << made.out;
  }
  void start(const std::vector<std::string>& options) { ServingRun::start("g2p.pd", options); }
};

}  // namespace paoding
