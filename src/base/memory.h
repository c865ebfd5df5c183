// SPDX-License-Identifier: Apache-2.0
// The memory that this process may still take: for errors that give the needed and the free bytes, and for the moments
// before libraries that end the process where they get none.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace paoding {

/// "1.5 GB", "12 MB", "700 bytes"; powers of 1024.
std::string size_text(std::int64_t bytes);

/// Whether the process's addresses are limited (ulimit -v, ulimit -d), as clusters do.
bool has_address_limit();

/// The memory of the machine with its swap space, or less where a control group allows less: no program can need more.
std::int64_t machine_bytes();

/// The free memory, in words: "ulimit -v leaves 12 MB of 200 MB", "4.1 GB of 23 GB are free".
std::string memory_left();

/// Error (device): "an op: needs 5.2 GB, but .." with memory_left().
[[noreturn]] void fail_without_memory(std::string_view what, std::int64_t bytes);

/// Error (device) where the process could not get so many bytes more. Takes none: it is for allocations that come right
/// after, in code that cannot report them.
void require_memory(std::string_view what, std::int64_t bytes);

}  // namespace paoding
