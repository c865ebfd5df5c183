// SPDX-License-Identifier: Apache-2.0
#include "base/launch_shape.h"

#include <fmt/format.h>

namespace paoding {

std::string to_string(const LaunchShape& launch) {
  if (!launch.is_known()) return "";
  std::string text = fmt::format("{}x{}x{} CTAs", launch.grid[0], launch.grid[1], launch.grid[2]);
  if (launch.threads > 0) text += fmt::format(" of {} threads", launch.threads);
  if (launch.registers > 0) text += fmt::format(", {} registers", launch.registers);
  if (launch.shared_bytes > 0) text += fmt::format(", {} bytes shared", launch.shared_bytes);
  return text;
}

}  // namespace paoding
