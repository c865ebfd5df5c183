// SPDX-License-Identifier: Apache-2.0
// What of a model file is looked at when it becomes a Model.
#pragma once

#include <string_view>

#include "paoding/model.h"

namespace paoding {

/// Error (file) when `model.files` are not what seal_files() saw.
void check_sealed_files(const ModelFile& model, std::string_view name);
/// Error (file) when a parameter has a NaN or an infinity: what such a model says means nothing.
void check_finite_parameters(const ModelFile& model, std::string_view name);

}  // namespace paoding
