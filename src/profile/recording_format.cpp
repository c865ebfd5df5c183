// SPDX-License-Identifier: Apache-2.0
#include "profile/recording_format.h"

#include <zlib.h>
#include <zstd.h>

#include <bit>
#include <cstring>

#include "base/check.h"

namespace paoding::profile {

std::string recording_head(int version) { return fmt::format("{}{}\n", kRecordingMark, version); }

bool begins_recording(std::string_view head) { return head.starts_with(kRecordingMark); }

void BodyWriter::real(double value) {
  const auto bits = std::bit_cast<std::uint64_t>(value);
  for (int shift = 0; shift < 64; shift += 8) bytes_.push_back(static_cast<char>(bits >> shift));
}

double BodyReader::real() {
  if (left() < 8) return static_cast<double>(fail());
  std::uint64_t bits = 0;
  for (int shift = 0; shift < 64; shift += 8) bits |= std::uint64_t{static_cast<unsigned char>(*at_++)} << shift;
  return std::bit_cast<double>(bits);
}

std::string_view BodyReader::text() {
  const std::uint64_t size = count();
  const std::string_view value(at_, static_cast<std::size_t>(size));
  at_ += size;
  return value;
}

namespace {

// Of everything but the mark and itself.
std::uint32_t crc_of(const ChunkHead& head, const char* stored) {
  uLong crc = crc32(0, reinterpret_cast<const Bytef*>(&head.type), 3 * sizeof(std::uint32_t));
  return static_cast<std::uint32_t>(crc32(crc, reinterpret_cast<const Bytef*>(stored), head.stored_bytes));
}

}  // namespace

std::string chunk_of(ChunkType type, const BodyWriter& body) {
  PD_ASSERT(body.bytes().size() <= kMostChunkBytes, "a chunk of a recording is too large to be read");
  constexpr int kLevel = 1;  // the recorder's thread takes a core from what is recorded
  std::string made(sizeof(ChunkHead) + ZSTD_compressBound(body.bytes().size()), '\0');
  const std::size_t stored = ZSTD_compress(made.data() + sizeof(ChunkHead), made.size() - sizeof(ChunkHead),
                                           body.bytes().data(), body.bytes().size(), kLevel);
  PD_ASSERT(ZSTD_isError(stored) == 0, "zstd does not compress into the room that it asked for");
  made.resize(sizeof(ChunkHead) + stored);
  ChunkHead head;
  head.type = static_cast<std::uint32_t>(type);
  head.body_bytes = static_cast<std::uint32_t>(body.bytes().size());
  head.stored_bytes = static_cast<std::uint32_t>(stored);
  head.crc = crc_of(head, made.data() + sizeof(ChunkHead));
  std::memcpy(made.data(), &head, sizeof(head));
  return made;
}

std::string find_chunk(std::string_view file, std::size_t* offset, StoredChunk* chunk) {
  const std::string_view rest = file.substr(*offset);
  ChunkHead head;
  if (rest.size() < sizeof(head)) return "it is cut off";
  std::memcpy(&head, rest.data(), sizeof(head));
  if (head.mark != kChunkMark) return "there is something else";
  if (head.stored_bytes > rest.size() - sizeof(head)) return "it is cut off";
  const char* stored = rest.data() + sizeof(head);
  if (crc_of(head, stored) != head.crc) return "its checksum is wrong";
  if (head.body_bytes > kMostChunkBytes) return "it is larger than any that is written";
  *chunk = {static_cast<ChunkType>(head.type), {stored, head.stored_bytes}, head.body_bytes};
  *offset += sizeof(head) + head.stored_bytes;
  return "";
}

bool unpack(const StoredChunk& chunk, std::string* body) {
  body->resize(chunk.body_bytes);
  const std::size_t size = ZSTD_decompress(body->data(), body->size(), chunk.stored.data(), chunk.stored.size());
  return ZSTD_isError(size) == 0 && size == chunk.body_bytes;
}

}  // namespace paoding::profile
