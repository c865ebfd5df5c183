// SPDX-License-Identifier: Apache-2.0
// What a site says, as it lies in files.
#pragma once

#include "profile/recording_format.h"
#include "profile/trace.h"

namespace paoding::profile {

void append_site(BodyWriter& body, const SiteInfo& info);
/// False when it is not what it should be.
bool take_site(BodyReader& body, SiteInfo* info);

}  // namespace paoding::profile
