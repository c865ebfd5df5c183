// SPDX-License-Identifier: Apache-2.0
// The inputs in a request to /predict of `paoding serve`, whose body may hold anything.
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

/// Whether a body of this Content-Type is accepted: JSON; lines of text; images as bytes; and the default types that
/// HTTP clients send.
bool is_media_type_known(std::string_view content_type, const QuestionLimits& limits);

/// Reads JSON {"inputs": .., "best": ..}, whose images are base64; lines of text; or images as consecutive bytes.
/// Error (argument) with a message for the client.
Question question_of(const HttpRequest& request, const QuestionLimits& limits);

/// The bytes that base64 stands for (RFC 4648, with or without '=' at the end). False when it is none.
bool decode_base64(std::string_view text, std::string* bytes);

}  // namespace paoding::cli
