// SPDX-License-Identifier: Apache-2.0
// Pronouncing dictionaries as text: read_pronunciations passes a file's bytes to this.
#pragma once

#include <string_view>
#include <vector>

#include "paoding/data/corpora.h"

namespace paoding::data {

/// See read_pronunciations; `name` is how errors call the text.
std::vector<Pronunciations> parse_pronunciations(std::string_view text, std::string_view name);

}  // namespace paoding::data
