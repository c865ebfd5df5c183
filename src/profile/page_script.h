// SPDX-License-Identifier: Apache-2.0
// The page's scripts, as small as they can be without another name in them.
#pragma once

#include <string>
#include <string_view>

namespace paoding::profile {

/// A script of src/profile/page without comments, which have lines of their own there, without indentation, and without
/// the spaces that JavaScript does not need. Its texts, templates and regular expressions stay as they are; so do its
/// line ends, which may stand for semicolons.
std::string small_script(std::string_view script);

}  // namespace paoding::profile
