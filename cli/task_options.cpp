// SPDX-License-Identifier: Apache-2.0
#include "task_options.h"

#include <CLI/CLI.hpp>
#include <cstdint>

#include "base/check.h"
#include "base/one_line.h"
#include "command.h"
#include "text/lexer.h"
#include "text/suggest.h"

namespace paoding::cli {
namespace {

constexpr std::size_t kMostConfigBytes = 1 << 20;

// Skips unknown names: a checkpoint of another version may have them.
void set_known(const models::Options& options, const std::map<std::string, std::string>& texts) {
  for (const auto& [name, text] : texts) {
    if (const models::Option* option = models::find(options, name)) models::set(*option, text);
  }
}

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kBlank = " \t\r";
  const std::size_t begin = text.find_first_not_of(kBlank);
  return begin == std::string_view::npos ? "" : text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

// A config file, line by line; errors name the line.
class ConfigFile {
 public:
  ConfigFile(const models::Options& options, const std::string& path) : options_(options), path_(path) {
    for (const models::Option& option : options) names_.push_back(option.name);
  }

  void read() {
    const std::string text = read_text(path_, kMostConfigBytes);
    std::string_view rest = text;
    if (rest.starts_with("\xef\xbb\xbf")) rest.remove_prefix(3);  // a byte order mark some editors leave
    while (!rest.empty()) {
      const std::size_t end = rest.find('\n');
      ++line_;
      take(rest.substr(0, end));
      rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    }
  }

 private:
  [[noreturn]] void wrong(const std::string& problem) const {
    fail(ErrorKind::argument, "{}:{}: {}", path_, line_, problem);
  }

  void take(std::string_view line) {
    const std::string_view said = trimmed(without_remark(line));
    if (said.empty()) return;
    const std::size_t equals = said.find('=');
    const std::string_view name = trimmed(said.substr(0, equals));
    if (equals == std::string_view::npos || name.empty()) {
      wrong(fmt::format("{} is no line 'name = value'", quote(shortened(said))));
    }
    const models::Option* option = models::find(options_, name);
    if (option == nullptr) {
      wrong(fmt::format("there is no option {}{}; there are: {}", quote(shortened(name)),
                        suggestion(std::string(name.substr(0, kMostNameBytes)), names_), fmt::join(names_, ", ")));
    }
    if (const auto [at, is_new] = seen_.emplace(option->name, line_); !is_new) {
      wrong(fmt::format("{} is there already, in line {}", option->name, at->second));
    }
    try {
      models::set(*option, unquoted(trimmed(said.substr(equals + 1))));
    } catch (const Error& error) {
      wrong(error.what());
    }
  }

  std::string_view without_remark(std::string_view line) const {
    char open = '\0';
    for (std::size_t i = 0; i < line.size(); ++i) {
      const char c = line[i];
      if (open != '\0') {
        if (c == open) open = '\0';
      } else if (c == '"' || c == '\'') {
        open = c;
      } else if (c == '#') {
        return line.substr(0, i);
      }
    }
    if (open != '\0') wrong(fmt::format("{}: the quote is not closed", quote(shortened(trimmed(line)))));
    return line;
  }

  static std::string_view unquoted(std::string_view value) {
    const bool is_quoted = value.size() >= 2 && (value[0] == '"' || value[0] == '\'') && value.back() == value[0];
    return is_quoted ? value.substr(1, value.size() - 2) : value;
  }

  static constexpr std::size_t kMostNameBytes = 100;  // that are compared with the names there are
  const models::Options& options_;
  const std::string& path_;
  std::vector<std::string> names_;
  std::map<std::string, std::int64_t> seen_;  // the line of each
  std::int64_t line_ = 0;
};

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
  try {
    set_known(options_, checkpoint);
  } catch (const Error& error) {
    fail(ErrorKind::file, "the checkpoint's manifest: {}", error.what());
  }
  const std::map<std::string, std::string> before = texts();
  if (!config_path_.empty()) ConfigFile(options_, config_path_).read();
  set_known(options_, said_);
  changes_.clear();
  for (const models::Option& option : options_) {
    const std::string now = models::text_of(option), &was = before.at(option.name);
    if (!checkpoint.contains(option.name) || now == was) continue;
    if (option.is_fixed) {
      fail(ErrorKind::argument,
           "{} was {} when this training began, and cannot be {} now\nhint: leave it out to go on with {}; another "
           "--out, without --resume, begins anew",
           option.name, one_line(was), one_line(now), one_line(was));
    }
    changes_.push_back(fmt::format("{} was {}, and is {} now", option.name, one_line(was), one_line(now)));
  }
}

std::map<std::string, std::string> TaskOptions::texts() const {
  std::map<std::string, std::string> texts;
  for (const models::Option& option : options_) texts[option.name] = models::text_of(option);
  return texts;
}

}  // namespace paoding::cli
