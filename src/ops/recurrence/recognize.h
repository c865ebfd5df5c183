// SPDX-License-Identifier: Apache-2.0
// A scan that somebody writes around a recurrent cell is the same as the op for all steps, which has a gradient of its
// own and which a kernel may claim.
#pragma once

#include "ops/scan/scan.h"

namespace paoding {

/// The op that a scan is: lstm_recurrence, gru_recurrence or rnn_recurrence. Its step is the cell and nothing else, and
/// it stacks nothing but its carried values, in front of or after the step; the sums of gates are one product of h,
/// and products and values that do not depend on the state. Empty for another scan; where it comes close, `why_not`
/// gives the reason.
std::string recurrence_of(const ScanView& scan, std::string* why_not = nullptr);
/// The results of such a scan, by that op. `outer` has the values for the scan's inputs, in the graph in which it is
/// made.
Values as_recurrence(const ScanView& scan, const Values& outer);

}  // namespace paoding
