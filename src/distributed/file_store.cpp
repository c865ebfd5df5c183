// SPDX-License-Identifier: Apache-2.0
// A store of ranks as a folder that all of them see: a value is a file, which gets its name when it is whole.
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "base/check.h"
#include "base/one_line.h"
#include "distributed/stores.h"

namespace paoding {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

class FileStore : public RankStore {
 public:
  explicit FileStore(fs::path folder) : folder_(std::move(folder)) {
    std::error_code error;
    fs::create_directories(folder_, error);
    if (!fs::is_directory(folder_, error)) {
      fail(ErrorKind::device, "ranks: {} is no folder and cannot be made one", one_line(folder_.string()));
    }
  }

  void set(const std::string& key, const std::string& value) override {
    static std::atomic<int> count{0};
    const fs::path part = folder_ / fmt::format("part.{}.{}", getpid(), ++count);
    {
      std::ofstream file(part, std::ios::binary);
      file.write(value.data(), static_cast<std::streamsize>(value.size()));
      file.close();
      if (!file) fail(ErrorKind::device, "ranks: cannot write {}", one_line(part.string()));
    }
    std::error_code error;
    fs::rename(part, place_of(key), error);
    if (error) fail(ErrorKind::device, "ranks: cannot write {}: {}", one_line(place_of(key).string()), error.message());
  }

  std::string get(const std::string& key, std::chrono::milliseconds timeout) override {
    constexpr auto kPoll = std::chrono::milliseconds(2);
    const auto end = Clock::now() + timeout;
    while (true) {
      if (std::ifstream file(place_of(key), std::ios::binary); file) {
        return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
      }
      if (Clock::now() >= end) fail_not_set(key, timeout);
      std::this_thread::sleep_for(kPoll);
    }
  }

  std::string local_address() const override { return "127.0.0.1"; }

 private:
  fs::path place_of(const std::string& key) const {
    std::string name = "key.";
    for (const char c : key) {
      const bool is_plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
      name += is_plain ? std::string(1, c) : fmt::format("_{:02x}", static_cast<unsigned char>(c));
    }
    return folder_ / name;
  }

  fs::path folder_;
};

}  // namespace

void fail_not_set(const std::string& key, std::chrono::milliseconds timeout) {
  fail(ErrorKind::device, "ranks: '{}' did not come within {} s", one_line(key),
       static_cast<double>(timeout.count()) / 1e3);
}

std::shared_ptr<RankStore> open_file_store(const std::string& folder) { return std::make_shared<FileStore>(folder); }

}  // namespace paoding
