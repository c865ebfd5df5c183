// SPDX-License-Identifier: Apache-2.0
// Models of text and images behind /predict.
#include <fmt/format.h>
#include <omp.h>

#include <algorithm>

#include "base/one_line.h"
#include "cli/predicting.h"
#include "cli/question.h"
#include "cli/serve/media_type.h"
#include "cli/serve/served_model.h"
#include "io/json_text.h"
#include "models/served.h"
#include "paoding/error.h"

namespace paoding::cli {
namespace {

constexpr const char* kText = "text/plain; charset=utf-8";

// "2: never seen in training: 'x'" of every line that has a remark, in ASCII, as headers are.
std::string remark_header(const std::vector<LineAnswer>& answers) {
  constexpr std::size_t kMostBytes = 2048;
  std::string text;
  for (std::size_t i = 0; i < answers.size() && text.size() < kMostBytes; ++i) {
    if (!answers[i].remark.empty()) text += fmt::format("{}{}: {}", text.empty() ? "" : "; ", i + 1, answers[i].remark);
  }
  if (text.empty()) return "";
  std::string ascii;
  for (const char c : text) {
    if (ascii.size() >= kMostBytes) break;
    ascii += static_cast<unsigned char>(c) < 0x80 ? std::string(1, c)
                                                  : fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
  }
  return fmt::format("Paoding-Remark: {}{}\r\n", ascii, ascii.size() >= kMostBytes ? ".." : "");
}

HttpAnswer answer_of(const Question& question, BatchResult result) {
  if (result.kind != BatchResult::Kind::answered) return problem_of(result);
  std::vector<std::string> items, remarks;  // in JSON; in words
  bool has_remark = false;
  for (auto& [found, remark] : result.answers) {
    found.resize(std::min(found.size(), static_cast<std::size_t>(question.best)));
    remark = one_line(remark);
    has_remark = has_remark || !remark.empty();
  }
  if (question.is_json) {
    for (const auto& [found, remark] : result.answers) {
      items.push_back(to_json(found));
      if (has_remark) remarks.push_back(remark);
    }
    JsonObject json;
    json.add_json("predictions", json_array(items));
    if (has_remark) json.add_json("remarks", json_strings(remarks));
    return {200, "application/json", json.text() + "\n", {}};
  }
  std::string text;
  for (const auto& [found, remark] : result.answers) text += (found.empty() ? "" : found[0].text) + "\n";
  return {200, kText, text, has_remark ? remark_header(result.answers) : ""};
}

// Each with a predictor and, on a CPU, its share of the threads.
std::vector<RequestBatches::Executor> executors_of(const models::Served& served, int count, int threads) {
  std::vector<RequestBatches::Executor> executors;
  const models::SearchOptions search{
      .beam = served.beam(), .best = served.task().most_predictions(served.beam()), .packs = true};
  for (int i = 0; i < count; ++i) {
    const auto before_run = std::make_shared<RequestBatches::BeforeRun>();  // of the call under way
    const std::shared_ptr<models::Predictor> predictor = served.predictor([before_run] { (*before_run)(); });
    executors.push_back(
        {[predictor, threads, search] {
           omp_set_num_threads(threads);
           predictor->prepare(search);
         },
         [predictor, before_run, search](std::span<const std::string> lines, const RequestBatches::BeforeRun& given) {
           *before_run = given;
           std::vector<models::Predictions> found = predictor->predict(lines, search);
           std::vector<LineAnswer> answers;
           for (std::size_t k = 0; k < lines.size(); ++k) {
             answers.push_back({std::move(found[k]), predictor->remark(lines[k])});
           }
           return answers;
         }});
  }
  return executors;
}

class TextModel : public ServedModel {
 public:
  TextModel(ModelFile file, const std::string& path, const ServingOptions& options)
      : served_(std::move(file), path, options.compile),
        limits_{.input_bytes = served_.task().input_bytes(),
                .best = served_.task().most_predictions(served_.beam()),
                .inputs = options.batches.most_waiting},
        batches_(options.batches, executors_of(served_, options.executors, options.threads)) {}

  std::string_view paths() const override { return "there are /predict, /metrics and /health"; }
  std::string_view name() const override { return served_.model().file().model; }
  BatchCounts counts() const override { return batches_.counts(); }
  void finish() override { batches_.finish(); }

  bool take(const HttpRequest& request, const HttpReply& reply) override {
    if (request.path != "/predict") return false;
    if (allows(request, reply, {"POST"})) predict(request, reply);
    return true;
  }

 private:
  void predict(const HttpRequest& request, const HttpReply& reply) {
    if (!is_media_type_known(request.content_type, limits_)) {
      return reply(http_problem(415, fmt::format("the body is '{}'; needed is {}, or application/json",
                                                 one_line(media_type(request.content_type)),
                                                 limits_.input_bytes > 0 ? "the bytes of images" : "text/plain")));
    }
    try {
      const auto question = std::make_shared<Question>(question_of(request, limits_));
      const auto done = [question, reply](BatchResult result) { reply(answer_of(*question, std::move(result))); };
      if (!batches_.add(question->inputs, done, [reply] { return reply.is_awaited(); })) {
        reply(http_problem(503, kTooMany));
      }
    } catch (const Error& error) {
      reply(http_problem(400, error.what()));
    }
  }

  const models::Served served_;
  const QuestionLimits limits_;
  RequestBatches batches_;
};

}  // namespace

std::unique_ptr<ServedModel> text_model(ModelFile file, const std::string& path, const ServingOptions& options) {
  return std::make_unique<TextModel>(std::move(file), path, options);
}

}  // namespace paoding::cli
