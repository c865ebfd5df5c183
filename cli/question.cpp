// SPDX-License-Identifier: Apache-2.0
#include "question.h"

#include <simdjson.h>

#include <utility>

#include "base/check.h"
#include "base/one_line.h"
#include "cli/serve/media_type.h"

namespace paoding::cli {
namespace {

constexpr std::size_t kMostInputBytes = 16 << 10;

bool is_json_type(std::string_view content_type) { return is_same_word(media_type(content_type), "application/json"); }

[[noreturn]] void wrong(const std::string& what) { throw Error(ErrorKind::argument, what); }

Question json_question(const std::string& body) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  const auto problem = parser.parse(body).get(root);
  if (problem != simdjson::SUCCESS) wrong(fmt::format("the body is no JSON: {}", simdjson::error_message(problem)));
  Question question{{}, 1, true};
  simdjson::dom::object object;
  if (root.get(object) != simdjson::SUCCESS) wrong("the body is no JSON object with \"inputs\"");
  bool has_inputs = false, has_best = false;
  // Programs differ in which of two members with one name they take, so two are an error.
  const auto is_first = [](bool* has, std::string_view name) {
    if (std::exchange(*has, true)) wrong(fmt::format("there is more than one \"{}\"", name));
  };
  for (const auto& [key, value] : object) {
    if (key == "inputs") {
      is_first(&has_inputs, key);
      simdjson::dom::array items;
      std::string_view text;
      if (value.get(text) == simdjson::SUCCESS) {
        question.inputs.emplace_back(text);
      } else if (value.get(items) == simdjson::SUCCESS) {
        for (const simdjson::dom::element item : items) {
          if (item.get(text) != simdjson::SUCCESS) wrong("\"inputs\" has something that is no text");
          question.inputs.emplace_back(text);
        }
      } else {
        wrong("\"inputs\" are no text and no list of texts");
      }
    } else if (key == "best") {
      is_first(&has_best, key);
      if (value.get(question.best) != simdjson::SUCCESS) wrong("\"best\" is no whole number");
    } else {
      wrong(fmt::format("there is no member \"{}\"; a request has \"inputs\" and \"best\"", one_line(key)));
    }
  }
  if (!has_inputs) wrong("the body has no \"inputs\"");
  return question;
}

Question text_question(const std::string& body) {
  if (!simdjson::validate_utf8(body.data(), body.size())) wrong("the body is not UTF-8");
  Question question;
  for (std::size_t at = 0; at < body.size();) {
    const std::size_t end = std::min(body.find('\n', at), body.size());
    std::string line = body.substr(at, end - at);
    if (line.ends_with('\r')) line.pop_back();
    question.inputs.push_back(std::move(line));
    at = end + 1;
  }
  return question;
}

Question image_question(const std::string& body, std::size_t image_bytes) {
  if (body.size() % image_bytes != 0) {
    wrong(fmt::format("the body has {} bytes; needed are images of {} bytes each, one after the other", body.size(),
                      image_bytes));
  }
  Question question{{}, 1, true};
  for (std::size_t at = 0; at < body.size(); at += image_bytes) question.inputs.push_back(body.substr(at, image_bytes));
  return question;
}

void check_lines(const std::vector<std::string>& lines) {
  for (const std::string& line : lines) {
    if (line.size() > kMostInputBytes)
      wrong(fmt::format("an input has {} bytes, at most {} are possible", line.size(), kMostInputBytes));
    if (line.find('\n') != std::string::npos) wrong("an input has a line end in it");
  }
}

void decode_images(std::vector<std::string>* images, std::size_t image_bytes) {
  for (std::string& image : *images) {
    std::string bytes;
    if (!decode_base64(image, &bytes)) wrong("an input is no base64 of an image");
    if (bytes.size() != image_bytes) {
      wrong(fmt::format("an image has {} bytes, needed are {}", bytes.size(), image_bytes));
    }
    image = std::move(bytes);
  }
}

}  // namespace

bool decode_base64(std::string_view text, std::string* bytes) {
  static constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  if (text.size() % 4 == 1) return false;
  bytes->clear();
  std::uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const std::size_t digit = kDigits.find(c);
    if (digit == std::string_view::npos) return false;
    bits = bits << 6 | static_cast<std::uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    *bytes += static_cast<char>(bits >> count & 0xff);
  }
  return (bits & ((1u << count) - 1)) == 0;  // padding bits are 0
}

bool is_media_type_known(std::string_view content_type, const QuestionLimits& limits) {
  const std::string_view type = media_type(content_type);
  if (type.empty() || is_json_type(content_type)) return true;
  for (const std::string_view any : {"application/octet-stream", "application/x-www-form-urlencoded"}) {
    if (is_same_word(type, any)) return true;
  }
  const std::string_view kind = type.substr(0, type.find('/'));
  return is_same_word(kind, limits.input_bytes > 0 ? "image" : "text");
}

Question question_of(const HttpRequest& request, const QuestionLimits& limits) {
  const bool is_json = is_json_type(request.content_type), is_image = limits.input_bytes > 0;
  const auto image_bytes = static_cast<std::size_t>(limits.input_bytes);
  Question question = is_json    ? json_question(request.body)
                      : is_image ? image_question(request.body, image_bytes)
                                 : text_question(request.body);
  if (question.inputs.empty()) wrong("there is no input");
  if (question.inputs.size() > limits.inputs) {
    wrong(fmt::format("{} inputs in one request, at most {} are possible", question.inputs.size(), limits.inputs));
  }
  if (question.best < 1 || question.best > limits.best) {
    wrong(is_image ? fmt::format("\"best\" is {}; the model knows {} kinds", question.best, limits.best)
                   : fmt::format("\"best\" is {}; the model keeps {} hypotheses", question.best, limits.best));
  }
  if (!is_image) check_lines(question.inputs);
  if (is_image && is_json) decode_images(&question.inputs, image_bytes);
  return question;
}

}  // namespace paoding::cli
