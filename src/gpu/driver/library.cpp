// SPDX-License-Identifier: Apache-2.0
#include "gpu/driver/library.h"

#include <dlfcn.h>
#include <link.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "base/env.h"

namespace paoding::gpu {
namespace {

namespace fs = std::filesystem;

#if defined(__aarch64__)
constexpr const char* kTargets[] = {"targets/sbsa-linux/lib", "targets/aarch64-linux/lib"};
#else
constexpr const char* kTargets[] = {"targets/x86_64-linux/lib"};
#endif

constexpr const char* kRelative = "not searched, for the path is relative: give it from / on";

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  std::size_t begin = 0;
  while (begin <= text.size()) {
    std::size_t end = std::min(text.find(':', begin), text.size());
    if (end > begin) parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Never one that depends on the current folder, which may be anyone's: his libraries would be ours.
void add_folder(std::vector<fs::path>* folders, const fs::path& folder) {
  std::error_code ignored;
  if (!folder.is_absolute() || !fs::is_directory(folder, ignored)) return;
  if (std::find(folders->begin(), folders->end(), folder) == folders->end()) folders->push_back(folder);
}

/// Sub-folders whose names begin with `prefix`, last name first: of cuda-12 and cuda-13, 13 is wanted.
std::vector<fs::path> subfolders(const fs::path& folder, std::string_view prefix) {
  std::vector<fs::path> found;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->path().filename().string().starts_with(prefix) && it->is_directory(ignored)) found.push_back(it->path());
  }
  std::sort(found.rbegin(), found.rend());
  return found;
}

/// The library folders of a toolkit; CUPTI lives apart in the older layouts.
void add_toolkit(std::vector<fs::path>* folders, const fs::path& root) {
  add_folder(folders, root / "lib64");
  add_folder(folders, root / "lib");
  for (const char* target : kTargets) add_folder(folders, root / target);
  add_folder(folders, root / "extras/CUPTI/lib64");
}

/// nvidia/cublas/lib, nvidia/cu13/lib, ... as NVIDIA's pip packages lay them out.
void add_pip_packages(std::vector<fs::path>* folders, const fs::path& site_packages) {
  for (const fs::path& package : subfolders(site_packages / "nvidia", "")) add_folder(folders, package / "lib");
}

void add_python_prefix(std::vector<fs::path>* folders, const fs::path& prefix) {
  for (const char* lib : {"lib", "lib64"}) {
    for (const fs::path& python : subfolders(prefix / lib, "python3")) {
      add_pip_packages(folders, python / "site-packages");
      add_pip_packages(folders, python / "dist-packages");  // Debian's name for it
    }
  }
}

}  // namespace

SearchPlaces SearchPlaces::from_environment() {
  SearchPlaces places;
  places.paoding_cuda_path = env_text("PAODING_CUDA_PATH");
  places.cuda_home = env_text("CUDA_HOME");
  places.cuda_path = env_text("CUDA_PATH");
  places.virtual_env = env_text("VIRTUAL_ENV");
  places.path = env_text("PATH");
#ifdef PAODING_DEPS_DIR
  places.deps = PAODING_DEPS_DIR;  // where `make deps-gpu` puts them; never the current folder, which may be anyone's
#endif
  return places;
}

std::vector<fs::path> folders_before_loader(const SearchPlaces& places) {
  std::vector<fs::path> folders;
  for (const std::string& folder : split(places.paoding_cuda_path)) {
    add_folder(&folders, folder);
    add_toolkit(&folders, folder);
    add_pip_packages(&folders, folder);
  }
  return folders;
}

std::vector<fs::path> folders_after_loader(const SearchPlaces& places) {
  std::vector<fs::path> folders;
  if (!places.cuda_home.empty()) add_toolkit(&folders, places.cuda_home);
  if (!places.cuda_path.empty()) add_toolkit(&folders, places.cuda_path);
  if (places.use_system) {
    add_toolkit(&folders, "/usr/local/cuda");  // the one that is switched on, before its neighbours
    for (const fs::path& root : subfolders("/usr/local", "cuda")) add_toolkit(&folders, root);
    add_folder(&folders, "/usr/local/nvidia/lib64");
    add_folder(&folders, "/usr/lib/wsl/lib");
  }
  if (!places.virtual_env.empty()) add_python_prefix(&folders, places.virtual_env);
  for (const std::string& bin : split(places.path)) {
    fs::path prefix = fs::path(bin).parent_path();
    if (!prefix.empty()) add_python_prefix(&folders, prefix);
  }
  if (!places.deps.empty()) {
    add_folder(&folders, places.deps / "lib");
    add_pip_packages(&folders, places.deps);
    add_python_prefix(&folders, places.deps);
  }
  return folders;
}

Library::Library(std::vector<std::string> names, const SearchPlaces& places) : names_(std::move(names)) {
  const auto look_at = [this](const char* variable, const std::string& folder) {
    if (folder.empty() || fs::path(folder).is_absolute()) return;
    attempts_.push_back({fmt::format("{}={}", variable, folder), kRelative});
  };
  for (const std::string& folder : split(places.paoding_cuda_path)) look_at("PAODING_CUDA_PATH", folder);
  look_at("CUDA_HOME", places.cuda_home);
  look_at("CUDA_PATH", places.cuda_path);
  auto try_folders = [this](const std::vector<fs::path>& folders) {
    for (const fs::path& folder : folders) {
      for (const std::string& name : names_) {
        std::error_code ignored;
        fs::path file = folder / name;
        if (!fs::exists(file, ignored)) {
          attempts_.push_back({file.string(), "no such file"});
        } else if (load(file.string())) {
          return true;
        }
      }
    }
    return false;
  };
  if (try_folders(folders_before_loader(places))) return;
  if (places.use_loader) {
    for (const std::string& name : names_) {
      if (load(name)) return;
    }
  }
  try_folders(folders_after_loader(places));
}

bool Library::load(const std::string& file) {
  dlerror();
  handle_ = dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (handle_ == nullptr) {
    const char* why = dlerror();
    attempts_.push_back({file, why == nullptr ? "cannot be loaded" : why});
    return false;
  }
  link_map* map = nullptr;
  bool known = dlinfo(handle_, RTLD_DI_LINKMAP, &map) == 0 && map != nullptr && map->l_name[0] != '\0';
  path_ = known ? map->l_name : file;
  attempts_.push_back({path_, ""});
  return true;
}

std::string Library::problem() const {
  if (loaded()) return "";
  // A file that is there and does not load (wrong machine, missing dependency) says more than the absent ones.
  std::string names, not_searched;
  std::size_t places = attempts_.size();
  for (const Attempt& attempt : attempts_) {
    if (attempt.problem == kRelative) {
      not_searched += fmt::format("; {} is {}", attempt.path, attempt.problem);
      --places;
    } else if (attempt.path.find('/') != std::string::npos && attempt.problem != "no such file") {
      return fmt::format("{} is there but does not load: {}", attempt.path, attempt.problem);
    }
  }
  for (const std::string& name : names_) names += (names.empty() ? "" : " or ") + name;
  return fmt::format("{} was not found ({} places tried{})", names.empty() ? "no library" : names, places,
                     not_searched);
}

std::string Library::describe() const {
  std::string text;
  for (const Attempt& attempt : attempts_) {
    text += fmt::format("{}: {}\n", attempt.path, attempt.problem.empty() ? "loaded" : attempt.problem);
  }
  return text;
}

void* Library::address(const char* name) const { return handle_ == nullptr ? nullptr : dlsym(handle_, name); }

void* Library::required_address(const char* name) const {
  if (!loaded()) fail(ErrorKind::device, "{}: {}", name, problem());
  void* found = address(name);
  if (found == nullptr) fail(ErrorKind::device, "{}: it has no function {}; a newer library is needed", path_, name);
  return found;
}

}  // namespace paoding::gpu
