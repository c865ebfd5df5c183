// SPDX-License-Identifier: Apache-2.0
// The command line: finds the subcommand, runs it, and turns every error into one message and an exit code.
#include <malloc.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <new>

#include "base/check.h"
#include "base/env.h"
#include "base/memory.h"
#include "command.h"
#include "paoding/version.h"
#include "text/suggest.h"

namespace paoding::cli {
namespace {

// Lists subcommands by the first line of their description; the rest is for their own help.
class HelpFormat : public CLI::Formatter {
 public:
  HelpFormat() { column_width(34); }
  std::string make_description(const CLI::App* app) const override { return Formatter::make_description(app) + "\n"; }
  std::string make_subcommand(const CLI::App* sub) const override {
    const std::string text = sub->get_description();
    return fmt::format("  {:<20}{}\n", sub->get_display_name(), text.substr(0, text.find('\n')));
  }
};

std::string env_table() {
  std::string text = "Environment:\n";
  for (const EnvVariable& variable : env_variables()) {
    text += fmt::format("  {:<24}{} [{}]\n", variable.name, variable.meaning, variable.fallback);
  }
  return text;
}

// The innermost subcommand that was given.
CLI::App* innermost(CLI::App* app) {
  while (!app->get_subcommands().empty()) app = app->get_subcommands().front();
  return app;
}

std::vector<std::string> names_of(const std::vector<CLI::App*>& apps) {
  std::vector<std::string> names;
  for (const CLI::App* app : apps) names.push_back(app->get_name());
  return names;
}

std::vector<std::string> option_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options()) {
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  }
  return names;
}

// The message for a wrong command line; our own where CLI11's says too little.
std::string usage_problem(CLI::App& app, const CLI::ParseError& error) {
  CLI::App* last = innermost(&app);
  const std::vector<CLI::App*> choices = last->get_subcommands([](CLI::App*) { return true; });
  for (const std::string& word : app.remaining(true)) {
    if (word == "--") continue;
    if (word.starts_with("-")) {
      const std::string name = word.substr(0, word.find('='));
      return fmt::format("there is no option '{}'{}", name, suggestion(name, option_names(*last)));
    }
    if (choices.empty()) return fmt::format("'{}' is one argument too many", word);
    const std::vector<std::string> names = names_of(choices);
    return fmt::format("there is no command '{}'{}; there are: {}", word, suggestion(word, names),
                       fmt::join(names, ", "));
  }
  const std::string text = error.what();
  if (const std::size_t at = text.find(": At Most 1 required but received "); at != std::string::npos) {
    return fmt::format("{} is given more than once", text.substr(0, at));
  }
  if (!choices.empty()) return fmt::format("a command is missing; there are: {}", fmt::join(names_of(choices), ", "));
  return error.what();
}

std::string full_name(const CLI::App* app) {
  std::string name = app->get_name();
  for (app = app->get_parent(); app != nullptr; app = app->get_parent()) name = app->get_name() + " " + name;
  return name;
}

int fail_usage(CLI::App& app, const std::string& problem) {
  print_error("paoding: {}\n`{} --help` says how it is used\n", bounded(problem), full_name(innermost(&app)));
  return kUsage;
}

int run_command(CLI::App& app, const Commands& commands) {
  const CLI::App* chosen = innermost(&app);
  int failed = kFailed;
  try {
    for (const Command& command : commands) {
      if (command.app != chosen) continue;
      failed = command.failed;
      const int code = command.run();
      flush_output();
      if (output_is_lost()) check_interrupted();  // it was a signal that took it
      return code;
    }
    return fail_usage(app, "a command is missing");
  } catch (const UsageError& error) {
    show_progress("");
    return fail_usage(app, error.what());
  } catch (const Interrupted& interrupted) {
    show_progress("");
    print_error("paoding: interrupted\n");
    return interrupted.code;
  } catch (const std::bad_alloc&) {
    show_progress("");
    print_error("paoding: not enough memory: {}\n", memory_left());
  } catch (const InternalError& error) {
    show_progress("");
    print_error("paoding: this is a bug in paoding, please report it: {}\n", error.what());
  } catch (const std::exception& error) {
    show_progress("");
    print_error("paoding: {}\n", bounded(error.what()));
  }
  return failed;
}

// Where the documents and the graphs of the examples are; those of an installation are not where the user is.
std::string documents_note() {
  std::error_code problem;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", problem);
  const auto folder = program.parent_path().parent_path() / "share/doc/paoding";
  return std::filesystem::is_directory(folder, problem)
             ? fmt::format("docs/ and examples/ are in {}\n\n", folder.string())
             : "";
}

// The shared library sets OpenMP's wait policy before libgomp loads (src/cpu/before_gomp.c). In a static program
// libgomp has read it before main(), so the program sets it and executes itself again.
void spin_shortly([[maybe_unused]] char** argv) {
#if !PAODING_BEFORE_GOMP
  if (env_value("GOMP_SPINCOUNT") || env_value("OMP_WAIT_POLICY")) return;
  setenv("GOMP_SPINCOUNT", "2000", 1);
  execv("/proc/self/exe", argv);  // where it cannot, the program goes on as it is
#endif
}

int main(int argc, char** argv) {
  hold_standard_streams();
  if (has_address_limit()) mallopt(M_ARENA_MAX, 1);  // else malloc takes 64 MB of addresses for every thread
  spin_shortly(argv);
  catch_interrupts();
  CLI::App app(
      "paoding: a deep-learning engine that shows where every microsecond goes.\n"
      "Graphs are given as text (docs/reference/graph_text.md), values as safetensors files.",
      "paoding");
  app.formatter(std::make_shared<HelpFormat>());
  app.set_version_flag("--version", "paoding " PAODING_VERSION);
  app.set_help_flag("-h,--help", "Print this help");
  app.require_subcommand(1);
  Commands commands;
  add_train(app, &commands);
  add_predict(app, &commands);
  add_evaluate(app, &commands);
  add_export(app, &commands);
  add_serve(app, &commands);
  add_fetch(app, &commands);
  add_run(app, &commands);
  add_compare(app, &commands);
  add_dump(app, &commands);
  add_ops(app, &commands);
  add_doctor(app, &commands);
  add_bench(app, &commands);
  add_profile(app, &commands);
  add_report(app, &commands);
  add_diff(app, &commands);
  add_verify(app, &commands);
  app.footer(
      "Examples:\n"
      "  paoding doctor                                       what this machine has\n"
      "  paoding fetch g2p                                    get what a model learns from\n"
      "  paoding train g2p --out runs/g2p                     learn to spell out words; Ctrl-C saves, --resume goes "
      "on\n"
      "  echo paoding | paoding predict g2p runs/g2p          and use it\n"
      "  paoding run examples/graphs/lerp_grad.txt --random 7 --repeat 50\n"
      "  paoding dump examples/graphs/lstm.txt --plan         what the compiler made of it\n"
      "  paoding profile run examples/graphs/lstm.txt --random 7      where its time goes\n"
      "  paoding diff before.paoding after.paoding            whether it got faster, and by which ops\n"
      "  paoding COMMAND --help                               more of each\n\n" +
      documents_note() + env_table());
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& asked) {  // --help, --version
    std::ostringstream text, none;
    app.exit(asked, text, none);
    print_text(text.str());
    return finish_output() ? kOk : kFailed;
  } catch (const CLI::ParseError& error) {
    return fail_usage(app, usage_problem(app, error));
  }
  const int code = run_command(app, commands);
  // After a hangup nobody takes the output, and a signal's code says more.
  return finish_output() || code > kSignal ? code : kFailed;
}

}  // namespace
}  // namespace paoding::cli

int main(int argc, char** argv) {
  try {
    return paoding::cli::main(argc, argv);
  } catch (const std::exception& error) {  // before there is a command, or while an error is told
    const bool is_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
    for (const char* text : {"paoding: ", is_memory ? "not enough memory (ulimit -v)" : error.what(), "\n"}) {
      std::fputs(text, stderr);
    }
    return paoding::cli::kFailed;
  }
}
