// SPDX-License-Identifier: Apache-2.0
#include "profile/save.h"

#include <stdlib.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>

#include "base/check.h"
#include "io/files.h"
#include "profile/page.h"
#include "profile/recording.h"
#include "profile/timeline.h"

namespace paoding::profile {

namespace {

namespace fs = std::filesystem;

bool is_recording(std::string_view path) { return path.ends_with(".paoding"); }

void write(const Trace& trace, const Measures& measures, const ReportOptions& options, const std::string& path) {
  if (is_page(path)) return write_page(trace, measures, options, path);
  is_recording(path) ? write_recording(trace, path) : write_timeline(trace, path);
}

std::string new_temporary_folder() {
  const char* all = std::getenv("TMPDIR");
  std::string name = (fs::path(all == nullptr || *all == '\0' ? "/tmp" : all) / "paoding_profile_XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) {
    fail(ErrorKind::file, "{}: cannot make the folder: {}", name, files::reason(errno));
  }
  return name;
}

}  // namespace

bool is_saved_as(std::string_view path) { return is_recording(path) || is_timeline(path) || is_page(path); }

void check_saveable(const std::string& path) {
  if (path.empty()) return;
  files::check_replaceable(path, is_page(path)        ? begins_page
                                 : is_recording(path) ? begins_recording
                                                      : timeline_beginning(path));
}

std::string save(const Trace& trace, const Measures& measures, const ReportOptions& options, const std::string& path) {
  if (path.empty()) return "";
  std::string why;
  try {
    write(trace, measures, options, path);
    return "";
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::file) throw;
    why = error.what();
  }
  try {
    const std::string there = (fs::path(new_temporary_folder()) / fs::path(path).filename()).string();
    write(trace, measures, options, there);
    return fmt::format("{}; it is in {}", why, there);
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::file) throw;
    fail(ErrorKind::file, "{}; nor there: {}", why, error.what());
  }
}

}  // namespace paoding::profile
