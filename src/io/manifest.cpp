// SPDX-License-Identifier: Apache-2.0
#include "io/manifest.h"

#include <simdjson.h>
#include <zlib.h>

#include <cmath>
#include <limits>
#include <new>
#include <utility>
#include <vector>

#include "base/check.h"
#include "io/json_text.h"
#include "io/safetensors.h"

namespace paoding::checkpoints {

using safetensors::shown;

void Seal::add(const void* bytes, std::size_t more_bytes) {
  if (more_bytes == 0) return;  // zlib takes a null pointer for a wish to begin anew
  crc = static_cast<std::uint32_t>(::crc32_z(crc, static_cast<const Bytef*>(bytes), more_bytes));
  size_bytes += more_bytes;
}

std::string crc_text(std::uint32_t crc) { return fmt::format("{:08x}", crc); }

std::string name_problem(std::string_view name) {
  constexpr std::size_t kMaxNameBytes = 200;
  if (name.empty()) return "is empty";
  if (name.size() > kMaxNameBytes) return fmt::format("has {} bytes, the most is {}", name.size(), kMaxNameBytes);
  if (name == kManifestFile || name == kTensorsFile) return "is a name of the checkpoint's own";
  if (name.front() == '.') return "begins with a dot";
  if (!simdjson::validate_utf8(name.data(), name.size())) return "is not UTF-8";
  for (const char c : name) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '/' || c == '\\') return "has a slash: it must be a file of the checkpoint's folder itself";
    if (byte < 0x20 || byte == 0x7F) return "has a control character";
  }
  return "";
}

// ---- writing ----

namespace {

/// Steps and numbers.
using Curve = std::vector<std::pair<std::int64_t, double>>;

constexpr std::string_view kCheckpointFormat = "paoding checkpoint";
constexpr std::string_view kBetween = "\n";
constexpr std::string_view kChecksumBegin = ",\n\"checksum\":\"", kChecksumEnd = "\"\n}\n";
constexpr std::size_t kChecksumBytes = kChecksumBegin.size() + 8 + kChecksumEnd.size();

void check_writable(std::string_view what, std::string_view text) {
  if (simdjson::validate_utf8(text.data(), text.size())) return;
  fail(ErrorKind::argument, "checkpoint: {} '{}' is not valid UTF-8", what, shown(text));
}

void check_writable(std::string_view what, const std::map<std::string, std::string>& texts) {
  for (const auto& [key, text] : texts) {
    check_writable(fmt::format("the name of {}", what), key);
    check_writable(fmt::format("{} '{}',", what, key), text);
  }
}

std::string number_json(double number) {
  if (std::isfinite(number)) return json_number(number);
  return std::isnan(number) ? R"("NaN")" : number > 0 ? R"("Infinity")" : R"("-Infinity")";
}

std::string texts_json(const std::map<std::string, std::string>& texts) {
  JsonObject object;
  for (const auto& [key, text] : texts) object.add(key, text);
  return object.text();
}

std::string curve_json(const Curve& curve) {
  std::string json = "[";
  for (const auto& [step, number] : curve) {
    json += fmt::format("{}[{},{}]", json.size() > 1 ? "," : "", step, number_json(number));
  }
  return json + "]";
}

std::uint32_t crc_of(std::string_view text) {
  Seal seal;
  seal.add(text.data(), text.size());
  return seal.crc;
}

}  // namespace

void check(const Manifest& manifest) {
  for (const auto& [what, number] :
       {std::pair("step", manifest.step), std::pair("epoch", manifest.epoch), std::pair("batch", manifest.batch)}) {
    if (number < 0) fail(ErrorKind::argument, "checkpoint: {} is {}, must not be negative", what, number);
  }
  for (const auto& [what, curve] : {std::pair("losses", &manifest.losses), std::pair("scores", &manifest.scores)}) {
    for (const auto& [step, number] : *curve) {
      if (step >= 0) continue;
      fail(ErrorKind::argument, "checkpoint: {} has {} for step {}, must not be negative", what, number, step);
    }
  }
  check_writable("model", manifest.model);
  check_writable("score_name", manifest.score_name);
  check_writable("option", manifest.options);
  check_writable("note", manifest.notes);
}

std::string manifest_text(const SealedManifest& sealed) {
  const Manifest& manifest = sealed.manifest;
  JsonObject files;
  for (const auto& [name, seal] : sealed.files) {
    JsonObject file;
    file.add("bytes", static_cast<std::int64_t>(seal.size_bytes)).add("crc32", crc_text(seal.crc));
    files.add_json(name, file.text());
  }
  JsonObject object(kBetween);
  object.add("format", kCheckpointFormat)
      .add("version", kVersion)
      .add("model", manifest.model)
      .add_json("options", texts_json(manifest.options))
      .add("step", manifest.step)
      .add("epoch", manifest.epoch)
      .add("batch", manifest.batch)
      .add_json("score", number_json(manifest.score))
      .add("score_name", manifest.score_name)
      .add_json("notes", texts_json(manifest.notes))
      .add_json("losses", curve_json(manifest.losses))
      .add_json("scores", curve_json(manifest.scores))
      .add_json("files", files.text());
  std::string text = object.text();
  text.resize(text.size() - kBetween.size() - 1);  // the object goes on
  return with_checksum(std::move(text));
}

std::string with_checksum(std::string text) {
  const std::string checksum = crc_text(crc_of(text));
  text += kChecksumBegin;
  text += checksum;
  text += kChecksumEnd;
  return text;
}

// ---- reading ----

namespace {

namespace dom = simdjson::dom;

std::string shown(const dom::element& value) { return safetensors::shown(std::string_view(simdjson::minify(value))); }
using safetensors::shown;  // hidden by the overload

/// An object of the manifest; errors call it `where`: "score" in "files".
class Fields {
 public:
  Fields(std::string_view file, std::string where, const dom::element& value) : file_(file), where_(std::move(where)) {
    dom::object object;
    if (value.get(object) != simdjson::SUCCESS) wrong(where_, value, "an object");
    for (dom::key_value_pair field : object) {
      safetensors::check_text(file_, "a name", field.key);
      if (!fields_.emplace(field.key, field.value).second) {
        fail(ErrorKind::file, "{}: '{}' is there twice", file_, path_of(field.key));
      }
    }
  }

  const std::map<std::string_view, dom::element>& all() const { return fields_; }

  const dom::element& at(std::string_view key) const {
    const auto it = fields_.find(key);
    if (it == fields_.end()) fail(ErrorKind::file, "{}: '{}' is missing", file_, path_of(key));
    return it->second;
  }

  std::string text(std::string_view key) const {
    std::string_view text;
    if (at(key).get(text) != simdjson::SUCCESS) wrong(path_of(key), at(key), "a text in quotes");
    safetensors::check_text(file_, path_of(key), text);
    return std::string(text);
  }

  std::int64_t count(std::string_view key) const { return count_of(path_of(key), at(key)); }
  double number(std::string_view key) const { return number_of(path_of(key), at(key)); }
  Fields object(std::string_view key) const { return Fields(file_, path_of(key), at(key)); }

  std::map<std::string, std::string> texts(std::string_view key) const {
    const Fields inner = object(key);
    std::map<std::string, std::string> texts;
    for (const auto& field : inner.all()) texts.emplace(field.first, inner.text(field.first));
    return texts;
  }

  std::uint32_t crc(std::string_view key) const {
    const std::string digits = text(key);
    if (digits.size() != 8 || digits.find_first_not_of("0123456789abcdef") != std::string::npos) {
      wrong(path_of(key), at(key), "8 hexadecimal digits");
    }
    return static_cast<std::uint32_t>(std::stoul(digits, nullptr, 16));
  }

  Curve curve(std::string_view key) const {
    const std::string what = path_of(key);
    dom::array array;
    if (at(key).get(array) != simdjson::SUCCESS) wrong(what, at(key), "an array of [step, number]");
    Curve curve;
    for (dom::element item : array) {
      dom::array pair;
      if (item.get(pair) != simdjson::SUCCESS || pair.size() != 2) wrong("an item of " + what, item, "[step, number]");
      curve.emplace_back(count_of("a step in " + what, pair.at(0).value_unsafe()),
                         number_of("a number in " + what, pair.at(1).value_unsafe()));
    }
    return curve;
  }

  [[noreturn]] void wrong(std::string_view what, const dom::element& value, std::string_view needed) const {
    fail(ErrorKind::file, "{}: {} is {}, must be {}", file_, what.empty() ? "the text" : what, shown(value), needed);
  }

 private:
  std::string path_of(std::string_view key) const {
    return where_.empty() ? shown(key) : fmt::format("{}/{}", where_, shown(key));
  }

  std::int64_t count_of(std::string_view what, const dom::element& value) const {
    std::int64_t count = 0;
    if (value.get(count) != simdjson::SUCCESS || count < 0) wrong(what, value, "a whole number from 0 to 2^63 - 1");
    return count;
  }

  double number_of(std::string_view what, const dom::element& value) const {
    double number = 0;
    std::string_view text;
    if (value.get(number) == simdjson::SUCCESS) return number;
    if (value.get(text) == simdjson::SUCCESS) {
      if (text == "NaN") return std::numeric_limits<double>::quiet_NaN();
      if (text == "Infinity") return std::numeric_limits<double>::infinity();
      if (text == "-Infinity") return -std::numeric_limits<double>::infinity();
    }
    wrong(what, value, R"(a number, "NaN", "Infinity" or "-Infinity")");
  }

  std::string_view file_;
  std::string where_;
  std::map<std::string_view, dom::element> fields_;
};

void check_version(const Fields& fields, std::string_view file) {
  if (const std::string format = fields.text("format"); format != kCheckpointFormat) {
    fail(ErrorKind::file, "{}: format is '{}', must be '{}': this is something else's manifest", file, shown(format),
         kCheckpointFormat);
  }
  const std::int64_t version = fields.count("version");
  if (version > kVersion) {
    fail(ErrorKind::file, "{}: is of version {}, this program reads version {}: a newer paoding wrote it, use that",
         file, version, kVersion);
  }
  if (version < 1) fail(ErrorKind::file, "{}: is of version {}, the first is 1", file, version);
}

void check_checksum(const Fields& fields, std::string_view text, std::string_view file) {
  const std::uint32_t written = fields.crc("checksum");
  if (text.size() < kChecksumBytes || !text.ends_with(kChecksumEnd) ||
      !text.substr(text.size() - kChecksumBytes).starts_with(kChecksumBegin)) {
    fail(ErrorKind::file, "{}: does not end with its checksum: it was changed after it was written{}", file, kWhatToDo);
  }
  const std::uint32_t computed = crc_of(text.substr(0, text.size() - kChecksumBytes));
  if (written != computed) {
    fail(ErrorKind::file, "{}: its checksum is {}, its text has {}: it was changed after it was written{}", file,
         crc_text(written), crc_text(computed), kWhatToDo);
  }
}

SealedManifest read(const dom::element& root, std::string_view text, std::string_view file) {
  const Fields fields(file, "", root);
  check_version(fields, file);
  check_checksum(fields, text, file);
  SealedManifest sealed;
  Manifest& manifest = sealed.manifest;
  manifest.model = fields.text("model");
  manifest.options = fields.texts("options");
  manifest.step = fields.count("step");
  manifest.epoch = fields.count("epoch");
  manifest.batch = fields.count("batch");
  manifest.score = fields.number("score");
  manifest.score_name = fields.text("score_name");
  manifest.notes = fields.texts("notes");
  manifest.losses = fields.curve("losses");
  manifest.scores = fields.curve("scores");
  const Fields files = fields.object("files");
  for (const auto& entry : files.all()) {
    const std::string name(entry.first);
    if (const std::string problem = name == kTensorsFile ? "" : name_problem(name); !problem.empty()) {
      fail(ErrorKind::file, "{}: the file name '{}' {}", file, shown(name), problem);
    }
    const Fields seal = files.object(name);
    sealed.files[name] = {static_cast<std::uint64_t>(seal.count("bytes")), seal.crc("crc32")};
  }
  if (!sealed.files.contains(std::string(kTensorsFile))) {
    fail(ErrorKind::file, "{}: files has no '{}'", file, kTensorsFile);
  }
  return sealed;
}

}  // namespace

SealedManifest parse_manifest(std::string_view text, std::string_view file) {
  if (text.size() > kMaxManifestBytes) {
    fail(ErrorKind::file, "{}: has {} bytes, the most is {}: not a manifest", file, text.size(), kMaxManifestBytes);
  }
  try {
    dom::parser parser;
    dom::element root;
    if (const auto code = parser.parse(text.data(), text.size()).get(root); code != simdjson::SUCCESS) {
      fail(ErrorKind::file, "{}: its {} bytes are not valid JSON ({}){}", file, text.size(),
           simdjson::error_message(code), kWhatToDo);
    }
    return read(root, text, file);
  } catch (const std::bad_alloc&) {
    fail(ErrorKind::file, "{}: not enough memory to read its {} bytes", file, text.size());
  }
}

}  // namespace paoding::checkpoints
