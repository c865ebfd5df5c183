// SPDX-License-Identifier: Apache-2.0
// The options of a Profiling Report, the same for every command that prints one.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "paoding/profile.h"
#include "paoding/types.h"

namespace paoding::cli {

/// Help of --cupti-steps, for every command that has it.
inline constexpr const char* kCuptiStepsHelp =
    "Have NVIDIA's CUPTI tell the kernels of GPUs in these of them, with the names of a library's: 4:20 is 4 to 19";

/// How long lines on stdout may be; 0: any, it is no terminal.
int width_of_terminal();

struct ReportFlags {
  std::string sort = "total", detail = "op", nest = "op", format = "text";
  ReportLayout layout;

  void add_to(CLI::App& sub);
  /// UsageError when a word is none of the choices, or one of the options was given though no report is asked for:
  /// `asked_by` is the option that does. Error (file) when --html names something that must stay.
  void check(bool is_asked_for, const char* asked_by);
  /// The state to record for a program on this device: without a GPU, its columns would be empty.
  static State state_of(const Device& device) { return device.kind == DeviceKind::cpu ? State::cpu : State::all; }
  SortBy sort_by() const { return parse_sort(sort); }
  Detail level() const { return parse_detail(detail); }

 private:
  std::vector<const CLI::Option*> options_;
};

}  // namespace paoding::cli
