// SPDX-License-Identifier: Apache-2.0
// paoding serve: a model file behind HTTP.
#include <omp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <thread>

#include "base/check.h"
#include "base/one_line.h"
#include "cli/predicting.h"
#include "cli/question.h"
#include "cli/serve/http_server.h"
#include "cli/serve/listening.h"
#include "cli/serve/media_type.h"
#include "cli/serve/request_batches.h"
#include "cli/serve/serve_metrics.h"
#include "io/json_text.h"

namespace paoding::cli {
namespace {

constexpr const char* kText = "text/plain; charset=utf-8";

struct ServeCommand {
  ModelChoice choice;
  HttpOptions http;
  int executors = 0;
  std::int64_t batch = 64, wait_ms = 2, most_waiting = 4096, run_seconds = 10;
};

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
  switch (result.kind) {
    case BatchResult::Kind::wrong: return http_problem(400, result.problem);
    case BatchResult::Kind::failed: return http_problem(500, result.problem);
    case BatchResult::Kind::too_late: return http_problem(503, result.problem);
    case BatchResult::Kind::answered: break;
  }
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

class Server {
 public:
  Server(const ServeCommand& command, const models::Served& served, std::vector<RequestBatches::Executor> executors)
      : limits_{.input_bytes = served.task().input_bytes(),
                .best = served.task().most_predictions(served.beam()),
                .inputs = static_cast<std::size_t>(command.most_waiting)},
        model_(served.model().file().model),
        batches_({.most_lines = static_cast<std::size_t>(command.batch),
                  .wait = std::chrono::milliseconds(command.wait_ms),
                  .most_waiting = static_cast<std::size_t>(command.most_waiting),
                  .most_run = std::chrono::seconds(command.run_seconds)},
                 std::move(executors)),
        http_(
            command.http, [this](const HttpRequest& request, const HttpReply& reply) { take(request, reply); },
            [this](int status, std::chrono::nanoseconds latency) { metrics_.count(status, latency); }) {}

  int port() const { return http_.port(); }
  /// Takes no new connections, and answers the requests that it has.
  void finish() {
    using namespace std::chrono_literals;
    http_.stop_listening();
    batches_.finish();
    http_.finish(2s);  // for clients to take their answers
  }
  std::int64_t answered() const { return metrics_.answered(); }

 private:
  void take(const HttpRequest& request, const HttpReply& reply) {
    const auto allows = [&](std::initializer_list<std::string_view> methods) {
      if (std::find(methods.begin(), methods.end(), request.method) != methods.end()) return true;
      HttpAnswer answer = http_problem(405, fmt::format("{} wants {}", request.path, *methods.begin()));
      answer.headers = fmt::format("Allow: {}\r\n", fmt::join(methods, ", "));
      reply(std::move(answer));
      return false;
    };
    if (request.path == "/predict") {
      if (allows({"POST"})) predict(request, reply);
    } else if (request.path == "/metrics") {
      if (allows({"GET", "HEAD"})) {
        reply({200, "text/plain; version=0.0.4", metrics_.text(batches_.counts(), http_.connections()), {}});
      }
    } else if (request.path == "/health") {
      if (allows({"GET", "HEAD"}))
        reply({200, "application/json", JsonObject().add("model", model_).text() + "\n", {}});
    } else {
      reply(http_problem(404, "there are /predict, /metrics and /health"));
    }
  }

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
        reply(http_problem(503, "too many requests are waiting, or the server ends"));
      }
    } catch (const Error& error) {
      reply(http_problem(400, error.what()));
    }
  }

  const QuestionLimits limits_;
  const std::string model_;
  ServeMetrics metrics_;
  RequestBatches batches_;
  HttpServer http_;  // destroyed first, since it uses the members above
};

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

int serve(const ServeCommand& command) {
  const models::Served served(command.choice.model, command.choice.compile());
  const int cores = command.choice.threads > 0 ? static_cast<int>(command.choice.threads) : omp_get_max_threads();
  const bool is_gpu = command.choice.compile().device.kind == DeviceKind::cuda;
  const int executors = command.executors > 0 ? command.executors : is_gpu ? 1 : std::min(2, cores);
  const int threads = std::max(1, cores / executors);
  Server server(command, served, executors_of(served, executors, threads));
  print("{} at http://{}/predict: {} executor{}, {} thread{} each; Ctrl-C ends it\n", one_line(command.choice.model),
        host_and_port(command.http.address, server.port()), executors, executors == 1 ? "" : "s", threads,
        threads == 1 ? "" : "s");
  flush_output();
  const SavesWhenInterrupted answers_what_waits;
  try {
    while (true) {
      check_interrupted();
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  } catch (const Interrupted&) {
    server.finish();
  }
  print("{} requests answered\n", server.answered());
  return kOk;
}

}  // namespace

void add_serve(CLI::App& app, Commands* commands) {
  CLI::App* sub = app.add_subcommand(
      "serve",
      "A model file behind HTTP\n"
      "POST /predict: {\"inputs\": [\"..\"], \"best\": 1}, or lines of text, or the bytes of images; GET "
      "/metrics: Prometheus' text; GET /health.\n"
      "Requests that wait are answered together.");
  const auto command = std::make_shared<ServeCommand>();
  sub->add_option("file", command->choice.model, "A file that `paoding export` wrote")->required()->type_name("FILE");
  sub->add_option("--address", command->http.address, "IPv4 or IPv6 address to listen at; ::, every one of both")
      ->type_name("ADDRESS")
      ->capture_default_str();
  const auto number = [&](const char* name, auto& value, std::int64_t least, std::int64_t most, const char* meaning) {
    sub->add_option(name, value, meaning)->check(whole_number(least, most))->type_name("N")->capture_default_str();
  };
  number("--port", command->http.port, 0, 65535, "Port; 0: one that is free");
  number("--executors", command->executors, 0, 256, "Batches that run at a time; 0: 2 on a CPU, 1 on a GPU");
  number("--batch", command->batch, 1, 1 << 16, "Most inputs that are answered together");
  number("--wait", command->wait_ms, 0, 10'000, "Milliseconds that a request waits for others");
  number("--queue", command->most_waiting, 1, 1 << 24, "Inputs that may wait; requests beyond are refused (503)");
  number("--connections", command->http.connections, 1, 1 << 20, "Connections at a time");
  number("--most-bytes", command->http.most_body_bytes, 1, std::int64_t{1} << 30, "Of a request; 413 beyond");
  number("--seconds", command->http.seconds, 1, 3600,
         "That a client may take to send a request, or to take its answer");
  number("--run-seconds", command->run_seconds, 1, 86'400,
         "That one run of the model may take; what takes longer is called off (503)");
  sub->add_option("--device", command->choice.device, "cpu, cuda, cuda:N or best")
      ->type_name("DEVICE")
      ->capture_default_str();
  sub->add_flag("--tf32", command->choice.allow_tf32, "On a GPU, products of f32 may round their operands to TF32");
  command->choice.precision.add_to(*sub);
  number("--threads", command->choice.threads, 0, 4096,
         "Of the CPU, for all executors; 0: OMP_NUM_THREADS, or all cores");
  sub->footer(
      "Examples:\n"
      "  paoding serve g2p.pd --port 8080\n"
      "  curl -d paoding http://127.0.0.1:8080/predict\n"
      "  curl -H 'Content-Type: application/json' -d '{\"inputs\": [\"paoding\", \"zebrafish\"]}' "
      "http://127.0.0.1:8080/predict");
  commands->push_back({sub, [command] { return serve(*command); }});
}

}  // namespace paoding::cli
