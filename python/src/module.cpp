// SPDX-License-Identifier: Apache-2.0
// paoding._paoding: the C++ part of the Python package. The package's own files are the interface that users see.
#include <nanobind/nanobind.h>

#include "arrays.h"
#include "bindings.h"
#include "calls.h"
#include "errors.h"
#include "fronts.h"
#include "paoding/version.h"
#include "scalars.h"

namespace paoding::python {
namespace {

PyObject* first = nullptr;  // as long as the process

void fill(nb::module_& module) {
  nb::set_leak_warnings(false);  // objects that PyTorch holds live as long as the process
  module.attr("__version__") = PAODING_VERSION;
  bind_errors(module);
  bind_graph(module);  // DType first: others have defaults of it
  bind_tensor(module);
  bind_device_tensor(module);
  bind_value(module);
  bind_scalars(module);
  bind_calls(module);
  bind_own_ops(module);
  bind_fronts(module);
  bind_control(module);
  bind_extents(module);
  bind_distributed(module);
  bind_program(module);
  bind_copies(module);
  bind_training(module);
  bind_layers(module);
  bind_files(module);
  bind_model(module);
  bind_profile(module);
  bind_profiled_steps(module);
  bind_debug(module);
  bind_streaming(module);
  bind_data(module);
  bind_recurrent(module);
  bind_placed(module);
}

// NB_MODULE of nanobind in longhand, which ends the process where its types are made twice.
int fill_once(PyObject* module) {
  if (PyInterpreterState_GetID(PyInterpreterState_Get()) != 0) {
    PyErr_SetString(PyExc_ImportError, "paoding is for the main interpreter of a process, not for those within it");
    return -1;
  }
  // Imported anew after it was taken out of sys.modules: the same types and functions.
  if (first != nullptr) return PyDict_Merge(PyModule_GetDict(module), PyModule_GetDict(first), 0);
  nb::detail::nb_module_exec(NB_DOMAIN_STR, module);
  try {
    auto made = nb::borrow<nb::module_>(module);
    fill(made);
  } catch (nb::python_error& error) {
    error.restore();
    nb::chain_error(PyExc_ImportError, "paoding: its module cannot be made");
    return -1;
  } catch (const std::exception& error) {
    PyErr_SetString(PyExc_ImportError, error.what());
    return -1;
  }
  Py_IncRef(first = module);
  return 0;
}

PyModuleDef_Slot slots[] = {{Py_mod_exec, reinterpret_cast<void*>(fill_once)}, NB_MODULE_SLOTS_1};
PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_paoding", nullptr, 0, nullptr, slots, nullptr, nullptr, nullptr};

}  // namespace
}  // namespace paoding::python

extern "C" NB_EXPORT PyObject* PyInit__paoding();
extern "C" PyObject* PyInit__paoding() { return PyModuleDef_Init(&paoding::python::definition); }
