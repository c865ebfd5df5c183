// SPDX-License-Identifier: Apache-2.0
// gpt: a decoder-only transformer of a book, token by token.
#pragma once

#include "models/book_task.h"
#include "models/gpt.h"

namespace paoding::models {

class GptTask : public BookTask {
 public:
  std::string_view name() const override { return "gpt"; }
  std::string_view summary() const override {
    return "The next byte or piece of a word: decoder-only transformer of the King James Version";
  }
  Options options() override;
  Batch batch(Part part, std::span<const std::int64_t> examples, std::int64_t bucket, std::int64_t rows) const override;
  Value loss(Graph& graph, std::int64_t bucket, std::int64_t rows, bool is_training) const override;
  std::unique_ptr<Predictor> predictor(const Trained& trained) const override;
  bool draws() const override { return true; }

  GptOptions model(bool is_training) const;
  /// Tokens that predicting adds to a text at most, and takes of a beginning, the token before it among them.
  std::int64_t most_steps() const;
  std::int64_t most_read() const { return size().context - most_steps(); }

 private:
  std::int64_t continue_ = 100;
};

}  // namespace paoding::models
