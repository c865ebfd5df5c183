// SPDX-License-Identifier: Apache-2.0
// Reading checkpoints. Another process may save into the run's folder meanwhile: a checkpoint's files are read through
// its folder held open, so that they are of one checkpoint, and one that is dropped or replaced half way is looked for
// again.
#include "paoding/checkpoint.h"

#include <algorithm>
#include <charconv>
#include <new>

#include "base/check.h"
#include "io/checkpoint_names.h"
#include "io/files.h"
#include "io/manifest.h"
#include "io/safetensors.h"

namespace paoding {
namespace checkpoints {
namespace {

namespace fs = std::filesystem;

constexpr int kMostAttempts = 100;

SealedManifest read_manifest(const files::OpenFolder& folder) {
  const files::InputFile file(folder, std::string(kManifestFile));
  if (file.size_bytes() > kMaxManifestBytes) {
    fail(ErrorKind::file, "{}: has {} bytes, the most is {}: not a manifest", file.name(), file.size_bytes(),
         kMaxManifestBytes);
  }
  std::string text(file.size_bytes(), '\0');
  file.read_at(0, text.data(), text.size());
  return parse_manifest(text, file.name());
}

/// Opens a file of the checkpoint that must be as it was written.
files::InputFile open_sealed(const files::OpenFolder& folder, const std::string& name, const Seal& seal) {
  files::InputFile file = [&] {
    try {
      return files::InputFile(folder, name);
    } catch (const Error& error) {
      fail(ErrorKind::file, "{}{}", error.what(), kWhatToDo);
    }
  }();
  if (file.size_bytes() != seal.size_bytes) {
    fail(ErrorKind::file, "{}: has {} bytes, its manifest says {}{}", file.name(), file.size_bytes(), seal.size_bytes,
         kWhatToDo);
  }
  std::vector<char> part(std::min<std::uint64_t>(seal.size_bytes, 1 << 20));
  Seal seen;
  while (seen.size_bytes < seal.size_bytes) {
    const auto count = std::min<std::uint64_t>(part.size(), seal.size_bytes - seen.size_bytes);
    file.read_at(seen.size_bytes, part.data(), count);
    seen.add(part.data(), count);
  }
  if (seen.crc != seal.crc) {
    fail(ErrorKind::file, "{}: its checksum is {}, its manifest says {}: it was changed after it was written{}",
         file.name(), crc_text(seen.crc), crc_text(seal.crc), kWhatToDo);
  }
  return file;
}

Checkpoint read_all(const files::OpenFolder& folder) {
  SealedManifest sealed = read_manifest(folder);
  Checkpoint checkpoint;
  checkpoint.manifest = std::move(sealed.manifest);
  for (const auto& [name, seal] : sealed.files) {
    const files::InputFile file = open_sealed(folder, name, seal);
    if (name == kTensorsFile) {
      checkpoint.tensors = safetensors::read(file).tensors;
      continue;
    }
    try {
      std::string& bytes = checkpoint.files[name];
      bytes.resize(seal.size_bytes);
      file.read_at(0, bytes.data(), bytes.size());
    } catch (const std::bad_alloc&) {
      fail(ErrorKind::file, "{}: not enough memory to load its {} bytes", file.name(), seal.size_bytes);
    }
  }
  return checkpoint;
}

/// read(folder) of the checkpoint at `path`, the whole of one checkpoint.
template <class Read>
auto read_at(const fs::path& path, Read read) {
  for (int attempt = 1;; ++attempt) {
    const files::OpenFolder folder(path);
    try {
      return read(folder);
    } catch (const Error&) {
      std::error_code ignored;
      const bool is_replaced = !folder.is_in_place() && fs::exists(path, ignored);
      if (!is_replaced || attempt == kMostAttempts) throw;
    }
  }
}

/// The same of a checkpoint, or of one in a run's folder.
template <class Read>
auto read_from(const fs::path& path, bool latest, Read read) {
  std::error_code problem;
  if (!fs::exists(path, problem)) {
    fail(ErrorKind::file, "{}: there is no such folder{}", path.string(), problem ? ": " + problem.message() : "");
  }
  if (!fs::is_directory(path, problem)) {
    fail(ErrorKind::file, "{}: is no folder: give that of a checkpoint, or that of a run", path.string());
  }
  // A run's folder may have the name of a checkpoint, and a checkpoint that is being replaced may be without a
  // manifest.
  const bool has_manifest = fs::exists(path / kManifestFile, problem);
  if (has_manifest || (step_of(fs::canonical(path, problem)) >= 0 && all_in(path).empty())) return read_at(path, read);
  for (int attempt = 1;; ++attempt) {
    const fs::path chosen = latest ? latest_in(path) : best_in(path, false);
    if (chosen.empty()) {
      fail(ErrorKind::file, "{}: has no checkpoint: nothing was saved in it, or it is the wrong folder", path.string());
    }
    try {
      return read_at(chosen, read);
    } catch (const Error&) {
      if (fs::exists(chosen, problem) || attempt == kMostAttempts) throw;  // else it was dropped for a newer one
    }
  }
}

}  // namespace

std::string name_of(std::int64_t step) { return fmt::format("{}{:08}", kStepPrefix, step); }

std::int64_t step_of(const fs::path& path) {
  const std::string name = path.filename().string();
  if (!name.starts_with(kStepPrefix)) return -1;
  std::int64_t step = -1;
  const char* end = name.data() + name.size();
  const auto parsed = std::from_chars(name.data() + kStepPrefix.size(), end, step);
  // Only names that name_of() writes count: no sign, as many zeros, every step that there can be.
  return parsed.ec == std::errc() && step >= 0 && name == name_of(step) ? step : -1;
}

std::vector<fs::path> all_in(const fs::path& run) {
  std::vector<std::pair<std::int64_t, fs::path>> found;
  std::error_code problem, ignored;
  for (fs::directory_iterator it(run, problem), end; !problem && it != end; it.increment(problem)) {
    const std::int64_t step = step_of(it->path());
    if (step >= 0 && it->is_directory(ignored)) found.emplace_back(step, it->path());
  }
  if (problem) fail(ErrorKind::file, "{}: cannot read the folder: {}", run.string(), problem.message());
  std::sort(found.begin(), found.end());
  std::vector<fs::path> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

fs::path latest_in(const fs::path& run) {
  const std::vector<fs::path> paths = all_in(run);
  return paths.empty() ? fs::path() : paths.back();
}

fs::path best_in(const fs::path& run, bool skip_damaged) {
  fs::path best;
  double best_score = 0;
  for (const fs::path& path : all_in(run)) {
    double score = 0;
    try {
      score = read_at(path, read_manifest).manifest.score;
    } catch (const Error&) {
      std::error_code ignored;
      if (skip_damaged || !fs::exists(path, ignored)) continue;
      throw;
    }
    if (score == score && (best.empty() || score <= best_score)) {
      best = path;
      best_score = score;
    }
  }
  return best.empty() ? latest_in(run) : best;
}

}  // namespace checkpoints

Checkpoint load_checkpoint(const std::filesystem::path& path, bool latest) {
  return checkpoints::read_from(path, latest, checkpoints::read_all);
}

Manifest load_manifest(const std::filesystem::path& path, bool latest) {
  return checkpoints::read_from(path, latest, checkpoints::read_manifest).manifest;
}

}  // namespace paoding
