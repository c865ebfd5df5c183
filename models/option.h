// SPDX-License-Identifier: Apache-2.0
// The options that a user may choose, said once: the command line, config files and checkpoints read and write the same
// list.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace paoding::models {

struct Option {
  std::string name;  // "batch-size": as on the command line, without the dashes
  std::string meaning;
  std::variant<std::int64_t*, double*, bool*, std::string*> value;
  double least = -std::numeric_limits<double>::infinity();  // of numbers
  double most = std::numeric_limits<double>::infinity();
  std::vector<std::string> choices = {};  // of texts; any when empty
  bool is_fixed = false;                  // by a checkpoint: trained parameters have another shape otherwise
};
using Options = std::vector<Option>;

/// The value as text, and back. set: Error (argument) with name, text and the values that are allowed; then nothing
/// changed.
std::string text_of(const Option& option);
void set(const Option& option, std::string_view text);
/// "a whole number of at least 1".
std::string needed(const Option& option);

/// The option of that name; null when there is none.
const Option* find(const Options& options, std::string_view name);

}  // namespace paoding::models
