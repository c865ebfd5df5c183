// SPDX-License-Identifier: Apache-2.0
// What /predict of `paoding serve` was asked: inputs from the body of a request, which may say anything.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "cli/serve/http_message.h"

namespace paoding::cli {

struct Question {
  std::vector<std::string> inputs;  // lines of text, or bytes of images
  std::int64_t best = 1;
  bool is_json = false;  // so is the answer
};

struct QuestionLimits {
  std::int64_t input_bytes = 0;  // of an image; 0: inputs are lines
  std::int64_t best = 1;
  std::size_t inputs = 4096;
};

/// Whether a body of this Content-Type can be a question: JSON; text, of lines; images, of their bytes; and what
/// clients say when nobody told them what it is.
bool is_media_type_known(std::string_view content_type, const QuestionLimits& limits);

/// Of JSON {"inputs": .., "best": ..}, whose images are base64; of lines of text; of the bytes of images, one behind
/// the other. Error (argument) in words for who asked.
Question question_of(const HttpRequest& request, const QuestionLimits& limits);

/// The bytes that base64 stands for (RFC 4648, with or without '=' at the end). False when it is none.
bool decode_base64(std::string_view text, std::string* bytes);

}  // namespace paoding::cli
