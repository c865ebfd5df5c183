// SPDX-License-Identifier: Apache-2.0
// to_text(): a graph as text that parse_graph() reads back to the same graph.
#include "text/print.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <bit>
#include <cmath>

#include "paoding/op.h"
#include "text/lexer.h"

namespace paoding {
namespace {

std::string name_text(std::string_view name) { return is_plain_name(name) ? std::string(name) : quote(name); }

// The left side of a definition; `fetch` or `assign` there would begin such a statement.
std::string defined_name(std::string_view name) {
  return name == "fetch" || name == "assign" ? quote(name) : name_text(name);
}

std::string value_name(const Graph& graph, Ref ref) {
  const Node& node = graph.node(ref.node);
  if (!node.name.empty()) return defined_name(node.name.str());
  return node.types.size() == 1 ? fmt::format("%{}", ref.node) : fmt::format("%{}.{}", ref.node, ref.output);
}

// The shortest text that reads back to the same bits, and that shows it is no integer.
std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".einf") == std::string::npos) text += ".0";
  return text;
}

// In a list of floats, where an integer is one too.
std::string short_text(double value) {
  const std::string text = float_text(value);
  return text.ends_with(".0") && text != "-0.0" ? text.substr(0, text.size() - 2) : text;
}

std::string attr_text(const AttrValue& value) {
  struct Text {
    std::string operator()(bool v) const { return v ? "true" : "false"; }
    std::string operator()(std::int64_t v) const { return fmt::format("{}", v); }
    std::string operator()(double v) const { return float_text(v); }
    std::string operator()(const std::string& v) const { return quote(v); }
    std::string operator()(DType v) const { return std::string(to_string(v)); }
    std::string operator()(const std::vector<std::int64_t>& v) const { return fmt::format("[{}]", fmt::join(v, ",")); }
    std::string operator()(const std::vector<double>& v) const {
      std::string text = "[";
      for (double number : v) text += (text.size() == 1 ? "" : ",") + short_text(number);
      return text + "]";
    }
  };
  return std::visit(Text{}, value);
}

// Equal bit for bit: -0.0 is not the default 0.0.
bool is_default(const AttrSpec& spec, const AttrValue& value) {
  if (spec.required || spec.example.index() != value.index()) return false;
  if (const double* v = std::get_if<double>(&value)) {
    return std::bit_cast<std::uint64_t>(*v) == std::bit_cast<std::uint64_t>(std::get<double>(spec.example));
  }
  return spec.example == value;
}

std::string op_text(const OpDef& op) {
  const bool is_special = op.name == "gradients" || op.name.rfind(".v") != std::string::npos;
  std::string text = is_special ? quote(op.name) : name_text(op.name);
  if (op.version > 1) text += fmt::format(".v{}", op.version);
  return text;
}

class Printer {
 public:
  std::string run(const Graph& graph) {
    text_ = "paoding graph 1\n";
    print(graph, "");
    return std::move(text_);
  }

 private:
  void print(const Graph& graph, const std::string& indent) {
    for (NodeId id = 0; id < graph.size(); ++id) {
      const Node& node = graph.node(id);
      text_ += indent;
      if (node.op->is(OpRole::update)) {
        text_ += fmt::format("assign {} = {}", value_name(graph, node.inputs[0]), value_name(graph, node.inputs[1]));
        print_names(node);
        continue;
      }
      for (std::size_t i = 0; i < node.types.size(); ++i) {
        text_ += (i == 0 ? "" : ", ") + value_name(graph, {id, static_cast<std::int32_t>(i)});
      }
      text_ += " = ";
      if (node.op->is(OpRole::source)) {
        text_ += fmt::format("{} {}", node.op->name, to_string(node.types[0]));
      } else {
        print_call(graph, node, indent);
      }
      print_names(node);
    }
    for (const Graph::Fetch& fetch : graph.fetches()) {
      text_ += fmt::format("{}fetch {} = {}\n", indent, name_text(fetch.name), value_name(graph, fetch.ref));
    }
  }

  void print_names(const Node& node) {
    if (!node.scope.empty()) text_ += " @" + quote(node.scope.str());
    if (node.placement == Placement::cpu) text_ += " @cpu";
    if (!node.origin.empty()) text_ += " ~" + name_text(node.origin.str());
    text_ += '\n';
  }

  void print_call(const Graph& graph, const Node& node, const std::string& indent) {
    text_ += op_text(*node.op) + '(';
    for (std::size_t i = 0; i < node.inputs.size(); ++i) {
      text_ += (i == 0 ? "" : ", ") + value_name(graph, node.inputs[i]);
    }
    text_ += ')' + attrs_text(*node.op, node.attrs);
    for (const auto& body : node.bodies) {
      text_ += " [\n";
      print(*body, indent + "  ");
      text_ += indent + ']';
    }
    for (std::size_t i = 0; i < node.types.size(); ++i) text_ += (i == 0 ? " : " : ", ") + to_string(node.types[i]);
  }

  std::string text_;
};

}  // namespace

std::string attrs_text(const OpDef& op, const Attrs& attrs) {
  std::string text;
  for (const auto& [name, value] : attrs.entries()) {
    bool is_shown = true;
    for (const AttrSpec& spec : op.attrs) {
      if (spec.name == name) is_shown = !is_default(spec, value);
    }
    if (is_shown) text += fmt::format("{}{}={}", text.empty() ? "" : ", ", name_text(name), attr_text(value));
  }
  return text.empty() ? text : " {" + text + "}";
}

std::string to_text(const Graph& graph) { return Printer().run(graph); }

}  // namespace paoding
