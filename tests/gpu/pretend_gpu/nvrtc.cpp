// SPDX-License-Identifier: Apache-2.0
// NVRTC for the pretended GPU: kernel source compiled by g++ against cuda_emulation.h. Its cubin is a shared library
// with its size in front.
#include <nvrtc.h>
#include <stdlib.h>

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <regex>
#include <string>
#include <vector>

#pragma GCC visibility push(default)

struct _nvrtcProgram {
  std::string source, log;
  std::vector<char> cubin;
};

namespace {

namespace fs = std::filesystem;

constexpr const char* kCompile =
    "g++ -std=c++20 -O1 -w -fPIC -fno-gnu-unique -I" PAODING_SOURCE_ROOT "/src -I" PAODING_SOURCE_ROOT " ";

std::string text_of(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

int hash_of_emulation() {
  std::size_t hash = 0;
  for (const char* name :
       {"tests/gpu/cuda_emulation/cuda_emulation.h", "tests/gpu/cuda_emulation/fibers.h",
        "tests/gpu/cuda_emulation/late_stores.h", "tests/gpu/cuda_emulation/schedules.h",
        "tests/gpu/cuda_emulation/waiting_ctas.h", "tests/gpu/cuda_emulation/tensor_map_words.h",
        "tests/gpu/cuda_emulation/tensor_cores.h", "tests/gpu/cuda_emulation/warp_products.h",
        "tests/gpu/cuda_emulation/square_products.h", "tests/gpu/pretend_gpu/emulated_kernel.h", "src/base/half.h"}) {
    hash = hash * 31 + std::hash<std::string>()(text_of(fs::path(PAODING_SOURCE_ROOT) / name));
  }
  return static_cast<int>(hash % 100'000'000);
}

fs::path new_folder(const fs::path& under) {
  fs::create_directories(under);
  std::string name = (under / "paoding_pretend_XXXXXX").string();
  return mkdtemp(name.data());
}

// The emulation compiled beforehand: once for all processes, where kernels are kept on disk, since it takes as long as
// several kernels do.
fs::path precompiled(const fs::path& own) {
  const char* const kept = std::getenv("PAODING_CACHE_DIR");
  const fs::path under = kept != nullptr ? kept : own.string();
  const fs::path made = under / ("emulation_" + std::to_string(hash_of_emulation()));
  if (fs::exists(made / "emulation.h.gch")) return made;
  const fs::path fresh = new_folder(under);
  std::ofstream(fresh / "emulation.h") << "#include \"tests/gpu/pretend_gpu/emulated_kernel.h\"\n";
  if (std::system((kCompile + ("-x c++-header " + (fresh / "emulation.h").string())).c_str()) != 0) return fresh;
  std::error_code has_been_there;
  fs::rename(fresh, made, has_been_there);
  if (has_been_there) fs::remove_all(fresh, has_been_there);
  return made;
}

struct Folder {
  fs::path path = new_folder(fs::temp_directory_path()), emulation = precompiled(path);
  ~Folder() {
    std::error_code ignored;
    fs::remove_all(path, ignored);
  }
};

const Folder& folder() {
  static const Folder the_folder;
  return the_folder;
}

}  // namespace

// Another emulation is another version: kernels that are kept on disk are found by it.
nvrtcResult nvrtcVersion(int* major, int* minor) {
  *major = 13, *minor = hash_of_emulation();
  return NVRTC_SUCCESS;
}

const char* nvrtcGetErrorString(nvrtcResult) { return "g++ refused it"; }

nvrtcResult nvrtcCreateProgram(nvrtcProgram* program, const char* source, const char*, int, const char* const*,
                               const char* const*) {
  *program = new _nvrtcProgram{source, "", {}};
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcDestroyProgram(nvrtcProgram* program) {
  delete *program;
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcCompileProgram(nvrtcProgram program, int, const char* const*) {
  static std::mutex mutex;
  static int count = 0;
  fs::path base;
  {
    const std::lock_guard lock(mutex);
    base = folder().path / ("kernel" + std::to_string(count++));
  }
  const std::string file = base.string();
  std::ofstream out(file + ".cpp");
  out << "#include \"" << folder().emulation.string() << "/emulation.h\"\n" << program->source << '\n';
  {
    const std::lock_guard lock(mutex);  // std::regex fills tables that all threads share
    const std::regex entry("extern \"C\" __global__ void (?:__launch_bounds__\\([^)]*\\) )?(\\w+)\\(");
    for (std::sregex_iterator at(program->source.begin(), program->source.end(), entry), end; at != end; ++at) {
      out << "PD_EMULATED_KERNEL(" << (*at)[1] << ")\n";
    }
  }
  out.close();
  const int rc = std::system((kCompile + ("-shared " + file + ".cpp -o " + file + ".so 2> " + file + ".log")).c_str());
  program->log = text_of(file + ".log");
  if (rc != 0) return NVRTC_ERROR_COMPILATION;
  const std::string library = text_of(file + ".so");
  const std::uint64_t bytes = library.size();
  program->cubin.resize(sizeof(bytes) + library.size());
  std::memcpy(program->cubin.data(), &bytes, sizeof(bytes));
  std::memcpy(program->cubin.data() + sizeof(bytes), library.data(), library.size());
  for (const char* suffix : {".cpp", ".so", ".log"}) fs::remove(file + suffix);
  return NVRTC_SUCCESS;
}

nvrtcResult nvrtcGetCUBINSize(nvrtcProgram program, std::size_t* size) {
  *size = program->cubin.size();
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetCUBIN(nvrtcProgram program, char* cubin) {
  std::memcpy(cubin, program->cubin.data(), program->cubin.size());
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLogSize(nvrtcProgram program, std::size_t* size) {
  *size = program->log.size() + 1;
  return NVRTC_SUCCESS;
}
nvrtcResult nvrtcGetProgramLog(nvrtcProgram program, char* log) {
  std::memcpy(log, program->log.c_str(), program->log.size() + 1);
  return NVRTC_SUCCESS;
}

#pragma GCC visibility pop
