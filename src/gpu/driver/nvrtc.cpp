// SPDX-License-Identifier: Apache-2.0
#include "gpu/driver/nvrtc.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <string_view>

namespace paoding::gpu {
namespace {

struct LoadedNvrtc {
  Library library;
  Nvrtc table;
  std::string problem;
  int version = 0;

  LoadedNvrtc() : library({"libnvrtc.so.13", "libnvrtc.so.12"}), problem(library.problem()) {
    if (!library.loaded()) return;
    try {
#define PD_NVRTC_LOAD(name) table.name = library.symbol<decltype(&::name)>(#name);
      PD_NVRTC_FUNCTIONS(PD_NVRTC_LOAD)
#undef PD_NVRTC_LOAD
    } catch (const Error& error) {
      problem = error.what();
      return;
    }
    int major = 0, minor = 0;
    nvrtcResult result = table.nvrtcVersion(&major, &minor);
    if (result != NVRTC_SUCCESS) {
      problem = fmt::format("{}: nvrtcVersion: {}", library.path(), table.nvrtcGetErrorString(result));
      return;
    }
    version = major * 1000 + minor * 10;
  }
};

const LoadedNvrtc& loaded_nvrtc() {
  static const LoadedNvrtc* loaded = new LoadedNvrtc();
  return *loaded;
}

void check_nvrtc(const Nvrtc& table, nvrtcResult result, const std::string& name, const char* what) {
  if (result == NVRTC_SUCCESS) return;
  fail(ErrorKind::device, "nvrtc: {}: {}: {}", name, what, table.nvrtcGetErrorString(result));
}

/// Owns an nvrtcProgram while it is compiled.
class NvrtcProgram {
 public:
  NvrtcProgram(const Nvrtc& table, const std::string& source, const std::string& name) : table_(table) {
    check_nvrtc(table_, table_.nvrtcCreateProgram(&program_, source.c_str(), name.c_str(), 0, nullptr, nullptr), name,
                "nvrtcCreateProgram");
  }
  ~NvrtcProgram() { table_.nvrtcDestroyProgram(&program_); }
  NvrtcProgram(const NvrtcProgram&) = delete;
  NvrtcProgram& operator=(const NvrtcProgram&) = delete;

  nvrtcProgram get() const { return program_; }

  std::string log() const {
    std::size_t size = 0;
    if (table_.nvrtcGetProgramLogSize(program_, &size) != NVRTC_SUCCESS || size <= 1) return "";
    std::string text(size, '\0');
    if (table_.nvrtcGetProgramLog(program_, text.data()) != NVRTC_SUCCESS) return "";
    text.resize(size - 1);  // NVRTC counts the terminating zero
    return text;
  }

 private:
  const Nvrtc& table_;
  nvrtcProgram program_ = nullptr;
};

/// The line numbers in "name(12): error: ...", at most `limit` of them, as NVRTC's log orders them.
std::vector<int> error_lines(const std::string& log, const std::string& name, std::size_t limit) {
  std::vector<int> lines;
  std::string opening = name + "(";
  for (std::size_t at = log.find(opening); at != std::string::npos; at = log.find(opening, at + 1)) {
    const char* digits = log.data() + at + opening.size();
    int line = 0;
    std::from_chars_result end = std::from_chars(digits, log.data() + log.size(), line);
    std::string_view rest(end.ptr, static_cast<std::size_t>(log.data() + log.size() - end.ptr));
    if (end.ec != std::errc() || !rest.starts_with("): error")) continue;
    if (std::find(lines.begin(), lines.end(), line) == lines.end()) lines.push_back(line);
    if (lines.size() == limit) break;
  }
  return lines;
}

/// The source around each of `lines`, numbered; the lines themselves marked by '>'.
std::string excerpt(const std::string& source, const std::vector<int>& lines) {
  std::set<int> shown;
  for (int line : lines) {
    for (int near = line - 2; near <= line + 2; ++near) shown.insert(near);
  }
  std::string text;
  int number = 1;
  int last = 0;
  for (std::size_t begin = 0; begin < source.size(); ++number) {
    std::size_t end = std::min(source.find('\n', begin), source.size());
    if (shown.count(number) != 0) {
      if (last != 0 && number != last + 1) text += "   ...\n";
      bool marked = std::find(lines.begin(), lines.end(), number) != lines.end();
      text +=
          fmt::format("{}{:5} | {}\n", marked ? '>' : ' ', number, std::string_view(source).substr(begin, end - begin));
      last = number;
    }
    begin = end + 1;
  }
  return text;
}

}  // namespace

const Nvrtc* nvrtc() {
  const LoadedNvrtc& loaded = loaded_nvrtc();
  return loaded.problem.empty() ? &loaded.table : nullptr;
}

const std::string& nvrtc_problem() { return loaded_nvrtc().problem; }

const Library& nvrtc_library() { return loaded_nvrtc().library; }

int nvrtc_version() { return loaded_nvrtc().version; }

const std::vector<std::string>& default_options(std::string_view source) {
  // -default-device: kernel source may define plain functions and lambdas. -fmad stays at its default, on.
  static const auto* whole = new std::vector<std::string>{"--std=c++17", "-default-device"};
  static const auto* minimal = new std::vector<std::string>{"--std=c++17", "-default-device", "--minimal"};
  constexpr int kFirstWithMinimal = 12040;
  const bool needs_all = source.find("cuda") != source.npos || source.find("<<<") != source.npos;
  return needs_all || nvrtc_version() < kFirstWithMinimal ? *whole : *minimal;
}

std::vector<char> compile(const std::string& source, const std::string& name, const std::string& arch,
                          std::span<const std::string> options) {
  const Nvrtc* table = nvrtc();
  if (table == nullptr) fail(ErrorKind::device, "nvrtc: {} cannot be compiled: {}", name, nvrtc_problem());

  std::string arch_option = "--gpu-architecture=" + arch;
  std::vector<const char*> arguments = {arch_option.c_str()};
  for (const std::string& option : default_options(source)) arguments.push_back(option.c_str());
  for (const std::string& option : options) arguments.push_back(option.c_str());

  NvrtcProgram program(*table, source, name);
  nvrtcResult result = table->nvrtcCompileProgram(program.get(), static_cast<int>(arguments.size()), arguments.data());
  if (result != NVRTC_SUCCESS) {
    std::string log = program.log();
    std::string lines = excerpt(source, error_lines(log, name, 3));
    fail(ErrorKind::device, "nvrtc: {} does not compile for {}: {}\n{}{}{}", name, arch,
         table->nvrtcGetErrorString(result), log, lines.empty() ? "" : "source:\n", lines);
  }
  std::size_t size = 0;
  check_nvrtc(*table, table->nvrtcGetCUBINSize(program.get(), &size), name, "nvrtcGetCUBINSize");
  if (size == 0) fail(ErrorKind::device, "nvrtc: {}: no cubin for {}, needed an architecture like sm_90a", name, arch);
  std::vector<char> cubin(size);
  check_nvrtc(*table, table->nvrtcGetCUBIN(program.get(), cubin.data()), name, "nvrtcGetCUBIN");
  return cubin;
}

}  // namespace paoding::gpu
