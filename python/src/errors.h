// SPDX-License-Identifier: Apache-2.0
// paoding::Error as the exceptions of paoding.errors, with the same words.
#pragma once

#include "handles.h"
#include "paoding/error.h"

namespace paoding::python {

/// Makes errors of every bound function exceptions of paoding.errors.
void bind_errors(nb::module_& module);

/// Throws `error` as Python has it, with a note of the lines on which the op that it names was called.
[[noreturn]] void throw_with_lines(const Error& error, const GraphOwner& graph);

/// call(), of whose errors those that an op is to blame for say on which lines of Python it was called.
template <class Call>
auto with_lines(const GraphOwner& graph, Call&& call) {
  try {
    return call();
  } catch (const Error& error) {
    throw_with_lines(error, graph);
  }
}

}  // namespace paoding::python
