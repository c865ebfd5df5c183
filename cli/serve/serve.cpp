// SPDX-License-Identifier: Apache-2.0
// paoding serve: a model file behind HTTP.
#include <omp.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <thread>

#include "base/check.h"
#include "base/one_line.h"
#include "cli/predicting.h"
#include "cli/serve/listening.h"
#include "cli/serve/serve_metrics.h"
#include "cli/serve/served_model.h"
#include "io/json_text.h"

namespace paoding::cli {
namespace {

struct ServeCommand {
  ModelChoice choice;
  HttpOptions http;
  int executors = 0;
  std::string name;             // of a model of tensors
  std::int64_t most_bytes = 0;  // of a request; 0: by the kind of the model
  std::int64_t batch = 64, wait_ms = 2, most_waiting = 4096, run_seconds = 10;
};

class Server {
 public:
  Server(const HttpOptions& options, ServedModel* model)
      : model_(*model),
        http_(
            options, [this](const HttpRequest& request, const HttpReply& reply) { take(request, reply); },
            [this](int status, std::chrono::nanoseconds latency) { metrics_.count(status, latency); }) {}

  int port() const { return http_.port(); }
  /// Takes no new connections, and answers the requests that it has.
  void finish() {
    using namespace std::chrono_literals;
    http_.stop_listening();
    model_.finish();
    http_.finish(2s);  // for clients to take their answers
  }
  std::int64_t answered() const { return metrics_.answered(); }

 private:
  void take(const HttpRequest& request, const HttpReply& reply) {
    if (request.path == "/metrics") {
      if (allows(request, reply, {"GET", "HEAD"})) {
        reply({200, "text/plain; version=0.0.4", metrics_.text(model_.counts(), http_.connections()), {}});
      }
    } else if (request.path == "/health") {
      if (allows(request, reply, {"GET", "HEAD"}))
        reply({200, "application/json", JsonObject().add("model", model_.name()).text() + "\n", {}});
    } else if (!model_.take(request, reply)) {
      reply(http_problem(404, std::string(model_.paths())));
    }
  }

  ServedModel& model_;
  ServeMetrics metrics_;
  HttpServer http_;  // destroyed first, since it uses the members above
};

bool names_a_task(const ModelFile& file) {
  const std::vector<std::string> names = models::task_names();
  return std::find(names.begin(), names.end(), file.model) != names.end();
}

std::unique_ptr<ServedModel> model_of(const ServeCommand& command, ModelFile file, const ServingOptions& options) {
  if (!names_a_task(file)) return tensor_model(std::move(file), command.choice.model, command.name, options);
  if (!command.name.empty()) {
    throw UsageError(fmt::format("--name is for models of tensors; {} is one of {}", command.choice.model, file.model));
  }
  return text_model(std::move(file), command.choice.model, options);
}

int serve(const ServeCommand& command) {
  ModelFile file = load_model_file(command.choice.model);
  const int cores = command.choice.threads > 0 ? static_cast<int>(command.choice.threads) : omp_get_max_threads();
  const bool is_gpu = command.choice.compile().device.kind == DeviceKind::cuda;
  const int executors = command.executors > 0 ? command.executors : is_gpu ? 1 : std::min(2, cores);
  const int threads = std::max(1, cores / executors);
  HttpOptions http = command.http;
  http.most_body_bytes = command.most_bytes > 0 ? command.most_bytes : names_a_task(file) ? 1 << 20 : 64 << 20;
  const std::unique_ptr<ServedModel> model =
      model_of(command, std::move(file),
               {.batches = {.most_lines = static_cast<std::size_t>(command.batch),
                            .wait = std::chrono::milliseconds(command.wait_ms),
                            .most_waiting = static_cast<std::size_t>(command.most_waiting),
                            .most_run = std::chrono::seconds(command.run_seconds)},
                .compile = command.choice.compile(),
                .executors = executors,
                .threads = threads});
  Server server(http, &*model);
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

bool allows(const HttpRequest& request, const HttpReply& reply, std::initializer_list<std::string_view> methods) {
  if (std::find(methods.begin(), methods.end(), request.method) != methods.end()) return true;
  HttpAnswer answer = http_problem(405, fmt::format("{} wants {}", request.path, *methods.begin()));
  answer.headers = fmt::format("Allow: {}\r\n", fmt::join(methods, ", "));
  reply(std::move(answer));
  return false;
}

void add_serve(CLI::App& app, Commands* commands) {
  CLI::App* sub = app.add_subcommand(
      "serve",
      "A model file behind HTTP\n"
      "Of `paoding export`: POST /predict with {\"inputs\": [\"..\"], \"best\": 1}, lines of text, or the bytes of "
      "images.\n"
      "Of save_model(): POST /predict with {\"inputs\": {\"x\": [[1, 2]]}}, or /v2/models/NAME/infer, the Open "
      "Inference Protocol of KServe and Triton.\n"
      "GET /metrics: Prometheus' text; GET /health.\n"
      "Requests that wait are answered together.");
  const auto command = std::make_shared<ServeCommand>();
  sub->add_option("file", command->choice.model, "A file that `paoding export` or save_model() wrote")
      ->required()
      ->type_name("FILE");
  sub->add_option("--address", command->http.address, "IPv4 or IPv6 address to listen at; ::, every one of both")
      ->type_name("ADDRESS")
      ->capture_default_str();
  sub->add_option("--name", command->name,
                  "Of a model of tensors in /v2: its own name, or the file's without .pd, where it is left out")
      ->type_name("NAME");
  const auto number = [&](const char* name, auto& value, std::int64_t least, std::int64_t most, const char* meaning) {
    sub->add_option(name, value, meaning)->check(whole_number(least, most))->type_name("N")->capture_default_str();
  };
  number("--port", command->http.port, 0, 65535, "Port; 0: one that is free");
  number("--executors", command->executors, 0, 256, "Batches that run at a time; 0: 2 on a CPU, 1 on a GPU");
  number("--batch", command->batch, 1, 1 << 16, "Most inputs that are answered together");
  number("--wait", command->wait_ms, 0, 10'000, "Milliseconds that a request waits for others");
  number("--queue", command->most_waiting, 1, 1 << 24, "Inputs that may wait; requests beyond are refused (503)");
  number("--connections", command->http.connections, 1, 1 << 20, "Connections at a time");
  number("--most-bytes", command->most_bytes, 0, std::int64_t{1} << 30,
         "Of a request, 413 beyond; 0: 1 MiB for text and images, 64 MiB for tensors");
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
      "http://127.0.0.1:8080/predict\n"
      "  paoding serve mine.pd --name mine\n"
      "  curl -d '{\"inputs\": {\"x\": [[1, 2]]}}' http://127.0.0.1:8080/predict");
  commands->push_back({sub, [command] { return serve(*command); }});
}

}  // namespace paoding::cli
