// SPDX-License-Identifier: Apache-2.0
// Ctrl-C, SIGTERM and SIGHUP as cancellations of the library's calls; command.h has the signal handlers.
#pragma once

#include "paoding/cancellation.h"

namespace paoding::cli {

/// Cancelled by one of the signals: for a CancelScope around work that may be cancelled.
Cancellation interruption();

}  // namespace paoding::cli
