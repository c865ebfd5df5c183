// SPDX-License-Identifier: Apache-2.0
#include "gpu/group_text.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "base/check.h"
#include "gpu/group_prelude.h"
#include "scalar/primitive.h"

namespace paoding::gpu {
namespace {

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

/// The Sizes struct: fields in the text, words for the launch.
class SizeFields {
 public:
  std::string number(const std::string& name, std::int64_t value) {
    if (add(name, "long long")) words_.push_back(static_cast<std::uint64_t>(value));
    return "(Index)size." + name;
  }
  std::string wide_number(const std::string& name, std::int64_t value) {
    number(name, value);
    return "size." + name;
  }
  /// For division by `count`; Hacker's Delight 10-9: with shift = ceil(log2 count), exact for n < 2^31.
  std::string divisor(const std::string& name, std::int64_t count) {
    if (add(name, "Divisor")) {
      std::uint64_t shift = 0, magic = 0;
      if (count < (std::int64_t{1} << 31)) {
        while ((std::int64_t{1} << shift) < count) ++shift;
        const auto d = static_cast<std::uint64_t>(count);
        magic = (((std::uint64_t{1} << shift) - d) << 32) / d + 1;
      }
      words_.push_back(static_cast<std::uint64_t>(count));
      words_.push_back((magic & 0xffffffffu) | shift << 32);
    }
    return "size." + name;
  }
  std::string text() const {
    std::string fields;
    for (const auto& [name, type] : fields_) fields += fmt::format("  {} {};\n", type, name);
    return "struct Sizes {\n" + fields + "};\n";
  }
  const std::vector<std::uint64_t>& words() const { return words_; }

 private:
  bool add(const std::string& name, const char* type) {
    for (const auto& field : fields_) {
      if (field.first == name) return false;
    }
    fields_.emplace_back(name, type);
    return true;
  }
  std::vector<std::pair<std::string, const char*>> fields_;
  std::vector<std::uint64_t> words_;
};

/// Lines with indentation that follows the braces.
class Lines {
 public:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    raw(fmt::format(format, std::forward<Args>(args)...));
  }
  void raw(const std::string& line) {
    if (line.starts_with('}')) --depth_;
    text_ += line.empty() ? line : std::string(static_cast<std::size_t>(2 * depth_), ' ') + line;
    text_ += '\n';
    if (line.ends_with('{')) ++depth_;
  }
  void indent() { ++depth_; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  int depth_ = 0;
};

/// Outputs whose partial sums have the same tiles: the same grid dimensions reduced.
struct PartGroup {
  std::vector<bool> is_reduced;  // per grid dimension
  std::vector<std::size_t> outputs;
  std::int64_t parts = 1, tiles = 1;
};

class KernelText {
 public:
  KernelText(const Group& group, const GroupSchedule& schedule, const std::vector<bool>& is_live)
      : group_(group), s_(schedule), is_live_(is_live), used_(used_loads(group)), inner_(group.rank() - 1),
        is_tile_(schedule.form == LoopForm::tile) {
    find_aliases();
    find_parts();
  }

  GroupKernelPlan run() {
    const std::string formula = formula_text();
    emit_coordinates();
    emit_sums();
    if (s_.chunk_axis >= 0) {
      k_.add("for (Index x{0} = x{0}_begin; x{0} < x{0}_begin + {1}; ++x{0}) {{", s_.chunk_axis,
             sizes_.number("chunk", s_.chunk));
    }
    emit_bases();
    emit_hoisted_loads();
    emit_loop();
    emit_columns();
    if (s_.chunk_axis >= 0) k_.raw("}");
    emit_totals_and_rows();
    emit_last_arrivers();

    GroupKernelPlan plan;
    plan.source = comment() + std::string(group_prelude()) + "\n// ---- This group ----\n\nusing Index = " +
                  (s_.is_wide ? "long long" : "int") + ";\n\n" + sizes_.text() + "\n" + formula + "\n";
    std::string kernel = signature() + k_.text() + "}\n";
    std::uint64_t hash = 14695981039346656037ull;
    for (const char c : plan.source + kernel) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
    plan.entry = fmt::format("group_{:016x}", hash);
    kernel.replace(kernel.find("$entry"), 6, plan.entry);
    plan.source += kernel;
    plan.grid[0] = static_cast<unsigned>(s_.ctas);
    plan.block = static_cast<unsigned>(s_.threads());
    plan.sizes = sizes_.words();
    plan.workspace_bytes = workspace_bytes_;
    plan.ticket_count = ticket_count_;
    return plan;
  }

 private:
  std::size_t loads() const { return group_.loads.size(); }
  const GroupOutput& output(std::size_t o) const { return group_.outputs[o]; }
  std::int64_t stride(std::size_t operand, int axis) const {
    return operand_strides(group_, operand)[static_cast<std::size_t>(axis)];
  }
  std::int64_t extent(int axis) const { return group_.extents[static_cast<std::size_t>(axis)]; }
  bool varies(std::size_t operand, const std::vector<int>& axes) const {
    return std::any_of(axes.begin(), axes.end(), [&](int axis) { return stride(operand, axis) != 0; });
  }
  const std::vector<int>& loop_axes() const { return is_tile_ ? s_.serial_axes : s_.inner_axes; }
  const std::vector<int>& fixed_axes() const { return is_tile_ ? s_.inner_axes : s_.serial_axes; }
  bool is_sink(std::size_t o, SinkKind kind) const { return is_live_[o] && s_.sinks[o] == kind; }
  std::string_view sum_type(std::size_t o) const {
    const DType dtype = group_.expr.dtype_of(output(o).value);
    return dtype == DType::boolean ? "int" : computed_type(dtype);
  }
  int sum_bytes(std::size_t o) const { return sum_type(o) == "double" || sum_type(o) == "long long" ? 8 : 4; }
  bool is_blocked(std::size_t operand) const { return s_.block_axis >= 0 && stride(operand, s_.block_axis) != 0; }
  bool keeps_block(std::size_t o) const { return s_.block_axis >= 0 && !((output(o).reduce_mask >> s_.block_axis) & 1u); }
  /// Sums that a thread holds per column or row of this output.
  int sum_count(std::size_t o) const { return keeps_block(o) ? s_.block : 1; }
  std::string_view block_index(bool blocked) const { return blocked && s_.block > 1 ? "j" : "0"; }

  // ---- Names of sizes ----

  /// " + x0 * (Index)size.in0_x0 ..." over those of `axes` along which the operand moves.
  std::string offset_terms(const std::string& name, std::size_t operand, const std::vector<int>& axes) {
    std::string text;
    for (const int axis : axes) {
      const std::int64_t step = stride(operand, axis);
      if (step == 0) continue;
      text += fmt::format(" + x{}", axis);
      if (axis != inner_ || step != 1) text += " * " + sizes_.number(fmt::format("{}_x{}", name, axis), step);
    }
    return text;
  }
  std::vector<int> all_grid_axes() const { return s_.grid_axes; }
  std::string inner_extent() { return sizes_.number("inner", extent(inner_)); }

  // ---- Which operands share what ----

  void find_aliases() {
    for (std::size_t i = 0; i < group_.operands(); ++i) {
      const std::vector<std::int64_t>& strides = operand_strides(group_, i);
      std::size_t k = 0;
      while (k < offsets_.size() && operand_strides(group_, offsets_[k]) != strides) ++k;
      if (k == offsets_.size()) offsets_.push_back(i);
      offset_of_.push_back(k);
    }
    may_alias_.assign(group_.operands(), false);
    for (std::size_t i = 0; i < loads(); ++i) {
      for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
        if (output(o).reduce_mask != 0 || output(o).dtype != group_.loads[i].dtype) continue;
        if (output(o).strides == group_.loads[i].strides) may_alias_[i] = may_alias_[loads() + o] = true;
      }
    }
  }

  bool reduces(std::size_t o, const GridDim& dim) const {
    const SinkKind sink = s_.sinks[o];
    if (dim.over == GridDim::Over::axis) return (output(o).reduce_mask >> dim.axis) & 1u;
    if (dim.over == GridDim::Over::serial) return sink == SinkKind::column || sink == SinkKind::total;
    return sink == SinkKind::row || sink == SinkKind::total;
  }

  void find_parts() {
    part_group_.assign(group_.outputs.size(), -1);
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      if (!is_live_[o] || s_.sinks[o] == SinkKind::store) continue;
      PartGroup made;
      for (const GridDim& dim : s_.grid) {
        made.is_reduced.push_back(reduces(o, dim));
        (made.is_reduced.back() ? made.parts : made.tiles) *= dim.count;
      }
      if (std::find(made.is_reduced.begin(), made.is_reduced.end(), true) == made.is_reduced.end()) continue;
      std::size_t p = 0;
      while (p < parts_.size() && parts_[p].is_reduced != made.is_reduced) ++p;
      if (p == parts_.size()) parts_.push_back(made);
      parts_[p].outputs.push_back(o);
      part_group_[o] = static_cast<int>(p);
    }
  }

  /// Partial sums per CTA of an output: a number in the text where the tile size is one, else a parameter.
  std::int64_t tile_elements(std::size_t o) const {
    const std::int64_t columns = std::int64_t{s_.lanes} * s_.vector;
    switch (s_.sinks[o]) {
      case SinkKind::column: return columns * sum_count(o);
      case SinkKind::row: return s_.serial_chunk * sum_count(o);
      case SinkKind::spread: return s_.serial_chunk * columns;
      default: return sum_count(o);
    }
  }
  std::string tile_elements_text(std::size_t o) {
    return sizes_.wide_number(fmt::format("out{}_tile", o), tile_elements(o));
  }

  // ---- Text before the kernel ----

  std::string comment() const {
    std::string text = "// A fused loop nest.\n";
    auto roles = [&](const char* name, const std::vector<int>& axes) {
      std::string list;
      for (const int axis : axes) list += fmt::format("{}{}", list.empty() ? "" : ", ", axis);
      return list.empty() ? std::string() : fmt::format("; {} axes {}", name, list);
    };
    text += fmt::format("// Rank {}{}{}{}. Form: {}.\n", group_.rank(), roles("grid", s_.grid_axes),
                        roles("serial", s_.serial_axes), roles("inner", s_.inner_axes),
                        is_tile_ ? "tile (lanes stay on inner elements, threads walk the serial axes)"
                                 : "sweep (lanes walk the inner axes, a row of threads per serial index)");
    auto classes = [&](std::size_t operand) {
      std::string list;
      for (int axis = 0; axis < group_.rank(); ++axis) {
        const std::int64_t step = stride(operand, axis);
        list += axis ? ", " : "";
        list += step == 0 ? "0" : step == 1 && axis == inner_ ? "1" : "s";
      }
      return list;
    };
    for (std::size_t i = 0; i < loads(); ++i) {
      text += fmt::format("//   in{}: {}, strides ({}){}\n", i, to_string(group_.loads[i].dtype), classes(i),
                          used_[i] ? "" : ", not read");
    }
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      std::string sum;
      for (int axis = 0; axis < group_.rank(); ++axis) {
        if ((output(o).reduce_mask >> axis) & 1u) sum += fmt::format("{}{}", sum.empty() ? "" : ", ", axis);
      }
      if (!sum.empty()) sum = fmt::format("sum over {{{}}} of ", sum);
      text += fmt::format("//   out{}: {}, strides ({}), {} {}v{}\n", o, to_string(output(o).dtype),
                          classes(loads() + o), output(o).accumulate ? "+=" : "=", sum, output(o).value);
    }
    return text;
  }

  std::string formula_text() const {
    std::string params, body;
    for (std::size_t i = 0; i < loads(); ++i) {
      if (used_[i]) params += fmt::format("{}{} in{}", params.empty() ? "" : ", ", computed_type(group_.loads[i].dtype), i);
    }
    std::vector<bool> is_needed(static_cast<std::size_t>(group_.expr.size()));
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      if (!is_live_[o]) continue;
      is_needed[static_cast<std::size_t>(output(o).value)] = true;
      params += fmt::format("{}{}& out{}", params.empty() ? "" : ", ", computed_type(group_.expr.dtype_of(output(o).value)), o);
    }
    for (std::int32_t i = group_.expr.size(); i-- > 0;) {
      if (!is_needed[static_cast<std::size_t>(i)]) continue;
      for (const std::int32_t arg : group_.expr[i].args) {
        if (arg >= 0) is_needed[static_cast<std::size_t>(arg)] = true;
      }
    }
    for (std::int32_t i = 0; i < group_.expr.size(); ++i) {
      if (!is_needed[static_cast<std::size_t>(i)]) continue;
      const ExprNode& node = group_.expr[i];
      const Primitive& prim = primitive(node.prim);
      std::string value;
      switch (node.prim) {
        case Prim::input: value = fmt::format("in{}", node.index); break;
        case Prim::constant: value = constant_text(node.value, group_.expr.dtype_of(i)); break;
        case Prim::convert: value = fmt::format("convert_to<{}>(v{})", stored_type(node.dtype), node.args[0]); break;
        default: value = fill_in(node.dtype == f64 && !prim.cuda_f64.empty() ? prim.cuda_f64 : prim.cuda, node);
      }
      body += fmt::format("  const {} v{} = {};\n", computed_type(group_.expr.dtype_of(i)), i, value);
    }
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      if (is_live_[o]) body += fmt::format("  out{} = v{};\n", o, output(o).value);
    }
    return "PD_DEVICE void formula(" + params + ") {\n" + body + "}\n";
  }

  std::string signature() {
    std::string params;
    for (std::size_t i = 0; i < group_.operands(); ++i) {
      const bool is_load = i < loads();
      params += fmt::format("    {}{}* {}{}{},\n", is_load ? "const " : "",
                            stored_type(is_load ? group_.loads[i].dtype : output(i - loads()).dtype),
                            may_alias_[i] ? "" : "__restrict__ ", is_load ? "in" : "out", is_load ? i : i - loads());
    }
    return fmt::format("extern \"C\" __global__ void __launch_bounds__(256, {}) $entry(\n{}    void* workspace, "
                       "unsigned* tickets, const Sizes size) {{\n",
                       s_.resident_ctas, params);
  }

  // ---- Where this CTA and this thread stand ----

  void emit_decode(const std::vector<int>& axes, const std::string& index, const std::string& name) {
    if (axes.size() == 1) {
      k_.add("const Index x{} = {};", axes[0], index);
      return;
    }
    k_.add("Index {}_rest = {};", name, index);
    for (std::size_t a = axes.size(); a-- > 1;) {
      k_.add("const Index x{} = next_coordinate({}_rest, {});", axes[a], name,
             sizes_.divisor(fmt::format("x{}_extent", axes[a]), extent(axes[a])));
    }
    k_.add("const Index x{} = {}_rest;", axes[0], name);
  }

  bool has_sums() const {
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      const bool is_row = is_tile_ && s_.sinks[o] == SinkKind::row && part_group_[o] < 0 && s_.chunk_axis < 0;
      if (is_live_[o] && s_.sinks[o] != SinkKind::store && !is_row) return true;
    }
    return false;
  }

  void emit_coordinates() {
    k_.indent();
    k_.add("constexpr int kVector = {}, kLanes = {}, kRows = {}, kUnroll = {};", s_.vector, s_.lanes, s_.rows,
           s_.unroll);
    if (has_sums()) k_.raw("constexpr int kThreads = kLanes * kRows;");
    if (s_.block > 1) k_.add("constexpr int kBlock = {};", s_.block);
    k_.raw("const int lane = threadIdx.x % kLanes, row = threadIdx.x / kLanes;");
    std::string serial_part = "0", inner_part = "0";
    if (!s_.grid.empty()) k_.raw("Index rest = blockIdx.x;");
    for (std::size_t d = 0; d < s_.grid.size(); ++d) {
      const GridDim& dim = s_.grid[d];
      if (d + 1 == s_.grid.size()) {
        k_.add("const Index g{} = rest;", d);
      } else {
        k_.add("const Index g{} = next_coordinate(rest, {});", d, sizes_.divisor(fmt::format("grid{}", d), dim.count));
      }
      if (dim.over == GridDim::Over::serial) serial_part = fmt::format("g{}", d);
      if (dim.over == GridDim::Over::inner) inner_part = fmt::format("g{}", d);
      if (dim.over != GridDim::Over::axis) continue;
      if (dim.axis == s_.chunk_axis) {
        k_.add("const Index x{}_begin = g{} * {};", dim.axis, d, sizes_.number("chunk", s_.chunk));
      } else {
        k_.add("const Index x{} = g{}{};", dim.axis, d, dim.axis == s_.block_axis ? " * kBlock" : "");
      }
    }
    const std::string serial = sizes_.number("serial", s_.serial_count);
    if (is_tile_) {
      k_.add("const Index s_begin = {} * {};", serial_part, sizes_.number("serial_chunk", s_.serial_chunk));
      k_.add("const Index s_end = s_begin + {} < {} ? s_begin + {} : {};", sizes_.number("serial_chunk", 0), serial,
             sizes_.number("serial_chunk", 0), serial);
      k_.add("const Index first_column = {} * (kLanes * kVector);", inner_part);
      k_.add("const Index x{} = first_column + lane * kVector;", inner_);
      k_.add("const bool inner_ok = x{} < {};", inner_, inner_extent());
      if (s_.is_ragged) emit_count("const int count", "");
    } else {
      k_.add("const Index s_begin = {} * kRows, s = s_begin + row, s_end = {};", serial_part, serial);
      k_.raw("const bool serial_ok = s < s_end;");
      if (!s_.serial_axes.empty()) emit_decode(s_.serial_axes, "s", "s");
      const std::string chunk = sizes_.number("inner_chunk", s_.inner_chunk);
      const std::string vectors = sizes_.number("inner_vectors", s_.inner_vectors);
      k_.add("const Index q_begin = {} * {};  // in vectors", inner_part, chunk);
      k_.add("const Index q_end = q_begin + {0} < {1} ? q_begin + {0} : {1};", chunk, vectors);
    }
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      std::string part = "0", tile = "0";
      for (std::size_t d = s_.grid.size(); d-- > 0;) {
        std::string& index = parts_[p].is_reduced[d] ? part : tile;
        index = index == "0" ? fmt::format("(long long)g{}", d)
                             : fmt::format("({}) * {} + g{}", index, sizes_.wide_number(fmt::format("grid{}_count", d), s_.grid[d].count), d);
      }
      k_.add("const long long tile{0} = {1}, part{0} = {2}, parts{0} = {3};  // of the partial sums", p, tile, part,
             sizes_.wide_number(fmt::format("parts{}_count", p), parts_[p].parts));
      for (const std::size_t o : parts_[p].outputs) {
        workspace_bytes_ = (workspace_bytes_ + 255) / 256 * 256;
        k_.add("{0}* const out{1}_tile = ({0}*)((char*)workspace + {2}) + tile{3} * parts{3} * {4};", sum_type(o), o,
               sizes_.wide_number(fmt::format("out{}_workspace", o), workspace_bytes_), p, tile_elements_text(o));
        k_.add("{0}* const out{1}_part = out{1}_tile + part{2} * {3};", sum_type(o), o, p, tile_elements_text(o));
        workspace_bytes_ += parts_[p].parts * parts_[p].tiles * tile_elements(o) * sum_bytes(o);
      }
    }
  }

  void emit_count(const std::string& target, const std::string& suffix) {
    k_.add("{0}{1} = {2} - x{3} < kVector ? (int)({2} - x{3}) : kVector;", target, suffix, inner_extent(), inner_);
  }

  void emit_sums() {
    std::int64_t shared = 0;
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      if (!is_live_[o] || s_.sinks[o] == SinkKind::store) continue;
      const std::int64_t columns = is_tile_ && s_.sinks[o] == SinkKind::column ? std::int64_t{s_.threads()} * s_.vector : 0;
      shared = std::max(shared, std::max<std::int64_t>(columns, s_.threads()) * sum_bytes(o));
      if (s_.sinks[o] == SinkKind::total || (!is_tile_ && s_.sinks[o] == SinkKind::row)) {
        k_.add("{} out{}_sum[{}] = {{}};", sum_type(o), o, sum_count(o));
      }
      if (s_.chunk_axis >= 0 && s_.sinks[o] == SinkKind::row) {
        k_.add("__shared__ {} out{}_rows[{}];  // row sums of the whole chunk", sum_type(o), o, s_.row_slots);
      }
    }
    if (shared > 0) k_.add("__shared__ double shared[{}];", shared / 8);
  }

  // ---- Loads ----

  std::vector<int> outer_axes() const {
    std::vector<int> axes = s_.grid_axes;
    axes.insert(axes.end(), fixed_axes().begin(), fixed_axes().end());
    return axes;
  }

  bool needs_offset(std::size_t k) const {
    for (std::size_t i = 0; i < group_.operands(); ++i) {
      if (offset_of_[i] == k && (i < loads() ? bool(used_[i]) : is_sink(i - loads(), SinkKind::store))) return true;
    }
    return false;
  }

  void emit_bases() {
    for (std::size_t k = 0; k < offsets_.size(); ++k) {
      if (!needs_offset(k)) continue;
      const std::string name = fmt::format("at{}", k);
      k_.add("const Index {}_base = 0{};  // elements into {}", name, offset_terms(name, offsets_[k], outer_axes()), operands_at(k));
    }
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      if (is_sink(o, SinkKind::column)) k_.add("{} out{}_sum[{}][kVector] = {{}};", sum_type(o), o, sum_count(o));
    }
  }

  std::string operands_at(std::size_t k) const {
    std::string list;
    for (std::size_t i = 0; i < group_.operands(); ++i) {
      if (offset_of_[i] != k) continue;
      list += fmt::format("{}{}{}", list.empty() ? "" : ", ", i < loads() ? "in" : "out", i < loads() ? i : i - loads());
    }
    return list;
  }

  std::string pack_type(std::size_t operand) const {
    const DType dtype = operand < loads() ? group_.loads[operand].dtype : output(operand - loads()).dtype;
    return fmt::format("Pack<{}, {}>", stored_type(dtype), stride(operand, inner_) == 0 ? "1" : "kVector");
  }
  std::string inner_step(std::size_t operand) {
    const std::int64_t step = stride(operand, inner_);
    return step == 1 ? "(Index)1" : sizes_.number(fmt::format("at{}_x{}", offset_of_[operand], inner_), step);
  }

  /// Moves one pack between `pack` and the operand's element `at`.
  void emit_move(std::size_t operand, bool is_store, const std::string& pack, const std::string& at,
                 const std::string& count) {
    const std::string pointer = fmt::format("{}{} + {}", operand < loads() ? "in" : "out",
                                            operand < loads() ? operand : operand - loads(), at);
    const bool once = operand < loads() && !may_alias_[operand];
    const std::string whole = is_store ? fmt::format("store({}, {});", pointer, pack)
                                       : fmt::format("load<{}>({}, {});", once, pack, pointer);
    const std::string each =
        is_store ? fmt::format("store_each({}, {}, {}, {});", pointer, inner_step(operand), count, pack)
                 : fmt::format("load_each<{}>({}, {}, {}, {});", once, pack, pointer, inner_step(operand), count);
    if (stride(operand, inner_) == 0 || s_.vector == 1) {
      k_.raw(whole);
    } else if (!s_.is_vector[operand]) {
      k_.raw(each);
    } else if (s_.is_ragged) {
      k_.add("if ({} == kVector) {}", count, whole);
      k_.add("else {}", each);
    } else {
      k_.raw(whole);
    }
  }

  void emit_block_loop(bool blocked) {
    if (blocked && s_.block > 1) k_.raw("#pragma unroll"), k_.raw("for (int j = 0; j < kBlock; ++j) {");
  }
  void end_block_loop(bool blocked) {
    if (blocked && s_.block > 1) k_.raw("}");
  }
  std::string block_term(std::size_t operand) {
    if (!is_blocked(operand) || s_.block == 1) return "";
    return fmt::format(" + j * {}", sizes_.number(fmt::format("at{}_x{}", offset_of_[operand], s_.block_axis),
                                                  stride(operand, s_.block_axis)));
  }
  bool is_hoisted(std::size_t load) const { return !varies(load, loop_axes()); }

  void emit_hoisted_loads() {
    for (std::size_t i = 0; i < loads(); ++i) {
      if (!used_[i] || !is_hoisted(i)) continue;
      k_.add("{} in{}_v[1][{}] = {{}};", pack_type(i), i, is_blocked(i) ? s_.block : 1);
      k_.add("if ({}) {{", is_tile_ ? "inner_ok" : "serial_ok");
      emit_block_loop(is_blocked(i));
      emit_move(i, false, fmt::format("in{}_v[0][{}]", i, block_index(is_blocked(i))),
                fmt::format("at{}_base{}", offset_of_[i], block_term(i)), s_.is_ragged ? "count" : "kVector");
      end_block_loop(is_blocked(i));
      k_.raw("}");
    }
  }

  // ---- The loop: all loads of kUnroll steps, then all arithmetic, sums and stores ----

  bool loop_needs_offset(std::size_t k) const {
    return needs_offset(k) && varies(offsets_[k], loop_axes());
  }
  std::string offset_in_loop(std::size_t operand) {
    const std::size_t k = offset_of_[operand];
    return fmt::format("at{}{}{}", k, loop_needs_offset(k) ? "[u]" : "_base", block_term(operand));
  }

  void emit_loop() {
    const bool loop_count = s_.is_ragged && !is_tile_;
    if (is_tile_) {
      k_.raw("for (Index s0 = s_begin; s0 < s_end; s0 += kRows * kUnroll) {");
    } else {
      k_.raw("for (Index q0 = q_begin; q0 < q_end; q0 += kLanes * kUnroll) {");
    }
    k_.raw("bool ok[kUnroll];");
    if (loop_count) k_.raw("int counts[kUnroll];");
    for (std::size_t k = 0; k < offsets_.size(); ++k) {
      if (loop_needs_offset(k)) k_.add("Index at{}[kUnroll];", k);
    }
    for (std::size_t i = 0; i < loads(); ++i) {
      if (used_[i] && !is_hoisted(i)) k_.add("{} in{}_v[kUnroll][{}];", pack_type(i), i, is_blocked(i) ? s_.block : 1);
    }
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      if (is_old_read(o)) k_.add("{} out{}_old[kUnroll][{}];", pack_type(loads() + o), o, keeps_block(o) ? s_.block : 1);
    }
    k_.raw("#pragma unroll");
    k_.raw("for (int u = 0; u < kUnroll; ++u) {");
    if (is_tile_) {
      k_.raw("const Index s = s0 + row + u * kRows;");
      k_.raw("ok[u] = inner_ok && s < s_end;");
    } else {
      k_.raw("const Index q = q0 + lane + u * kLanes;");
      k_.raw("ok[u] = serial_ok && q < q_end;");
    }
    k_.raw("if (ok[u]) {");
    emit_loop_coordinates();
    if (loop_count) emit_count("counts[u]", "");
    for (std::size_t k = 0; k < offsets_.size(); ++k) {
      if (!loop_needs_offset(k)) continue;
      k_.add("at{0}[u] = at{0}_base{1};", k, offset_terms(fmt::format("at{}", k), offsets_[k], loop_axes()));
    }
    const std::string count = loop_count ? "counts[u]" : s_.is_ragged ? "count" : "kVector";
    for (std::size_t i = 0; i < group_.operands(); ++i) {
      const bool is_load = i < loads();
      if (is_load ? !used_[i] || is_hoisted(i) : !is_old_read(i - loads())) continue;
      const bool blocked = is_load ? is_blocked(i) : keeps_block(i - loads());
      emit_block_loop(blocked);
      emit_move(i, false, is_load ? fmt::format("in{}_v[u][{}]", i, block_index(blocked))
                                  : fmt::format("out{}_old[u][{}]", i - loads(), block_index(blocked)),
                offset_in_loop(i), count);
      end_block_loop(blocked);
    }
    k_.raw("}");
    k_.raw("}");
    emit_arithmetic(count);
    k_.raw("}");
  }

  bool is_old_read(std::size_t o) const { return is_sink(o, SinkKind::store) && output(o).accumulate; }

  void emit_loop_coordinates() {
    if (is_tile_) {
      if (!s_.serial_axes.empty()) emit_decode(s_.serial_axes, "s", "s");
      return;
    }
    if (s_.inner_axes.size() == 1) {
      k_.add("const Index x{} = q * kVector;", inner_);
      return;
    }
    k_.raw("Index q_rest = q;");
    for (std::size_t a = s_.inner_axes.size(); a-- > 1;) {
      const int axis = s_.inner_axes[a];
      const std::int64_t steps = axis == inner_ ? (extent(axis) + s_.vector - 1) / s_.vector : extent(axis);
      k_.add("const Index x{} = next_coordinate(q_rest, {}){};", axis, sizes_.divisor(fmt::format("x{}_steps", axis), steps),
             axis == inner_ && s_.vector > 1 ? " * kVector" : "");
    }
    k_.add("const Index x{} = q_rest;", s_.inner_axes[0]);
  }

  void emit_arithmetic(const std::string& count) {
    k_.raw("#pragma unroll");
    k_.raw("for (int u = 0; u < kUnroll; ++u) {");
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      if (is_tile_ && is_sink(o, SinkKind::row)) k_.add("{} out{}_row[{}] = {{}};", sum_type(o), o, sum_count(o));
    }
    k_.raw("if (ok[u]) {");
    emit_block_loop(true);
    std::string declared, arguments;
    for (std::size_t i = 0; i < loads(); ++i) {
      if (!used_[i]) continue;
      arguments += fmt::format("{}in{}_v[{}][{}].get({})", arguments.empty() ? "" : ", ", i, is_hoisted(i) ? "0" : "u",
                               block_index(is_blocked(i)), stride(i, inner_) == 0 ? "0" : "v");
    }
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      if (!is_live_[o]) continue;
      declared += fmt::format("{} out{}_value; ", computed_type(group_.expr.dtype_of(output(o).value)), o);
      arguments += fmt::format("{}out{}_value", arguments.empty() ? "" : ", ", o);
      if (s_.sinks[o] == SinkKind::store) k_.add("{} out{}_new;", pack_type(loads() + o), o);
    }
    k_.raw("#pragma unroll");
    k_.add("for (int v = 0; v < kVector; ++v) {{");
    if (s_.is_ragged) k_.add("if (v >= {}) continue;", count);
    if (!declared.empty()) k_.raw(declared.substr(0, declared.size() - 1));
    k_.add("formula({});", arguments);
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      if (is_live_[o]) emit_sink(o);
    }
    k_.raw("}");
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      if (!is_sink(o, SinkKind::store)) continue;
      emit_move(loads() + o, true, fmt::format("out{}_new", o), offset_in_loop(loads() + o), count);
    }
    end_block_loop(true);
    k_.raw("}");
    bool has_row = false;
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) has_row = has_row || (is_tile_ && is_sink(o, SinkKind::row));
    if (has_row) k_.raw("const Index s = s0 + row + u * kRows;");
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      if (is_tile_ && is_sink(o, SinkKind::row)) emit_row(o);
    }
    k_.raw("}");
  }

  void emit_sink(std::size_t o) {
    const std::string_view j = block_index(keeps_block(o));
    switch (s_.sinks[o]) {
      case SinkKind::store: {
        const std::string at = stride(loads() + o, inner_) == 0 ? "0" : "v";
        if (output(o).accumulate) {
          k_.add("out{0}_new.put({1}, ({2})out{0}_old[u][{3}].get({1}) + out{0}_value);", o, at, sum_type(o), j);
        } else {
          k_.add("out{0}_new.put({1}, out{0}_value);", o, at);
        }
        break;
      }
      case SinkKind::column: k_.add("out{0}_sum[{1}][v] += out{0}_value;", o, j); break;
      case SinkKind::total: k_.add("out{0}_sum[{1}] += out{0}_value;", o, j); break;
      case SinkKind::row: k_.add("out{0}_{1}[{2}] += out{0}_value;", o, is_tile_ ? "row" : "sum", j); break;
      case SinkKind::spread:
        k_.add("out{0}_part[(s0 + row + u * kRows - s_begin) * (kLanes * kVector) + lane * kVector + v] = out{0}_value;", o);
        break;
    }
  }

  /// The sum of one row of a tile, in the loop: every lane takes part.
  void emit_row(std::size_t o) {
    const bool blocked = keeps_block(o);
    const std::string_view j = block_index(blocked);
    emit_block_loop(blocked);
    k_.add("out{0}_row[{1}] = sum_lanes<kLanes>(out{0}_row[{1}]);", o, j);
    k_.raw("if (lane == 0 && s < s_end) {");
    const std::string slot = blocked && s_.block > 1
                                 ? fmt::format("j * {} + s - s_begin", sizes_.number("serial_chunk", s_.serial_chunk))
                                 : std::string("s - s_begin");
    if (s_.chunk_axis >= 0) {
      k_.add("{0}& sum = out{1}_rows[{2}];", sum_type(o), o, slot);
      k_.add("sum = x{0} == x{0}_begin ? out{1}_row[{2}] : sum + out{1}_row[{2}];", s_.chunk_axis, o, j);
    } else if (part_group_[o] >= 0) {
      k_.add("out{0}_part[{1}] = out{0}_row[{2}];", o, slot, j);
    } else {
      if (!s_.serial_axes.empty()) emit_decode(s_.serial_axes, "s", "s");
      emit_final_store(o, s_.serial_axes, fmt::format("out{}_row[{}]", o, j), "j");
    }
    k_.raw("}");
    end_block_loop(blocked);
  }

  /// Stores a finished sum: `axes` besides the grid's have coordinates in scope.
  void emit_final_store(std::size_t o, const std::vector<int>& axes, const std::string& value, const std::string& block) {
    std::vector<int> all = s_.grid_axes;
    all.insert(all.end(), axes.begin(), axes.end());
    const std::string name = fmt::format("out{}", o);
    std::string at = offset_terms(name, loads() + o, all);
    if (keeps_block(o) && s_.block > 1) {
      at += fmt::format(" + {} * {}", block,
                        sizes_.number(fmt::format("{}_x{}", name, s_.block_axis), stride(loads() + o, s_.block_axis)));
    }
    k_.add("store_sum<{}>({}{}, {});", output(o).accumulate, name, at, value);
  }

  // ---- After the loop ----

  void emit_columns() {
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      if (!is_sink(o, SinkKind::column)) continue;
      const bool blocked = keeps_block(o);
      emit_block_loop(blocked);
      k_.add("sum_columns<kLanes, kRows>(out{}_sum[{}], shared);", o, block_index(blocked));
      k_.raw("for (int c = threadIdx.x; c < kLanes * kVector; c += kThreads) {");
      k_.add("const {0} sum = (({0}*)shared)[c];", sum_type(o));
      if (part_group_[o] >= 0) {
        k_.add("out{}_part[{}c] = sum;", o, blocked && s_.block > 1 ? "j * (kLanes * kVector) + " : "");
      } else {
        emit_column_store(o, "sum", "c", "j");
      }
      k_.raw("}");
      end_block_loop(blocked);
    }
  }

  void emit_column_store(std::size_t o, const std::string& value, const std::string& column, const std::string& block) {
    k_.add("const Index x{} = first_column + {};", inner_, column);
    k_.add("if (x{} < {}) {{", inner_, inner_extent());
    emit_final_store(o, {inner_}, value, block);
    k_.raw("}");
  }

  void emit_totals_and_rows() {
    for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
      const bool blocked = keeps_block(o);
      const std::string_view j = block_index(blocked);
      const bool is_total = is_sink(o, SinkKind::total), is_row = is_sink(o, SinkKind::row);
      if (is_total || (is_row && !is_tile_)) {
        emit_block_loop(blocked);
        k_.add("out{0}_sum[{1}] = sum_threads<{2}>(out{0}_sum[{1}], shared);", o, j, is_total ? "kThreads" : "kLanes");
        k_.add("if ({}) {{", is_total ? "threadIdx.x == 0" : "lane == 0 && serial_ok");
        const std::string value = fmt::format("out{}_sum[{}]", o, j);
        if (part_group_[o] >= 0) {
          k_.add("out{}_part[{}] = {};", o, is_row ? "row" : j, value);
        } else {
          emit_final_store(o, is_row ? s_.serial_axes : std::vector<int>{}, value, "j");
        }
        k_.raw("}");
        end_block_loop(blocked);
      }
      if (is_row && s_.chunk_axis >= 0) {
        k_.raw("__syncthreads();");
        k_.add("for (int e = threadIdx.x; e < {}; e += kThreads) {{", tile_elements_text(o));
        if (part_group_[o] >= 0) {
          k_.add("out{0}_part[e] = out{0}_rows[e];", o);
        } else {
          emit_element_store(o, fmt::format("out{}_rows[e]", o));
        }
        k_.raw("}");
      }
    }
  }

  /// Stores element e of an output's tile, in the order the partial sums have.
  void emit_element_store(std::size_t o, const std::string& value) {
    const bool blocked = keeps_block(o) && s_.block > 1;
    switch (s_.sinks[o]) {
      case SinkKind::column:
        if (blocked) k_.raw("const int j = (int)(e / (kLanes * kVector));");
        emit_column_store(o, value, blocked ? "(Index)(e % (kLanes * kVector))" : "(Index)e", "j");
        return;
      case SinkKind::row: {
        const std::string chunk = is_tile_ ? sizes_.number("serial_chunk", s_.serial_chunk) : std::string("(Index)kRows");
        if (blocked) k_.add("const int j = (int)(e / {});", chunk);
        k_.add("const Index s = s_begin + (Index)e{};", blocked ? fmt::format(" - j * {}", chunk) : "");
        k_.raw("if (s < s_end) {");
        if (!s_.serial_axes.empty()) emit_decode(s_.serial_axes, "s", "s");
        emit_final_store(o, s_.serial_axes, value, "j");
        k_.raw("}");
        return;
      }
      case SinkKind::spread:
        k_.raw("const Index s = s_begin + (Index)(e / (kLanes * kVector));");
        k_.add("const Index x{} = first_column + (Index)(e % (kLanes * kVector));", inner_);
        k_.add("if (s < s_end && x{} < {}) {{", inner_, inner_extent());
        if (!s_.serial_axes.empty()) emit_decode(s_.serial_axes, "s", "s");
        {
          std::vector<int> axes = s_.serial_axes;
          axes.push_back(inner_);
          emit_final_store(o, axes, value, "j");
        }
        k_.raw("}");
        return;
      default: emit_final_store(o, {}, value, "(int)e"); return;
    }
  }

  void emit_last_arrivers() {
    for (std::size_t p = 0; p < parts_.size(); ++p) {
      k_.add("if (is_last_arriver(tickets + {} + tile{}, (unsigned)parts{})) {{",
             sizes_.wide_number(fmt::format("tickets{}", p), ticket_count_), p, p);
      ticket_count_ += parts_[p].tiles;
      for (const std::size_t o : parts_[p].outputs) {
        k_.raw("{");
        k_.add("const int width = part_width<kThreads>({});", tile_elements_text(o));
        k_.add("for (long long first = 0; first < {}; first += width) {{", tile_elements_text(o));
        k_.add("const {} sum = sum_parts<kThreads>(out{}_tile, (int)parts{}, {}, first, width, shared);", sum_type(o), o, p,
               tile_elements_text(o));
        k_.raw("const long long e = first + threadIdx.x;");
        k_.add("if ((int)threadIdx.x < width && e < {}) {{", tile_elements_text(o));
        emit_element_store(o, "sum");
        k_.raw("}");
        k_.raw("}");
        k_.raw("}");
      }
      k_.raw("}");
    }
  }

  const Group& group_;
  const GroupSchedule& s_;
  const std::vector<bool>& is_live_;
  std::vector<bool> used_;
  int inner_;
  bool is_tile_;
  std::vector<std::size_t> offsets_;    // one operand per distinct stride vector
  std::vector<std::size_t> offset_of_;  // per operand: which of them
  std::vector<bool> may_alias_;         // per operand: may share memory with another
  std::vector<PartGroup> parts_;
  std::vector<int> part_group_;         // per output: index into parts_, or -1
  SizeFields sizes_;
  Lines k_;
  std::int64_t workspace_bytes_ = 0, ticket_count_ = 0;
};

}  // namespace

GroupKernelPlan plan_group(const Group& canonical, std::span<const int> alignment, const ChipFacts& chip) {
  Group group = canonical;
  std::vector<bool> is_live(group.outputs.size(), true);
  // An empty space: sums over nothing are 0, outputs without elements are left alone.
  if (group.points() == 0) {
    const auto zero = [&](DType dtype) { return group.expr.add({Prim::constant, dtype, {-1, -1, -1}, -1, 0}); };
    for (std::size_t o = 0; o < group.outputs.size(); ++o) {
      GroupOutput& output = group.outputs[o];
      for (int axis = 0; axis < group.rank(); ++axis) {
        const bool reduced = (output.reduce_mask >> axis) & 1u;
        if (!reduced && group.extents[static_cast<std::size_t>(axis)] == 0) is_live[o] = false;
      }
      output.value = zero(group.expr.dtype_of(output.value));
    }
    for (std::int64_t& extent : group.extents) extent = std::max<std::int64_t>(extent, 1);
  }
  if (group.extents.empty()) {
    group.extents = {1};
    for (GroupLoad& load : group.loads) load.strides = {0};
    for (GroupOutput& output : group.outputs) output.strides = {0};
  }

  GroupKernelPlan plan;
  plan.floor_us = double(canonical.min_bytes()) / chip.bytes_per_us;
  if (std::find(is_live.begin(), is_live.end(), true) == is_live.end()) {
    plan.why = "empty: nothing to launch";
    return plan;
  }
  const GroupSchedule schedule = schedule_group(group, alignment, chip);
  if (schedule.ctas >= (std::int64_t{1} << 31)) {
    fail(ErrorKind::unsupported, "fused loop: {} CTAs for {} points, at most 2^31 - 1 fit a grid", schedule.ctas,
         group.points());
  }
  const double floor_us = plan.floor_us;
  plan = KernelText(group, schedule, is_live).run();
  plan.floor_us = floor_us;
  plan.why = schedule.why;
  if (plan.workspace_bytes > 0) {
    plan.why += fmt::format("; partial sums {:.1f} KB, {} tickets", double(plan.workspace_bytes) / 1024, plan.ticket_count);
  }
  return plan;
}

}  // namespace paoding::gpu
