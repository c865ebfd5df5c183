// SPDX-License-Identifier: Apache-2.0
// The program beside this one, run as its users run it, with small graphs in a folder of the test's.
#pragma once

#include <gtest/gtest.h>
#include <simdjson.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "paoding/io.h"

namespace paoding::cli_run {

namespace fs = std::filesystem;

inline std::string read_file(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

inline fs::path program() { return fs::read_symlink("/proc/self/exe").parent_path() / "paoding"; }

struct Ran {
  int code;
  std::string out, err;
};

inline bool has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

inline bool is_json(const std::string& text) {
  simdjson::dom::parser parser;
  return parser.parse(simdjson::padded_string(text)).error() == simdjson::SUCCESS;
}

// A folder of its own for each test, and small graphs in it.
class Cli : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(fs::exists(program())) << program() << " is not there: build all targets";
    std::string pattern = (fs::temp_directory_path() / "paoding_cli_XXXXXX").string();
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
    write("scale.txt",
          "paoding graph 1\n"
          "x = input f32[2,3]\n"
          "w = parameter f32[3]\n"
          "y = mul(x, w)\n"
          "dx, dw = gradients(y, x) by (x, w)\n"
          "fetch y\n"
          "fetch dw\n");
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string path(const std::string& name) const { return (folder_ / name).string(); }
  void write(const std::string& name, const std::string& text) const { std::ofstream(folder_ / name) << text; }
  void save(const std::string& name, const std::map<std::string, Tensor>& tensors) const {
    save_safetensors(folder_ / name, tensors);
  }

  Ran shell(const std::string& command) const {
    const std::string all = "(" + command + ") >" + path("stdout") + " 2>" + path("stderr") + " </dev/null";
    const int status = std::system(all.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_file(path("stdout")), read_file(path("stderr"))};
  }
  // Graph files are looked for in the test's folder: $D stands for it.
  Ran run(std::string arguments, const std::string& environment = "") const {
    for (std::size_t at = 0; (at = arguments.find("$D", at)) != std::string::npos;) {
      arguments.replace(at, 2, folder_.string());
    }
    return shell(environment + " " + program().string() + " " + arguments);
  }

  fs::path folder_;
};

inline Tensor floats(const Shape& shape, const std::vector<double>& values) { return Tensor::from(f32, shape, values); }

}  // namespace paoding::cli_run
