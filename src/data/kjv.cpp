// SPDX-License-Identifier: Apache-2.0
// The King James Version out of its SWORD module: mods.d/*.conf says where and of which kind the module is.
#include <map>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/one_line.h"
#include "data/whole_file.h"
#include "data/ztext.h"
#include "paoding/cancellation.h"
#include "paoding/data/corpora.h"

namespace paoding::data {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kVerses = 31'102;

/// The contents of a module's .conf: Key=Value lines below a [Name]; "#" begins a remark. The first value counts for a
/// key that is there more than once.
std::map<std::string, std::string, std::less<>> read_conf(const fs::path& path) {
  const std::string text = read_whole(path, 1 << 20);
  std::map<std::string, std::string, std::less<>> values;
  for (std::string_view rest = text; !rest.empty();) {
    const std::string_view line = take_line(rest);
    const std::size_t equals = line.find('=');
    if (line.starts_with('#') || equals == std::string_view::npos) continue;
    values.emplace(line.substr(0, equals), line.substr(equals + 1));
  }
  return values;
}

/// Where the module's files are. Error (file) when it is of a kind that is not read here.
fs::path module_folder(const fs::path& folder) {
  const fs::path path = folder / "mods.d" / "engKJV2006eb.conf";
  const auto conf = read_conf(path);
  const auto value = [&](std::string_view key, const char* fallback) -> std::string {
    const auto at = conf.find(key);
    return at == conf.end() ? fallback : at->second;
  };
  struct Needed {
    const char *key, *value, *fallback;  // SWORD's defaults
  };
  for (const Needed& needed : {Needed{"ModDrv", "zText", "nothing"}, Needed{"CompressType", "ZIP", "LZSS"},
                               Needed{"SourceType", "OSIS", "Plaintext"}, Needed{"Encoding", "UTF-8", "Latin-1"},
                               Needed{"Versification", "KJV", "KJV"}}) {
    const std::string found = value(needed.key, needed.fallback);
    if (found != needed.value) {
      fail(ErrorKind::file, "{}: {} is {}, only {} is read", path.string(), needed.key, one_line(found), needed.value);
    }
  }
  const fs::path where = value("DataPath", "");
  bool is_inside = !where.empty() && where.is_relative();
  for (const fs::path& part : where) is_inside = is_inside && part != "..";
  if (!is_inside) {
    fail(ErrorKind::file, "{}: DataPath is '{}', must be a folder below {}", path.string(), one_line(where.string()),
         folder.string());
  }
  return (folder / where).lexically_normal();
}

}  // namespace

std::vector<std::string> read_kjv(const fs::path& folder) {
  const fs::path files = module_folder(folder);
  std::vector<std::string> verses;
  for (const char* testament : {"ot", "nt"}) {
    const std::string stem = (files / testament).string();
    const std::string blocks = read_whole(stem + ".bzs"), entries = read_whole(stem + ".bzv");
    const std::string text = read_whole(stem + ".bzz");
    for (const std::string& verse : ztext_verses({blocks, entries, text}, stem)) {
      CancelScope::poll();
      check_utf8(verse, stem);
      verses.push_back(without_markup(verse, fmt::format("{}: verse {}", stem, verses.size() + 1)));
    }
  }
  if (verses.size() != kVerses) {
    fail(ErrorKind::file, "{}: {} verses, the King James Version has {}: get the module again", files.string(),
         verses.size(), kVerses);
  }
  return verses;
}

}  // namespace paoding::data
