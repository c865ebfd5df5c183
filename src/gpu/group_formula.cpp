// SPDX-License-Identifier: Apache-2.0
#include "gpu/group_formula.h"

#include <bit>
#include <cmath>

#include "gpu/group_schedule.h"
#include "scalar/primitive.h"

namespace paoding::gpu {
namespace {

std::string constant_text(double value, DType dtype) {
  if (dtype == DType::boolean) return value != 0 ? "true" : "false";
  if (dtype == DType::i64) return fmt::format("{}ll", static_cast<std::int64_t>(value));
  if (dtype == DType::i32) return fmt::format("{}", static_cast<std::int32_t>(value));
  if (dtype == DType::f64) {
    if (std::isfinite(value)) return fmt::format("{:.17e}", value);
    return fmt::format("__longlong_as_double(0x{:x}ll)", std::bit_cast<std::uint64_t>(value));
  }
  const float rounded = static_cast<float>(value);
  if (std::isfinite(rounded)) return fmt::format("{:.9e}f", rounded);
  return fmt::format("__uint_as_float(0x{:x}u)", std::bit_cast<std::uint32_t>(rounded));
}

/// "{0} + {1}" with the arguments' names put in.
std::string fill_in(std::string_view pattern, const ExprNode& node) {
  std::string text;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    if (pattern[i] == '{' && i + 2 < pattern.size() && pattern[i + 2] == '}') {
      text += fmt::format("v{}", node.args[pattern[i + 1] - '0']);
      i += 2;
    } else {
      text += pattern[i];
    }
  }
  return text;
}

}  // namespace

std::string_view stored_type(DType dtype) {
  switch (dtype) {
    case DType::f64: return "double";
    case DType::f32: return "float";
    case DType::f16: return "F16";
    case DType::bf16: return "BF16";
    case DType::i64: return "long long";
    case DType::i32: return "int";
    case DType::u8: return "unsigned char";
    case DType::boolean: return "Bool";
  }
  return "";
}

std::string_view computed_type(DType dtype) {
  return dtype == DType::boolean ? "bool" : stored_type(compute_dtype(dtype));
}

std::string formula_text(const Group& group, const std::vector<bool>& is_live) {
  const std::vector<bool> used = used_loads(group);
  std::string params, body;
  for (std::size_t i = 0; i < group.loads.size(); ++i) {
    if (used[i]) params += fmt::format("{}{} in{}", params.empty() ? "" : ", ", computed_type(group.loads[i].dtype), i);
  }
  std::vector<bool> is_needed(static_cast<std::size_t>(group.expr.size()));
  for (std::size_t o = 0; o < group.outputs.size(); ++o) {
    if (!is_live[o]) continue;
    is_needed[static_cast<std::size_t>(group.outputs[o].value)] = true;
    params += fmt::format("{}{}& out{}", params.empty() ? "" : ", ",
                          computed_type(group.expr.dtype_of(group.outputs[o].value)), o);
  }
  for (std::int32_t i = group.expr.size(); i-- > 0;) {
    if (!is_needed[static_cast<std::size_t>(i)]) continue;
    for (const std::int32_t arg : group.expr[i].args) {
      if (arg >= 0) is_needed[static_cast<std::size_t>(arg)] = true;
    }
  }
  for (std::int32_t i = 0; i < group.expr.size(); ++i) {
    if (!is_needed[static_cast<std::size_t>(i)]) continue;
    const ExprNode& node = group.expr[i];
    const Primitive& prim = primitive(node.prim);
    std::string value;
    switch (node.prim) {
      case Prim::input: value = fmt::format("in{}", node.index); break;
      case Prim::constant: value = constant_text(node.value, group.expr.dtype_of(i)); break;
      case Prim::convert: value = fmt::format("convert_to<{}>(v{})", stored_type(node.dtype), node.args[0]); break;
      default: value = fill_in(node.dtype == f64 && !prim.cuda_f64.empty() ? prim.cuda_f64 : prim.cuda, node);
    }
    body += fmt::format("  const {} v{} = {};\n", computed_type(group.expr.dtype_of(i)), i, value);
  }
  for (std::size_t o = 0; o < group.outputs.size(); ++o) {
    if (is_live[o]) body += fmt::format("  out{} = v{};\n", o, group.outputs[o].value);
  }
  return "PD_DEVICE void formula(" + params + ") {\n" + body + "}\n";
}

}  // namespace paoding::gpu
