// SPDX-License-Identifier: Apache-2.0
// Checks of a model file when it becomes a Model.
#pragma once

#include <string_view>

#include "paoding/model.h"

namespace paoding {

/// Error (file) when `model.files` are not the ones that seal_files() saw.
void check_sealed_files(const ModelFile& model, std::string_view name);
/// Error (file) when a parameter has a NaN or an infinity: the results of such a model mean nothing.
void check_finite_parameters(const ModelFile& model, std::string_view name);

}  // namespace paoding
