// SPDX-License-Identifier: Apache-2.0
// The least that a step must move and compute: reports compare its time with it.
#pragma once

#include "base/unit_rates.h"
#include "plan/plan.h"

namespace paoding {

struct StepCost {
  std::int64_t bytes = 0;  // read and written, each element once; for a gather those it picks, not all it could
  double flops = 0;        // arithmetic operations, a multiplication with its addition two; 0: it computes nothing
  Unit unit = Unit::none;  // that does them
};

StepCost cost_of(const Step& step);

}  // namespace paoding
