// SPDX-License-Identifier: Apache-2.0
#include "runtime/kernel_environment.h"

#include "base/env.h"

namespace paoding {

KernelEnvironmentPtr process_environment() {
  return std::make_shared<const KernelEnvironment>(KernelEnvironment{
      .cta_group = env_text("PAODING_CTA_GROUP"),
      .tells_phases = env_flag("PAODING_PHASES"),
      .timed = process_timed_choices(),
  });
}

}  // namespace paoding
