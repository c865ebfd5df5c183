// SPDX-License-Identifier: Apache-2.0
// paoding export: a trained model as one file, which predict, serve and paoding::Model run.
#include <CLI/CLI.hpp>
#include <filesystem>

#include "base/check.h"
#include "base/one_line.h"
#include "command.h"
#include "io/files.h"
#include "io/json_text.h"
#include "io/safetensors.h"
#include "predicting.h"

namespace paoding::cli {
namespace {

struct ExportCommand {
  ModelChoice choice;
  std::string run, out;
};

int export_model(const ExportCommand& command) {
  check_folder_of(command.out);
  files::check_replaceable(command.out, safetensors::begins_file);
  ModelChoice choice = command.choice;
  choice.checkpoint = command.run;
  choice.model = load_manifest(command.run, choice.latest).model;
  const Loaded loaded = load_model(choice, false);
  ModelFile file = models::exported(*loaded.task, *loaded.predictor, *loaded.parameters, choice.search.beam);
  const Manifest& manifest = loaded.manifest;
  file.notes = {{"run", command.run}, {"step", std::to_string(manifest.step)}};
  if (!manifest.score_name.empty()) file.notes[manifest.score_name] = json_number(manifest.score);
  check_interrupted();
  save_model(command.out, file);
  std::int64_t elements = 0;
  for (const auto& [name, tensor] : file.parameters) elements += tensor.shape().elements();
  print("{}: {} of step {}, {} graphs, {} parameters, {:.1f} MB\n", one_line(command.out), one_line(file.model),
        manifest.step, file.graphs.size(), elements,
        static_cast<double>(std::filesystem::file_size(command.out)) * 1e-6);
  return kOk;
}

}  // namespace

void add_export(CLI::App& app, Commands* commands) {
  CLI::App* sub = app.add_subcommand(
      "export",
      "A trained model as one file, with all that predicting takes\n"
      "Graphs for every length of its inputs, weights, vocabulary and options, sealed with a checksum.");
  const auto command = std::make_shared<ExportCommand>();
  sub->add_option("run", command->run, "A checkpoint, or the folder of a run: the best one in it")
      ->required()
      ->type_name("RUN");
  sub->add_option("file", command->out, "The file to write, model.pd for one")->required()->type_name("FILE");
  sub->add_flag("--latest", command->choice.latest, "Of a run's folder the latest checkpoint, not the best");
  sub->add_option("--beam", command->choice.search.beam, "Hypotheses that it keeps while searching; 1: greedy")
      ->check(whole_number(1, 1000))
      ->type_name("N")
      ->capture_default_str();
  sub->footer(
      "Examples:\n"
      "  paoding export runs/g2p g2p.pd\n"
      "  paoding export runs/translate/step-00004000 translate.pd --beam 5\n"
      "  echo paoding | paoding predict g2p.pd\n"
      "  paoding serve g2p.pd");
  commands->push_back({sub, [command] { return export_model(*command); }});
}

}  // namespace paoding::cli
