// SPDX-License-Identifier: Apache-2.0
#include "paoding/graph_text.h"

#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/one_line.h"
#include "text/parse.h"
#include "text/part_reader.h"

namespace paoding {
namespace {

// Reads the lines of the outermost graph that declare extents and inputs, and passes the others.
class Declarations : PartReader {
 public:
  struct DeclaredInput {
    std::string name;
    std::string type;
    std::vector<int> axes;
  };

  explicit Declarations(std::string_view text) : PartReader(text) {
    header();
    while (!at_end()) line();
  }
  const std::vector<ExtentSpec>& specs() const { return extent_specs(); }
  const std::vector<DeclaredInput>& inputs() const { return inputs_; }

 private:
  void line() {
    if (at_name()) {
      const Token first = take();
      if (first.is_word("extent") && at_name()) return extent_declaration(first);
      if (peek().is('=')) {
        take();
        if (peek().is_word("input")) input(first.text);
      }
    }
    pass_line();
  }

  // x = input f32[batch,2*time]
  void input(const std::string& name) {
    take();
    std::string type(to_string(dtype()));
    if (!peek().is('[')) return;
    type += take().text;
    std::vector<int> axes;
    while (!peek().is(']') && !at_line_end()) {
      int extent = extent_of(peek());
      type += take().text;
      for (; !peek().is(',') && !peek().is(']') && !at_line_end(); type += take().text) extent = -1;
      axes.push_back(extent);
      if (peek().is(',')) type += take().text;
    }
    if (!peek().is(']')) return;
    type += take().text;
    inputs_.push_back({name, std::move(type), std::move(axes)});
  }

  bool at_line_end() const { return at_end() || peek().kind == TokenKind::newline; }

  // To the end of the line, or of the bodies that begin in it.
  void pass_line() {
    std::int64_t depth = 0;
    while (!at_end() && (depth > 0 || peek().kind != TokenKind::newline)) {
      if (peek().is('[')) ++depth;
      if (peek().is(']')) --depth;
      take();
    }
    if (!at_end()) take();
  }

  std::vector<DeclaredInput> inputs_;
};

}  // namespace

GraphText::GraphText(std::string_view text) : text_(text) {
  const Declarations declarations(text);
  extents_ = Extents(declarations.specs());
  for (const auto& [name, type, axes] : declarations.inputs()) inputs_.push_back({name, type, axes});
}

std::unique_ptr<Graph> GraphText::at(const Extents::Key& sizes) const {
  extents_.check(sizes);
  if (sizes.empty()) return parse_graph_at(text_, sizes);
  try {
    return parse_graph_at(text_, sizes);
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::cancelled) throw;
    throw Error(error.kind(), fmt::format("{}\n(at {})", error.what(), extents_.text_of(sizes)));
  }
}

std::function<std::unique_ptr<Graph>(const Extents::Key& sizes)> GraphText::build() const {
  return [text = *this](const Extents::Key& sizes) { return text.at(sizes); };
}

std::string GraphText::inputs_text() const {
  std::string text;
  for (const Input& input : inputs_) {
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", one_line(input.name), one_line(input.type));
  }
  return text;
}

Extents::Key GraphText::sizes_of(const std::map<std::string, Type>& inputs, const Sizes& given) const {
  struct Seen {
    std::int64_t size;
    const std::string* input;
  };
  std::vector<std::optional<Seen>> seen(extents_.specs().size());
  for (const auto& [name, type, axes] : inputs_) {
    const auto fed = inputs.find(name);
    if (fed == inputs.end()) continue;
    const Shape& shape = fed->second.shape;
    if (shape.rank() != std::ssize(axes)) continue;  // an error of its type, later
    for (std::size_t axis = 0; axis < axes.size(); ++axis) {
      if (axes[axis] < 0) continue;
      std::optional<Seen>& known = seen[static_cast<std::size_t>(axes[axis])];
      const std::int64_t size = shape[static_cast<int>(axis)];
      if (known && known->size != size) {
        fail(ErrorKind::shape, "{} is {} in '{}' and {} in '{}'",
             extents_.specs()[static_cast<std::size_t>(axes[axis])].name, known->size, one_line(*known->input), size,
             one_line(name));
      }
      known = Seen{size, &name};
    }
  }
  std::vector<Sizes::Entry> entries = given.entries();
  for (std::size_t i = 0; i < seen.size(); ++i) {
    const std::string& name = extents_.specs()[i].name;
    const bool is_given = std::ranges::find(given.entries(), name, &Sizes::Entry::name) != given.entries().end();
    if (seen[i] && !is_given) entries.push_back({name, seen[i]->size});
  }
  return extents_.key_of(Sizes(std::move(entries)));
}

}  // namespace paoding
