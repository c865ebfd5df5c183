// SPDX-License-Identifier: Apache-2.0
// Where the files of the data sets are: in the folder given, as `paoding fetch` leaves them, or where Debian's
// packages put them.
#include <unistd.h>

#include <cerrno>
#include <string>
#include <system_error>
#include <vector>

#include "base/check.h"
#include "io/files.h"
#include "paoding/data/corpora.h"

namespace paoding::data {
namespace {

namespace fs = std::filesystem;

/// A data set: its name to `paoding fetch`, which is that of its folder too, and its error texts when it is nowhere.
struct DataSet {
  const char* name;
  const char* what;     // in errors
  const char* package;  // of Debian; "" when it is in none
};

constexpr DataSet kG2p = {"g2p", "pronouncing dictionary", "pocketsphinx-en-us"};
constexpr DataSet kFashion = {"fashion", "Fashion-MNIST", "dataset-fashion-mnist"};
constexpr DataSet kTranslate = {"translate", "package descriptions", ""};
constexpr DataSet kKjv = {"kjv", "King James Version", "sword-text-kjv"};

/// Not there and not allowed to look are not the same: fetching again helps with one of them alone.
bool exists(const DataSet& set, const fs::path& path) {
  std::error_code problem;
  const bool is_there = fs::exists(path, problem);
  if (problem) fail(ErrorKind::file, "{}: {} cannot be looked for: {}", set.what, path.string(), problem.message());
  return is_there;
}

[[noreturn]] void fail_missing(const DataSet& set, const fs::path& folder, const std::vector<fs::path>& looked_for) {
  std::string places;
  for (const fs::path& path : looked_for) places += (places.empty() ? "" : ", ") + path.string();
  const std::string install = *set.package == '\0' ? "" : fmt::format("; or: apt-get install {}", set.package);
  fail(ErrorKind::file, "{}: not found, looked for {}\nGet it with: paoding fetch {} --data {}{}", set.what, places,
       set.name, folder.string(), install);
}

/// `path`, when this process may read it.
const fs::path& readable(const DataSet& set, const fs::path& path) {
  if (::access(path.c_str(), R_OK) != 0) {
    fail(ErrorKind::file, "{}: {} cannot be read: {}", set.what, path.string(), files::reason(errno));
  }
  return path;
}

/// The first of `places` that has all of `names`: those files there.
std::vector<fs::path> find(const DataSet& set, const fs::path& folder, const std::vector<fs::path>& places,
                           const std::vector<std::string>& names) {
  std::vector<fs::path> looked_for;
  for (const fs::path& place : places) {
    std::vector<fs::path> files;
    for (const std::string& name : names) {
      files.push_back(place / name);
      if (exists(set, files.back())) continue;
      looked_for.push_back(files.back());
      files.clear();
      break;
    }
    if (files.empty()) continue;
    for (const fs::path& file : files) readable(set, file);
    return files;
  }
  fail_missing(set, folder, looked_for);
}

}  // namespace

fs::path find_pronunciations(const fs::path& folder) {
  // The package of Festival's dictionary is far smaller, so a machine may have that one.
  const std::vector<fs::path> places = {
      folder / kG2p.name / "cmudict-en-us.dict", "/usr/share/pocketsphinx/model/en-us/cmudict-en-us.dict",
      folder / kG2p.name / "cmudict-0.4.out", "/usr/share/festival/dicts/cmu/cmudict-0.4.out"};
  for (const fs::path& place : places) {
    if (exists(kG2p, place)) return readable(kG2p, place);
  }
  fail_missing(kG2p, folder, places);
}

ImageFiles find_fashion(const fs::path& folder) {
  const std::vector<fs::path> files =
      find(kFashion, folder, {folder / kFashion.name, "/usr/share/datasets/fashion-mnist"},
           {"train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz", "t10k-images-idx3-ubyte.gz",
            "t10k-labels-idx1-ubyte.gz"});
  return {files[0], files[1], files[2], files[3]};
}

TranslationFiles find_translations(const fs::path& folder, std::string_view source, std::string_view target) {
  for (const std::string_view language : {source, target}) {
    if (language.empty() || language.find('/') != std::string_view::npos) {
      fail(ErrorKind::argument, "find_translations: language '{}' must be like en, it or pt_BR", language);
    }
  }
  const std::vector<fs::path> files =
      find(kTranslate, folder, {folder / kTranslate.name},
           {fmt::format("Translation-{}", source), fmt::format("Translation-{}", target)});
  return {files[0], files[1]};
}

fs::path find_kjv(const fs::path& folder) {
  const std::vector<fs::path> places = {folder / kKjv.name, "/usr/share/sword"};
  std::vector<fs::path> looked_for;
  for (const fs::path& place : places) {
    looked_for.push_back(place / "mods.d" / "engKJV2006eb.conf");
    if (!exists(kKjv, looked_for.back())) continue;
    readable(kKjv, looked_for.back());
    return place;
  }
  fail_missing(kKjv, folder, looked_for);
}

}  // namespace paoding::data
