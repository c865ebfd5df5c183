// SPDX-License-Identifier: Apache-2.0
// Graph text with extents (docs/reference/graph_text.md): one text for a graph of every size.
//
//   const pd::GraphText text("paoding graph 1\nextent time = 1..512 multiples_of(8)\nx = input f32[time,80]\n..");
//   pd::Programs programs(text.extents(), text.build(), options, &parameters);
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "paoding/extents.h"
#include "paoding/graph.h"

namespace paoding {

/// A text that may declare extents. A value that does not change: threads may read one at once.
class GraphText {
 public:
  /// Reads the declarations of extents and the types of inputs; the rest is read by at(). Error (file) with line and
  /// column.
  explicit GraphText(std::string_view text);

  /// The text that the constructor was given.
  const std::string& text() const { return text_; }

  /// In the order in which they are declared; none where the text is of one graph.
  const Extents& extents() const { return extents_; }

  /// The graph at these sizes, which need not be a bucket. Errors: as Extents::check and Extents::key_of, and as
  /// parse_graph(), with the sizes.
  std::unique_ptr<Graph> at(const Extents::Key& sizes) const;
  std::unique_ptr<Graph> at(const Sizes& sizes) const { return at(extents_.key_of(sizes)); }
  /// at(), for Programs.
  std::function<std::unique_ptr<Graph>(const Extents::Key& sizes)> build() const;

  /// `given`, and of the other extents the sizes that inputs of these types have where the text says the extent alone
  /// (f32[batch,2*time] tells the batch). Errors: (argument) as Extents::key_of; (shape) two axes of one extent differ.
  Extents::Key sizes_of(const std::map<std::string, Type>& inputs, const Sizes& given = {}) const;
  /// "x f32[batch,2*time], y i64[batch]": the inputs as the text has them.
  std::string inputs_text() const;

 private:
  struct Input {
    std::string name;
    std::string type;       // as it is written
    std::vector<int> axes;  // extents by position; -1: of another size
  };

  std::string text_;
  Extents extents_;
  std::vector<Input> inputs_;
};

}  // namespace paoding
