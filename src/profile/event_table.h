// SPDX-License-Identifier: Apache-2.0
// The table of a report's Event Summary.
#pragma once

#include <string>
#include <vector>

#include "profile/report.h"

namespace paoding::profile {

/// Both sides have columns where both were seen: without a GPU one would say what the total says, the other nothing.
/// Where the options say how wide a line may be, names are cut and, if that is not enough, columns left out.
void append_events(std::string& out, const std::vector<Section>& sections, const ReportOptions& options, bool has_both,
                   const Limit& limit);

}  // namespace paoding::profile
