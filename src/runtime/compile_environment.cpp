// SPDX-License-Identifier: Apache-2.0
#include "runtime/compile_environment.h"

#include <algorithm>

#include "base/check.h"
#include "base/env.h"
#include "base/one_line.h"

namespace paoding {
namespace {

constexpr const char* kVariable = "PAODING_COMPILE";

bool flag_of(std::string_view key, std::string_view value) {
  if (value != "0" && value != "1") {
    fail(ErrorKind::argument, "{}: {} is '{}', needs to be 0 or 1", kVariable, key, one_line(value));
  }
  return value == "1";
}

void set_switch(CompileOptions& options, std::string_view key, std::string_view value) {
  if (key == "pass") {
    std::erase(options.disabled_passes, value);
  } else if (key == "no_pass") {
    options.disabled_passes.emplace_back(value);
  } else if (key == "tf32") {
    options.allow_tf32 = flag_of(key, value);
  } else if (key == "tune") {
    options.tune = flag_of(key, value);
  } else if (key == "precision" && (value == "f32" || value == "bf16" || value == "f16")) {
    options.precision = value == "f32" ? f32 : value == "bf16" ? bf16 : f16;
  } else if (key == "execution" && (value == "captured" || value == "stepwise")) {
    options.execution = value == "captured" ? Execution::captured : Execution::stepwise;
  } else {
    fail(ErrorKind::argument,
         "{}: '{}={}' is no switch, needs to be pass=NAME, no_pass=NAME, tf32=1, tune=1, precision=bf16 or "
         "execution=captured, with ; between several",
         kVariable, one_line(key), one_line(value));
  }
}

}  // namespace

CompileOptions with_switches(CompileOptions options, std::string_view words) {
  while (!words.empty()) {
    const std::size_t end = std::min(words.find(';'), words.size());
    const std::string_view word = words.substr(0, end);
    words.remove_prefix(std::min(end + 1, words.size()));
    const std::size_t equals = std::min(word.find('='), word.size());
    if (word.empty()) continue;
    set_switch(options, word.substr(0, equals), word.substr(std::min(equals + 1, word.size())));
  }
  return options;
}

CompileOptions with_environment(const CompileOptions& options) { return with_switches(options, env_text(kVariable)); }

}  // namespace paoding
