// SPDX-License-Identifier: Apache-2.0
// MurmurHash3 (Appleby, x64, 128 bits, seed 0): finds equal data at the speed of memory. Not for data that an attacker
// chooses.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

namespace paoding {

using Hash128 = std::array<std::uint64_t, 2>;

Hash128 hash128(std::string_view bytes);

}  // namespace paoding
