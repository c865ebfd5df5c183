// SPDX-License-Identifier: Apache-2.0
// Files read at once, with a limit on their size, and their text checked.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace paoding::data {

/// No file of a data set is larger, packed or not.
inline constexpr std::uint64_t kMostFileBytes = std::uint64_t{1} << 30;

/// The bytes of a regular file. Error (file) with its path when it is none, cannot be read, or is larger than
/// `most_bytes`.
std::string read_whole(const std::filesystem::path& path, std::uint64_t most_bytes = kMostFileBytes);

/// The bytes that come from a file, a pipe or a terminal until it ends. Error (file) with `name` when it is a device or
/// a folder, cannot be read, or has more than `most_bytes`.
std::string read_stream(const std::filesystem::path& path, std::string_view name,
                        std::uint64_t most_bytes = kMostFileBytes);

/// The contents of a gzip file; `bytes` itself when it is none. Error (file) when it is truncated or damaged, or holds
/// more than `most_bytes`.
std::string gunzipped(std::string bytes, std::string_view name, std::uint64_t most_bytes = kMostFileBytes);

/// The contents of a zlib stream of known size. Error (file) unless it holds just as many bytes.
std::string inflated(std::string_view bytes, std::string_view name, std::size_t size_bytes);

/// The first byte that begins no UTF-8 character; npos when there is none.
std::size_t first_bad_byte(std::string_view text);
/// Error (file) with name and line at the first byte that is not UTF-8.
void check_utf8(std::string_view text, std::string_view name);

/// Takes the first line off `text`; without its line end, "\n" or "\r\n".
std::string_view take_line(std::string_view& text);

}  // namespace paoding::data
