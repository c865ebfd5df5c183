// SPDX-License-Identifier: Apache-2.0
#include "profile/held_bytes.h"

#include "profile/recorder.h"

namespace paoding::profile {

std::string_view to_string(HeldFor what) {
  switch (what) {
    case HeldFor::arenas: return "arenas";
    case HeldFor::parameters: return "parameters";
    case HeldFor::inputs: return "inputs";
    case HeldFor::kernels: return "kernels";
    case HeldFor::graphs: return "captured graphs";
    case HeldFor::pinned: return "pinned";
    case HeldFor::other: return "other";
  }
  return "?";
}

void HeldBytes::set(std::int64_t bytes) noexcept {
  if (bytes == bytes_) return;
  Recorder::hold(what_, device_, bytes - std::exchange(bytes_, bytes));
}

}  // namespace paoding::profile
