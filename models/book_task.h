// SPDX-License-Identifier: Apache-2.0
// A book as tasks read it that learn from windows of its tokens: verses of a part one after the other, and the sizes of
// the transformers that read them.
#pragma once

#include "models/task.h"
#include "models/token_text.h"

namespace paoding::models {

/// Width, layers, heads of attention, and the tokens that it sees at once.
struct TransformerSize {
  std::int64_t hidden, layers, heads, context;
};

class BookTask : public Task {
 public:
  std::string_view item() const override { return "windows"; }
  Options options() override;

  void read(const std::filesystem::path& folder) override;
  std::map<std::string, std::string> files() const override { return text_.files(); }
  void set_files(const std::map<std::string, std::string>& files) override;
  std::string amount(Part part) const override;
  /// Windows of the context's length, one after the other.
  std::vector<std::int64_t> buckets(Part part) const override;

  const TokenText& text() const { return text_; }
  /// The options' sizes. Error (argument) when heads do not divide the width.
  TransformerSize size() const;
  /// Verses of a part, and tokens and bytes of the text that they make.
  const std::vector<std::string>& verses(Part part) const { return at(part).verses; }
  double tokens_per_byte(Part part) const;

 protected:
  BookTask();
  /// The token before a window of a part, and those of the window, at most as many as the context.
  std::span<const std::int32_t> window(Part part, std::int64_t number) const;

  double dropout_ = 0.1;

 private:
  struct Text {
    std::vector<std::string> verses;
    std::vector<std::int32_t> tokens;  // of all verses, an end before the first one and after each
    double bytes = 0;
  };
  const Text& at(Part part) const { return parts_[static_cast<std::size_t>(part)]; }

  std::string size_ = "small";
  std::int64_t hidden_ = 0, layers_ = 0, heads_ = 0, context_ = 0;  // 0: as the size has it
  std::int64_t pieces_ = 0;
  TokenText text_;
  Text parts_[3];
};

}  // namespace paoding::models
