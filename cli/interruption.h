// SPDX-License-Identifier: Apache-2.0
// Ctrl-C, SIGTERM and SIGHUP as the library's calls see them; what commands do about them: command.h.
#pragma once

#include "paoding/cancellation.h"

namespace paoding::cli {

/// Cancelled by one of the signals: for a CancelScope around what may be called off.
Cancellation interruption();

}  // namespace paoding::cli
