// SPDX-License-Identifier: Apache-2.0
#include "models/gpt_task.h"

#include <algorithm>

#include "models/all_tasks.h"

namespace paoding::models {

Options GptTask::options() {
  Options all = BookTask::options();
  all.push_back(
      {"continue", "Most tokens that predict adds to a line, at most half of the context", &continue_, 1, 1 << 20});
  return all;
}

GptOptions GptTask::model(bool is_training) const {
  const TransformerSize sizes = size();
  return {.vocabulary = text().size(),
          .hidden = sizes.hidden,
          .layers = sizes.layers,
          .heads = sizes.heads,
          .context = sizes.context,
          .dropout = is_training ? dropout_ : 0};
}

std::int64_t GptTask::most_steps() const { return std::min(continue_, size().context / 2); }

Batch GptTask::batch(Part part, std::span<const std::int64_t> examples, std::int64_t, std::int64_t rows) const {
  const std::int64_t context = size().context;
  Tensor written(i64, {rows, context}), labels(i64, {rows, context});
  std::fill_n(written.data<std::int64_t>(), rows * context, text().end());
  std::fill_n(labels.data<std::int64_t>(), rows * context, -1);
  Batch made;
  made.items = std::ssize(examples);
  for (std::int64_t row = 0; row < made.items; ++row) {
    const std::span<const std::int32_t> tokens = window(part, examples[static_cast<std::size_t>(row)]);
    std::copy(tokens.begin(), tokens.end() - 1, written.data<std::int64_t>() + row * context);
    std::copy(tokens.begin() + 1, tokens.end(), labels.data<std::int64_t>() + row * context);
    made.weight += static_cast<double>(tokens.size() - 1);
  }
  made.feeds = {written, labels};
  return made;
}

Value GptTask::loss(Graph& graph, std::int64_t, std::int64_t rows, bool is_training) const {
  const GptOptions options = model(is_training);
  const Value written = graph.input("written", i64, {rows, options.context}),
              labels = graph.input("labels", i64, {rows, options.context});
  return Gpt(graph, options).loss(written, labels);
}

std::unique_ptr<Task> make_gpt() { return std::make_unique<GptTask>(); }

}  // namespace paoding::models
