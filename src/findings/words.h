// SPDX-License-Identifier: Apache-2.0
// How findings put times, shares and changes into words.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "findings/candidate.h"
#include "findings/evidence.h"

namespace paoding::findings {

/// "3.21 ms", "12.4 us".
std::string time_text(double ns);
/// "12.3%"
std::string percent_text(double share);
/// "1 copy", "3 copies"
std::string count_text(double count, std::string_view one, std::string_view many);
/// "3 times a step", or "in 2 of 12 steps": it happened so often, in so many of the steps.
std::string times_text(std::size_t times, const Affected& steps);
/// "3.21 ms of a step of 12.8 ms": averages over all steps, whichever lose it.
std::string of_a_step(const Steps& steps, double all_steps_ns);
/// In quotes, on one line, long names cut.
std::string quoted(std::string_view name);

/// A change in the words of the framework that was recorded; `others` where it has none of its own.
struct Changes {
  std::string_view pytorch = "", jax = "", paoding = "", others = "";
  std::string of(profile::Source source) const;
};

/// Whether a name has one of these words in it, in any case of letters.
bool has_word(std::string_view name, std::initializer_list<std::string_view> words);

}  // namespace paoding::findings
