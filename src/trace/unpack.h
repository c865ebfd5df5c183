// SPDX-License-Identifier: Apache-2.0
// Texts that lie compressed in a file that is read.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace paoding::trace {

/// In zlib's format or gzip's. False where it is broken or cut off, and where it is longer than `most` bytes.
bool inflate_all(std::string_view packed, std::size_t most, std::string* to);
/// The same of zstd's.
bool unpack_zstd(std::string_view packed, std::size_t most, std::string* to);

}  // namespace paoding::trace
