// SPDX-License-Identifier: Apache-2.0
// Cubins by the source they were compiled from, in memory and on disk: a kernel is compiled once per machine.
// A cubin's key covers everything that decides its bytes: source, architecture, NVRTC's version, options.
#pragma once

#include <array>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/hash128.h"
#include "gpu/codegen/kernel_source.h"

namespace paoding::gpu {

/// The compiler that a cache calls for a source that it does not have; tests put their own in NVRTC's place.
struct KernelCompiler {
  int version = 0;                   // part of the key
  std::vector<std::string> options;  // passed on every compilation, part of the key
  std::function<std::vector<char>(const std::string& source, const std::string& name, const std::string& arch,
                                  std::span<const std::string> options)>
      compile;

  /// NVRTC with its default options.
  static KernelCompiler nvrtc();
};

/// How requests were answered since the cache was made.
struct CacheCounts {
  std::int64_t memory_hits = 0;
  std::int64_t disk_hits = 0;
  std::int64_t compiles = 0;        // successful or not
  double compile_milliseconds = 0;  // summed over threads
};

/// Safe to use from several threads; a source asked for by two at once is compiled once.
class KernelCache {
 public:
  using Cubin = std::shared_ptr<const std::vector<char>>;

  /// An empty folder keeps cubins in memory only, and so does one that cannot be written.
  KernelCache(std::filesystem::path folder, KernelCompiler compiler);

  /// The process's cache: NVRTC and folder_from_environment().
  static KernelCache& shared();
  /// PAODING_CACHE_DIR (set but empty: no disk), else $XDG_CACHE_HOME/paoding, else ~/.cache/paoding, else none.
  static std::filesystem::path folder_from_environment();

  /// The cubin of a source for an architecture; `name` is shown in errors and is no part of the key.
  /// Error (device) when the source does not compile; it is tried again on the next call.
  Cubin cubin(const KernelSource& source, const std::string& arch, const std::string& name = "kernel.cu");
  /// Makes every source's cubin ready, compiling missing ones on as many threads as there are cores. Throws the first
  /// error after all threads are done.
  void compile_all(std::span<const KernelSource> sources, const std::string& arch);

  CacheCounts counts() const;
  const std::filesystem::path& folder() const { return folder_; }
  /// The file that holds, or would hold, this source's cubin.
  std::filesystem::path file_of(const KernelSource& source, const std::string& arch) const;

 private:
  using Key = Hash128;  // enough bits to take equal for same

  /// Taken together once for a source and architecture, and then looked up.
  Key key_of(const KernelSource& source, const std::string& arch) const;
  Key made_key(const std::string& source, const std::string& arch) const;
  std::filesystem::path file_of(const Key& key) const;
  Cubin load_or_compile(const Key& key, const std::string& source, const std::string& arch, const std::string& name);
  Cubin read_file(const Key& key) const;
  void write_file(const Key& key, const std::vector<char>& cubin) const;

  const std::filesystem::path folder_;
  const KernelCompiler compiler_;
  mutable std::mutex mutex_;                         // guards the members below
  std::map<Key, std::shared_future<Cubin>> cubins_;  // ready, or being made by the thread that put it in
  CacheCounts counts_;
  mutable std::mutex keys_mutex_;
  mutable std::map<std::pair<Hash128, std::string>, Key> keys_;  // source and architecture
};

}  // namespace paoding::gpu
