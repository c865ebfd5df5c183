// SPDX-License-Identifier: Apache-2.0
#include "gpu/libraries/plan_cache.h"

#include <charconv>
#include <cmath>
#include <system_error>
#include <vector>

#include "base/check.h"
#include "gpu/driver/kernel_cache.h"
#include "io/temporary_file.h"

namespace paoding::gpu {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kHead = "paoding plan 1";
constexpr std::size_t kMostFileBytes = 1 << 14;

std::string hash_text(std::string_view text) {
  const auto hash = hash128(text);
  return fmt::format("{:016x}{:016x}", hash[0], hash[1]);
}

std::string body_text(const std::string& key, const TimedChoice& choice) {
  return fmt::format("{}\nkey {}\nchosen {}\nengine {}\nlibrary_us {}\nown_us {}\n", kHead, key,
                     choice.is_library ? "library" : "own", choice.engine, choice.library_us, choice.own_us);
}

// The rest of the line that begins with `name`.
std::string_view taken(std::string_view* text, std::string_view name) {
  const std::size_t end = text->find('\n');
  if (end == std::string_view::npos) fail(ErrorKind::file, "it ends before the line of {}", name);
  const std::string_view line = text->substr(0, end);
  if (!line.starts_with(name) || line.size() <= name.size() || line[name.size()] != ' ') {
    fail(ErrorKind::file, "it has no line of {} where one belongs", name);
  }
  text->remove_prefix(end + 1);
  return line.substr(name.size() + 1);
}

double time_of(std::string_view text, std::string_view name) {
  double us = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), us);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(us) || us < 0) {
    fail(ErrorKind::file, "its {} is no time", name);
  }
  return us;
}

}  // namespace

std::string entry_text(const std::string& key, const TimedChoice& choice) {
  PD_ASSERT(key.find('\n') == std::string::npos && choice.engine.find('\n') == std::string::npos, "one line each");
  const std::string body = body_text(key, choice);
  return fmt::format("{}seal {}\n", body, hash_text(body));
}

TimedChoice parse_entry(std::string_view text, const std::string& key) {
  constexpr std::string_view kSeal = "seal ";
  const std::string_view whole = text;
  if (!text.starts_with(kHead) || text.substr(kHead.size(), 1) != "\n") {
    fail(ErrorKind::file, "it does not begin with '{}'", kHead);
  }
  text.remove_prefix(kHead.size() + 1);
  const std::string_view its_key = taken(&text, "key");
  TimedChoice choice;
  const std::string_view chosen = taken(&text, "chosen");
  choice.engine = taken(&text, "engine");
  choice.library_us = time_of(taken(&text, "library_us"), "library_us");
  choice.own_us = time_of(taken(&text, "own_us"), "own_us");
  const std::string_view body = whole.substr(0, whole.size() - text.size());
  if (text != fmt::format("{}{}\n", kSeal, hash_text(body))) fail(ErrorKind::file, "its seal is of something else");
  if (its_key != key) fail(ErrorKind::file, "it is of another call");
  if (chosen != "library" && chosen != "own") fail(ErrorKind::file, "it chooses neither");
  choice.is_library = chosen == "library";
  if (choice.is_library && choice.engine.empty()) fail(ErrorKind::file, "it names no engine");
  return choice;
}

PlanCache& PlanCache::shared() {
  static auto* cache = new PlanCache(KernelCache::folder_from_environment());
  return *cache;
}

fs::path PlanCache::file_of(const std::string& key) const { return folder_ / (hash_text(key) + ".plan"); }

PlanCache::Known PlanCache::read(const std::string& key) const {
  if (folder_.empty()) return {};
  const fs::path path = file_of(key);
  std::error_code error;
  if (!fs::exists(path, error)) return {};
  Known known;
  try {
    const files::InputFile file(path);
    if (file.size_bytes() > kMostFileBytes) fail(ErrorKind::file, "it has {} bytes", file.size_bytes());
    std::string text(static_cast<std::size_t>(file.size_bytes()), '\0');
    file.read_at(0, text.data(), text.size());
    known.choice = parse_entry(text, key);
  } catch (const Error& problem) {
    if (problem.kind() != ErrorKind::file) throw;  // called off
    known.ignored = fmt::format("{} is ignored: {}", path.string(), problem.what());
  }
  return known;
}

std::optional<TimedChoice> PlanCache::find(const std::string& key, std::string* ignored) {
  const std::lock_guard lock(mutex_);
  auto it = known_.find(key);
  if (it == known_.end()) it = known_.emplace(key, read(key)).first;
  if (ignored != nullptr) *ignored = it->second.ignored;
  return it->second.choice;
}

void PlanCache::keep(const std::string& key, const TimedChoice& choice) {
  const std::string text = entry_text(key, choice);
  const std::lock_guard lock(mutex_);
  known_[key] = {choice, ""};
  if (folder_.empty() || text.size() > kMostFileBytes) return;
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) return;
  try {
    const fs::path path = file_of(key);
    files::TemporaryFile made(folder_, path.string());
    files::OutputFile file(made.writer(), path.string());
    file.write(text.data(), text.size());
    made.move_to(path);
  } catch (const Error&) {  // then it is kept in memory alone
  }
}

}  // namespace paoding::gpu
