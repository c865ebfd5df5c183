// SPDX-License-Identifier: Apache-2.0
// Parts of the graph text form that others write too.
#pragma once

#include <string>

#include "paoding/op.h"

namespace paoding {

/// " {axes=[0], keepdims=true}", empty when there is nothing to say; attributes that equal their default are left out.
std::string attrs_text(const OpDef& op, const Attrs& attrs);

}  // namespace paoding
