// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/peer_rows.h"

#include <simdjson.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "cli/bench/table.h"
#include "cli/command.h"
#include "io/json_text.h"
#include "paoding/error.h"

namespace paoding::cli::bench {
namespace {

// A file that is gone when this is.
class RequestFile {
 public:
  explicit RequestFile(const std::string& text) {
    path_ = (std::filesystem::temp_directory_path() / "paoding_requests_XXXXXX").string();
    const int file = mkstemp(path_.data());
    if (file < 0) throw UsageError(fmt::format("--peer: no file can be made in {}", path_));
    const bool is_whole = write(file, text.data(), text.size()) == static_cast<ssize_t>(text.size());
    close(file);
    if (!is_whole) throw UsageError(fmt::format("--peer: {} cannot be written", path_));
  }
  RequestFile(const RequestFile&) = delete;
  RequestFile& operator=(const RequestFile&) = delete;
  ~RequestFile() { std::filesystem::remove(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::string request_of(const Case& work, bool is_quick) {
  JsonObject state, request;
  state.add("cache", "hot").add("clock", "wall").add("sets", 1).add("small", true).add("swept", false);
  request.add_json("case", case_json(work)).add_json("states", json_array({state.text()}));
  return request.add("quick", is_quick).add("eager", true).text() + "\n";
}

// Without a name where the line is no row.
PeerRow row_of(simdjson::dom::parser& parser, const std::string& line) {
  PeerRow row;
  simdjson::dom::element read;
  if (parser.parse(line).get(read) != simdjson::SUCCESS || !read.is_object()) return row;
  const auto text = [&](const char* key, std::string* to) {
    std::string_view found;
    if (read[key].get(found) == simdjson::SUCCESS) *to = std::string(found);
  };
  text("peer", &row.name), text("why", &row.why);
  if (row.name.empty()) return row;
  const bool has_time = read["us"].get(row.us) == simdjson::SUCCESS;
  if (has_time && read["us_min"].get(row.us_min) != simdjson::SUCCESS) row.us_min = row.us;
  if (has_time && read["us_max"].get(row.us_max) != simdjson::SUCCESS) row.us_max = row.us;
  if (!has_time && row.why.empty()) row.why = "no time";
  return row;
}

}  // namespace

std::vector<std::vector<PeerRow>> peer_rows(const std::vector<std::string>& commands, const Cases& works,
                                            bool is_quick) {
  std::vector<std::vector<PeerRow>> rows(works.size());
  std::string requests;
  for (const Case& work : works) requests += request_of(work, is_quick);
  const RequestFile file(requests);
  simdjson::dom::parser parser;
  for (const std::string& command : commands) {
    show_progress(command);
    flush_output();
    std::FILE* answers = popen(fmt::format("{} < {}", command, shell_word(file.path())).c_str(), "r");
    if (answers == nullptr) throw UsageError(fmt::format("--peer: '{}' cannot be started", command));
    std::size_t at = 0;  // an empty line ends the rows of a request
    char* line = nullptr;
    std::size_t room = 0;
    while (getline(&line, &room, answers) > 0) {
      std::string text = line;
      if (!text.empty() && text.back() == '\n') text.pop_back();
      if (text.empty()) ++at;
      if (!text.starts_with('{') || at >= works.size()) continue;
      PeerRow row = row_of(parser, text);
      if (!row.name.empty()) rows[at].push_back(std::move(row));
    }
    std::free(line);
    const int status = pclose(answers);
    for (; at < works.size(); ++at) {
      const std::string end =
          WIFEXITED(status) ? fmt::format("ended with exit code {}", WEXITSTATUS(status)) : "was ended by a signal";
      rows[at].push_back({.name = command, .why = end});
    }
    show_progress("");
    check_interrupted();
  }
  return rows;
}

}  // namespace paoding::cli::bench
