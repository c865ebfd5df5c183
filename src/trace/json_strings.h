// SPDX-License-Identifier: Apache-2.0
// Strings of a JSON file as they stand in it, each kept once: a number for each, 0 is "". Most are names that come
// again and again, so that a look-up is a hash and a comparison.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace paoding::trace {

class RawStrings {
 public:
  RawStrings() : slots_(kFirstSlots) { add(""); }

  std::uint32_t add(std::string_view text) {
    const std::uint64_t hash = hash_of(text);
    const auto tag = static_cast<std::uint32_t>(hash >> 32);
    for (std::size_t at = hash & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
      Slot& slot = slots_[at];
      if (slot.number == kEmpty) return insert(at, tag, text);
      if (slot.tag == tag && texts_[slot.number] == text) return slot.number;
    }
  }
  std::string_view operator[](std::uint32_t number) const { return texts_[number]; }
  std::size_t size() const { return texts_.size(); }

 private:
  static constexpr std::uint32_t kEmpty = 0xffffffff;
  static constexpr std::size_t kFirstSlots = 1 << 12, kPageBytes = 1 << 18;
  struct Slot {
    std::uint32_t tag = 0, number = kEmpty;
  };

  static std::uint64_t hash_of(std::string_view text) {
    constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15ull;
    std::uint64_t hash = text.size() * kFactor;
    const char* at = text.data();
    std::size_t left = text.size();
    const auto mix = [&](std::uint64_t word) {
      const auto wide = static_cast<unsigned __int128>(hash ^ word) * kFactor;
      hash = static_cast<std::uint64_t>(wide) ^ static_cast<std::uint64_t>(wide >> 64);
    };
    for (; left >= 8; at += 8, left -= 8) {
      std::uint64_t word;
      std::memcpy(&word, at, 8);
      mix(word);
    }
    std::uint64_t word = 0;
    if (left > 0) std::memcpy(&word, at, left);  // an empty text may be nowhere
    mix(word);
    mix(0x5851f42d4c957f2dull);
    return hash;
  }

  std::uint32_t insert(std::size_t at, std::uint32_t tag, std::string_view text) {
    const auto number = static_cast<std::uint32_t>(texts_.size());
    texts_.push_back(keep(text));
    slots_[at] = {tag, number};
    if (texts_.size() * 2 > slots_.size()) grow();
    return number;
  }
  std::string_view keep(std::string_view text) {
    if (text.empty()) return "";
    if (text.size() > kPageBytes / 4) {
      pages_of_one_.push_back(std::make_unique<char[]>(text.size()));
      std::memcpy(pages_of_one_.back().get(), text.data(), text.size());
      return {pages_of_one_.back().get(), text.size()};
    }
    if (pages_.empty() || kPageBytes - used_ < text.size()) {
      pages_.push_back(std::make_unique<char[]>(kPageBytes));
      used_ = 0;
    }
    char* to = pages_.back().get() + used_;
    std::memcpy(to, text.data(), text.size());
    used_ += text.size();
    return {to, text.size()};
  }
  void grow() {
    std::vector<Slot> old(slots_.size() * 2);
    old.swap(slots_);
    for (const Slot& slot : old) {
      if (slot.number == kEmpty) continue;
      std::size_t at = hash_of(texts_[slot.number]) & (slots_.size() - 1);
      while (slots_[at].number != kEmpty) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::vector<std::string_view> texts_;
  std::vector<std::unique_ptr<char[]>> pages_, pages_of_one_;
  std::size_t used_ = 0;
};

/// What a string of JSON says: escapes replaced; what is no valid escape stays as it is. Bytes that are no UTF-8 become
/// U+FFFD, and `*is_clean` false.
std::string unescaped(std::string_view raw, bool* is_clean);

}  // namespace paoding::trace
