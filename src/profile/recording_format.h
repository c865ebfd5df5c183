// SPDX-License-Identifier: Apache-2.0
// How recordings lie in files: chunks that each stand for themselves, so that a file whose writer was killed is read up
// to its last whole chunk. A chunk is a head (mark, type, sizes, CRC-32 of all that follows it) and a body compressed
// by zstd; numbers in bodies are varints, times and runs as differences to the one before.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace paoding::profile {

/// What a file begins with: this, the version in one digit, and the end of a line.
inline constexpr std::string_view kRecordingMark = "paoding recording ";
/// 1 had no processes, arguments, flows and instants, 2 no anchors, 3 nothing that others recorded, 4 no shapes of
/// operands and launches of kernels.
inline constexpr int kRecordingVersion = 5;
std::string recording_head(int version = kRecordingVersion);
/// Whether a file that begins so is a recording (files::IsOurs).
bool begins_recording(std::string_view head);
inline constexpr std::uint32_t kChunkMark = 0x6b6e6863;  // "chnk"
/// Bits of the number of a site that holds its unit: behind its members follow, in this order, its kernel, its shapes,
/// and the size of its launch.
inline constexpr std::uint64_t kHasKernel = 64, kHasShapes = 128, kHasLaunch = 256;
inline constexpr std::size_t kMostChunkBytes = std::size_t{1} << 26;  // of a body
inline constexpr std::size_t kMostChunkSpans = 1 << 16;               // as many as any version has written

enum class ChunkType : std::uint8_t {
  window = 1,  // start ns; of the last one also the end
  clock,       // pairs (ticks, ns of steady_ns())
  tracks,
  sites,
  spans,  // of one track
  notes,
  end,     // nothing is missing
  parts,   // of replays
  limits,  // of devices
  memory,  // that is held
  phases,  // of kernels
  counters,
  samples,  // of counters
  processes,
  columns,  // of arguments
  flows,    // between spans of a finished trace, by their numbers
  anchors,  // of a process: its time beside the clocks that processes share
};
inline constexpr int kChunkTypes = static_cast<int>(ChunkType::anchors) + 1;

struct ChunkHead {
  std::uint32_t mark = kChunkMark;
  std::uint32_t type = 0;
  std::uint32_t body_bytes = 0;    // as they are
  std::uint32_t stored_bytes = 0;  // as they lie in the file
  std::uint32_t crc = 0;           // of type, both sizes and what is stored
};

/// A body under construction.
class BodyWriter {
 public:
  void number(std::uint64_t value) {
    while (value >= 0x80) {
      bytes_.push_back(static_cast<char>(value | 0x80));
      value >>= 7;
    }
    bytes_.push_back(static_cast<char>(value));
  }
  void signed_number(std::int64_t value) {
    number((static_cast<std::uint64_t>(value) << 1) ^ static_cast<std::uint64_t>(value >> 63));
  }
  void real(double value);
  void text(std::string_view value) {
    number(value.size());
    bytes_.append(value);
  }
  void byte(std::uint8_t value) { bytes_.push_back(static_cast<char>(value)); }
  void append(const BodyWriter& more) { bytes_.append(more.bytes_); }
  const std::string& bytes() const { return bytes_; }
  bool is_empty() const { return bytes_.empty(); }
  void clear() { bytes_.clear(); }

 private:
  std::string bytes_;
};

/// Takes a body apart. What is not there reads as 0 and makes is_broken().
class BodyReader {
 public:
  explicit BodyReader(std::string_view bytes) : at_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  std::uint64_t number() {
    std::uint64_t value = 0;
    for (int shift = 0; at_ != end_ && shift < 64; shift += 7) {
      const auto byte = static_cast<unsigned char>(*at_++);
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    return fail();
  }
  std::int64_t signed_number() {
    const std::uint64_t value = number();
    return static_cast<std::int64_t>((value >> 1) ^ (~(value & 1) + 1));
  }
  double real();
  std::string_view text();
  std::uint32_t small() {
    const std::uint64_t value = number();
    return value <= 0xffffffffu ? static_cast<std::uint32_t>(value) : static_cast<std::uint32_t>(fail());
  }
  /// A count of things that take at least one byte each.
  std::uint64_t count() {
    const std::uint64_t value = number();
    return value <= left() ? value : fail();
  }
  bool is_at_end() const { return at_ == end_; }
  bool is_broken() const { return is_broken_; }

 private:
  std::uint64_t left() const { return static_cast<std::uint64_t>(end_ - at_); }
  std::uint64_t fail() {
    is_broken_ = true;
    at_ = end_;
    return 0;
  }

  const char* at_;
  const char* end_;
  bool is_broken_ = false;
};

/// Head and body as they are written.
std::string chunk_of(ChunkType type, const BodyWriter& body);

/// A chunk whose checksum is right.
struct StoredChunk {
  ChunkType type = ChunkType::end;
  std::string_view stored;  // in the file
  std::size_t body_bytes = 0;
};
/// The chunk that begins at `*offset` of `file`, which is moved behind it. Returns what is wrong with it, or nothing.
std::string find_chunk(std::string_view file, std::size_t* offset, StoredChunk* chunk);
/// False when it cannot be unpacked.
bool unpack(const StoredChunk& chunk, std::string* body);

}  // namespace paoding::profile
