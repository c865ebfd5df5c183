// SPDX-License-Identifier: Apache-2.0
// Every environment variable that paoding reads, in one table; `paoding doctor` and `paoding --help` print it.
#pragma once

#include <optional>
#include <span>
#include <string>

namespace paoding {

struct EnvVariable {
  const char* name;
  const char* meaning;   // one line
  const char* fallback;  // the value when it is not set
  bool is_ours;          // PAODING_...; the others belong to somebody else and are honoured
};

/// The table.
std::span<const EnvVariable> env_variables();
/// The value of a variable; nothing when it is not set. It may be set but empty.
std::optional<std::string> env_value(const char* name);
/// The value, or "" when it is not set.
std::string env_text(const char* name);
/// True when the variable is set to anything but "", "0", "false", "no" or "off".
bool env_flag(const char* name);

}  // namespace paoding
