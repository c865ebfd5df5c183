// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>

namespace paoding::testing_program {

/// Whether the report knows of nothing that is missing. How far a GPU's clock seemed to be off tells how busy the host
/// was that read it, and is no loss.
inline bool misses_nothing(const std::string& report) {
  constexpr std::string_view kLine = "\nNot seen: ",
                             kClocks = "ns that the clocks of GPU and host were apart from a line (";
  const std::size_t at = report.find(kLine);
  if (at == std::string::npos) return false;
  const std::string_view all = std::string_view(report).substr(at + kLine.size());
  const std::string_view line = all.substr(0, all.find('\n'));
  return line == "nothing known to be missing" || (line.starts_with(kClocks) && line.find(';') == line.npos);
}

}  // namespace paoding::testing_program
