// SPDX-License-Identifier: Apache-2.0
// paoding train: trains one of the models on real data, on this machine.
#include <omp.h>

#include <CLI/CLI.hpp>
#include <filesystem>
#include <optional>

#include "base/check.h"
#include "base/env.h"
#include "command.h"
#include "launch.h"
#include "training.h"

namespace paoding::cli {
namespace {

struct TrainCommand {
  std::string profile_steps, cupti_steps;
  std::unique_ptr<models::Task> task;
  std::unique_ptr<TaskOptions> options;
  TrainRequest request;
  std::string device = "cpu";
  std::int64_t threads = 0;
  RankFlags ranks;
  bool is_folder_ours = false;            // nobody said where
  std::vector<const CLI::Option*> again;  // to be said again when it goes on: no checkpoint has them
};

// Where nobody said where: the first of runs/g2p, runs/g2p-2 .. that is free.
std::string free_folder(std::string_view task) {
  const auto base = std::filesystem::path("runs") / task;
  std::filesystem::path path = base;
  for (int i = 2; std::filesystem::exists(path); ++i) path = fmt::format("{}-{}", base.string(), i);
  return path.string();
}

// An empty name is an error, not the default folder: a shell makes one of an unset variable.
std::string problem_with_folder(const std::string& path) { return path.empty() ? "the name is empty" : ""; }

std::string log_folder(const TrainRequest& request) {
  return (std::filesystem::path(request.folder) / "ranks").string();
}

void join_ranks(const RankPlace& place, TrainRequest* request) {
  if (place.rank > 0) print_into(fmt::format("{}/rank{}.log", log_folder(*request), place.rank), false);
  request->ranks = std::make_shared<TrainingRanks>(place, request->compile.device);
}

int train(TrainCommand& command) {
  TrainRequest& request = command.request;
  const std::optional<RankPlace> place = command.ranks.place();
  if (place && request.folder.empty()) {
    throw UsageError("--out is needed: all ranks train into one folder");
  }
  if (request.resume && request.folder.empty()) {
    throw UsageError("--resume needs --out: the folder with the checkpoints to go on from");
  }
  if (request.other_data && !request.resume)
    throw UsageError("--other-data goes with --resume: a new run takes what is there");
  command.is_folder_ours = request.folder.empty();
  if (request.folder.empty()) request.folder = free_folder(command.task->name());
  request.go_on = fmt::format("paoding train {} --out {} --resume", command.task->name(), shell_word(request.folder));
  for (const CLI::Option* option : command.again) {
    if (option->count() > 0)
      request.go_on += fmt::format(" {} {}", option->get_name(), shell_word(option->as<std::string>()));
  }
  if (request.compile.allow_tf32) request.go_on += " --tf32";
  if (request.compile.tune) request.go_on += " --tune";
  request.report.check(request.profile > 0 || !command.profile_steps.empty() || !command.cupti_steps.empty(),
                       "--profile N");
  if (!command.profile_steps.empty()) {
    if (request.profile > 0) throw UsageError("--profile and --profile-steps are both given: one says which steps");
    try {
      request.profile_steps = parse_steps(command.profile_steps);
    } catch (const Error& error) {
      throw UsageError(error.what());
    }
  }
  if (!command.cupti_steps.empty()) {
    if (request.profile > 0)
      throw UsageError("--profile and --cupti-steps are both given: --profile-steps goes with it");
    try {
      request.cupti_steps = parse_steps(command.cupti_steps);
    } catch (const Error& error) {
      throw UsageError(error.what());
    }
    if (!request.profile_steps) request.profile_steps = request.cupti_steps;
  }
  if (!place && command.ranks.asked() > 1) {
    return command.ranks.launch(
        command.device, command.threads > 0, log_folder(request),
        command.is_folder_ours ? std::vector<std::string>{"--out", request.folder} : std::vector<std::string>());
  }
  request.compile.device = command.ranks.device(command.device, place);
  if (command.threads > 0) omp_set_num_threads(static_cast<int>(command.threads));
  if (place) join_ranks(*place, &request);
  Training(*command.task, *command.options, request).run();
  return kOk;
}

}  // namespace

void add_train(CLI::App& app, Commands* commands) {
  CLI::App* group = app.add_subcommand(
      "train",
      "Train a model on real data: g2p, translate, lm, gpt, mlm, fashion\n"
      "It keeps checkpoints, goes on after a stop with the same bits, and ends with scores and a picture of the loss.");
  group->footer(
      "Examples:\n"
      "  paoding train g2p                       into runs/g2p; about half an hour on 2 cores\n"
      "  paoding train g2p --out runs/g2p --resume\n"
      "  paoding train g2p --help                its options");
  group->require_subcommand(1);
  for (const std::string& name : models::task_names()) {
    const auto command = std::make_shared<TrainCommand>();
    command->task = models::make_task(name);
    command->options = std::make_unique<TaskOptions>(*command->task);
    if (const auto folder = env_value("PAODING_DATA_DIR")) command->request.data_folder = *folder;
    TrainRequest& r = command->request;
    CLI::App* sub = group->add_subcommand(
        name, std::string(command->task->summary()) +
                  "\nOn a terminal a line shows how far it is; elsewhere a line is printed now and then. Ctrl-C saves\n"
                  "and ends. What the files of a run are, and what --json prints: docs/reference/training.md.");
    CLI::Option* data = sub->add_option("--data", r.data_folder, "Folder of data sets; `paoding fetch` fills it")
                            ->type_name("FOLDER")
                            ->capture_default_str();
    sub->add_option("--out", r.folder, "Folder for checkpoints and the loss curve [runs/" + name + ", or -2, -3 ..]")
        ->check(CLI::Validator(problem_with_folder, ""))
        ->type_name("FOLDER");
    sub->add_flag("--resume", r.resume, "Go on from the last checkpoint in --out, bit by bit as if never stopped");
    sub->add_flag("--other-data", r.other_data,
                  "With --resume: go on though the data is not what the run was trained on before");
    CLI::Option* save =
        sub->add_option("--save-minutes", r.save_minutes,
                        "Between checkpoints within an epoch; 0: after every step. Each epoch ends with one")
            ->check(real_number(0, 1e6))
            ->type_name("NUMBER")
            ->capture_default_str();
    CLI::Option* ahead = sub->add_option("--read-ahead", r.read_ahead,
                                         "Batches that a thread makes in advance; 0: each when its step begins")
                             ->check(whole_number(0, 1000))
                             ->type_name("N")
                             ->capture_default_str();
    sub->add_option("--beam", r.search.beam, "Hypotheses kept when the test part is scored; 1: greedy")
        ->check(whole_number(1, 1000))
        ->type_name("N")
        ->capture_default_str();
    sub->add_option("--show", r.show, "Test examples to show at the end")
        ->check(whole_number(0, 1 << 30))
        ->type_name("N")
        ->capture_default_str();
    sub->add_flag_callback(
        "--no-test", [&r] { r.test = false; }, "Do not score the test part at the end");
    sub->add_option("--profile", r.profile, "Show the Profiling Report of so many steps at the end, of the last epoch")
        ->check(whole_number(0, 1 << 30))
        ->type_name("N")
        ->capture_default_str();
    sub->add_option("--profile-steps", command->profile_steps,
                    "Show the Profiling Report of these steps, counted from 0: 2:8 is 2 to 7.\n"
                    "The report counts its steps from 1")
        ->type_name("FIRST:END");
    sub->add_option("--cupti-steps", command->cupti_steps, kCuptiStepsHelp)->type_name("FIRST:END");
    r.report.nest = "scope";
    r.report.layout.width = 72;
    r.report.add_to(*sub);
    sub->add_flag("--json", r.json, "Print JSON lines");
    CLI::Option* device = sub->add_option("--device", command->device, "cpu, cuda, cuda:N or best")
                              ->type_name("DEVICE")
                              ->capture_default_str();
    sub->add_flag("--tf32", r.compile.allow_tf32, "On a GPU, products of f32 may round their operands to TF32");
    sub->add_flag("--tune", r.compile.tune, kTuneHelp);
    CLI::Option* threads =
        sub->add_option("--threads", command->threads, "Of the CPU; 0: OMP_NUM_THREADS, or all cores")
            ->check(whole_number(0, 4096))
            ->type_name("N")
            ->capture_default_str();
    const auto [ranks, gpus] = command->ranks.add_to(*sub);
    sub->add_option("--bucket-bytes", r.compile.bucket_bytes,
                    "With several ranks: gradients are sent in messages of about so many bytes")
        ->check(whole_number(0, std::int64_t{1} << 40))
        ->type_name("N")
        ->capture_default_str();
    command->again = {data, save, ahead, device, threads, ranks, gpus};
    sub->footer(
        fmt::format("Examples:\n"
                    "  paoding train {0} --out runs/a                    checkpoints and curve.svg in runs/a\n"
                    "  paoding train {0} --out runs/a --resume           after Ctrl-C, or a crash\n"
                    "  paoding train {0} --epochs 3 --learning-rate 0.002\n"
                    "  paoding train {0} --config small.txt --seed 8     lines such as: hidden = 64\n"
                    "  paoding train {0} --json > log.jsonl\n"
                    "  paoding {1} runs/a{2}",
                    name, "predict " + name, name == "fashion" ? " images.idx" : " < lines.txt"));
    command->options->add_to(*sub);
    commands->push_back({sub, [command] { return train(*command); }});
  }
}

}  // namespace paoding::cli
