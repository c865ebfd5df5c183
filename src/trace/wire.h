// SPDX-License-Identifier: Apache-2.0
// Protobuf's wire format, read without a schema: the fields of a message, one after the other. Whatever the bytes are,
// nothing beyond them is read, and a field that is not whole ends its message.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace paoding::trace {

enum class WireType : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, group = 3, end_group = 4, fixed32 = 5 };

/// The fields of one message:
///   for (WireReader message(bytes); message.next();) switch (message.field()) { ... }
class WireReader {
 public:
  /// A beginning gives its last field as far as it goes.
  enum class Extent : std::uint8_t { whole, beginning };

  WireReader() = default;
  explicit WireReader(std::string_view message, Extent extent = Extent::whole)
      : at_(message.data()), end_(message.data() + message.size()), readable_(end_), extent_(extent) {}
  /// A message inside of another one, behind which some bytes can be read as a rule: that is faster.
  WireReader(std::string_view message, const char* readable) : WireReader(message) { readable_ = readable; }
  /// The end of the bytes around, for messages that lie in this one.
  const char* readable() const { return readable_; }

  /// To the next field. False at the end and where the rest is no field: is_broken() says which.
  [[gnu::always_inline]] bool next() {
    // Nearly all fields have a number below 16, and a value, or a length, below 128.
    if (end_ - at_ >= 2) {
      const auto tag = static_cast<unsigned char>(at_[0]), value = static_cast<unsigned char>(at_[1]);
      if (tag >= 8 && tag < 0x80 && value < 0x80) {
        if ((tag & 7) == static_cast<unsigned>(WireType::varint)) {
          field_ = tag >> 3, type_ = WireType::varint, number_ = value, at_ += 2;
          return true;
        }
        if ((tag & 7) == static_cast<unsigned>(WireType::bytes) && value <= end_ - at_ - 2) {
          field_ = tag >> 3, type_ = WireType::bytes, bytes_ = {at_ + 2, value}, at_ += 2 + value;
          return true;
        }
      }
    }
    if (at_ == end_) return false;
    if (next_by_words()) return true;
    *this = behind_any(*this);
    return !is_over_;
  }

  std::uint32_t field() const { return field_; }
  WireType type() const { return type_; }
  /// 0 where the field is bytes.
  std::uint64_t number() const { return type_ == WireType::bytes ? 0 : number_; }
  std::int64_t signed_number() const { return static_cast<std::int64_t>(number()); }
  double real() const { return type_ == WireType::fixed64 ? std::bit_cast<double>(number_) : 0; }
  /// Text, or a message inside of this one; empty for a field that is a number.
  std::string_view bytes() const { return type_ == WireType::bytes ? bytes_ : std::string_view(); }
  /// Whether the message did not end where it should.
  bool is_broken() const { return is_broken_; }
  /// The bytes that follow the field that was read; empty once next() was false.
  std::string_view rest() const { return {at_, static_cast<std::size_t>(end_ - at_)}; }

 private:
  static constexpr std::uint64_t kMostField = (1u << 29) - 1;
  static constexpr int kMostGroups = 64;  // inside of each other

  // A copy, so that a compiler may keep the reader itself in registers.
  [[gnu::noinline]] static WireReader behind_any(WireReader from) {
    from.is_over_ = !from.next_of_any();
    return from;
  }

  // A tag of one or two bytes and a number, or a length of at most eight, where so many can be read. False where it is
  // anything else: next_of_any() reads it.
  [[gnu::always_inline]] bool next_by_words() {
    constexpr std::ptrdiff_t kTagBytes = 2, kWordBytes = 8, kMostBytes = 10;
    static_assert(std::endian::native == std::endian::little);
    if (readable_ - at_ < kTagBytes + kMostBytes) return false;
    std::uint32_t tag = static_cast<unsigned char>(at_[0]);
    const char* at = at_ + 1;
    if (tag >= 0x80) {
      const auto more = static_cast<unsigned char>(*at++);
      if (more >= 0x80) return false;
      tag = (tag & 0x7f) | static_cast<std::uint32_t>(more) << 7;
    }
    if (tag >> 3 == 0) return false;
    const auto type = static_cast<WireType>(tag & 7);
    std::uint64_t word;
    std::memcpy(&word, at, kWordBytes);
    if (type == WireType::fixed64) {
      at += kWordBytes;
      if (at > end_) return false;
      number_ = word;
    } else if (type == WireType::varint || type == WireType::bytes) {
      // The lowest byte without its highest bit ends the number; seven bits of each are its digits.
      const std::uint64_t ends = ~word & 0x8080808080808080;
      // Numbers made up at random, as tracks have, are of nine bytes or ten: those give the highest bits.
      std::uint64_t high = 0;
      if (ends == 0) {
        if (type != WireType::varint) return false;
        const auto ninth = static_cast<unsigned char>(at[8]), tenth = static_cast<unsigned char>(at[9]);
        if (ninth >= 0x80 && tenth >= 0x80) return false;
        high = static_cast<std::uint64_t>(ninth & 0x7f) << 56;
        if (ninth >= 0x80) high |= static_cast<std::uint64_t>(tenth) << 63;
        at += ninth >= 0x80 ? 10 : 9;
      } else {
        at += std::countr_zero(ends) / 8 + 1;
        word &= ends ^ (ends - 1);
      }
      if (at > end_) return false;
      word = (word & 0x007f007f007f007f) | (word & 0x7f007f007f007f00) >> 1;
      word = (word & 0x00003fff00003fff) | (word & 0x3fff00003fff0000) >> 2;
      word = (word & 0x000000000fffffff) | (word & 0x0fffffff00000000) >> 4;
      if (type == WireType::varint) {
        number_ = word | high;
      } else {
        if (word > static_cast<std::uint64_t>(end_ - at)) return false;
        bytes_ = {at, static_cast<std::size_t>(word)};
        at += word;
      }
    } else {
      return false;
    }
    field_ = tag >> 3, type_ = type, at_ = at;
    return true;
  }

  bool next_of_any() {
    while (at_ != end_) {
      std::uint64_t tag = 0;
      if (!take_varint(&tag) || tag >> 3 == 0 || tag >> 3 > kMostField) return stop();
      field_ = static_cast<std::uint32_t>(tag >> 3);
      type_ = static_cast<WireType>(tag & 7);
      switch (type_) {
        case WireType::varint: return take_varint(&number_) || stop();
        case WireType::bytes: return take_bytes() || stop();
        case WireType::fixed64: return take_fixed<std::uint64_t>() || stop();
        case WireType::fixed32: return take_fixed<std::uint32_t>() || stop();
        case WireType::group:
          if (!skip_group()) return stop();
          continue;  // no message that is read here has groups
        case WireType::end_group: return stop();
      }
      return stop();
    }
    return false;
  }

  bool stop() {
    is_broken_ = true;
    at_ = end_;
    return false;
  }

  bool take_varint(std::uint64_t* to) {
    if (at_ != end_ && static_cast<unsigned char>(*at_) < 0x80) {
      *to = static_cast<unsigned char>(*at_++);
      return true;
    }
    std::uint64_t value = 0;
    const char* at = at_;
    for (int shift = 0; shift < 70; shift += 7) {
      if (at == end_) return false;
      const auto byte = static_cast<unsigned char>(*at++);
      if (shift < 64) value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) {
        at_ = at;
        *to = value;
        return true;
      }
    }
    return false;  // longer than any number
  }

  bool take_bytes() {
    std::uint64_t length = 0;
    if (!take_varint(&length)) return false;
    if (const auto left = static_cast<std::uint64_t>(end_ - at_); length > left) {
      if (extent_ == Extent::whole) return false;
      length = left;
    }
    bytes_ = {at_, static_cast<std::size_t>(length)};
    at_ += length;
    return true;
  }

  template <class T>
  bool take_fixed() {
    static_assert(std::endian::native == std::endian::little);
    if (static_cast<std::size_t>(end_ - at_) < sizeof(T)) return false;
    T value;
    std::memcpy(&value, at_, sizeof(T));
    at_ += sizeof(T);
    number_ = value;
    return true;
  }

  // Behind the end that belongs to the group whose beginning was just read.
  bool skip_group() {
    std::uint32_t open[kMostGroups] = {field_};
    for (int depth = 1; depth > 0;) {
      std::uint64_t tag = 0;
      if (!take_varint(&tag) || tag >> 3 == 0 || tag >> 3 > kMostField) return false;
      const auto field = static_cast<std::uint32_t>(tag >> 3);
      switch (static_cast<WireType>(tag & 7)) {
        case WireType::varint:
          if (!take_varint(&number_)) return false;
          break;
        case WireType::bytes:
          if (!take_bytes()) return false;
          break;
        case WireType::fixed64:
          if (!take_fixed<std::uint64_t>()) return false;
          break;
        case WireType::fixed32:
          if (!take_fixed<std::uint32_t>()) return false;
          break;
        case WireType::group:
          if (depth == kMostGroups) return false;
          open[depth++] = field;
          break;
        case WireType::end_group:
          if (open[--depth] != field) return false;
          break;
        default: return false;
      }
    }
    return true;
  }

  const char* at_ = nullptr;
  const char* end_ = nullptr;
  const char* readable_ = nullptr;  // not before end_
  Extent extent_ = Extent::whole;
  std::uint32_t field_ = 0;
  WireType type_ = WireType::varint;
  bool is_broken_ = false, is_over_ = false;
  std::uint64_t number_ = 0;
  std::string_view bytes_;
};

/// Numbers one behind the other, as a packed field has them. False where they do not end with the bytes.
template <class Take>
bool for_each_packed(std::string_view bytes, Take&& take) {
  for (std::size_t i = 0; i < bytes.size();) {
    std::uint64_t value = 0;
    for (int shift = 0;; shift += 7) {
      if (i == bytes.size() || shift >= 70) return false;
      const auto byte = static_cast<unsigned char>(bytes[i++]);
      if (shift < 64) value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) break;
    }
    take(value);
  }
  return true;
}

}  // namespace paoding::trace
