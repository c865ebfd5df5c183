// SPDX-License-Identifier: Apache-2.0
// paoding fetch: gets the data sets that models are trained on, by the script that is installed with the program.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <filesystem>

#include "base/check.h"
#include "base/env.h"
#include "command.h"
#include "io/files.h"

namespace paoding::cli {
namespace {

namespace fs = std::filesystem;

struct FetchOptions {
  std::string set = "all", folder = "data";
};

// Beside the program, as a build has it, or beside its folder, as an installation has.
fs::path script() {
  std::error_code problem;
  const fs::path folder = fs::read_symlink("/proc/self/exe", problem).parent_path();
  const fs::path places[] = {folder / "share/paoding/fetch_data.sh",
                             folder.parent_path() / "share/paoding/fetch_data.sh"};
  for (const fs::path& place : places) {
    if (fs::exists(place, problem)) return place;
  }
  fail(ErrorKind::file, "fetch: {} is not there: install paoding again", places[1].string());
}

int fetch(const FetchOptions& options) {
  const std::string path = script().string(),
                    set = options.set == "lm" || options.set == "gpt" || options.set == "mlm" ? "kjv" : options.set;
  leave_interrupts_to_child();
  execlp("bash", "bash", path.c_str(), set.c_str(), options.folder.c_str(), nullptr);
  fail(ErrorKind::file, "fetch: bash cannot be started: {}", files::reason(errno));
}

}  // namespace

void add_fetch(CLI::App& app, Commands* commands) {
  auto options = std::make_shared<FetchOptions>();
  if (const auto folder = env_value("PAODING_DATA_DIR")) options->folder = *folder;
  CLI::App* sub = app.add_subcommand(
      "fetch",
      "Get the data sets that models are trained on\n\n"
      "Out of Debian's packages and indexes, with apt but without root and without installing anything. What is there\n"
      "already is not fetched again; a data set is put in place whole.");
  sub->add_option("SET", options->set, "g2p, fashion, translate, lm, gpt or mlm (or kjv), or all")
      ->check(CLI::IsMember({"g2p", "fashion", "translate", "lm", "gpt", "mlm", "kjv", "all"}).description(""))
      ->type_name("")
      ->capture_default_str();
  sub->add_option("--data", options->folder, "Folder to put them into; `paoding train` looks there")
      ->type_name("FOLDER")
      ->capture_default_str();
  sub->footer(
      "Examples:\n"
      "  paoding fetch g2p\n"
      "  paoding fetch all --data /srv/paoding");
  commands->push_back({sub, [options] { return fetch(*options); }});
}

}  // namespace paoding::cli
