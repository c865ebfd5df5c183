// SPDX-License-Identifier: Apache-2.0
// Generated kernels compiled by g++ against cuda_emulation.h, to be run thread by thread on the CPU.
#pragma once

#include <dlfcn.h>
#include <stdlib.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include "base/half.h"
#include "gpu/codegen/group_text.h"
#include "gpu/kernels/kernel_prelude.h"
#include "tests/gpu/cuda_emulation/tensor_map_words.h"
#include "tests/support/source_root.h"

namespace paoding::gpu {

// ---- Elements as stored ----

inline void put(DType dtype, char* at, double value) {
  auto write = [&](auto typed) { std::memcpy(at, &typed, sizeof(typed)); };
  switch (dtype) {
    case DType::f64: write(value); break;
    case DType::f32: write(static_cast<float>(value)); break;
    case DType::f16: write(float_to_f16(static_cast<float>(value))); break;
    case DType::bf16: write(float_to_bf16(static_cast<float>(value))); break;
    case DType::i64: write(value >= 0x1p63 ? INT64_MAX : static_cast<std::int64_t>(value)); break;
    case DType::i32: write(static_cast<std::int32_t>(value)); break;
    case DType::u8: write(static_cast<std::uint8_t>(value)); break;
    case DType::boolean: write(static_cast<std::uint8_t>(value != 0)); break;
  }
}

inline double get(DType dtype, const char* at) {
  auto read = [&](auto typed) {
    std::memcpy(&typed, at, sizeof(typed));
    return typed;
  };
  switch (dtype) {
    case DType::f64: return read(double{});
    case DType::f32: return read(float{});
    case DType::f16: return f16_to_float(read(std::uint16_t{}));
    case DType::bf16: return bf16_to_float(read(std::uint16_t{}));
    case DType::i64: return static_cast<double>(read(std::int64_t{}));
    case DType::i32: return read(std::int32_t{});
    case DType::u8: return read(std::uint8_t{});
    case DType::boolean: return read(std::uint8_t{}) != 0;
  }
  return 0;
}

// ---- Kernels ----

/// `order` of the CTAs, or the scheduler's seed for a kernel whose CTAs run together. Returns 0 or the kind of the
/// fault.
using Launch = int (*)(void** arguments, unsigned grid, unsigned block, const unsigned* order);

inline emulation::TensorMapWords emulated_map(const TensorMap& map, const void* memory) {
  emulation::TensorMapWords words{};
  words.base = static_cast<const char*>(memory);
  words.element_bytes = static_cast<std::uint32_t>(size_bytes(map.dtype));
  words.rank = static_cast<std::int32_t>(map.extents.size()) * (map.is_rounded ? 1 : -1);
  std::ranges::copy(map.extents, words.extents);
  std::ranges::copy(map.strides, words.strides);
  words.tile_rows = static_cast<std::uint32_t>(map.tile_rows);
  words.tile_columns = static_cast<std::uint32_t>(map.tile_columns);
  words.has_windows = map.windows.has_value(), words.is_plain = map.is_plain;
  for (std::size_t i = 0; map.windows && i < 2; ++i) {
    words.first[i] = static_cast<std::int32_t>(map.windows->first[i]);
    words.step[i] = static_cast<std::int32_t>(map.windows->step[i]);
    words.count[i] = static_cast<std::int32_t>(map.windows->count[i]);
  }
  return words;
}

/// The fault of a launch.
class EmulationFault : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline bool is_together(const TextLaunch& launch) {
  return launch.is_cooperative || launch.cluster != 1 || !launch.maps.empty();
}

/// All kernels as shared libraries, compiled in a few runs of g++ at once. PAODING_KERNELS names a folder where they
/// stay for others that have the same source, of the same headers. `looks_at_order`: a launch ends with kIsUnordered
/// where CTAs read plainly words that others have stored, and nothing orders the two.
class EmulatedKernels {
 public:
  explicit EmulatedKernels(const std::vector<const TextLaunch*>& plans, bool looks_at_order = false) {
    std::map<std::string, const TextLaunch*> kernels;
    for (const TextLaunch* plan : plans) {
      if (plan->grid[0] > 0) kernels[plan->entry] = plan;
    }
    std::string head = looks_at_order ? "#define PD_TELLS_PLAIN_ACCESSES\n#include \"plain_accesses.h\"\n" : "";
    head +=
        "#include \"square_products.h\"\n#include \"tensor_cores.h\"\n#include \"warp_products.h\"\n"
        "#pragma GCC diagnostic ignored \"-Wunknown-pragmas\"\n";
    head += kernel_prelude();
    Texts texts;
    texts.fill(head);
    std::size_t next = 0;
    for (const auto& [entry, plan] : kernels) {
      std::string source = plan->source;  // the prelude is compiled once for all
      source.erase(source.find(kernel_prelude()), kernel_prelude().size());
      texts[next++ % kFiles] +=
          "namespace in_" + entry + " {\n" + source + "}\nextern \"C\" int run_" + entry +
          "(void** a, unsigned g, unsigned b, const unsigned* o) { return emulation::" + call_of(*plan) + "; }\n";
    }
    const char* const kept = getenv("PAODING_KERNELS");
    is_kept_ = kept != nullptr;
    const std::filesystem::path under = is_kept_ ? kept : std::filesystem::temp_directory_path();
    std::filesystem::path of_text = under / "kernels";
    for (const std::string& text : texts) of_text += "_" + std::to_string(std::hash<std::string>()(text));
    folder_ = of_text;
    if (!is_kept_ || !std::filesystem::exists(of_text)) {
      std::string name = (under / "paoding_emulation_XXXXXX").string();
      folder_ = mkdtemp(name.data());
      compile(texts, looks_at_order ? "-fsanitize=thread --param tsan-instrument-func-entry-exit=0 " : "");
    }
    for (std::size_t f = 0; f < kFiles; ++f) {
      const std::string file = (folder_ / ("kernels" + std::to_string(f) + ".so")).string();
      libraries_.push_back(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL));
    }
    std::error_code has_been_there;
    if (is_kept_ && folder_ != of_text) std::filesystem::rename(folder_, of_text, has_been_there);
  }
  ~EmulatedKernels() {
    std::error_code ignored;
    if (!is_kept_) std::filesystem::remove_all(folder_, ignored);
  }
  Launch find(const std::string& entry) const {
    for (void* library : libraries_) {
      if (library == nullptr) continue;
      if (void* found = dlsym(library, ("run_" + entry).c_str())) return reinterpret_cast<Launch>(found);
    }
    return nullptr;
  }
  std::string log() const {
    std::string text;
    for (std::size_t f = 0; f < kFiles; ++f) {
      std::ifstream file(folder_ / ("log" + std::to_string(f)));
      text += std::string{std::istreambuf_iterator<char>(file), {}}.substr(0, 3000);
    }
    return text;
  }

 private:
  static constexpr std::size_t kFiles = 2;
  using Texts = std::array<std::string, kFiles>;

  void compile(const Texts& texts, const std::string& option) const {
    std::string command = "cd " + folder_.string() + "; ";
    for (std::size_t f = 0; f < kFiles; ++f) {
      std::ofstream(folder_ / ("kernels" + std::to_string(f) + ".cpp")) << texts[f];
      const std::string name = "kernels" + std::to_string(f);
      command += "(g++ -std=c++20 -O1 -w -fPIC " + option + "-I" + source_root().string() + "/src -I" +
                 source_root().string() + "/tests/gpu/cuda_emulation -c " + name + ".cpp -o " + name +
                 ".o && g++ -shared " + name + ".o -o " + name + ".so) > log" + std::to_string(f) + " 2>&1 & ";
    }
    static_cast<void>(
        std::system((command + "wait").c_str()));  // a source that did not compile is not found: see log()
  }
  static std::string call_of(const TextLaunch& launch) {
    const std::string kernel = "in_" + launch.entry + "::" + launch.entry;
    if (!is_together(launch)) return "launch(" + kernel + ", a, g, b, o)";
    return "launch_together(" + kernel + ", a, g, b, " + std::to_string(launch.cluster) + ", " +
           std::to_string(launch.shared_bytes) + ", o[0])";
  }

  std::filesystem::path folder_;
  bool is_kept_ = false;
  std::vector<void*> libraries_;
};

}  // namespace paoding::gpu
