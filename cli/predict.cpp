// SPDX-License-Identifier: Apache-2.0
// paoding predict: predictions of a trained model for words, sentences or images; paoding evaluate: its scores.
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
#include "predicting.h"

namespace paoding::cli {
namespace {

constexpr std::size_t kLinesTogether = 512;  // a terminal gets its answer line by line

struct PredictCommand {
  ModelChoice choice;
  std::string part = "test";
  std::vector<std::string> inputs = {"-"};
  CLI::Option* inputs_given = nullptr;
  std::int64_t limit = 0, show = 0;
  bool json = false, each_line = false;
};

void print_predictions(const PredictCommand& command, const std::string& input, const models::Predictions& found) {
  if (command.json) {
    return print("{}\n", JsonObject().add("input", input).add_json("predictions", to_json(found)).text());
  }
  if (command.choice.search.best == 1) return print("{}\n", found.empty() ? "" : one_line(found[0].text));
  for (const models::Prediction& p : found)
    print("{}\t{:.4f}\t{}\n", one_line(input), p.log_probability, one_line(p.text));
}

void predict_lines(const PredictCommand& command, models::Predictor& predictor, LineReader& lines) {
  std::vector<std::string> waiting;
  const auto flush = [&] {
    const auto found = predictor.predict(waiting, command.choice.search);
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

// The inputs of `predict MODEL CHECKPOINT FILE..`, or of `predict model.pd FILE..`.
std::vector<std::string> inputs_of(const PredictCommand& command, bool is_file) {
  if (!is_file || command.choice.checkpoint.empty()) return command.inputs;
  std::vector<std::string> inputs{command.choice.checkpoint};
  if (command.inputs_given->count() > 0) inputs.insert(inputs.end(), command.inputs.begin(), command.inputs.end());
  return inputs;
}

void check_best(const ModelChoice& choice) {
  if (choice.search.best > choice.search.beam && choice.model != "fashion") {
    throw UsageError(fmt::format("--best {} needs a --beam of at least {}", choice.search.best, choice.search.best));
  }
}

void check_drawing(const ModelChoice& choice, const models::Task& task) {
  if (choice.search.temperature == 0) return;
  if (!task.draws())
    throw UsageError(fmt::format("--temperature is for models that write texts; {} searches", task.name()));
  if (choice.search.best > 1) throw UsageError("--temperature draws one prediction per input: leave out --best");
}

int predict(PredictCommand& command) {
  ModelChoice& choice = command.choice;
  const bool is_file = is_model_file(choice.model);
  std::optional<models::Served> served;
  Loaded loaded;
  if (is_file) {
    if (choice.threads > 0) omp_set_num_threads(static_cast<int>(choice.threads));
    served.emplace(choice.model, choice.compile());
    if (choice.beam_given->count() == 0) choice.search.beam = served->beam();
    if (served->task().predicts_lines()) check_best(choice);
    loaded.predictor = served->predictor(check_interrupted);
  } else {
    check_best(choice);
    loaded = load_model(choice, false);
  }
  const models::Task& task = is_file ? served->task() : *loaded.task;
  check_drawing(choice, task);
  for (const std::string& input : inputs_of(command, is_file)) {
    if (!task.predicts_lines()) {
      const auto found = loaded.predictor->predict_file(input, choice.search);
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
  const Loaded loaded = load_model(command.choice, true);
  JsonObject json;
  for (const models::Score& score : loaded.predictor->evaluate(part, command.choice.search, command.limit)) {
    json.add(score.name, score.value);
    if (!command.json) print("{}: {}\n", command.part, models::text_of(score));
  }
  if (command.json) print("{}\n", json.text());
  if (command.show > 0 && !command.json) print("\n{}", loaded.predictor->show(command.choice.search, command.show));
  return kOk;
}

std::shared_ptr<PredictCommand> add_common(CLI::App& sub, const std::string& what) {
  const auto command = std::make_shared<PredictCommand>();
  sub.add_option("model", command->choice.model, what)->required()->type_name("MODEL");
  sub.add_option("checkpoint", command->choice.checkpoint, "A checkpoint, or the folder of a run: the best one in it")
      ->type_name("CHECKPOINT");
  command->choice.add_to(sub);
  sub.add_flag("--json", command->json, "Print JSON lines");
  return command;
}

}  // namespace

void add_predict(CLI::App& app, Commands* commands) {
  CLI::App* sub = app.add_subcommand(
      "predict",
      "What a trained model says about words, sentences or images\n"
      "g2p: words to phonemes; translate: sentences; lm, gpt: how lines go on; mlm: lines with each _ filled; one line "
      "in, one line out, in their "
      "order.\n"
      "fashion: files of images (IDX, gzipped or not, or PGM). With --best, each line out has the input, the log\n"
      "probability and the prediction, split by tabs.");
  const auto command = add_common(
      *sub, fmt::format("One of {}; or a file that `paoding export` wrote", fmt::join(models::task_names(), ", ")));
  command->inputs_given = sub->add_option("inputs", command->inputs,
                                          "Files with a word, sentence or beginning a line, or of images; -: stdin")
                              ->type_name("FILE")
                              ->default_str("-");
  sub->add_option("--best", command->choice.search.best, "Predictions per input, with their log probabilities")
      ->check(whole_number(1, 1000))
      ->type_name("N")
      ->capture_default_str();
  sub->add_option("--temperature", command->choice.search.temperature,
                  "Draw texts: 1: by their probabilities, below 1: likely ones more often; 0: search. gpt alone")
      ->check(real_number(0, 100))
      ->type_name("NUMBER")
      ->capture_default_str();
  sub->add_option("--seed", command->choice.search.seed, "Of what is drawn")->type_name("N")->capture_default_str();
  sub->add_flag("--each-line", command->each_line, "Answer each line when it comes, as on a terminal: slower");
  sub->footer(
      "Examples:\n"
      "  paoding predict g2p runs/g2p words.txt --beam 5 --best 3\n"
      "  echo paoding | paoding predict g2p runs/g2p\n"
      "  paoding predict g2p runs/g2p/step-00001200 --json < words.txt\n"
      "  paoding predict translate runs/translate sentences.txt --beam 5\n"
      "  echo 'In the beginning' | paoding predict gpt runs/gpt --temperature 0.8 --seed 3\n"
      "  paoding predict g2p.pd words.txt                      # a model that `paoding export` wrote\n"
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
  const auto command = add_common(*sub, fmt::format("One of {}", fmt::join(models::task_names(), ", ")));
  if (const auto folder = env_value("PAODING_DATA_DIR")) command->choice.data_folder = *folder;
  sub->add_option("--data", command->choice.data_folder, "Folder of data sets; `paoding fetch` fills it")
      ->type_name("FOLDER")
      ->capture_default_str();
  sub->add_option("--part", command->part, "Which examples: train, validation or test")
      ->check(CLI::IsMember({"train", "validation", "test"}).description(""))
      ->type_name("PART")
      ->capture_default_str();
  sub->add_option("--limit", command->limit, "At most so many examples; 0: all")
      ->check(whole_number(0, 1 << 30))
      ->type_name("N")
      ->capture_default_str();
  sub->add_option("--show", command->show, "Also show so many test examples")
      ->check(whole_number(0, 1 << 30))
      ->type_name("N")
      ->capture_default_str();
  commands->push_back({sub, [command] { return evaluate(*command); }});
}

}  // namespace paoding::cli
