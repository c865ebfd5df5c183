// SPDX-License-Identifier: Apache-2.0
// Saving checkpoints.
#include <sys/stat.h>

#include <algorithm>
#include <cerrno>
#include <new>
#include <system_error>

#include "base/check.h"
#include "io/checkpoint_names.h"
#include "io/files.h"
#include "io/manifest.h"
#include "io/safetensors.h"
#include "paoding/checkpoint.h"

namespace paoding {

namespace fs = std::filesystem;
using namespace checkpoints;

namespace {

fs::path with_prefix(std::string_view prefix, const fs::path& checkpoint) {
  return checkpoint.parent_path() / (std::string(prefix) + checkpoint.filename().string());
}

void remove_folder(const fs::path& path) {
  std::error_code problem;
  fs::remove_all(path, problem);
  if (problem) fail(ErrorKind::file, "{}: cannot delete the folder: {}", path.string(), problem.message());
}

/// A checkpoint under construction: a hidden folder that goes away unless it is moved into place.
class NewFolder {
 public:
  explicit NewFolder(fs::path path) : path_(std::move(path)) {
    // One that is there already, or a link to one, is not ours.
    if (::mkdir(path_.c_str(), 0777) != 0) {
      fail(ErrorKind::file, "{}: cannot make the folder: {}", path_.string(), files::reason(errno));
    }
  }
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);  // after move_to: the replaced folder
  }

  /// `fill(write)` hands over the bytes of the file.
  template <class Fill>
  Seal write(std::string_view name, Fill fill) const {
    files::OutputFile file(path_ / name);
    Seal seal;
    fill([&](const void* bytes, std::size_t size_bytes) {
      seal.add(bytes, size_bytes);
      file.write(bytes, size_bytes);
    });
    file.finish();
    return seal;
  }
  Seal write(std::string_view name, const std::string& bytes) const {
    return write(name, [&](const auto& write) { write(bytes.data(), bytes.size()); });
  }

  void move_to(const fs::path& place) const {
    files::flush_folder(path_);
    const fs::path aside = with_prefix(kReplacedPrefix, place);
    files::replace_folder(path_, place, aside);
    remove_folder(aside);
  }

 private:
  fs::path path_;
};

}  // namespace

CheckpointFolder::CheckpointFolder(fs::path folder, int keep_last) : folder_(std::move(folder)), keep_last_(keep_last) {
  if (keep_last < 1) fail(ErrorKind::argument, "checkpoints: keep_last is {}, must be at least 1", keep_last);
  std::error_code problem;
  if (fs::create_directories(folder_, problem)) {
    for (fs::path made = fs::absolute(folder_); made != made.root_path(); made = made.parent_path()) {
      files::flush_folder(made.parent_path());
    }
  }
  if (problem) fail(ErrorKind::file, "{}: cannot make the folder: {}", folder_.string(), problem.message());
  lock_ = std::make_unique<files::Lock>(folder_ / kLockFile, "trains into this folder");
  drop_leftovers();
}

CheckpointFolder::~CheckpointFolder() = default;
CheckpointFolder::CheckpointFolder(CheckpointFolder&&) noexcept = default;
CheckpointFolder& CheckpointFolder::operator=(CheckpointFolder&&) noexcept = default;

std::vector<fs::path> CheckpointFolder::checkpoints() const { return all_in(folder_); }
fs::path CheckpointFolder::latest() const { return latest_in(folder_); }
fs::path CheckpointFolder::best() const { return best_in(folder_, false); }

fs::path CheckpointFolder::save(const Checkpoint& checkpoint) {
  check(checkpoint.manifest);
  for (const auto& [name, bytes] : checkpoint.files) {
    if (const std::string problem = name_problem(name); !problem.empty()) {
      fail(ErrorKind::argument, "checkpoint: the file name '{}' {}", safetensors::shown(name), problem);
    }
  }
  drop_leftovers();
  const fs::path place = folder_ / name_of(checkpoint.manifest.step);
  {
    const NewFolder made(with_prefix(kNewPrefix, place));
    SealedManifest sealed{checkpoint.manifest, {}};
    for (const auto& [name, bytes] : checkpoint.files) sealed.files[name] = made.write(name, bytes);
    // The metadata are for readers who get the file alone.
    const std::map<std::string, std::string> metadata{{"model", checkpoint.manifest.model},
                                                      {"step", std::to_string(checkpoint.manifest.step)}};
    const safetensors::FileLayout layout((place / kTensorsFile).string(), checkpoint.tensors, metadata);
    sealed.files[std::string(kTensorsFile)] = made.write(kTensorsFile, [&](const auto& write) { layout.write(write); });
    const std::string text = manifest_text(sealed);
    if (text.size() > kMaxManifestBytes) {
      fail(ErrorKind::argument, "checkpoint: the manifest has {} bytes, the most is {}: log fewer losses", text.size(),
           kMaxManifestBytes);
    }
    made.write(kManifestFile, text);
    made.move_to(place);
  }
  drop_old(place);
  return place;
}

void CheckpointFolder::drop_leftovers() const {
  std::vector<fs::path> leftovers;
  std::error_code problem;
  for (fs::directory_iterator it(folder_, problem), end; !problem && it != end; it.increment(problem)) {
    const std::string name = it->path().filename().string();
    for (const std::string_view prefix : {kNewPrefix, kDroppedPrefix, kReplacedPrefix}) {
      if (!name.starts_with(prefix)) continue;
      const fs::path checkpoint = folder_ / name.substr(prefix.size());
      if (step_of(checkpoint) < 0) continue;  // not ours
      if (prefix == kReplacedPrefix) files::finish_replacing(checkpoint, it->path());
      leftovers.push_back(it->path());
    }
  }
  if (problem) fail(ErrorKind::file, "{}: cannot read the folder: {}", folder_.string(), problem.message());
  for (const fs::path& path : leftovers) remove_folder(path);
}

void CheckpointFolder::drop_old(const fs::path& saved) const {
  const std::vector<fs::path> paths = all_in(folder_);
  const fs::path best = best_in(folder_, true);
  for (std::size_t i = 0; i + static_cast<std::size_t>(keep_last_) < paths.size(); ++i) {
    if (paths[i] == best || paths[i] == saved) continue;
    // It is renamed first, for whoever has the name of a checkpoint is whole.
    const fs::path dropped = with_prefix(kDroppedPrefix, paths[i]);
    std::error_code problem;
    fs::rename(paths[i], dropped, problem);
    if (problem) fail(ErrorKind::file, "{}: cannot rename the folder: {}", paths[i].string(), problem.message());
    remove_folder(dropped);
  }
}

}  // namespace paoding
