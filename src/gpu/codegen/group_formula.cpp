// SPDX-License-Identifier: Apache-2.0
#include "gpu/codegen/group_formula.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <ranges>

#include "gpu/codegen/group_schedule.h"
#include "group/staged.h"
#include "scalar/primitive.h"

namespace paoding::gpu {
namespace {

std::string constant_text(const ExprNode& node, DType dtype) {
  const double value = node.value;
  if (dtype == DType::boolean) return value != 0 ? "true" : "false";
  // The least integers are no literals.
  if (dtype == DType::i64) {
    if (node.whole == std::numeric_limits<std::int64_t>::min()) return "(-0x7fffffffffffffffll - 1)";
    return fmt::format("{}ll", node.whole);
  }
  if (dtype == DType::i32) {
    if (value >= 0x1p31) return "0x7fffffff";
    if (value <= -0x1p31) return "(-0x7fffffff - 1)";
    return fmt::format("{}", static_cast<std::int32_t>(value));
  }
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

/// Whether a value of f32 is made of nothing but floats that are stored in 16 bits and of the group's own reductions.
bool is_of_16_bits(const Group& group, std::int32_t value) {
  if (group.expr.dtype_of(value) != f32) return false;
  const FormulaUse use = used_by(group, {value});
  for (const std::size_t i : std::views::iota(std::size_t{0}, use.loads.size())) {
    if (use.loads[i] && group.loads[i].dtype != f16 && group.loads[i].dtype != bf16) return false;
  }
  return std::ranges::find(use.loads, true) != use.loads.end() &&
         std::ranges::find(use.indices, true) == use.indices.end();
}

bool is_narrow_index(const Group& group, const ExprNode& node) {
  return node.prim == Prim::index && node.dtype == DType::i64 &&
         !index_is_wide(group, static_cast<std::size_t>(node.index));
}

/// A place in a row is compared with the row's label in 32 bits.
std::string equality_text(const Group& group, const ExprNode& node) {
  const std::int32_t a = node.args[0], b = node.args[1];
  if (is_narrow_index(group, group.expr[a])) return fmt::format("equals_number((int)v{}, v{})", a, b);
  if (is_narrow_index(group, group.expr[b])) return fmt::format("equals_number((int)v{}, v{})", b, a);
  return fill_in(primitive(node.prim).cuda, node);
}

}  // namespace

std::string_view combine_text(Combine combine) {
  switch (combine) {
    case Combine::none:
    case Combine::sum: return "Sum";
    case Combine::max: return "Max";
    case Combine::min: return "Min";
    case Combine::prod: return "Prod";
  }
  return "";
}

FormulaUse used_by(const Group& group, const std::vector<std::int32_t>& values, const std::vector<bool>& known) {
  FormulaUse use;
  use.nodes.resize(static_cast<std::size_t>(group.expr.size()));
  use.loads.resize(group.loads.size());
  use.indices.resize(group.indices.size());
  use.reductions.resize(group.reductions.size());
  for (const std::int32_t value : values) use.nodes[static_cast<std::size_t>(value)] = true;
  for (std::int32_t i = group.expr.size(); i-- > 0;) {
    if (!use.nodes[static_cast<std::size_t>(i)]) continue;
    if (!known.empty() && known[static_cast<std::size_t>(i)]) continue;
    const ExprNode& node = group.expr[i];
    if (node.prim == Prim::input) use.loads[static_cast<std::size_t>(node.index)] = true;
    if (node.prim == Prim::index) use.indices[static_cast<std::size_t>(node.index)] = true;
    if (node.prim == Prim::reduced) use.reductions[static_cast<std::size_t>(node.index)] = true;
    for (const std::int32_t arg : node.args) {
      if (arg >= 0) use.nodes[static_cast<std::size_t>(arg)] = true;
    }
  }
  return use;
}

std::vector<std::int32_t> live_values(const Group& group, const std::vector<bool>& is_live) {
  std::vector<std::int32_t> values;
  for (std::size_t o = 0; o < group.outputs.size(); ++o) {
    if (is_live[o]) values.push_back(group.outputs[o].value);
  }
  return values;
}

bool is_row_divisor(const Group& group, std::int32_t node, const std::vector<bool>& in_row) {
  if (in_row.empty() || in_row[static_cast<std::size_t>(node)] || group.expr[node].prim == Prim::constant) return false;
  return std::ranges::any_of(group.expr.nodes(), [&](const ExprNode& each) {
    return each.prim == Prim::div && each.dtype == f32 && each.args[1] == node &&
           in_row[static_cast<std::size_t>(each.args[0])];
  });
}

RowLabel find_row_label(const Group& group, const std::vector<bool>& in_row) {
  RowLabel found;
  for (std::int32_t i = 0; i < group.expr.size(); ++i) {
    const ExprNode& node = group.expr[i];
    if (node.prim != Prim::equal) continue;
    for (const auto& [place, label] : {std::pair(node.args[0], node.args[1]), std::pair(node.args[1], node.args[0])}) {
      const ExprNode& index = group.expr[place];
      if (!is_narrow_index(group, index) || in_row[static_cast<std::size_t>(label)]) continue;
      const Prim prim = group.expr[label].prim;
      if (prim != Prim::input && primitive(prim).rule == PrimRule::leaf) continue;
      if (group.indices[static_cast<std::size_t>(index.index)].strides.back() != 1) continue;
      if (found.node >= 0) return {};  // of two labels neither is worth a branch
      found = {i, label, index.index};
      break;
    }
  }
  return found;
}

bool index_is_wide(const Group& group, std::size_t i) {
  const GroupIndex& index = group.indices[i];
  constexpr std::int64_t kLimit = (std::int64_t{1} << 31) - (1 << 16);  // room for one step past the end
  // Strides of a legal index keep every number in 64 bits, so only their sum of sizes is watched.
  double reach = std::fabs(static_cast<double>(index.start));
  for (std::size_t axis = 0; axis < index.strides.size(); ++axis) {
    reach += std::fabs(static_cast<double>(index.strides[axis])) * static_cast<double>(group.extents[axis]);
  }
  return reach >= static_cast<double>(kLimit);
}

std::string formula_text(const Group& group, std::string_view name, const std::vector<FormulaResult>& results,
                         const std::vector<bool>& known, const RowLabel& label) {
  std::vector<std::int32_t> values;
  for (const FormulaResult& result : results) values.push_back(result.value);
  const FormulaUse use = used_by(group, values, known);
  const std::vector<bool> in_row = row_mask(group) != 0 ? varies_along(group, row_mask(group)) : std::vector<bool>();
  std::string params, body;
  const auto parameter = [&](DType computed, std::string_view reference, const std::string& called) {
    params += fmt::format("{}{}{} {}", params.empty() ? "" : ", ", computed_type(computed), reference, called);
  };
  for (std::size_t i = 0; i < use.loads.size(); ++i) {
    if (use.loads[i]) parameter(group.loads[i].dtype, "", fmt::format("in{}", i));
  }
  for (std::size_t i = 0; i < use.indices.size(); ++i) {
    if (use.indices[i]) parameter(group.indices[i].dtype, "", fmt::format("idx{}", i));
  }
  for (std::size_t r = 0; r < use.reductions.size(); ++r) {
    if (use.reductions[r]) parameter(group.expr.dtype_of(group.reductions[r].value), "", fmt::format("red{}", r));
  }
  const auto is_known = [&](std::int32_t i) { return !known.empty() && known[static_cast<std::size_t>(i)]; };
  const auto is_divisor = [&](std::int32_t i) { return is_known(i) && is_row_divisor(group, i, in_row); };
  for (std::int32_t i = 0; i < group.expr.size(); ++i) {
    if (!use.nodes[static_cast<std::size_t>(i)] || !is_known(i)) continue;
    if (is_divisor(i)) {
      params += fmt::format("{}const FloatDivisor& kept{}", params.empty() ? "" : ", ", i);
    } else {
      parameter(group.expr.dtype_of(i), "", fmt::format("kept{}", i));
    }
  }
  for (const FormulaResult& result : results) parameter(group.expr.dtype_of(result.value), "&", result.name);
  for (std::int32_t i = 0; i < group.expr.size(); ++i) {
    if (!use.nodes[static_cast<std::size_t>(i)]) continue;
    if (is_known(i)) {
      body += fmt::format("  const {} v{} = kept{}{};\n", computed_type(group.expr.dtype_of(i)), i, i,
                          is_divisor(i) ? ".number" : "");
      continue;
    }
    const ExprNode& node = group.expr[i];
    const Primitive& prim = primitive(node.prim);
    std::string value;
    switch (node.prim) {
      case Prim::input: value = fmt::format("in{}", node.index); break;
      case Prim::index: value = fmt::format("idx{}", node.index); break;
      case Prim::reduced: value = fmt::format("red{}", node.index); break;
      case Prim::constant: value = constant_text(node, group.expr.dtype_of(i)); break;
      case Prim::equal: value = equality_text(group, node); break;
      case Prim::div:
        value = is_divisor(node.args[1]) ? fmt::format("divide(v{}, kept{})", node.args[0], node.args[1])
                                         : fill_in(prim.cuda, node);
        break;
      case Prim::convert: value = fmt::format("convert_to<{}>(v{})", stored_type(node.dtype), node.args[0]); break;
      default:
        value = fill_in(node.prim == Prim::exp && is_of_16_bits(group, node.args[0]) ? "exp_of_16_bits({0})"
                        : node.dtype == f64 && !prim.cuda_f64.empty()                ? prim.cuda_f64
                                                                                     : prim.cuda,
                        node);
    }
    if (i == label.node) value = "kMayHaveLabel && " + value;
    body += fmt::format("  const {} v{} = {};\n", computed_type(group.expr.dtype_of(i)), i, value);
  }
  for (const FormulaResult& result : results) body += fmt::format("  {} = v{};\n", result.name, result.value);
  const bool has_label = label.node >= 0 && use.nodes[static_cast<std::size_t>(label.node)] && !is_known(label.node);
  return fmt::format("{}PD_DEVICE void {}({}) {{\n{}}}\n", has_label ? "template <bool kMayHaveLabel> " : "", name,
                     params, body);
}

}  // namespace paoding::gpu
