// SPDX-License-Identifier: Apache-2.0
// Whether a trace says enough for findings; where it does not, nothing is said but why.
#pragma once

#include <string>

#include "findings/finding.h"
#include "findings/steps.h"

namespace paoding::findings {

/// A sentence why nothing can be said of the trace; empty where something can.
std::string reason_to_abstain(const Steps& steps, const FindOptions& options);
/// The same once it was replayed.
std::string reason_to_abstain(double replay_error, double most);

}  // namespace paoding::findings
