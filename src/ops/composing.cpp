// SPDX-License-Identifier: Apache-2.0
#include "ops/composing.h"

#include "base/check.h"
#include "base/one_line.h"
#include "paoding/ops.h"

namespace paoding {

OpCall composed_call(const char* op, std::span<const Value> in, const Attrs& attrs) {
  return {*find_op(op), {}, attrs, {}, in[0].graph().scope};
}

Value scalar_like(const Value& like, double value) { return full(like.graph(), {}, value, like.dtype()); }

std::string scope_text(const Value& value) { return in_scope(value.graph().scope.str()); }

void fail_in_scope(const char* op, const Value& at, ErrorKind kind, const std::string& message) {
  fail(kind, "{}: {}{}", op, message, scope_text(at));
}

}  // namespace paoding
