// SPDX-License-Identifier: Apache-2.0
// The only file that knows the SentencePiece library.
#include "paoding/data/sentence_pieces.h"

#include <sentencepiece_processor.h>
#include <sentencepiece_trainer.h>

#include <algorithm>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "data/piece_model.h"

namespace paoding::data {
namespace {

/// Every `stride`th of the sentences, as the trainer asks for them.
class Sentences : public sentencepiece::SentenceIterator {
 public:
  Sentences(std::span<const std::string> sentences, std::size_t stride) : sentences_(sentences), stride_(stride) {}
  bool done() const override { return at_ >= sentences_.size(); }
  void Next() override { at_ += stride_; }
  const std::string& value() const override { return sentences_[at_]; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  std::span<const std::string> sentences_;
  std::size_t stride_, at_ = 0;
};

/// The library's message of a failure, without the places in its own source that come first.
std::string message_of(const sentencepiece::util::Status& status) {
  std::string text = status.ToString();
  const std::size_t at = text.rfind("] ");
  return at == std::string::npos || at + 2 == text.size() ? text : text.substr(at + 2);
}

bool has_text(const std::string& sentence) { return sentence.find_first_not_of(" \t\r\n") != std::string::npos; }

}  // namespace

struct SentencePieces::Model {
  std::string serialized;
  sentencepiece::SentencePieceProcessor processor;
};

SentencePieces SentencePieces::train(std::span<const std::string> sentences, const SentencePieceOptions& options) {
  if (!std::any_of(sentences.begin(), sentences.end(), has_text)) {
    fail(ErrorKind::argument, "SentencePieces: {} sentences without any text", sentences.size());
  }
  if (options.vocabulary < 4 || options.vocabulary > 1'000'000) {
    fail(ErrorKind::argument, "SentencePieces: a vocabulary of {}, must be 4 .. 1000000", options.vocabulary);
  }
  if (!(options.character_coverage > 0.9 && options.character_coverage <= 1)) {
    fail(ErrorKind::argument, "SentencePieces: a character coverage of {}, must be over 0.9 and at most 1",
         options.character_coverage);
  }
  if (options.most_sentences < 1) {
    fail(ErrorKind::argument, "SentencePieces: at most {} sentences, must be at least 1", options.most_sentences);
  }
  const std::unordered_map<std::string, std::string> arguments = {
      {"model_type", "unigram"},
      {"vocab_size", std::to_string(options.vocabulary)},
      {"hard_vocab_limit", "false"},  // fewer pieces where the text does not have as many
      {"character_coverage", fmt::format("{}", options.character_coverage)},
      {"unk_id", std::to_string(kUnknown)},
      {"bos_id", std::to_string(kStart)},
      {"eos_id", std::to_string(kEnd)},
      {"pad_id", "-1"},
      // The text stays as it is: decoding gives back the encoded text, and a model has no table that could be damaged.
      {"normalization_rule_name", "identity"},
      // One thread and no sampling: the sums of EM come in the same order, so that the model is the same.
      {"num_threads", "1"},
      {"input_sentence_size", "0"},
      {"shuffle_input_sentence", "false"},
      {"minloglevel", "3"},
  };
  // Training keeps state in global variables (flags, log level).
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  const auto most = static_cast<std::size_t>(options.most_sentences);
  Sentences iterator(sentences, (sentences.size() + most - 1) / most);
  std::string serialized;
  const auto status = sentencepiece::SentencePieceTrainer::Train(arguments, &iterator, &serialized);
  if (!status.ok() && message_of(status).starts_with("Vocabulary size is smaller than required_chars")) {
    fail(ErrorKind::argument,
         "SentencePieces: a vocabulary of {} is smaller than the count of characters in the text; a larger one is "
         "needed, or less character coverage than {}",
         options.vocabulary, options.character_coverage);
  }
  if (!status.ok()) {
    fail(ErrorKind::argument, "SentencePieces: no model of {} pieces from {} sentences: {}", options.vocabulary,
         sentences.size(), message_of(status));
  }
  return load(serialized, "SentencePieces");
}

SentencePieces SentencePieces::load(std::string_view serialized, std::string_view name) {
  check_piece_model(serialized, name);
  const auto model = std::make_shared<Model>();
  model->serialized = serialized;
  const auto status = model->processor.LoadFromSerializedProto(model->serialized);
  if (!status.ok()) {
    fail(ErrorKind::file, "{}: is no SentencePiece model: {}", name, message_of(status));
  }
  if (model->processor.unk_id() != kUnknown || model->processor.bos_id() != kStart ||
      model->processor.eos_id() != kEnd) {
    fail(ErrorKind::file, "{}: unknown, start and end are pieces {}, {} and {}, must be {}, {} and {}", name,
         model->processor.unk_id(), model->processor.bos_id(), model->processor.eos_id(), kUnknown, kStart, kEnd);
  }
  SentencePieces pieces;
  pieces.model_ = model;
  return pieces;
}

const std::string& SentencePieces::serialized() const { return model_->serialized; }

std::int64_t SentencePieces::size() const { return model_->processor.GetPieceSize(); }

std::vector<std::int64_t> SentencePieces::encode(std::string_view text) const {
  std::vector<int> numbers;
  const auto status = model_->processor.Encode(text, &numbers);
  if (!status.ok()) fail(ErrorKind::argument, "SentencePieces: cannot encode: {}", message_of(status));
  return {numbers.begin(), numbers.end()};
}

std::string SentencePieces::decode(std::span<const std::int64_t> pieces) const {
  std::vector<int> numbers;
  for (const std::int64_t piece : pieces) {
    if (piece < 0 || piece >= size()) {
      fail(ErrorKind::argument, "SentencePieces: piece {} was asked for, there are {}", piece, size());
    }
    numbers.push_back(static_cast<int>(piece));
  }
  std::string text;
  const auto status = model_->processor.Decode(numbers, &text);
  if (!status.ok()) fail(ErrorKind::argument, "SentencePieces: cannot decode: {}", message_of(status));
  return text;
}

}  // namespace paoding::data
