// SPDX-License-Identifier: Apache-2.0
#include "findings/words.h"

#include <fmt/format.h>

#include <cctype>

#include "base/one_line.h"

namespace paoding::findings {

std::string time_text(double ns) {
  if (ns >= 1e9) return fmt::format("{:.3g} s", ns / 1e9);
  if (ns >= 1e6) return ns >= 1e8 ? fmt::format("{:.0f} ms", ns / 1e6) : fmt::format("{:.3g} ms", ns / 1e6);
  return ns >= 1e5 ? fmt::format("{:.0f} us", ns / 1e3) : fmt::format("{:.3g} us", ns / 1e3);
}

std::string percent_text(double share) { return fmt::format("{:.3g}%", 100 * share); }

std::string count_text(double count, std::string_view one, std::string_view many) {
  return fmt::format("{:.3g} {}", count, count == 1 ? one : many);
}

std::string times_text(std::size_t times, const Affected& steps) {
  if (!steps.are_all()) return fmt::format("In {} of {} steps", steps.steps, steps.of);
  const double each = steps.each(static_cast<double>(times));
  return each == 1 ? "Once a step" : fmt::format("{:.3g} times a step", each);
}

std::string of_a_step(const Steps& steps, double all_steps_ns) {
  return fmt::format("{} of a step of {}", time_text(all_steps_ns / static_cast<double>(steps.count())),
                     time_text(static_cast<double>(steps.average_ns())));
}

std::string quoted(std::string_view name) {
  constexpr std::size_t kLongest = 80;
  std::string text = one_line(name);
  if (text.size() > kLongest) {
    std::size_t end = kLongest - 3;
    while (end > 0 && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) --end;  // not inside of a character
    text = text.substr(0, end) + "...";
  }
  return "'" + text + "'";
}

std::string Changes::of(profile::Source source) const {
  std::string_view own;
  if (source == profile::Source::pytorch) own = pytorch;
  if (source == profile::Source::jax) own = jax;
  if (source == profile::Source::paoding) own = paoding;
  return std::string(own.empty() ? others : own);
}

bool has_word(std::string_view name, std::initializer_list<std::string_view> words) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  return std::ranges::any_of(words, [&](std::string_view word) {
    return std::search(name.begin(), name.end(), word.begin(), word.end(), same) != name.end();
  });
}

}  // namespace paoding::findings
