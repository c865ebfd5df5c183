// SPDX-License-Identifier: Apache-2.0
#include "models/gpt_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "models/all_tasks.h"
#include "paoding/data/batches.h"
#include "paoding/data/corpora.h"
#include "paoding/error.h"

namespace paoding::models {
namespace {

struct Size {
  const char* name;
  std::int64_t hidden, layers, heads, context;
};
constexpr std::array kSizes{Size{"tiny", 64, 2, 4, 256}, Size{"small", 256, 6, 8, 256},
                            Size{"gpt2", 768, 12, 12, 1024}};
constexpr std::int64_t kVersesTogether = 32;  // so that verses held out are not the next to those trained on

}  // namespace

GptTask::GptTask() {
  settings = {.epochs = 10,
              .batch_size = 32,
              .learning_rate = 1e-3,
              .last_learning_rate = 1e-5,
              .warmup = 100,
              .clip_norm = 1,
              .weight_decay = 0.1,
              .validate = 200};
}

Options GptTask::options() {
  return {
      {.name = "size",
       .meaning = "tiny: 2 layers of 64, 4 heads, 256 tokens; small: 6 of 256, 8, 256; gpt2: 12 of 768, 12, 1024",
       .value = &size_,
       .choices = {"tiny", "small", "gpt2"},
       .is_fixed = true},
      {.name = "hidden",
       .meaning = "Width of embeddings and layers; 0: as --size has it, here and below",
       .value = &hidden_,
       .least = 0,
       .most = 1 << 16,
       .is_fixed = true},
      {.name = "layers", .meaning = "Of the decoder", .value = &layers_, .least = 0, .most = 1024, .is_fixed = true},
      {.name = "heads", .meaning = "Of attention", .value = &heads_, .least = 0, .most = 1024, .is_fixed = true},
      {.name = "context",
       .meaning = "Tokens that it sees at once",
       .value = &context_,
       .least = 0,
       .most = 1 << 20,
       .is_fixed = true},
      {.name = "pieces",
       .meaning = "Tokens are so many pieces of words (SentencePiece); 0: the bytes of the text",
       .value = &pieces_,
       .least = 0,
       .most = 1 << 20,
       .is_fixed = true},
      {"dropout", "Share of what is dropped", &dropout_, 0, 0.99},
      {"continue", "Most tokens that predict adds to a line, at most half of the context", &continue_, 1, 1 << 20}};
}

GptOptions GptTask::model(bool is_training) const {
  const Size& size = *std::ranges::find(kSizes, size_, &Size::name);
  GptOptions made{.vocabulary = text_.size(),
                  .hidden = hidden_ > 0 ? hidden_ : size.hidden,
                  .layers = layers_ > 0 ? layers_ : size.layers,
                  .heads = heads_ > 0 ? heads_ : size.heads,
                  .context = context_ > 0 ? context_ : size.context,
                  .dropout = is_training ? dropout_ : 0};
  if (made.hidden % made.heads != 0) {
    throw Error(ErrorKind::argument,
                fmt::format("hidden is {}, which {} heads do not divide", made.hidden, made.heads));
  }
  if (made.context < 2) throw Error(ErrorKind::argument, "context is 1, needs to be at least 2");
  return made;
}

std::int64_t GptTask::most_steps() const { return std::min(continue_, model(false).context / 2); }

void GptTask::read(const std::filesystem::path& folder) {
  model(false);  // sizes that do not fit are refused before anything is read
  const std::vector<std::string> verses = data::read_kjv(data::find_kjv(folder));
  content_ = {};
  for (const std::string& verse : verses) content_.add(verse);
  const std::int64_t count = std::ssize(verses), groups = (count + kVersesTogether - 1) / kVersesTogether;
  const auto parts = data::split(groups, std::array{0.93, 0.02, 0.05}, 1);
  for (std::size_t part = 0; part < 3; ++part) {
    parts_[part] = {};
    for (const std::int64_t group : parts[part]) {
      const std::int64_t first = group * kVersesTogether, end = std::min(count, first + kVersesTogether);
      parts_[part].verses.insert(parts_[part].verses.end(), verses.begin() + first, verses.begin() + end);
    }
  }
  if (text_.empty()) text_ = TokenText(parts_[0].verses, pieces_);
  const auto end = static_cast<std::int32_t>(text_.end());
  for (Text& part : parts_) {
    part.tokens.push_back(end);
    for (const std::string& verse : part.verses) {
      for (const std::int64_t token : text_.encode(verse)) part.tokens.push_back(static_cast<std::int32_t>(token));
      part.tokens.push_back(end);
      part.bytes += static_cast<double>(verse.size() + 1);
    }
  }
}

void GptTask::set_files(const std::map<std::string, std::string>& files) {
  text_ = TokenText::from_files(files, pieces_ > 0);
}

double GptTask::tokens_per_byte(Part part) const {
  return at(part).bytes > 0 ? static_cast<double>(at(part).tokens.size() - 1) / at(part).bytes : 1;
}

std::string GptTask::amount(Part part) const {
  return fmt::format("{} windows of {} tokens", buckets(part).size(), model(false).context);
}

std::vector<std::int64_t> GptTask::buckets(Part part) const {
  const std::int64_t context = model(false).context, read = std::ssize(at(part).tokens) - 1;
  return std::vector<std::int64_t>(static_cast<std::size_t>(std::max<std::int64_t>(0, (read + context - 1) / context)));
}

Batch GptTask::batch(Part part, std::span<const std::int64_t> examples, std::int64_t, std::int64_t rows) const {
  const std::int64_t context = model(false).context;
  const std::vector<std::int32_t>& tokens = at(part).tokens;
  Tensor written(i64, {rows, context}), labels(i64, {rows, context});
  std::fill_n(written.data<std::int64_t>(), rows * context, text_.end());
  std::fill_n(labels.data<std::int64_t>(), rows * context, -1);
  Batch made;
  made.items = std::ssize(examples);
  for (std::int64_t row = 0; row < made.items; ++row) {
    const std::int64_t first = examples[static_cast<std::size_t>(row)] * context;
    const std::int64_t length = std::min(context, std::ssize(tokens) - 1 - first);
    const auto from = tokens.begin() + first;
    std::copy_n(from, length, written.data<std::int64_t>() + row * context);
    std::copy_n(from + 1, length, labels.data<std::int64_t>() + row * context);
    made.weight += static_cast<double>(length);
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
