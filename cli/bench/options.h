// SPDX-License-Identifier: Apache-2.0
// The options that every benchmark takes, and measuring cases with them.
#pragma once

#include "cli/bench/case.h"
#include "cli/command.h"
#include "cli/report_flags.h"

namespace paoding::cli::bench {

struct BenchOptions {
  CompileFlags compile;
  bool is_quick = false, skips_check = false, reports = false;
  ReportFlags report;
  std::string json_path;

  void add_to(CLI::App& sub, bool has_dtype = true);
  /// UsageError when a word is none of the choices; Error (file) when the JSON could not be written.
  void check();
};

/// Prints a row for every measurement, as it is made; the exit code.
int measure_cases(const Cases& cases, const BenchOptions& options);

/// Answers names on stdin with rows as JSON lines and an empty line.
int follow_names(const Cases& cases, const BenchOptions& options);

}  // namespace paoding::cli::bench
