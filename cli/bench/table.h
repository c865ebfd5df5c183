// SPDX-License-Identifier: Apache-2.0
// Rows and cases as people and programs read them.
#pragma once

#include "cli/bench/measure.h"

namespace paoding::cli::bench {

std::string heading(const Device& device, const MachineFacts& machine);
std::string row_text(const Row& row);
/// {"case":..,"cache":"cold","clock":"gpu","us":..}; "us" is null where there is nothing to measure yet, and
/// "waits_for" gives the reason.
std::string row_json(const Row& row);

/// The description of a case, without measuring it, for `--list`.
std::string case_text(const Case& work);
std::string case_json(const Case& work);

/// {"device":..,"machine":..,"rows":[..]}
std::string report_json(const Device& device, const MachineFacts& machine, const std::vector<std::string>& rows);

}  // namespace paoding::cli::bench
