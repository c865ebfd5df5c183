// SPDX-License-Identifier: Apache-2.0
// Which exception an Error becomes, and how the message names the line that an op was called on.
#include "errors.h"

#include <string_view>
#include <typeinfo>

#include "gil.h"

namespace paoding::python {

namespace {

nb::object exception_of(const Error& error) {
  return nb::module_::import_("paoding.errors").attr("of_kind")(nb::str(to_string(error.kind()).data()), error.what());
}

void set_exception(const nb::object& exception) {
  PyErr_SetObject(reinterpret_cast<PyObject*>(Py_TYPE(exception.ptr())), exception.ptr());
}

void translate(const std::exception_ptr& thrown, void* /*nothing*/) {
  if (thrown == nullptr) sleep_for_good();  // no exception of C++: see gil.h
  try {
    std::rethrow_exception(thrown);
  } catch (const Error& error) {
    set_exception(exception_of(error));
  } catch (const std::bad_cast&) {  // of nanobind: where nobody said more of it
    PyErr_SetString(PyExc_TypeError, "an argument, or what a function gave back, is of a type that is not taken here");
  }
}

}  // namespace

void throw_with_lines(const Error& error, const GraphOwner& graph) {
  // "op/part: the problem (in scope)", a hint on a line of its own.
  std::string_view message = error.what();
  message = message.substr(0, message.find('\n'));
  std::string_view op = message.substr(0, message.find(':')), scope;
  op = op.substr(0, op.find('/'));
  if (const auto at = message.rfind("(in "); at != std::string_view::npos && message.ends_with(')')) {
    scope = message.substr(at + 4, message.size() - at - 5);
  }
  const std::string lines = graph.lines_of(std::string(op), std::string(scope));
  nb::object exception = exception_of(error);
  if (!lines.empty()) exception.attr("add_note")(std::string(op) + " is called at " + lines);
  set_exception(exception);
  throw nb::python_error();
}

void bind_errors(nb::module_& /*module*/) { nb::register_exception_translator(translate); }

}  // namespace paoding::python
