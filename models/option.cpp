// SPDX-License-Identifier: Apache-2.0
#include "models/option.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "paoding/error.h"
#include "paoding/printable.h"

namespace paoding::models {
namespace {

template <class... F>
struct Overloaded : F... {
  using F::operator()...;
};
template <class... F>
Overloaded(F...) -> Overloaded<F...>;

template <class T>
bool parse(std::string_view text, T* value) {
  const auto parsed = std::from_chars(text.data(), text.data() + text.size(), *value);
  return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
}

}  // namespace

std::string text_of(const Option& option) {
  return std::visit(Overloaded{[](const std::string* text) { return *text; },
                               [](const bool* flag) { return std::string(*flag ? "true" : "false"); },
                               [](const auto* number) { return fmt::format("{}", *number); }},
                    option.value);
}

std::string needed(const Option& option) {
  if (std::holds_alternative<bool*>(option.value)) return "true or false";
  if (std::holds_alternative<std::string*>(option.value)) {
    return option.choices.empty() ? "a text" : fmt::format("one of {}", fmt::join(option.choices, ", "));
  }
  const bool is_real = std::holds_alternative<double*>(option.value);
  const std::string text = is_real ? "a number" : "a whole number";
  const auto written = [&](double bound) {
    return is_real ? fmt::format("{:g}", bound) : fmt::format("{}", static_cast<std::int64_t>(bound));
  };
  const bool has_least = std::isfinite(option.least), has_most = std::isfinite(option.most);
  if (has_least && has_most) return fmt::format("{} from {} to {}", text, written(option.least), written(option.most));
  if (has_least) return fmt::format("{} of at least {}", text, written(option.least));
  if (has_most) return fmt::format("{} of at most {}", text, written(option.most));
  return text;
}

void set(const Option& option, std::string_view text) {
  const auto wrong = [&]() -> bool {
    throw Error(ErrorKind::argument,
                fmt::format("{} is '{}', needed is {}", option.name, printable(text, ""), needed(option)));
  };
  const auto in_range = [&](auto number) {
    return static_cast<double>(number) >= option.least && static_cast<double>(number) <= option.most;
  };
  std::visit(Overloaded{[&](std::string* value) {
                          const auto& choices = option.choices;
                          if (!choices.empty() && std::find(choices.begin(), choices.end(), text) == choices.end())
                            wrong();
                          *value = text;
                        },
                        [&](bool* value) { *value = text == "true" || (text != "false" && wrong()); },
                        [&]<class Number>(Number* value) {
                          Number number{};
                          if (!parse(text, &number) || !in_range(number)) wrong();
                          *value = number;
                        }},
             option.value);
}

const Option* find(const Options& options, std::string_view name) {
  const auto found = std::find_if(options.begin(), options.end(), [&](const Option& o) { return o.name == name; });
  return found == options.end() ? nullptr : &*found;
}

}  // namespace paoding::models
