// SPDX-License-Identifier: Apache-2.0
#include "task_options.h"

#include <CLI/CLI.hpp>
#include <sstream>

#include "base/check.h"
#include "command.h"
#include "text/suggest.h"

namespace paoding::cli {
namespace {

// Unknown names in a checkpoint are of another version; what is known counts.
void set_known(const models::Options& options, const std::map<std::string, std::string>& texts) {
  for (const auto& [name, text] : texts) {
    if (const models::Option* option = models::find(options, name)) models::set(*option, text);
  }
}

void set_from_file(const models::Options& options, const std::string& path) {
  std::istringstream file(read_text(path));
  std::vector<CLI::ConfigItem> items;
  try {
    items = CLI::ConfigTOML().from_config(file);
  } catch (const CLI::Error& error) {
    fail(ErrorKind::file, "{}: {}", path, error.what());
  }
  std::vector<std::string> names;
  for (const models::Option& option : options) names.push_back(option.name);
  for (const CLI::ConfigItem& item : items) {
    const models::Option* option = models::find(options, item.fullname());
    if (option == nullptr) {
      fail(ErrorKind::argument, "{}: there is no option '{}'{}; there are: {}", path, item.fullname(),
           suggestion(item.fullname(), names), fmt::join(names, ", "));
    }
    if (item.inputs.size() != 1) fail(ErrorKind::argument, "{}: {} needs one value", path, item.name);
    try {
      models::set(*option, item.inputs[0]);
    } catch (const Error& error) {
      fail(ErrorKind::argument, "{}: {}", path, error.what());
    }
  }
}

}  // namespace

TaskOptions::TaskOptions(models::Task& task) : options_(task.options()) {
  for (models::Option& option : task.settings.options()) options_.push_back(std::move(option));
}

void TaskOptions::add_to(CLI::App& app) {
  for (const models::Option& option : options_) {
    const auto keep = [this, &option](const std::string& text) {
      try {
        models::set(option, text);
      } catch (const Error& error) {
        throw CLI::ValidationError("--" + option.name, error.what());
      }
      said_[option.name] = text;
    };
    app.add_option_function<std::string>("--" + option.name, keep, option.meaning)
        ->type_name(std::holds_alternative<std::string*>(option.value)    ? "TEXT"
                    : std::holds_alternative<double*>(option.value)       ? "NUMBER"
                    : std::holds_alternative<std::int64_t*>(option.value) ? "N"
                                                                          : "true|false")
        ->default_str(models::text_of(option))
        ->group("Model and training");
  }
  app.add_option("--config", config_path_,
                 "Lines 'name = value' of the options under Model and training; '#' begins a remark. What the "
                 "command line says wins")
      ->type_name("FILE");
}

void TaskOptions::apply(const std::map<std::string, std::string>& checkpoint) {
  set_known(options_, checkpoint);
  if (!config_path_.empty()) set_from_file(options_, config_path_);
  set_known(options_, said_);
}

std::map<std::string, std::string> TaskOptions::texts() const {
  std::map<std::string, std::string> texts;
  for (const models::Option& option : options_) texts[option.name] = models::text_of(option);
  return texts;
}

}  // namespace paoding::cli
