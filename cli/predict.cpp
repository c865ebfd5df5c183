// SPDX-License-Identifier: Apache-2.0
// paoding predict: what a trained model says about words, sentences or images; paoding evaluate: how good it is.
#include <omp.h>
#include <simdjson.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <optional>

#include "base/check.h"
#include "base/env.h"
#include "base/one_line.h"
#include "command.h"
#include "io/json_text.h"
#include "line_reader.h"
#include "model_checkpoint.h"
#include "models/task.h"
#include "text/suggest.h"

namespace paoding::cli {
namespace {

constexpr std::size_t kLinesTogether = 512;  // a terminal gets its answer line by line

struct PredictCommand {
  std::string model, checkpoint, device = "cpu", part = "test", data_folder = "data";
  std::vector<std::string> inputs = {"-"};
  models::SearchOptions search = {.beam = 1, .best = 1};
  std::int64_t limit = 0, threads = 0, show = 0;
  bool json = false, latest = false, each_line = false, allow_tf32 = false;
  PrecisionFlag precision;
};

// A model as a checkpoint has it.
struct Loaded {
  std::unique_ptr<models::Task> task;
  std::optional<Parameters> parameters;
  std::unique_ptr<models::Predictor> predictor;
};

std::unique_ptr<models::Task> task_of(const PredictCommand& command) {
  const std::vector<std::string> names = models::task_names();
  if (std::find(names.begin(), names.end(), command.model) == names.end()) {
    throw UsageError(fmt::format("there is no model named '{}'{}; there are: {}", command.model,
                                 suggestion(command.model, names), fmt::join(names, ", ")));
  }
  return models::make_task(command.model);
}

Loaded load(const PredictCommand& command, bool needs_data) {
  Loaded loaded;
  const DType precision = command.precision.precision();
  loaded.task = task_of(command);
  if (command.threads > 0) omp_set_num_threads(static_cast<int>(command.threads));
  models::Task& task = *loaded.task;
  const Checkpoint checkpoint = load_checkpoint_of(task, command.checkpoint, command.latest);
  for (const models::Option& option : task.options()) {
    const auto kept = checkpoint.manifest.options.find(option.name);
    try {
      if (kept != checkpoint.manifest.options.end()) models::set(option, kept->second);
    } catch (const Error& error) {
      fail(ErrorKind::file, "{}: its manifest: {}", command.checkpoint, error.what());
    }
  }
  task.set_files(checkpoint.files);
  check_restorable_from(command.checkpoint, checkpoint, task);
  check_finite(command.checkpoint, checkpoint);
  if (needs_data) task.read(command.data_folder);
  Graph graph;
  task.loss(graph, task.any_bucket(), 1, false);
  CompileOptions compile;
  compile.device = parse_device(command.device);
  compile.allow_tf32 = command.allow_tf32;
  compile.precision = precision;
  loaded.parameters.emplace(graph, compile.device);
  restore_from(command.checkpoint, checkpoint.tensors, &*loaded.parameters, true);
  loaded.predictor = task.predictor({&*loaded.parameters, compile, check_interrupted});
  return loaded;
}

void print_predictions(const PredictCommand& command, const std::string& input, const models::Predictions& found) {
  if (command.json) {
    std::vector<std::string> items;
    for (const models::Prediction& p : found) {
      items.push_back(JsonObject().add("text", p.text).add("log_probability", p.log_probability).text());
    }
    return print("{}\n", JsonObject().add("input", input).add_json("predictions", json_array(items)).text());
  }
  if (command.search.best == 1) return print("{}\n", found.empty() ? "" : one_line(found[0].text));
  for (const models::Prediction& p : found)
    print("{}\t{:.4f}\t{}\n", one_line(input), p.log_probability, one_line(p.text));
}

void predict_lines(const PredictCommand& command, models::Predictor& predictor, LineReader& lines) {
  std::vector<std::string> waiting;
  const auto flush = [&] {
    const auto found = predictor.predict(waiting, command.search);
    for (std::size_t i = 0; i < waiting.size(); ++i) print_predictions(command, waiting[i], found[i]);
    waiting.clear();
    flush_output();
  };
  // How many are answered together must not depend on how fast they come: sums of another batch may round otherwise.
  const std::size_t together = command.each_line || lines.is_terminal() ? 1 : kLinesTogether;
  for (std::string line; !output_is_lost() && lines.next(&line);) {
    if (!simdjson::validate_utf8(line.data(), line.size())) {
      if (!waiting.empty()) flush();
      fail(ErrorKind::file, "{}: the line is not UTF-8; iconv -f latin1 -t utf8 may help", lines.place());
    }
    const std::string remark = predictor.remark(line);
    if (!remark.empty()) print_error("paoding: {}: {}\n", lines.place(), one_line(remark));
    waiting.push_back(std::move(line));
    if (waiting.size() == together) flush();
  }
  if (!waiting.empty()) flush();
}

int predict(const PredictCommand& command) {
  if (command.search.best > command.search.beam && command.model != "fashion") {
    throw UsageError(fmt::format("--best {} needs a --beam of at least {}", command.search.best, command.search.best));
  }
  const Loaded loaded = load(command, false);
  for (const std::string& input : command.inputs) {
    if (!loaded.task->predicts_lines()) {
      const auto found = loaded.predictor->predict_file(input, command.search);
      for (std::size_t i = 0; i < found.size(); ++i) {
        print_predictions(command, fmt::format("{}:{}", input, i), found[i]);
      }
    } else {
      LineReader lines(input);
      predict_lines(command, *loaded.predictor, lines);
    }
  }
  return kOk;
}

int evaluate(const PredictCommand& command) {
  const models::Part part = command.part == "train"        ? models::Part::train
                            : command.part == "validation" ? models::Part::validation
                                                           : models::Part::test;
  const Loaded loaded = load(command, true);
  JsonObject json;
  for (const models::Score& score : loaded.predictor->evaluate(part, command.search, command.limit)) {
    json.add(score.name, score.value);
    if (!command.json) print("{}: {}\n", command.part, models::text_of(score));
  }
  if (command.json) print("{}\n", json.text());
  if (command.show > 0 && !command.json) print("\n{}", loaded.predictor->show(command.search, command.show));
  return kOk;
}

std::shared_ptr<PredictCommand> add_common(CLI::App& sub) {
  const auto command = std::make_shared<PredictCommand>();
  sub.add_option("model", command->model, fmt::format("One of {}", fmt::join(models::task_names(), ", ")))
      ->required()
      ->type_name("MODEL");
  sub.add_option("checkpoint", command->checkpoint, "A checkpoint, or the folder of a run: the best one in it")
      ->required()
      ->type_name("CHECKPOINT");
  sub.add_flag("--latest", command->latest, "Of a run's folder the latest checkpoint, not the best");
  sub.add_option("--beam", command->search.beam, "Hypotheses kept while searching; 1: greedy")
      ->check(CLI::Range(1, 1000).description(""))
      ->type_name("N")
      ->capture_default_str();
  sub.add_flag("--json", command->json, "Print JSON lines");
  sub.add_option("--device", command->device, "cpu, cuda, cuda:N or best")->type_name("DEVICE")->capture_default_str();
  sub.add_flag("--tf32", command->allow_tf32, "On a GPU, products of f32 may round their operands to TF32");
  command->precision.add_to(sub);
  sub.add_option("--threads", command->threads, "Of the CPU; 0: OMP_NUM_THREADS, or all cores")
      ->check(CLI::Range(0, 4096).description(""))
      ->type_name("N")
      ->capture_default_str();
  return command;
}

}  // namespace

void add_predict(CLI::App& app, Commands* commands) {
  CLI::App* sub = app.add_subcommand(
      "predict",
      "What a trained model says about words, sentences or images\n"
      "g2p: words to phonemes; translate: sentences; lm: how lines go on; one line in, one line out, in their order.\n"
      "fashion: files of images (IDX, gzipped or not, or PGM). With --best, each line out has the input, the log\n"
      "probability and the prediction, split by tabs.");
  const auto command = add_common(*sub);
  sub->add_option("inputs", command->inputs, "Files with a word, sentence or beginning a line, or of images; -: stdin")
      ->type_name("FILE")
      ->default_str("-");
  sub->add_option("--best", command->search.best, "Predictions per input, with their log probabilities")
      ->check(CLI::Range(1, 1000).description(""))
      ->type_name("N")
      ->capture_default_str();
  sub->add_flag("--each-line", command->each_line, "Answer each line when it comes, as on a terminal: slower");
  sub->footer(
      "Examples:\n"
      "  paoding predict g2p runs/g2p words.txt --beam 5 --best 3\n"
      "  echo paoding | paoding predict g2p runs/g2p\n"
      "  paoding predict g2p runs/g2p/step-00001200 --json < words.txt\n"
      "  paoding predict translate runs/translate sentences.txt --beam 5\n"
      "  paoding predict fashion runs/fashion data/fashion/t10k-images-idx3-ubyte.gz");
  commands->push_back({sub, [command] { return predict(*command); }});
}

void add_evaluate(CLI::App& app, Commands* commands) {
  CLI::App* sub = app.add_subcommand("evaluate",
                                     "How good a trained model is on examples it was not trained on\n"
                                     "The same scores as training printed for that checkpoint, with its --validate as "
                                     "--limit.");
  sub->footer(
      "Examples:\n"
      "  paoding evaluate g2p runs/g2p\n"
      "  paoding evaluate g2p runs/g2p --beam 5 --show 20\n"
      "  paoding evaluate g2p runs/g2p --latest --part validation --limit 2000 --json");
  const auto command = add_common(*sub);
  if (const auto folder = env_value("PAODING_DATA_DIR")) command->data_folder = *folder;
  sub->add_option("--data", command->data_folder, "Folder of data sets; `paoding fetch` fills it")
      ->type_name("FOLDER")
      ->capture_default_str();
  sub->add_option("--part", command->part, "Which examples: train, validation or test")
      ->check(CLI::IsMember({"train", "validation", "test"}).description(""))
      ->type_name("PART")
      ->capture_default_str();
  sub->add_option("--limit", command->limit, "At most so many examples; 0: all")
      ->check(CLI::Range(0, 1 << 30).description(""))
      ->type_name("N")
      ->capture_default_str();
  sub->add_option("--show", command->show, "Also show so many test examples")
      ->check(CLI::Range(0, 1 << 30).description(""))
      ->type_name("N")
      ->capture_default_str();
  commands->push_back({sub, [command] { return evaluate(*command); }});
}

}  // namespace paoding::cli
