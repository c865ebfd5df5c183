// SPDX-License-Identifier: Apache-2.0
// paoding serve: a model file behind HTTP.
#include <omp.h>
#include <simdjson.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <thread>

#include "base/check.h"
#include "base/one_line.h"
#include "http_server.h"
#include "io/json_text.h"
#include "predicting.h"
#include "request_batches.h"
#include "serve_metrics.h"

namespace paoding::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::size_t kMostLineBytes = 16 << 10;
constexpr const char* kText = "text/plain; charset=utf-8";

struct ServeCommand {
  ModelChoice choice;
  HttpOptions http;
  int executors = 0;
  std::int64_t batch = 64, wait_ms = 2, most_waiting = 4096;
};

// What /predict was asked.
struct Question {
  std::vector<std::string> lines;
  std::int64_t best = 1;
  bool is_json = false;
};

[[noreturn]] void wrong(const std::string& what) { throw Error(ErrorKind::argument, what); }

Question json_question(const std::string& body) {
  simdjson::dom::parser parser;
  simdjson::dom::element root;
  const auto problem = parser.parse(body).get(root);
  if (problem != simdjson::SUCCESS) wrong(fmt::format("the body is no JSON: {}", simdjson::error_message(problem)));
  Question question{{}, 1, true};
  simdjson::dom::object object;
  if (root.get(object) != simdjson::SUCCESS) wrong("the body is no JSON object with \"inputs\"");
  bool has_inputs = false;
  for (const auto& [key, value] : object) {
    if (key == "inputs") {
      has_inputs = true;
      simdjson::dom::array items;
      std::string_view text;
      if (value.get(text) == simdjson::SUCCESS) {
        question.lines.emplace_back(text);
      } else if (value.get(items) == simdjson::SUCCESS) {
        for (const simdjson::dom::element item : items) {
          if (item.get(text) != simdjson::SUCCESS) wrong("\"inputs\" has something that is no text");
          question.lines.emplace_back(text);
        }
      } else {
        wrong("\"inputs\" are no text and no list of texts");
      }
    } else if (key == "best") {
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
    question.lines.push_back(std::move(line));
    at = end + 1;
  }
  return question;
}

Question question_of(const HttpRequest& request, std::int64_t beam, std::size_t most_lines) {
  Question question =
      request.content_type.starts_with("application/json") ? json_question(request.body) : text_question(request.body);
  if (question.lines.empty()) wrong("there is no input");
  if (question.lines.size() > most_lines) {
    wrong(fmt::format("{} inputs in one request, at most {} are possible", question.lines.size(), most_lines));
  }
  if (question.best < 1 || question.best > beam) {
    wrong(fmt::format("\"best\" is {}; the model keeps {} hypotheses", question.best, beam));
  }
  for (const std::string& line : question.lines) {
    if (line.size() > kMostLineBytes)
      wrong(fmt::format("an input has {} bytes, at most {} are possible", line.size(), kMostLineBytes));
    if (line.find('\n') != std::string::npos) wrong("an input has a line end in it");
  }
  return question;
}

HttpAnswer problem(int status, const std::string& what) {
  return {status, "application/json", JsonObject().add("error", what).text() + "\n"};
}

HttpAnswer answer_of(const Question& question, BatchResult result) {
  switch (result.kind) {
    case BatchResult::Kind::wrong: return problem(400, result.problem);
    case BatchResult::Kind::failed: return problem(500, result.problem);
    case BatchResult::Kind::too_late: return problem(503, result.problem);
    case BatchResult::Kind::answered: break;
  }
  for (models::Predictions& found : result.predictions) {
    found.resize(std::min(found.size(), static_cast<std::size_t>(question.best)));
  }
  std::vector<std::string> items;
  if (question.is_json) {
    for (const models::Predictions& found : result.predictions) items.push_back(to_json(found));
    return {200, "application/json", JsonObject().add_json("predictions", json_array(items)).text() + "\n"};
  }
  std::string text;
  for (const models::Predictions& found : result.predictions) text += (found.empty() ? "" : found[0].text) + "\n";
  return {200, kText, text};
}

class Server {
 public:
  Server(const ServeCommand& command, const models::Served& served, std::vector<RequestBatches::Executor> executors)
      : beam_(served.beam()),
        model_(served.model().file().model),
        most_lines_(static_cast<std::size_t>(command.most_waiting)),
        batches_({.most_lines = static_cast<std::size_t>(command.batch),
                  .wait = std::chrono::milliseconds(command.wait_ms),
                  .most_waiting = static_cast<std::size_t>(command.most_waiting)},
                 std::move(executors)),
        http_(command.http,
              [this](HttpRequest request, HttpServer::Respond respond) { take(request, std::move(respond)); }) {}

  int port() const { return http_.port(); }
  /// No new connections; what was asked is answered.
  void finish() {
    using namespace std::chrono_literals;
    http_.stop_listening();
    batches_.finish();
    while (http_.waiting() > 0) std::this_thread::sleep_for(1ms);  // until answers are handed over
  }
  std::int64_t answered() const { return metrics_.answered(); }

 private:
  void take(const HttpRequest& request, HttpServer::Respond respond) {
    const auto counted = [this, respond = std::move(respond), came = Clock::now()](HttpAnswer answer) {
      metrics_.count(answer.status, Clock::now() - came);
      respond(std::move(answer));
    };
    const auto only = [&](const char* method) {
      if (request.method == method) return true;
      counted(problem(405, fmt::format("{} wants {}", request.path, method)));
      return false;
    };
    if (request.path == "/predict") {
      if (only("POST")) predict(request, counted);
    } else if (request.path == "/metrics") {
      if (only("GET"))
        counted({200, "text/plain; version=0.0.4", metrics_.text(batches_.counts(), http_.connections())});
    } else if (request.path == "/health") {
      if (only("GET")) counted({200, "application/json", JsonObject().add("model", model_).text() + "\n"});
    } else {
      counted(problem(404, "there are /predict, /metrics and /health"));
    }
  }

  void predict(const HttpRequest& request, const std::function<void(HttpAnswer)>& counted) {
    try {
      const auto question = std::make_shared<Question>(question_of(request, beam_, most_lines_));
      const auto done = [question, counted](BatchResult result) { counted(answer_of(*question, std::move(result))); };
      if (!batches_.add(question->lines, done)) counted(problem(503, "too many requests are waiting"));
    } catch (const Error& error) {
      counted(problem(400, error.what()));
    }
  }

  const std::int64_t beam_;
  const std::string model_;
  const std::size_t most_lines_;
  ServeMetrics metrics_;
  RequestBatches batches_;
  HttpServer http_;  // ends before what it hands requests to
};

// Each with a predictor and, on a CPU, its share of the threads.
std::vector<RequestBatches::Executor> executors_of(const models::Served& served, int count, int threads) {
  std::vector<RequestBatches::Executor> executors;
  const models::SearchOptions search{.beam = served.beam(), .best = served.beam(), .packs = true};
  for (int i = 0; i < count; ++i) {
    const std::shared_ptr<models::Predictor> predictor = served.predictor();
    executors.push_back(
        {[predictor, threads, search] {
           omp_set_num_threads(threads);
           predictor->prepare(search);
         },
         [predictor, search](std::span<const std::string> lines) { return predictor->predict(lines, search); }});
  }
  return executors;
}

int serve(const ServeCommand& command) {
  const models::Served served(command.choice.model, command.choice.compile());
  if (!served.task().predicts_lines()) {
    fail(ErrorKind::unsupported, "{}: a model of '{}' predicts from files; `paoding predict` takes them",
         command.choice.model, one_line(served.model().file().model));
  }
  const int cores = command.choice.threads > 0 ? static_cast<int>(command.choice.threads) : omp_get_max_threads();
  const bool is_gpu = command.choice.compile().device.kind == DeviceKind::cuda;
  const int executors = command.executors > 0 ? command.executors : is_gpu ? 1 : std::min(2, cores);
  const int threads = std::max(1, cores / executors);
  Server server(command, served, executors_of(served, executors, threads));
  print("{} at http://{}:{}/predict: {} executor{}, {} thread{} each; Ctrl-C ends it\n", one_line(command.choice.model),
        command.http.address, server.port(), executors, executors == 1 ? "" : "s", threads, threads == 1 ? "" : "s");
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
  CLI::App* sub = app.add_subcommand("serve",
                                     "A model file behind HTTP\n"
                                     "POST /predict: {\"inputs\": [\"..\"], \"best\": 1}, or lines of text; GET "
                                     "/metrics: Prometheus' text; GET /health.\n"
                                     "Requests that wait are answered together.");
  const auto command = std::make_shared<ServeCommand>();
  sub->add_option("file", command->choice.model, "A file that `paoding export` wrote")->required()->type_name("FILE");
  sub->add_option("--address", command->http.address, "IPv4 address to listen at")->capture_default_str();
  const auto number = [&](const char* name, auto& value, std::int64_t least, std::int64_t most, const char* meaning) {
    sub->add_option(name, value, meaning)
        ->check(CLI::Range(least, most).description(""))
        ->type_name("N")
        ->capture_default_str();
  };
  number("--port", command->http.port, 0, 65535, "Port; 0: one that is free");
  number("--executors", command->executors, 0, 256, "Batches that run at a time; 0: 2 on a CPU, 1 on a GPU");
  number("--batch", command->batch, 1, 1 << 16, "Most inputs that are answered together");
  number("--wait", command->wait_ms, 0, 10'000, "Milliseconds that a request waits for others");
  number("--queue", command->most_waiting, 1, 1 << 24, "Inputs that may wait; requests beyond are refused (503)");
  number("--connections", command->http.connections, 1, 1 << 20, "Connections at a time");
  number("--most-bytes", command->http.most_body_bytes, 1, std::int64_t{1} << 30, "Of a request; 413 beyond");
  number("--seconds", command->http.seconds, 1, 3600, "That a client may take to send a request");
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
