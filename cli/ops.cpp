// SPDX-License-Identifier: Apache-2.0
// paoding ops: the op table, from the ops themselves; docs/reference/ops.md is the output of --markdown.
#include <CLI/CLI.hpp>
#include <algorithm>

#include "base/check.h"
#include "command.h"
#include "io/json_text.h"
#include "ops_python.h"
#include "paoding/op.h"
#include "text/suggest.h"

namespace paoding::cli {
namespace {

struct OpsOptions {
  std::string name;
  bool json = false, markdown = false, python = false;
};

const char* kind_of(const OpDef& op) {
  constexpr const char* names[] = {"formula", "reduction", "view", "composed", "kernel", "structural"};
  return names[static_cast<std::size_t>(op.kind)];
}

// "yes": a rule of its own; "derived": from its formula or from the ops it consists of.
const char* gradient_of(const OpDef& op) {
  if (op.gradient) return "yes";
  return op.kind == OpKind::formula || op.kind == OpKind::composed ? "derived" : "no";
}

std::string value_text(const AttrValue& value) {
  struct Text {
    std::string operator()(bool flag) const { return flag ? "true" : "false"; }
    std::string operator()(std::int64_t number) const { return fmt::format("{}", number); }
    std::string operator()(double number) const { return fmt::format("{}", number); }
    std::string operator()(const std::string& text) const { return "\"" + text + "\""; }
    std::string operator()(DType dtype) const { return std::string(to_string(dtype)); }
    std::string operator()(const std::vector<std::int64_t>& list) const {
      return fmt::format("[{}]", fmt::join(list, ","));
    }
    std::string operator()(const std::vector<double>& list) const { return fmt::format("[{}]", fmt::join(list, ",")); }
  };
  return std::visit(Text{}, value);
}

const char* kind_of(const AttrValue& value) {
  constexpr const char* names[] = {"bool", "integer", "float", "string", "dtype", "integers", "floats"};
  return names[value.index()];
}

// "xw, u, lengths?": a question mark after those that may be absent.
std::string inputs_text(const OpDef& op) {
  std::vector<std::string> names = op.inputs;
  for (int k = 0; k < op.optional_inputs; ++k) names[names.size() - 1 - static_cast<std::size_t>(k)] += '?';
  return fmt::format("{}", fmt::join(names, ", "));
}

// "axis: integer, keepdims = false"
std::string attrs_text(const OpDef& op) {
  std::string text;
  for (const AttrSpec& attr : op.attrs) {
    if (!text.empty()) text += ", ";
    text += attr.required ? fmt::format("{}: {}", attr.name, kind_of(attr.example))
                          : fmt::format("{} = {}", attr.name, value_text(attr.example));
  }
  return text;
}

std::string op_json(const OpDef& op) {
  std::vector<std::string> attrs;
  for (const AttrSpec& attr : op.attrs) {
    JsonObject object;
    object.add("name", attr.name).add("kind", kind_of(attr.example)).add("required", attr.required);
    if (!attr.required) object.add("default", value_text(attr.example));
    attrs.push_back(object.add("doc", attr.doc).text());
  }
  JsonObject object;
  object.add("name", op.name).add("version", op.version).add("kind", kind_of(op)).add("summary", op.summary);
  object.add_json("inputs", json_strings(op.inputs)).add_json("attrs", json_array(attrs));
  return object.add("gradient", gradient_of(op)).text();
}

void print_one(const OpDef& op) {
  print("{}({}): {}\n", op.name, inputs_text(op), op.summary);
  print("  kind      {}, version {}\n  gradient  {}\n", kind_of(op), op.version, gradient_of(op));
  for (const AttrSpec& attr : op.attrs) {
    print("  {:<9} {}{}{}\n", attr.name, kind_of(attr.example),
          attr.required ? ", must be given" : ", default " + value_text(attr.example),
          attr.doc.empty() ? "" : ": " + attr.doc);
  }
}

void print_table(const std::vector<const OpDef*>& ops) {
  for (const OpDef* op : ops) {
    const std::string attrs = attrs_text(*op);
    const std::string signature =
        fmt::format("{}({}){}", op->name, inputs_text(*op), attrs.empty() ? "" : " {" + attrs + "}");
    print("{:<11}gradient {:<9}{}\n{:>29}  {}\n", kind_of(*op), gradient_of(*op), signature, "", op->summary);
  }
  print("{} ops; `paoding ops NAME` says more of one\n", ops.size());
}

std::string cell(std::string text) {
  for (std::size_t at = 0; (at = text.find('|', at)) != std::string::npos; at += 2) text.replace(at, 1, "\\|");
  return text;
}

void print_markdown(const std::vector<const OpDef*>& ops) {
  print_text("| op | inputs | attributes | kind | gradient | what it computes |\n|---|---|---|---|---|---|\n");
  for (const OpDef* op : ops) {
    print("| `{}` | {} | {} | {} | {} | {} |\n", op->name, cell(inputs_text(*op)), cell(attrs_text(*op)), kind_of(*op),
          gradient_of(*op), cell(op->summary));
  }
}

int list_ops(const OpsOptions& options) {
  std::vector<const OpDef*> ops = all_ops();
  std::sort(ops.begin(), ops.end(), [](const OpDef* a, const OpDef* b) { return a->name < b->name; });
  if (!options.name.empty()) {
    const OpDef* op = find_op(options.name);
    if (op == nullptr) {
      std::vector<std::string> names;
      for (const OpDef* one : ops) names.push_back(one->name);
      fail(ErrorKind::argument, "there is no op '{}'{}; `paoding ops` lists them", options.name,
           suggestion(options.name, names));
    }
    ops = {op};
  }
  if (options.json) {
    std::vector<std::string> items;
    for (const OpDef* op : ops) items.push_back(op_json(*op));
    print("{}\n", json_array(items));
  } else if (options.markdown) {
    print_markdown(ops);
  } else if (options.python) {
    print_python(ops);
  } else if (!options.name.empty()) {
    print_one(*ops[0]);
  } else {
    print_table(ops);
  }
  return kOk;
}

}  // namespace

void add_ops(CLI::App& app, Commands* commands) {
  auto options = std::make_shared<OpsOptions>();
  CLI::App* sub = app.add_subcommand(
      "ops",
      "List the ops, or say more of one\n\n"
      "The table comes from the ops' own declarations: inputs, attributes with their defaults, kind, and whether "
      "there\n"
      "is a gradient (yes: a rule of its own; derived: from its formula or the ops it consists of).");
  sub->add_option("NAME", options->name, "One op");
  auto* json = sub->add_flag("--json", options->json, "A JSON array");
  auto* markdown =
      sub->add_flag("--markdown", options->markdown, "The table as Markdown, which docs/reference/ops.md is made of")
          ->excludes(json);
  sub->add_flag("--python", options->python, "The module that is python/paoding/ops.py")
      ->excludes(json)
      ->excludes(markdown);
  sub->footer(
      "Examples:\n"
      "  paoding ops\n"
      "  paoding ops lerp\n"
      "  paoding ops --json");
  commands->push_back({sub, [options] { return list_ops(*options); }});
}

}  // namespace paoding::cli
