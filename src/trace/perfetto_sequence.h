// SPDX-License-Identifier: Apache-2.0
// Facts that packets of a Perfetto trace take from packets before them: texts by number, the writer's defaults, and
// arguments and tracks that come again.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "trace/perfetto_events.h"

namespace paoding::trace {

/// Texts by the numbers that a writer gave them, which count up from 1 as a rule.
class NumberedTexts {
 public:
  void set(std::uint64_t id, PerfettoText text) {
    if (id >= kMostDense) {
      sparse_[id] = text;
      return;
    }
    if (id >= dense_.size()) dense_.resize(std::max<std::size_t>(id + 1, 2 * dense_.size()), kMissing);
    dense_[id] = text;
  }
  /// 0 where there is none, and `*is_missing` is set.
  PerfettoText look_up(std::uint64_t id, bool* is_missing) const {
    PerfettoText text = kMissing;
    if (id < dense_.size()) {
      text = dense_[id];
    } else if (const auto found = sparse_.find(id); found != sparse_.end()) {
      text = found->second;
    }
    if (text != kMissing) return text;
    *is_missing = true;
    return 0;
  }

 private:
  static constexpr PerfettoText kMissing = 0xffffffff;
  static constexpr std::uint64_t kMostDense = 1 << 16;
  std::vector<PerfettoText> dense_;
  std::unordered_map<std::uint64_t, PerfettoText> sparse_;
};

/// Packets of one writer refer to these.
struct PerfettoSequence {
  NumberedTexts categories, names, argument_names, texts, stages, kernels;
  std::unordered_map<std::uint64_t, std::int64_t> pids;  // of graphics contexts
  std::uint64_t default_track = 0, default_clock = 0;
  bool is_known = true;                                        // false from a loss until the writer begins anew
  std::unordered_map<std::uint64_t, std::int64_t> own_clocks;  // where those that count up from packet to packet are

  void forget() { *this = PerfettoSequence(); }
};

/// Arguments that were met not long ago, by their bytes: "op" of the same op comes again and again.
class KnownArguments {
 public:
  const PerfettoArgument* find(std::string_view message) const {
    if (message.size() < kLeast || message.size() > kMost) return nullptr;
    const Known& known = all_[place_of(message)];
    const bool is_it = known.size == message.size() && std::memcmp(known.bytes.data(), message.data(), known.size) == 0;
    return is_it ? &known.argument : nullptr;
  }
  void keep(std::string_view message, const PerfettoArgument& argument) {
    if (message.size() < kLeast || message.size() > kMost) return;
    Known& known = all_[place_of(message)];
    known.argument = argument;
    known.size = message.size();
    std::memcpy(known.bytes.data(), message.data(), message.size());
  }

 private:
  static constexpr std::size_t kLeast = 8, kMost = 104;
  struct Known {
    PerfettoArgument argument;
    std::size_t size = 0;
    std::array<char, kMost> bytes;
  };
  static std::size_t place_of(std::string_view message) {
    std::uint64_t middle, last;
    std::memcpy(&middle, message.data() + (message.size() - sizeof(middle)) / 2, sizeof(middle));
    std::memcpy(&last, message.data() + message.size() - sizeof(last), sizeof(last));
    return ((middle ^ std::rotl(last, 29)) + message.size()) * 0x9e3779b97f4a7c15ull >> (64 - kBits);
  }
  static constexpr int kBits = 10;
  std::vector<Known> all_ = std::vector<Known>(std::size_t{1} << kBits);
};

/// The last descriptions of tracks, by their bytes: writers describe a track again whenever they begin anew.
class KnownTracks {
 public:
  /// Whether the track was described by the same bytes when it was described last. From now on these are the last.
  /// `readable`: the end of the bytes around it.
  bool is_again(std::string_view description, const char* readable) {
    std::uint64_t uuid = 0;
    for (WireReader all(description, readable); all.next();) {
      if (all.field() == 1) uuid = all.number();
    }
    Known& known = all_[uuid * 0x9e3779b97f4a7c15ull >> (64 - kBits)];
    if (known.is_set && known.size == description.size() &&
        std::memcmp(known.bytes.data(), description.data(), known.size) == 0) {
      return true;
    }
    known.is_set = description.size() <= kMost;
    if (!known.is_set) return false;
    known.size = static_cast<std::uint8_t>(description.size());
    std::ranges::copy(description, known.bytes.begin());
    return false;
  }

 private:
  static constexpr std::size_t kMost = 126;
  struct Known {
    bool is_set = false;
    std::uint8_t size = 0;
    std::array<char, kMost> bytes;
  };
  static constexpr int kBits = 12;
  std::vector<Known> all_ = std::vector<Known>(std::size_t{1} << kBits);
};

}  // namespace paoding::trace
