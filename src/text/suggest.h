// SPDX-License-Identifier: Apache-2.0
// Suggests a name for an unknown one.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace paoding {

/// " (did you mean 'mul' or 'full'?)": the nearest of `names`, at most three; "" when none is near.
std::string suggestion(std::string_view wrong, const std::vector<std::string>& names);

}  // namespace paoding
