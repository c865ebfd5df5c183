// SPDX-License-Identifier: Apache-2.0
#include "diff_files.h"

#include <simdjson.h>

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/one_line.h"
#include "command.h"
#include "io/files.h"
#include "trace/ranks.h"
#include "trace/reader.h"

namespace paoding::cli {

namespace fs = std::filesystem;

namespace {

constexpr std::uint64_t kMostBytes = std::uint64_t{1} << 28;  // of rows
constexpr double kNsOfUs = 1000;

// As report_json() of bench begins.
bool is_bench_file(const fs::path& path) {
  constexpr std::string_view kBegin = R"({"paoding":)";
  const files::InputFile file(path);
  std::string head(static_cast<std::size_t>(std::min<std::uint64_t>(file.size_bytes(), 64)), '\0');
  file.read_at(0, head.data(), head.size());
  std::erase_if(head, [](char c) { return c == ' ' || c == '\n' || c == '\r' || c == '\t'; });
  return head.starts_with(kBegin);
}

bool has_ranks(const profile::Trace& trace) {
  return std::ranges::any_of(trace.processes(), [](const profile::Process& p) { return p.rank >= 0; });
}

std::vector<fs::path> files_in(const fs::path& folder) {
  std::vector<fs::path> found;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (entry.is_regular_file() && !entry.path().filename().string().starts_with('.')) found.push_back(entry.path());
  }
  std::ranges::sort(found);
  if (found.empty()) fail(ErrorKind::file, "{}: the folder has no file", folder.string());
  return found;
}

// A folder of recordings: one process each, unless they are ranks of one training.
void add_recordings(SideFiles& side, const fs::path& from, const std::vector<fs::path>& files) {
  std::vector<profile::NamedTrace> ranks;
  for (const fs::path& file : files) {
    check_interrupted();
    profile::Trace trace = trace::read_trace(file);
    if (files.size() > 1 && has_ranks(trace)) {
      ranks.push_back({file.string(), std::move(trace)});
    } else {
      side.steps.push_back(profile::steps_of_process(trace, file.string()));
    }
  }
  if (ranks.empty()) return;
  side.steps.push_back(profile::steps_of_process(trace::merge_traces(std::move(ranks)), from.string()));
}

std::set<std::string> names_of(const std::vector<BenchRows>& benches) {
  std::set<std::string> common;
  for (const BenchRows& one : benches) {
    std::set<std::string> own;
    for (const auto& [name, us] : one.rows) own.insert(name);
    if (&one == &benches.front()) common = own;
    std::erase_if(common, [&](const std::string& name) { return !own.contains(name); });
  }
  return common;
}

// The order in which all processes ran; empty where files do not say it.
std::vector<profile::Measured> order_of(const std::vector<BenchRows>& a, const std::vector<BenchRows>& b,
                                        const profile::MeasuredRow& row) {
  std::map<std::int64_t, profile::Measured> by_turn;
  for (std::size_t i = 0; i < a.size(); ++i) by_turn[a[i].turn] = {false, row.a[i]};
  for (std::size_t i = 0; i < b.size(); ++i) by_turn[b[i].turn] = {true, row.b[i]};
  std::vector<profile::Measured> in_order;
  if (by_turn.size() < a.size() + b.size() || by_turn.begin()->first < 0) return in_order;
  for (const auto& [turn, measured] : by_turn) in_order.push_back(measured);
  return in_order;
}

double time_of(const BenchRows& bench, const std::string& name) {
  return std::ranges::find(bench.rows, name, [](const auto& row) { return row.first; })->second;
}

}  // namespace

BenchRows read_bench_rows(const fs::path& path) {
  const files::InputFile file(path);
  if (file.size_bytes() > kMostBytes) fail(ErrorKind::file, "{}: too large for rows of a benchmark", path.string());
  simdjson::padded_string text(static_cast<std::size_t>(file.size_bytes()));
  file.read_at(0, text.data(), text.size());
  simdjson::dom::parser parser;
  simdjson::dom::array rows;
  simdjson::dom::element all;
  if (parser.parse(text).get(all) != simdjson::SUCCESS || all["rows"].get(rows) != simdjson::SUCCESS) {
    fail(ErrorKind::file, "{}: not what `paoding bench --json` writes: it has no rows", path.string());
  }
  const auto word = [](simdjson::dom::element of, const char* key) {
    std::string_view value;
    return of[key].get(value) == simdjson::SUCCESS ? std::string(value) : std::string();
  };
  BenchRows bench;
  bench.machine = word(all, "machine");
  if (const std::string device = word(all, "device"); !device.empty()) bench.machine += ", " + device;
  if (all["turn"].get(bench.turn) != simdjson::SUCCESS) bench.turn = -1;
  std::set<std::string> seen;
  for (const simdjson::dom::element row : rows) {
    double us = 0;
    bool is_right = true;
    if (row["us"].get(us) != simdjson::SUCCESS || !(us > 0)) continue;  // it waits for something
    if (row["right"].get(is_right) == simdjson::SUCCESS && !is_right) bench.wrong += 1;
    std::string name = word(row, "case");
    for (const char* key : {"cache", "clock"}) {
      if (const std::string value = word(row, key); !value.empty()) name += " " + value;
    }
    const std::string first = name;
    for (int number = 2; !seen.insert(name).second; ++number) name = fmt::format("{} #{}", first, number);
    bench.rows.emplace_back(name, us * kNsOfUs);
  }
  if (bench.rows.empty()) fail(ErrorKind::file, "{}: no row has a time", path.string());
  return bench;
}

SideFiles read_side(const std::vector<std::string>& paths) {
  SideFiles side;
  for (const std::string& path : paths) {
    side.name += (side.name.empty() ? "" : ", ") + path;
    const bool is_folder = fs::is_directory(path);
    std::vector<fs::path> recordings;
    for (const fs::path& file : is_folder ? files_in(path) : std::vector<fs::path>{path}) {
      if (is_bench_file(file)) {
        side.benches.push_back(read_bench_rows(file));
      } else {
        recordings.push_back(file);
      }
    }
    add_recordings(side, path, is_folder ? trace::without_copies(recordings) : recordings);
  }
  if (!side.steps.empty() && !side.benches.empty()) {
    throw UsageError(fmt::format("{}: recordings and rows of `paoding bench` do not go together", one_line(side.name)));
  }
  return side;
}

std::string first_process(const std::string& path) {
  if (!fs::is_directory(path)) return path;
  const std::vector<fs::path> files = trace::without_copies(files_in(path));
  return files.size() > 1 && has_ranks(trace::read_trace(files[0])) ? path : files[0].string();
}

profile::DiffInput input_of(SideFiles a, SideFiles b) {
  if (a.benches.empty() != b.benches.empty()) {
    const bool is_a = !a.benches.empty();
    throw UsageError(fmt::format("{} has rows of `paoding bench`, {} is a recording: they cannot be compared",
                                 one_line(is_a ? a.name : b.name), one_line(is_a ? b.name : a.name)));
  }
  if (!a.benches.empty()) return input_of_rows(a.benches, b.benches, a.name, b.name);
  profile::DiffSide of_a, of_b;
  of_a.name = std::move(a.name), of_a.steps = std::move(a.steps);
  of_b.name = std::move(b.name), of_b.steps = std::move(b.steps);
  return profile::diff_input(std::move(of_a), std::move(of_b));
}

profile::DiffInput input_of_rows(const std::vector<BenchRows>& a, const std::vector<BenchRows>& b,
                                 const std::string& name_a, const std::string& name_b) {
  profile::DiffInput input;
  const std::set<std::string> in_a = names_of(a), in_b = names_of(b);
  for (const auto& [name, ns] : a.front().rows) {  // in the order of the cases
    if (!in_a.contains(name) || !in_b.contains(name)) continue;
    profile::MeasuredRow row;
    row.name = name;
    for (const BenchRows& bench : a) row.a.push_back(time_of(bench, name));
    for (const BenchRows& bench : b) row.b.push_back(time_of(bench, name));
    row.in_order = order_of(a, b, row);
    input.rows.push_back(std::move(row));
  }
  const std::set<std::string>* sets[] = {&in_a, &in_b};
  for (const bool is_b : {false, true}) {
    const std::vector<BenchRows>& own = is_b ? b : a;
    profile::DiffSide& side = is_b ? input.b : input.a;
    side.name = is_b ? name_b : name_a, side.processes = own.size();
    std::set<std::string> machines, lonely;
    std::size_t wrong = 0;
    for (const BenchRows& bench : own) {
      machines.insert(bench.machine), wrong += bench.wrong;
      for (const auto& [name, ns] : bench.rows) {
        if (!sets[0]->contains(name) || !sets[1]->contains(name)) lonely.insert(name);
      }
    }
    side.machines.assign(machines.begin(), machines.end());
    if (wrong > 0) input.notes.push_back(fmt::format("{} rows of {} have wrong results", wrong, is_b ? 'B' : 'A'));
    if (lonely.empty()) continue;
    std::vector<std::string> names(lonely.begin(), lonely.end());
    const std::size_t count = names.size();
    if (count > 5) names.resize(5), names.push_back("..");
    input.notes.push_back(fmt::format("{} rows of {} are not in every process of both sides: {}", count,
                                      is_b ? 'B' : 'A', fmt::join(names, ", ")));
  }
  if (input.rows.empty()) fail(ErrorKind::argument, "diff: A and B have no row in common");
  return input;
}

}  // namespace paoding::cli
