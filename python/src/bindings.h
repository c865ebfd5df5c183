// SPDX-License-Identifier: Apache-2.0
// Functions that the other files of the module give to it.
#pragma once

#include "handles.h"

namespace paoding::python {

void bind_control(nb::module_& module);
void bind_copies(nb::module_& module);
void bind_distributed(nb::module_& module);
void bind_extents(nb::module_& module);
void bind_program(nb::module_& module);
void bind_training(nb::module_& module);
void bind_layers(nb::module_& module);
void bind_attention_layer(nb::module_& module);
void bind_transformer_layers(nb::module_& module);
void bind_data(nb::module_& module);
void bind_debug(nb::module_& module);
void bind_profiled_steps(nb::module_& module);
void bind_streaming(nb::module_& module);
void bind_files(nb::module_& module);
void bind_model(nb::module_& module);
void bind_profile(nb::module_& module);
void bind_recurrent(nb::module_& module);
void bind_placed(nb::module_& module);

}  // namespace paoding::python
