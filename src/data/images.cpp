// SPDX-License-Identifier: Apache-2.0
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <string>
#include <system_error>
#include <vector>

#include "base/check.h"
#include "data/image_formats.h"
#include "data/whole_file.h"
#include "paoding/data/corpora.h"

namespace paoding::data {
namespace {

constexpr unsigned kBytes = 0x08;  // the code of unsigned bytes
constexpr std::int64_t kMostSide = 65'535;

unsigned byte_at(std::string_view bytes, std::size_t at) { return static_cast<unsigned char>(bytes[at]); }

std::uint32_t word_at(std::string_view bytes, std::size_t at) {
  return byte_at(bytes, at) << 24 | byte_at(bytes, at + 1) << 16 | byte_at(bytes, at + 2) << 8 | byte_at(bytes, at + 3);
}

/// Takes a number of a PGM's header, and blanks and remarks ("# ..." to the end of a line) before it.
std::int64_t take_number(std::string_view& text, std::string_view name) {
  const auto is_blank = [](char c) { return c == ' ' || (c >= '\t' && c <= '\r'); };
  while (!text.empty() && (is_blank(text[0]) || text[0] == '#')) {
    text.remove_prefix(text[0] == '#' ? std::min(text.size(), text.find('\n')) : 1);
  }
  std::int64_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [rest, problem] = std::from_chars(text.data(), end, number);
  if (problem != std::errc() || number < 1 || number > kMostSide) {
    fail(ErrorKind::file, "{}: width, height and largest value of a PGM picture must be numbers in 1 .. {}", name,
         kMostSide);
  }
  text.remove_prefix(static_cast<std::size_t>(rest - text.data()));
  return number;
}

}  // namespace

Tensor parse_pgm(std::string_view bytes, std::string_view name) {
  if (!bytes.starts_with("P5")) fail(ErrorKind::file, "{}: is no binary PGM picture, which begins with P5", name);
  std::string_view rest = bytes.substr(2);
  const std::int64_t width = take_number(rest, name), height = take_number(rest, name);
  const std::int64_t largest = take_number(rest, name);
  if (largest > 255) fail(ErrorKind::file, "{}: its largest value is {}, must be at most 255", name, largest);
  if (!rest.empty()) rest.remove_prefix(1);  // one blank ends the header
  if (std::ssize(rest) != width * height) {
    fail(ErrorKind::file, "{}: {} bytes of pixels, a picture of {} x {} has {}", name, rest.size(), width, height,
         width * height);
  }
  Tensor picture(u8, {1, height, width});
  for (std::size_t i = 0; i < rest.size(); ++i) {
    const std::int64_t value = byte_at(rest, i);
    if (value > largest) fail(ErrorKind::file, "{}: pixel {} is {}, its largest is {}", name, i, value, largest);
    picture.data<std::uint8_t>()[i] = static_cast<std::uint8_t>((value * 255 + largest / 2) / largest);
  }
  return picture;
}

Tensor parse_idx(std::string_view bytes, std::string_view name, int rank) {
  PD_ASSERT(rank >= 1 && rank <= 3, "an IDX file of a rank that no data set has");
  if (bytes.size() < 4 || byte_at(bytes, 0) != 0 || byte_at(bytes, 1) != 0) {
    std::string begin;
    for (std::size_t i = 0; i < std::min<std::size_t>(bytes.size(), 4); ++i) {
      begin += fmt::format(" {:02x}", byte_at(bytes, i));
    }
    fail(ErrorKind::file, "{}: begins with{}, an IDX file begins with 00 00 08 {:02x}, a PGM picture with P5", name,
         begin.empty() ? " nothing" : begin, rank);
  }
  if (byte_at(bytes, 2) != kBytes || byte_at(bytes, 3) != static_cast<unsigned>(rank)) {
    fail(ErrorKind::file, "{}: IDX elements of type 0x{:02x} on {} axes, must be bytes (0x08) on {}", name,
         byte_at(bytes, 2), byte_at(bytes, 3), rank);
  }
  const std::size_t header_bytes = 4 + 4 * static_cast<std::size_t>(rank);
  if (bytes.size() < header_bytes) {
    fail(ErrorKind::file, "{}: {} bytes, shorter than its header of {}: it is truncated, get it again", name,
         bytes.size(), header_bytes);
  }
  const std::size_t body_bytes = bytes.size() - header_bytes;
  std::vector<std::int64_t> extents;
  unsigned __int128 elements = 1;  // three words of 32 bits fit
  for (std::size_t axis = 0; axis < static_cast<std::size_t>(rank); ++axis) {
    const std::uint32_t extent = word_at(bytes, 4 + 4 * axis);
    if (extent == 0) fail(ErrorKind::file, "{}: axis {} has extent 0, there is nothing in it", name, axis);
    elements *= extent;
    extents.push_back(extent);
  }
  if (elements != body_bytes) {
    fail(ErrorKind::file, "{}: {} bytes of elements, its extents {} need {}: get it again", name, body_bytes,
         fmt::join(extents, " x "), elements);
  }
  Tensor tensor(u8, Shape(extents));
  std::memcpy(tensor.bytes(), bytes.data() + header_bytes, body_bytes);
  return tensor;
}

ImageSet read_images(const std::filesystem::path& images, const std::filesystem::path& labels) {
  const auto read = [](const std::filesystem::path& path, int rank) {
    return parse_idx(gunzipped(read_whole(path), path.string()), path.string(), rank);
  };
  ImageSet set{read(images, 3), read(labels, 1)};
  if (set.images.shape()[0] != set.labels.shape()[0]) {
    fail(ErrorKind::file, "{}: {} images, but {} labels in {}: they do not belong together", images.string(),
         set.images.shape()[0], set.labels.shape()[0], labels.string());
  }
  return set;
}

Tensor read_image_file(const std::filesystem::path& path) {
  const bool is_standard_input = path == "-";
  const std::string name = is_standard_input ? "standard input" : path.string();
  const std::string bytes = gunzipped(read_stream(is_standard_input ? "/dev/stdin" : path, name), name);
  return bytes.starts_with("P5") ? parse_pgm(bytes, name) : parse_idx(bytes, name, 3);
}

}  // namespace paoding::data
