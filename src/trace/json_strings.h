// SPDX-License-Identifier: Apache-2.0
// Strings of a JSON file as they stand in it, each kept once: a number for each, 0 is "". Most are names that come
// again and again, so that a look-up is a hash and a comparison.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace paoding::trace {

/// One thread adds; another may look up, meanwhile, numbers that it was handed by the first.
class RawStrings {
 public:
  RawStrings() : slots_(kFirstSlots) { add(""); }

  std::uint32_t add(std::string_view text) {
    const std::uint64_t hash = hash_of(text);
    const auto tag = static_cast<std::uint32_t>(hash >> 32);
    for (std::size_t at = hash & (slots_.size() - 1);; at = (at + 1) & (slots_.size() - 1)) {
      Slot& slot = slots_[at];
      if (slot.number == kEmpty) return insert(at, tag, text);
      if (slot.tag == tag && is_same((*this)[slot.number], text)) return slot.number;
    }
  }
  std::string_view operator[](std::uint32_t number) const {
    const Shelf at = shelf_of(number);
    return shelves_[at.shelf][at.place];
  }
  std::size_t size() const { return size_; }

 private:
  static constexpr std::uint32_t kEmpty = 0xffffffff;
  static constexpr std::size_t kFirstSlots = 1 << 12, kPageBytes = 1 << 18, kFirstShelf = 1 << 10;
  struct Slot {
    std::uint32_t tag = 0, number = kEmpty;
  };

  // Texts stand on shelves, each twice as long as the one before, so that none moves when others are added.
  struct Shelf {
    std::size_t shelf, place;
  };
  static Shelf shelf_of(std::uint32_t number) {
    const std::size_t from_one = number / kFirstShelf + 1;
    const auto shelf = static_cast<std::size_t>(std::bit_width(from_one)) - 1;
    return {shelf, number - kFirstShelf * ((std::size_t{1} << shelf) - 1)};
  }

  // The first and the last bytes of a text of at most 16, which overlap where it has fewer than that.
  struct Ends {
    std::uint64_t first = 0, last = 0;
    bool operator==(const Ends&) const = default;
  };
  static constexpr std::size_t kShort = 16;
  static Ends ends_of(std::string_view text) {
    Ends ends;
    const char* at = text.data();
    const std::size_t size = text.size();
    if (size >= 8) {
      std::memcpy(&ends.first, at, 8);
      std::memcpy(&ends.last, at + size - 8, 8);
    } else if (size >= 4) {
      std::uint32_t first, last;
      std::memcpy(&first, at, 4);
      std::memcpy(&last, at + size - 4, 4);
      ends = {first, last};
    } else if (size > 0) {
      const auto byte = [&](std::size_t i) { return std::uint64_t{static_cast<unsigned char>(at[i])}; };
      ends.first = byte(0) | byte(size / 2) << 8 | byte(size - 1) << 16;
    }
    return ends;
  }
  static bool is_same(std::string_view a, std::string_view b) {
    if (a.size() != b.size()) return false;
    return a.size() <= kShort ? ends_of(a) == ends_of(b) : std::memcmp(a.data(), b.data(), a.size()) == 0;
  }

  static std::uint64_t hash_of(std::string_view text) {
    constexpr std::uint64_t kFactor = 0x9e3779b97f4a7c15ull, kOther = 0x5851f42d4c957f2dull;
    const auto mixed = [](std::uint64_t a, std::uint64_t b) {
      const auto wide = static_cast<unsigned __int128>(a) * b;
      return static_cast<std::uint64_t>(wide) ^ static_cast<std::uint64_t>(wide >> 64);
    };
    std::uint64_t hash = text.size() * kFactor;
    for (; text.size() > kShort; text.remove_prefix(kShort)) {
      const Ends ends = ends_of(text.substr(0, kShort));
      hash = mixed(hash ^ ends.first ^ kFactor, ends.last ^ kOther);
    }
    const Ends ends = ends_of(text);
    return mixed(mixed(hash ^ ends.first ^ kFactor, ends.last ^ kOther), kFactor);
  }

  std::uint32_t insert(std::size_t at, std::uint32_t tag, std::string_view text) {
    const auto number = static_cast<std::uint32_t>(size_++);
    const Shelf own = shelf_of(number);
    if (own.place == 0) shelves_[own.shelf] = std::make_unique<std::string_view[]>(kFirstShelf << own.shelf);
    shelves_[own.shelf][own.place] = keep(text);
    slots_[at] = {tag, number};
    if (size_ * 2 > slots_.size()) grow();
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
      std::size_t at = hash_of((*this)[slot.number]) & (slots_.size() - 1);
      while (slots_[at].number != kEmpty) at = (at + 1) & (slots_.size() - 1);
      slots_[at] = slot;
    }
  }

  std::vector<Slot> slots_;
  std::array<std::unique_ptr<std::string_view[]>, 23> shelves_;  // for all numbers of 32 bits
  std::size_t size_ = 0;
  std::vector<std::unique_ptr<char[]>> pages_, pages_of_one_;
  std::size_t used_ = 0;
};

/// What a string of JSON says: escapes replaced; what is no valid escape stays as it is. Bytes that are no UTF-8 become
/// U+FFFD, and `*is_clean` false.
std::string unescaped(std::string_view raw, bool* is_clean);

}  // namespace paoding::trace
