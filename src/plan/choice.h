// SPDX-License-Identifier: Apache-2.0
// How a branch runs on a GPU.
#pragma once

#include "plan/plan.h"

namespace paoding {

/// Decides Step::is_conditional of a branch whose bodies have been lowered; the plan gets a note that says why.
void choose_form(Step* step, Plan* plan);

}  // namespace paoding
