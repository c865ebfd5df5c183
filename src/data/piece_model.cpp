// SPDX-License-Identifier: Apache-2.0
// Protocol buffers: a message is a row of fields; each begins with its number and wire type (number << 3 | type) as a
// varint. sentencepiece_model.proto has the numbers.
#include "data/piece_model.h"

#include <simdjson.h>

#include <cmath>
#include <cstdint>
#include <cstring>

#include "base/check.h"

namespace paoding::data {
namespace {

enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

struct Field {
  std::uint64_t number = 0;
  Wire wire = Wire::varint;
  std::uint64_t value = 0;  // of a varint
  std::string_view bytes;   // of the others
};

[[noreturn]] void fail_model(std::string_view name, std::string_view why) {
  fail(ErrorKind::file, "{}: is no SentencePiece model: {}", name, why);
}

/// The fields of a message, one after the other.
class Message {
 public:
  Message(std::string_view bytes, std::string_view name) : rest_(bytes), name_(name) {}

  bool next(Field& field) {
    if (rest_.empty()) return false;
    const std::uint64_t tag = varint();
    field = {.number = tag >> 3, .wire = static_cast<Wire>(tag & 7), .value = 0, .bytes = {}};
    switch (field.wire) {
      case Wire::varint: field.value = varint(); break;
      case Wire::fixed64: field.bytes = take(8); break;
      case Wire::fixed32: field.bytes = take(4); break;
      case Wire::bytes: field.bytes = take(varint()); break;
      default: fail_model(name_, fmt::format("field {} has wire type {}", field.number, tag & 7));
    }
    return true;
  }

 private:
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(take(1)[0]);
      value |= static_cast<std::uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    fail_model(name_, "a number of more than 64 bits");
  }
  std::string_view take(std::uint64_t count) {
    if (count > rest_.size()) fail_model(name_, "it is truncated");
    const std::string_view taken = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return taken;
  }

  std::string_view rest_, name_;
};

enum ModelField : std::uint64_t { kPieces = 1, kTrainer = 2, kNormalizer = 3, kDenormalizer = 5 };
enum PieceField : std::uint64_t { kText = 1, kScore = 2, kType = 3 };
constexpr std::uint64_t kModelType = 3;     // of the trainer's fields
constexpr std::uint64_t kUnigram = 1;       // a value of it, and the default
constexpr std::uint64_t kReplacements = 2;  // of the normalizer's fields
constexpr std::uint64_t kMostPieces = 1'000'000;

/// A field that is read must be of its wire type: protobuf takes one of another as a field that it does not know.
void check_wire(const Field& field, Wire wire, std::string_view name) {
  if (field.wire != wire) fail_model(name, fmt::format("field {} is not of its type", field.number));
}

void check_piece(std::string_view bytes, std::uint64_t number, std::string_view name) {
  std::string_view text;
  Message message(bytes, name);
  for (Field field; message.next(field);) {
    if (field.number == kText) {
      check_wire(field, Wire::bytes, name);
      text = field.bytes;
    } else if (field.number == kScore) {
      check_wire(field, Wire::fixed32, name);
      float score = 0;
      std::memcpy(&score, field.bytes.data(), sizeof score);
      if (!std::isfinite(score)) fail_model(name, fmt::format("piece {} has score {}", number, score));
    } else if (field.number == kType) {
      check_wire(field, Wire::varint, name);
      if (field.value < 1 || field.value > 6) {
        fail_model(name, fmt::format("piece {} is of type {}", number, field.value));
      }
    }
  }
  if (text.empty() || text.find('\0') != std::string_view::npos || !simdjson::validate_utf8(text.data(), text.size())) {
    fail_model(name, fmt::format("piece {} is empty or no text", number));
  }
}

void check_normalizer(std::string_view bytes, std::string_view name) {
  Message message(bytes, name);
  for (Field field; message.next(field);) {
    if (field.number != kReplacements) continue;
    check_wire(field, Wire::bytes, name);
    if (!field.bytes.empty()) {
      fail_model(name, "it replaces characters, only models of the normalization rule identity are read");
    }
  }
}

}  // namespace

void check_piece_model(std::string_view serialized, std::string_view name) {
  std::uint64_t pieces = 0;
  Message message(serialized, name);
  for (Field field; message.next(field);) {
    if (field.number < kPieces || field.number > kDenormalizer) {
      fail_model(name, fmt::format("it has a field {}", field.number));
    }
    check_wire(field, Wire::bytes, name);
    if (field.number == kPieces) {
      if (pieces == kMostPieces) fail_model(name, fmt::format("it has more than {} pieces", kMostPieces));
      check_piece(field.bytes, pieces++, name);
    } else if (field.number == kNormalizer || field.number == kDenormalizer) {
      check_normalizer(field.bytes, name);
    } else if (field.number == kTrainer) {
      Message trainer(field.bytes, name);
      for (Field inner; trainer.next(inner);) {
        if (inner.number != kModelType) continue;
        check_wire(inner, Wire::varint, name);
        if (inner.value != kUnigram) fail_model(name, fmt::format("its type is {}, only unigram is read", inner.value));
      }
    }
  }
  if (pieces == 0) fail_model(name, "it has no pieces");
}

}  // namespace paoding::data
