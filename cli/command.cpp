// SPDX-License-Identifier: Apache-2.0
#include "command.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/check.h"
#include "base/device_name.h"
#include "base/env.h"
#include "input_stream.h"
#include "passes/pass.h"
#include "text/suggest.h"

namespace paoding::cli {

namespace {}

CLI::Validator whole_number(std::int64_t least, std::int64_t most) {
  const auto problem = [least, most](const std::string& text) {
    std::int64_t value = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_whole = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
    if (is_whole && value >= least && value <= most) return std::string();
    return fmt::format("'{}' is no whole number from {} to {}", text, least, most);
  };
  return {problem, ""};
}

CLI::Validator real_number(double least, double most) {
  const auto problem = [least, most](const std::string& text) {
    double value = least - 1;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool is_number = parsed.ec == std::errc() && parsed.ptr == text.data() + text.size();
    if (is_number && value >= least && value <= most) return std::string();
    return fmt::format("'{}' is no number from {:g} to {:g}", text, least, most);
  };
  return {problem, ""};
}

void CompileFlags::add_to(CLI::App& app, bool has_dtype) {
  app.add_option("--device", device, "cpu, cuda, cuda:N, or best: the first GPU that works, else the CPU")
      ->type_name("DEVICE")
      ->capture_default_str();
  app.add_option("--no-pass", no_pass, "Passes to leave out, split by commas; alias_views makes every view a copy")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAMES");
  app.add_flag("--tf32", allow_tf32, "On a GPU, f32 products may round their operands to TF32");
  app.add_flag("--tune", tune, kTuneHelp);
  if (has_dtype) precision.add_to(app);
  app.add_flag("--explain", explain, "Print what every pass did and why kernels declined (as PAODING_EXPLAIN=1)");
}

CompileOptions CompileFlags::options() const {
  CompileOptions options;
  options.device = parse_device(device);
  check_pass_names(no_pass);
  options.disabled_passes = no_pass;
  options.allow_tf32 = allow_tf32;
  options.tune = tune;
  options.precision = precision.precision();
  return options;
}

CLI::Option* PrecisionFlag::add_to(CLI::App& app) {
  return app
      .add_option("--dtype", dtype, "Of products and what lies between them: f32, or bf16 or f16 (mixed precision)")
      ->type_name("DTYPE")
      ->capture_default_str();
}

DType PrecisionFlag::precision() const {
  DType made = f32;
  if (!parse_dtype(dtype, &made) || (made != f32 && made != bf16 && made != f16)) {
    throw UsageError(fmt::format("--dtype is '{}', needs to be f32, bf16 or f16", dtype));
  }
  return made;
}

Device parse_device(const std::string& text) {
  if (text == "best") return Device::best();
  if (const auto device = device_named(text)) return *device;
  throw UsageError(fmt::format("--device is '{}', needs to be cpu, cuda, cuda:N or best", text));
}

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const Pass& pass : pipeline()) {
    if (std::find(names.begin(), names.end(), pass.name) == names.end()) names.push_back(pass.name);
  }
  return names;
}

void check_pass_names(const std::vector<std::string>& names) {
  const std::vector<std::string> all = pass_names();
  for (const std::string& name : names) {
    if (std::find(all.begin(), all.end(), name) != all.end()) continue;
    throw UsageError(
        fmt::format("there is no pass named '{}'{}; there are: {}", name, suggestion(name, all), fmt::join(all, ", ")));
  }
}

std::string shell_word(const std::string& text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./:=@%+,";
  if (!text.empty() && text.find_first_not_of(kPlain) == std::string::npos) return text;
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? "'\\''" : std::string(1, c);
  return word + "'";
}

void check_folder_of(const std::string& path) {
  const auto folder = std::filesystem::path(path).parent_path();
  if (!folder.empty() && !std::filesystem::is_directory(folder)) {
    fail(ErrorKind::file, "{}: there is no folder {} to write to", path, folder.string());
  }
}

std::string read_text(const std::string& path, std::size_t most_bytes) {
  constexpr std::size_t kPiece = 1 << 16;
  InputStream stream(path);
  std::string text;
  for (std::size_t count = 1; count > 0;) {
    const std::size_t before = text.size();
    text.resize(before + kPiece);
    count = stream.read(text.data() + before, kPiece);
    text.resize(before + count);
    if (text.size() > most_bytes) {
      fail(ErrorKind::file, "{}: is larger than {} bytes, too large for what it should be", stream.name(), most_bytes);
    }
  }
  return text;
}

void explain(const CompileFlags& flags, const CompileReport& report) {
  if (!flags.explain && !env_flag("PAODING_EXPLAIN")) return;
  for (const CompileReport::Pass& pass : report.passes) {
    print_error("pass {}: {} -> {} nodes, {:.2f} ms\n", pass.name, pass.nodes_before, pass.nodes_after,
                pass.milliseconds);
    for (const std::string& note : pass.notes) print_error("  {}\n", note);
  }
  print_error("plan: {} launches, {} bytes of arena\n", report.launches, report.arena_bytes);
  for (const std::string& note : report.plan_notes) print_error("  {}\n", note);
}

}  // namespace paoding::cli
