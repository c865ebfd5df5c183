// SPDX-License-Identifier: Apache-2.0
// The common parts of composed ops: the call that checks fail through, scalars beside a value, errors that name the
// scope.
#pragma once

#include <span>
#include <string>

#include "paoding/op.h"

namespace paoding {

/// The call of `op` that is being composed of `in`, to check arguments through.
OpCall composed_call(const char* op, std::span<const Value> in, const Attrs& attrs);

/// A scalar of the type of `like`, in its graph.
Value scalar_like(const Value& like, double value);

/// " (in decoder/attention)", the scope that the graph of `value` is in; empty outside of any.
std::string scope_text(const Value& value);

/// Error: "op: message (in decoder/attention)", with the scope of the graph of `at`.
[[noreturn]] void fail_in_scope(const char* op, const Value& at, ErrorKind kind, const std::string& message);

}  // namespace paoding
