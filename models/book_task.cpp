// SPDX-License-Identifier: Apache-2.0
#include "models/book_task.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "paoding/data/batches.h"
#include "paoding/data/corpora.h"
#include "paoding/error.h"

namespace paoding::models {
namespace {

struct NamedSize {
  const char* name;
  TransformerSize size;
};
constexpr std::array kSizes{NamedSize{"tiny", {64, 2, 4, 256}}, NamedSize{"small", {256, 6, 8, 256}},
                            NamedSize{"gpt2", {768, 12, 12, 1024}}};
constexpr std::int64_t kVersesTogether = 32;  // so that verses held out are not the next to those trained on

}  // namespace

BookTask::BookTask() {
  settings = {.epochs = 10,
              .batch_size = 32,
              .learning_rate = 1e-3,
              .last_learning_rate = 1e-5,
              .warmup = 100,
              .clip_norm = 1,
              .weight_decay = 0.1,
              .validate = 200};
}

Options BookTask::options() {
  return {{.name = "size",
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
          {.name = "layers",
           .meaning = "Of the transformer",
           .value = &layers_,
           .least = 0,
           .most = 1024,
           .is_fixed = true},
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
          {"dropout", "Share of what is dropped", &dropout_, 0, 0.99}};
}

TransformerSize BookTask::size() const {
  TransformerSize made = std::ranges::find(kSizes, size_, &NamedSize::name)->size;
  if (hidden_ > 0) made.hidden = hidden_;
  if (layers_ > 0) made.layers = layers_;
  if (heads_ > 0) made.heads = heads_;
  if (context_ > 0) made.context = context_;
  if (made.hidden % made.heads != 0) {
    throw Error(ErrorKind::argument,
                fmt::format("hidden is {}, which {} heads do not divide", made.hidden, made.heads));
  }
  if (made.context < 2) throw Error(ErrorKind::argument, "context is 1, needs to be at least 2");
  return made;
}

void BookTask::read(const std::filesystem::path& folder) {
  size();  // sizes that do not fit are refused before anything is read
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

void BookTask::set_files(const std::map<std::string, std::string>& files) {
  text_ = TokenText::from_files(files, pieces_ > 0);
}

double BookTask::tokens_per_byte(Part part) const {
  return at(part).bytes > 0 ? static_cast<double>(at(part).tokens.size() - 1) / at(part).bytes : 1;
}

std::string BookTask::amount(Part part) const {
  return fmt::format("{} windows of {} tokens", buckets(part).size(), size().context);
}

std::vector<std::int64_t> BookTask::buckets(Part part) const {
  const std::int64_t context = size().context, read = std::ssize(at(part).tokens) - 1;
  return std::vector<std::int64_t>(static_cast<std::size_t>(std::max<std::int64_t>(0, (read + context - 1) / context)));
}

std::span<const std::int32_t> BookTask::window(Part part, std::int64_t number) const {
  const std::vector<std::int32_t>& tokens = at(part).tokens;
  const std::int64_t context = size().context, first = number * context;
  const std::int64_t length = std::min(context, std::ssize(tokens) - 1 - first);
  return std::span(tokens).subspan(static_cast<std::size_t>(first), static_cast<std::size_t>(length) + 1);
}

}  // namespace paoding::models
