// SPDX-License-Identifier: Apache-2.0
// gpt: a decoder-only transformer of a book, token by token.
#pragma once

#include "models/gpt.h"
#include "models/task.h"
#include "models/token_text.h"

namespace paoding::models {

class GptTask : public Task {
 public:
  GptTask();
  std::string_view name() const override { return "gpt"; }
  std::string_view summary() const override {
    return "The next byte or piece of a word: decoder-only transformer of the King James Version";
  }
  std::string_view item() const override { return "windows"; }
  Options options() override;

  void read(const std::filesystem::path& folder) override;
  std::map<std::string, std::string> files() const override { return text_.files(); }
  void set_files(const std::map<std::string, std::string>& files) override;
  std::string amount(Part part) const override;
  /// Windows of the context's length, one after the other.
  std::vector<std::int64_t> buckets(Part part) const override;
  Batch batch(Part part, std::span<const std::int64_t> examples, std::int64_t bucket, std::int64_t rows) const override;
  Value loss(Graph& graph, std::int64_t bucket, std::int64_t rows, bool is_training) const override;
  std::unique_ptr<Predictor> predictor(const Trained& trained) const override;
  bool draws() const override { return true; }

  /// Sizes as the options say them. Error (argument) when heads do not divide the width.
  GptOptions model(bool is_training) const;
  const TokenText& text() const { return text_; }
  /// Verses of a part, and tokens and bytes of the text that they make.
  const std::vector<std::string>& verses(Part part) const { return at(part).verses; }
  double tokens_per_byte(Part part) const;
  /// Tokens that predicting adds to a text at most, and takes of a beginning, the token before it among them.
  std::int64_t most_steps() const;
  std::int64_t most_read() const { return model(false).context - most_steps(); }

 private:
  struct Text {
    std::vector<std::string> verses;
    std::vector<std::int32_t> tokens;  // of all verses, an end before the first one and after each
    double bytes = 0;
  };
  const Text& at(Part part) const { return parts_[static_cast<std::size_t>(part)]; }

  std::string size_ = "small";
  std::int64_t hidden_ = 0, layers_ = 0, heads_ = 0, context_ = 0;  // 0: as the size has it
  std::int64_t pieces_ = 0, continue_ = 100;
  double dropout_ = 0.1;
  TokenText text_;
  Text parts_[3];
};

}  // namespace paoding::models
