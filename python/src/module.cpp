// SPDX-License-Identifier: Apache-2.0
// paoding._paoding: what the Python package is made of. The package's own files say what users see.
#include <nanobind/nanobind.h>

#include "arrays.h"
#include "bindings.h"
#include "calls.h"
#include "errors.h"
#include "fronts.h"
#include "paoding/version.h"

NB_MODULE(_paoding, module) {
  using namespace paoding::python;
  nb::set_leak_warnings(false);  // what PyTorch holds lives as long as the process
  module.attr("__version__") = PAODING_VERSION;
  bind_errors(module);
  bind_graph(module);  // DType first: others have defaults of it
  bind_tensor(module);
  bind_device_tensor(module);
  bind_value(module);
  bind_calls(module);
  bind_fronts(module);
  bind_control(module);
  bind_program(module);
  bind_training(module);
  bind_layers(module);
  bind_files(module);
  bind_model(module);
  bind_profile(module);
  bind_recurrent(module);
  bind_placed(module);
}
