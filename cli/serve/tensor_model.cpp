// SPDX-License-Identifier: Apache-2.0
// A model file of one's own behind /predict and /v2: tensors by name.
#include <fmt/format.h>
#include <omp.h>

#include <filesystem>
#include <mutex>
#include <optional>

#include "base/one_line.h"
#include "cli/serve/infer_request.h"
#include "cli/serve/media_type.h"
#include "cli/serve/served_model.h"
#include "io/json_text.h"
#include "paoding/error.h"
#include "paoding/version.h"

namespace paoding::cli {
namespace {

constexpr std::string_view kModels = "/v2/models/", kPredict = "/predict";

// The path with "%20" as a blank. Anything else stays as it is, and is the name of nothing.
std::string unescaped(std::string_view path) {
  const auto digit = [](char c) {
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
  };
  std::string text;
  for (std::size_t i = 0; i < path.size(); ++i) {
    const bool is_escape = path[i] == '%' && i + 2 < path.size() && digit(path[i + 1]) >= 0 && digit(path[i + 2]) >= 0;
    text += is_escape ? static_cast<char>(digit(path[i + 1]) * 16 + digit(path[i + 2])) : path[i];
    if (is_escape) i += 2;
  }
  return text;
}

std::string ok(JsonObject object) { return object.text() + "\n"; }

class TensorModel : public ServedModel {
 public:
  TensorModel(ModelFile file, const std::string& path, std::string name, const ServingOptions& options)
      : model_(std::move(file), ModelOptions{.compile = options.compile, .executors = options.executors}, path),
        name_(name.empty() ? name_of(model_.file(), path) : std::move(name)),
        most_waiting_(options.batches.most_waiting) {
    for (const std::string& entry : model_.entries()) {
      try {
        signatures_.emplace(entry, model_.signature(entry));
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::argument) throw;
        throw Error(ErrorKind::file, error.what());
      }
    }
    batches_.emplace(options.batches, executors(options));
  }

  std::string_view paths() const override {
    return "there are /predict, /v2 (the Open Inference Protocol), /metrics and /health";
  }
  std::string_view name() const override { return name_; }
  BatchCounts counts() const override { return batches_->counts(); }
  void finish() override { batches_->finish(); }

  bool take(const HttpRequest& request, const HttpReply& reply) override {
    const std::string path = unescaped(request.path);
    if (path == kPredict || path.starts_with("/predict/")) {
      if (allows(request, reply, {"POST"}))
        predict(path.substr(std::min(path.size(), kPredict.size() + 1)), request, reply);
    } else if (path == "/v2" || path == "/v2/") {
      if (!allows(request, reply, {"GET", "HEAD"})) return true;
      answer(reply, ok(JsonObject()
                           .add("name", "paoding")
                           .add("version", PAODING_VERSION)
                           .add_json("extensions", "[\"binary_tensor_data\"]")));
    } else if (path == "/v2/health/live" || path == "/v2/health/ready") {
      if (allows(request, reply, {"GET", "HEAD"})) answer(reply, ok(JsonObject().add(path.substr(11), true)));
    } else if (path == "/v2/repository/index") {
      if (allows(request, reply, {"POST"})) answer(reply, index());
    } else if (path.starts_with(kModels)) {
      return take_model(std::string_view(path).substr(kModels.size()), request, reply);
    } else {
      return false;
    }
    return true;
  }

 private:
  static std::string name_of(const ModelFile& file, const std::string& path) {
    return file.model.empty() ? std::filesystem::path(path).stem().string() : file.model;
  }

  std::vector<TensorBatches::Executor> executors(const ServingOptions& options) {
    const auto once = std::make_shared<std::once_flag>();
    return {static_cast<std::size_t>(options.executors),
            {[this, once, threads = options.threads] {
               omp_set_num_threads(threads);
               std::call_once(*once, [this] { model_.prepare(); });
             },
             [this](std::span<const TensorCall> calls, const TensorBatches::BeforeRun& before_run) {
               return run_calls(model_, signatures_, calls, before_run);
             }}};
  }

  static void answer(const HttpReply& reply, std::string json) {
    reply({200, "application/json", std::move(json), {}});
  }

  // The names of /v2/models: the model's where it has one entry point, else those of its entry points.
  std::vector<std::string> names() const {
    if (signatures_.size() == 1) return {name_};
    std::vector<std::string> names;
    for (const auto& [entry, signature] : signatures_) names.push_back(entry);
    return names;
  }
  std::string index() const {
    std::vector<std::string> items;
    for (const std::string& each : names()) {
      items.push_back(
          JsonObject().add("name", each).add("version", "1").add("state", "READY").add("reason", "").text());
    }
    return json_array(items) + "\n";
  }
  // The entry point of a name; signatures_.end(): there is none.
  Signatures::const_iterator entry_of_name(std::string_view name) const {
    return signatures_.size() > 1 ? signatures_.find(name) : name == name_ ? signatures_.begin() : signatures_.end();
  }

  // NAME, NAME/ready, NAME/infer; each also as NAME/versions/1 ..
  bool take_model(std::string_view path, const HttpRequest& request, const HttpReply& reply) {
    std::string_view name = path, rest;
    for (const std::string_view verb : {"/infer", "/ready"}) {
      if (path.ends_with(verb)) name = path.substr(0, path.size() - verb.size()), rest = verb;
    }
    std::string_view version = "1";
    if (const std::size_t at = name.find("/versions/"); at != name.npos) {
      version = name.substr(at + std::string_view("/versions/").size());
      name = name.substr(0, at);
    }
    const auto entry = entry_of_name(name);
    if (entry == signatures_.end() || version != "1") {
      reply(http_problem(404, fmt::format("there is no model '{}'{}; there are version 1 of: {}", one_line(name),
                                          version == "1" ? "" : fmt::format(" of version '{}'", one_line(version)),
                                          one_line(names()))));
      return true;
    }
    if (rest == "/infer") {
      if (allows(request, reply, {"POST"})) infer(std::string(name), *entry, request, reply);
    } else if (allows(request, reply, {"GET", "HEAD"})) {
      answer(reply, rest == "/ready" ? ok(JsonObject().add("name", name).add("ready", true))
                                     : metadata_json(name, entry->second));
    }
    return true;
  }

  // Whether the body can be read at all; otherwise answers 415.
  static bool is_readable(const HttpRequest& request, const HttpReply& reply) {
    const std::string coding = request.header("Content-Encoding");
    if (!coding.empty() && !is_same_word(coding, "identity")) {
      reply(http_problem(
          415, fmt::format("Content-Encoding: {} is not known here; send the body as it is", one_line(coding))));
      return false;
    }
    const std::string_view type = media_type(request.content_type);
    for (const std::string_view known :
         {"", "application/json", "application/octet-stream", "application/x-www-form-urlencoded"}) {
      if (is_same_word(type, known)) return true;
    }
    reply(http_problem(
        415, fmt::format("the body is '{}'; needed is application/json or application/octet-stream", one_line(type))));
    return false;
  }

  template <class Work>
  static void or_wrong(const HttpReply& reply, const Work& work) {
    try {
      work();
    } catch (const Error& error) {
      reply(http_problem(400, error.what()));
    }
  }

  void infer(const std::string& name, const Signatures::value_type& entry, const HttpRequest& request,
             const HttpReply& reply) {
    or_wrong(reply, [&] {
      if (!is_readable(request, reply)) return;
      const auto asked = std::make_shared<InferRequest>(infer_request_of(request, entry.second));
      run(entry, std::move(asked->feeds), reply,
          [name, asked](const TensorAnswer& results) { return infer_answer(name, *asked, results); });
    });
  }

  void predict(const std::string& name, const HttpRequest& request, const HttpReply& reply) {
    const auto entry = signatures_.size() == 1 && name.empty() ? signatures_.begin() : signatures_.find(name);
    if (entry == signatures_.end()) {
      return reply(http_problem(
          404, fmt::format("the model has the entry points {}: /predict/ENTRY", one_line(model_.entries()))));
    }
    or_wrong(reply, [&] {
      if (!is_readable(request, reply)) return;
      const bool as_bytes = wants_bytes(request);
      if (as_bytes && entry->second.results.size() != 1) {
        throw Error(ErrorKind::argument,
                    fmt::format("the model has {} results: their bytes go by /v2", entry->second.results.size()));
      }
      run(*entry, plain_feeds_of(request, entry->second), reply,
          [as_bytes](const TensorAnswer& results) { return plain_answer(as_bytes, results); });
    });
  }

  void run(const Signatures::value_type& entry, std::map<std::string, Tensor> feeds, const HttpReply& reply,
           std::function<HttpAnswer(const TensorAnswer&)> answer_of) {
    std::map<std::string, Type> types;
    for (const auto& [input, tensor] : feeds) types[input] = tensor.type();
    model_.check(entry.first, types);
    const std::int64_t rows = rows_in(entry.second, feeds);
    if (rows > static_cast<std::int64_t>(most_waiting_)) {
      throw Error(ErrorKind::argument,
                  fmt::format("{} rows in one request, at most {} are possible", rows, most_waiting_));
    }
    std::vector<TensorCall> calls;
    calls.push_back({entry.first, std::move(feeds), rows});
    const auto done = [reply, answer_of = std::move(answer_of)](TensorBatches::Result result) {
      reply(result.kind == TensorBatches::Result::Kind::answered ? answer_of(result.answers[0]) : problem_of(result));
    };
    if (!batches_->add(std::move(calls), done, [reply] { return reply.is_awaited(); })) {
      reply(http_problem(503, kTooMany));
    }
  }

  const Model model_;
  const std::string name_;
  const std::size_t most_waiting_;
  Signatures signatures_;
  std::optional<TensorBatches> batches_;
};

}  // namespace

std::unique_ptr<ServedModel> tensor_model(ModelFile file, const std::string& path, std::string name,
                                          const ServingOptions& options) {
  return std::make_unique<TensorModel>(std::move(file), path, std::move(name), options);
}

}  // namespace paoding::cli
