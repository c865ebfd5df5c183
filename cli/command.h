// SPDX-License-Identifier: Apache-2.0
// Parts that the subcommands share: registration, printing, errors, interruption, and the options of compiling a graph.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "paoding/graph.h"
#include "paoding/program.h"

namespace CLI {  // <CLI/CLI.hpp> takes seconds to compile, so only files that add options include it
class App;
class Option;
class Validator;
}  // namespace CLI

namespace paoding::cli {

// ---- registering ----

inline constexpr int kOk = 0;
inline constexpr int kFailed = 1;    // the work could not be done, or its result is wrong
inline constexpr int kUsage = 2;     // the command line is wrong
inline constexpr int kSignal = 128;  // and the number of the signal that ended it: 130 after Ctrl-C, 143 after SIGTERM

/// A subcommand; `run` executes it and returns the exit code.
struct Command {
  CLI::App* app;
  std::function<int()> run;
  int failed = kFailed;  // exit code when it throws
};
using Commands = std::vector<Command>;

void add_run(CLI::App& app, Commands* commands);
void add_dump(CLI::App& app, Commands* commands);
void add_fetch(CLI::App& app, Commands* commands);
void add_ops(CLI::App& app, Commands* commands);
void add_doctor(CLI::App& app, Commands* commands);
void add_train(CLI::App& app, Commands* commands);
void add_predict(CLI::App& app, Commands* commands);
void add_evaluate(CLI::App& app, Commands* commands);
void add_export(CLI::App& app, Commands* commands);
void add_serve(CLI::App& app, Commands* commands);
void add_bench(CLI::App& app, Commands* commands);
void add_profile(CLI::App& app, Commands* commands);
void add_report(CLI::App& app, Commands* commands);
void add_diff(CLI::App& app, Commands* commands);
void add_verify(CLI::App& app, Commands* commands);
void add_compare(CLI::App& app, Commands* commands);

/// Checks that an option is a whole number from `least` to `most`.
CLI::Validator whole_number(std::int64_t least, std::int64_t most);
/// The same for any number; CLI::Range would let "nan" pass.
CLI::Validator real_number(double least, double most);

/// Wrong use of the command line that the parser cannot see: exit code 2.
class UsageError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// ---- printing ----

/// Writes whole lines to stdout; control characters and invalid UTF-8 are escaped as \x1b. A closed pipe is no error:
/// the rest is dropped, as it is after a signal when nobody reads.
void print_text(std::string_view text);
/// A Profiling Report: on a terminal its titles stand out.
void print_report(std::string_view text);
template <class... Args>
void print(fmt::format_string<Args...> format, Args&&... args) {
  print_text(fmt::format(format, std::forward<Args>(args)...));
}
/// Writes to stderr, in the same way. Where nobody can read it, it is dropped.
void print_error_text(std::string_view text);
template <class... Args>
void print_error(fmt::format_string<Args...> format, Args&&... args) {
  print_error_text(fmt::format(format, std::forward<Args>(args)...));
}
/// Cuts a message to 8 KiB by leaving out its middle: it may quote a name or a line of any length.
std::string bounded(const std::string& message);
/// Writes the buffered output.
void flush_output();
/// Whether output was lost: nobody needs more of it.
bool output_is_lost();
/// Flushes stdout; false, with the reason on stderr, when output was lost for another reason than a closed pipe.
bool finish_output();

/// A line on stderr that the next one overwrites; nothing unless stderr is a terminal. Empty text clears it.
void show_progress(std::string_view text);

// ---- interruption ----

/// Ctrl-C, SIGTERM and SIGHUP (unless it is ignored: nohup) are acted on at the next check_interrupted(), and end the
/// process when there is none for half a second; a second one ends it at once. Nothing half-written is left. Closed
/// pipes and files that may not grow become errors of the write.
void catch_interrupts();
/// Resets the signals that this process ignores to their defaults, before exec() puts another program in its place.
void leave_interrupts_to_child();
/// Where stdin, stdout or stderr is closed, something stands in for it that can be neither read nor written: else the
/// next file opened would get its number, and output would end up in a checkpoint.
void hold_standard_streams();
struct Interrupted {
  int code;  // to exit with: kSignal + the signal's number
};
/// Throws Interrupted after one.
void check_interrupted();
/// While one lives there is something to save: a signal waits for check_interrupted() however long it takes. Made after
/// a signal, it throws Interrupted.
class SavesWhenInterrupted {
 public:
  SavesWhenInterrupted();
  ~SavesWhenInterrupted();
  SavesWhenInterrupted(const SavesWhenInterrupted&) = delete;
  SavesWhenInterrupted& operator=(const SavesWhenInterrupted&) = delete;
};

// ---- options that subcommands share ----

/// --dtype, the precision of products. CompileOptions::precision of it; UsageError when the word is none of the three.
struct PrecisionFlag {
  std::string dtype = "f32";

  CLI::Option* add_to(CLI::App& app);
  DType precision() const;
};

inline constexpr const char* kTuneHelp =
    "On a GPU, time libraries' kernels beside our own where both will do, and a library's for products, and keep what "
    "is faster for all programs";

/// --device, --no-pass, --tf32, --tune, --dtype, --explain.
struct CompileFlags {
  std::string device = "best";
  std::vector<std::string> no_pass;
  bool allow_tf32 = false, tune = false;
  PrecisionFlag precision;
  bool explain = false;

  /// Without --dtype for commands that have one of their own.
  void add_to(CLI::App& app, bool has_dtype = true);
  /// Error (UsageError) when a word is unknown; a missing GPU is found when compiling.
  CompileOptions options() const;
};

/// "cpu", "cuda", "cuda:1" or "best". UsageError otherwise.
Device parse_device(const std::string& text);
/// The names of all passes, each once, in order. UsageError when `names` has one that is not among them.
std::vector<std::string> pass_names();
void check_pass_names(const std::vector<std::string>& names);

/// `text` as one word of a shell's command.
std::string shell_word(const std::string& text);

/// Error (file) when `path`, where something will be written after the work, is in no folder. Empty: nothing will be.
void check_folder_of(const std::string& path);

/// The text of a file, a pipe, or of stdin for "-". Error (file) when it cannot be read or is larger than `most_bytes`.
std::string read_text(const std::string& path, std::size_t most_bytes);

/// Pass notes and kernel refusals to stderr, when asked for by --explain or PAODING_EXPLAIN=1.
void explain(const CompileFlags& flags, const CompileReport& report);

}  // namespace paoding::cli
