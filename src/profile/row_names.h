// SPDX-License-Identifier: Apache-2.0
// What the rows of an Event Summary are called in print.
#pragma once

#include <string>
#include <vector>

#include "profile/report.h"

namespace paoding::profile {

/// A name for every row: indented by its depth, an outermost one behind the section's thread. With a `width` above 0
/// longer ones are cut to so many characters, so that rows of different names still differ: at the end where that is
/// enough, else in the middle, else with a number behind (the one case that may be longer than a small `width`).
std::vector<std::string> row_names(const Section& section, int width);

/// The text, or what fits into so many characters of its begin, with dots behind.
std::string cut_to(std::string_view text, std::size_t width);

/// The first `count` characters of a text.
std::string_view head(std::string_view text, std::size_t count);

/// How many characters a terminal shows of UTF-8 text, which wide and combining ones apart is how many columns.
std::size_t characters(std::string_view text);

}  // namespace paoding::profile
