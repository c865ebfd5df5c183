// SPDX-License-Identifier: Apache-2.0
// Finds and loads NVIDIA's shared libraries at run time. Nothing is linked, so one binary runs on machines that have
// none of them; the attempts are kept for `paoding doctor`.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "base/check.h"

namespace paoding::gpu {

/// The settings that decide where libraries are looked for. Relative paths are not: the current folder may be anyone's.
/// Tests fill it by hand.
struct SearchPlaces {
  std::string paoding_cuda_path;  // PAODING_CUDA_PATH: folders, split at ':', looked at before anything else
  bool use_loader = true;         // ask the dynamic loader (LD_LIBRARY_PATH, ld.so.cache) for the plain name
  std::string cuda_home;          // CUDA_HOME
  std::string cuda_path;          // CUDA_PATH
  bool use_system = true;         // /usr/local/cuda*, /usr/local/nvidia, /usr/lib/wsl
  std::string virtual_env;        // VIRTUAL_ENV: its site-packages may hold NVIDIA's pip packages
  std::string path;               // PATH: the prefix of each entry may hold site-packages
  std::filesystem::path deps;     // .deps of the sources, where `make deps-gpu` unpacks pip packages

  static SearchPlaces from_environment();
};

/// The existing folders to look in before and after the loader is asked, in order, each once.
std::vector<std::filesystem::path> folders_before_loader(const SearchPlaces& places);
std::vector<std::filesystem::path> folders_after_loader(const SearchPlaces& places);

/// A shared library, loaded or not. Never unloaded: NVIDIA's libraries keep threads of their own and run at exit.
class Library {
 public:
  /// One place that was looked at, and why it did not serve.
  struct Attempt {
    std::string path;
    std::string problem;  // empty for the one that was loaded
  };

  Library() = default;
  /// Loads the first of `names` (newest first) that loads, place by place. Never throws for a missing library.
  explicit Library(std::vector<std::string> names, const SearchPlaces& places = SearchPlaces::from_environment());

  bool loaded() const { return handle_ != nullptr; }
  /// Full path of the loaded library; empty when none was loaded.
  const std::string& path() const { return path_; }
  const std::vector<Attempt>& attempts() const { return attempts_; }
  /// Why nothing was loaded, in one line; empty when something was.
  std::string problem() const;
  /// Every attempt on a line of its own, for `doctor`.
  std::string describe() const;

  /// The function of this name. Error (device) when the library is not loaded or does not have it.
  template <class T>
  T symbol(const char* name) const {
    return reinterpret_cast<T>(required_address(name));
  }
  /// The function of this name, or nullptr.
  template <class T>
  T find(const char* name) const {
    return reinterpret_cast<T>(address(name));
  }

 private:
  bool load(const std::string& file);
  void* address(const char* name) const;
  void* required_address(const char* name) const;

  std::vector<std::string> names_;
  std::vector<Attempt> attempts_;
  std::string path_;
  void* handle_ = nullptr;
};

}  // namespace paoding::gpu
