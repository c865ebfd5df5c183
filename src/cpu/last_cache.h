// SPDX-License-Identifier: Apache-2.0
// How much the last caches hold that threads of this process can reach, and the second one of each. The C library gives
// the last caches of the whole socket, of which a virtual machine or a CPU with caches for some cores each has a part.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace paoding {

/// The bytes of the caches of the last level next to processors that `may_use` names, each cache once; 0 where the
/// system does not say. `root` stands for / in tests, with sys/devices/system/cpu below it.
std::int64_t last_cache_bytes(const std::function<bool(int processor)>& may_use, const std::string& root = "");
/// For this process; 32 MB on systems that do not say.
std::int64_t last_cache_bytes();
/// The bytes of the second cache of a processor; 0 where the system does not say.
std::int64_t second_cache_bytes();

}  // namespace paoding
