// SPDX-License-Identifier: Apache-2.0
#include "base/run_switches.h"

#include <algorithm>
#include <charconv>

#include "base/check.h"
#include "base/env.h"
#include "base/one_line.h"

namespace paoding {
namespace {

constexpr const char* kVariable = "PAODING_RUN";
constexpr std::int64_t kMostAhead = 1 << 16;

bool flag_of(std::string_view key, std::string_view value) {
  if (value != "0" && value != "1") {
    fail(ErrorKind::argument, "{}: {} is '{}', needs to be 0 or 1", kVariable, key, one_line(value));
  }
  return value == "1";
}

std::int64_t batches_of(std::string_view key, std::string_view value) {
  std::int64_t batches = -1;
  const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), batches);
  if (problem != std::errc{} || end != value.data() + value.size() || batches < 0 || batches > kMostAhead) {
    fail(ErrorKind::argument, "{}: {} is '{}', needs to be a number from 0 to {}", kVariable, key, one_line(value),
         kMostAhead);
  }
  return batches;
}

void set_switch(std::string_view key, std::string_view value, RunSwitches* switches) {
  if (key == "read_ahead") {
    switches->read_ahead = batches_of(key, value);
  } else if (key == "fetch_later") {
    switches->fetch_later = flag_of(key, value);
  } else if (key == "pinned_feeds") {
    switches->pinned_feeds = flag_of(key, value);
  } else if (key == "overlapped_collectives") {
    switches->overlapped_collectives = flag_of(key, value);
  } else if (key == "double_buffered_feeds") {
    switches->double_buffered_feeds = flag_of(key, value);
  } else {
    fail(ErrorKind::argument,
         "{}: '{}={}' is no switch, needs to be read_ahead=N, fetch_later=1, pinned_feeds=1, "
         "double_buffered_feeds=1 or overlapped_collectives=1, with ; between several",
         kVariable, one_line(key), one_line(value));
  }
}

}  // namespace

RunSwitches run_switches(std::string_view words) {
  RunSwitches switches;
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(';'), words.size());
    const std::string_view word = words.substr(0, end);
    words.remove_prefix(std::min(end + 1, words.size()));
    const std::size_t equals = std::min(word.find('='), word.size());
    if (word.empty()) continue;
    set_switch(word.substr(0, equals), word.substr(std::min(equals + 1, word.size())), &switches);
  }
  return switches;
}

RunSwitches run_switches() { return run_switches(env_text(kVariable)); }

}  // namespace paoding
