// SPDX-License-Identifier: Apache-2.0
// Protobuf's wire format, written by hand: a handful of messages does not need a compiler of them. trace/wire.h reads
// it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace paoding::profile {

/// A message under construction.
class ProtobufMessage {
 public:
  void number(std::uint32_t field, std::uint64_t value) {
    tag(field, 0);
    varint(value);
  }
  void fixed64(std::uint32_t field, std::uint64_t value) {
    tag(field, 1);
    for (int shift = 0; shift < 64; shift += 8) bytes_.push_back(static_cast<char>(value >> shift));
  }
  void text(std::uint32_t field, std::string_view value) {
    tag(field, 2);
    varint(value.size());
    bytes_.append(value);
  }
  void message(std::uint32_t field, const ProtobufMessage& value) { text(field, value.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  void tag(std::uint32_t field, std::uint32_t type) { varint(std::uint64_t{field} << 3 | type); }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_.push_back(static_cast<char>(value | 0x80));
    bytes_.push_back(static_cast<char>(value));
  }
  std::string bytes_;
};

}  // namespace paoding::profile
