// SPDX-License-Identifier: Apache-2.0
#include "trace/ranks.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <map>
#include <optional>

#include "base/check.h"
#include "profile/step_times.h"
#include "trace/reader.h"

namespace paoding::trace {
namespace {

namespace fs = std::filesystem;
using namespace profile;

struct Collective {
  std::string_view name;
  std::int64_t start, end;
};

bool is_collective(std::string_view name) {
  constexpr std::array<std::string_view, 4> kBeginnings = {"ncclDevKernel_", "ncclKernel_", "rcclKernel_",
                                                           "ncclDevFunc_"};
  // Not every rank has one of these each time.
  const bool is_of_two = name.find("SendRecv") != name.npos;
  return !is_of_two && std::ranges::any_of(kBeginnings, [&](std::string_view b) { return name.starts_with(b); });
}

std::vector<Collective> collectives_of(const Trace& trace) {
  std::vector<Collective> all;
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (!trace.on_gpu(i) || trace.kind(i) != SpanKind::kernel || !is_collective(trace.name(i))) continue;
    all.push_back({trace.name(i), trace.start(i), trace.end(i)});
  }
  std::ranges::stable_sort(all, {}, &Collective::start);
  return all;
}

// A rank arrives late and the others wait, but they leave together: by the middle of how far their ends are apart. None
// where the ranks did not run the same.
std::optional<Alignment> by_collectives(const std::vector<NamedTrace>& traces) {
  constexpr std::size_t kLeast = 3;
  const std::vector<Collective> first = collectives_of(traces[0].trace);
  if (first.size() < kLeast) return {};
  Alignment made{.by = Alignment::By::collectives, .later_ns = {0}, .collectives = first.size()};
  for (std::size_t i = 1; i < traces.size(); ++i) {
    const std::vector<Collective> own = collectives_of(traces[i].trace);
    if (!std::ranges::equal(own, first, {}, &Collective::name, &Collective::name)) return {};
    std::vector<std::int64_t> ahead, apart;
    for (std::size_t c = 0; c < own.size(); ++c) ahead.push_back(first[c].end - own[c].end);
    made.later_ns.push_back(profile::median(ahead));
    for (const std::int64_t ns : ahead) apart.push_back(std::abs(ns - made.later_ns.back()));
    made.apart_ns = std::max(made.apart_ns, profile::median(apart));
  }
  return made;
}

// What the wall clock is ahead of a trace's times: as it says itself, or nothing where they are since 1970 (between
// 2001 and 2040 then).
std::optional<std::int64_t> wall_ahead(const Trace& trace) {
  constexpr std::int64_t kFrom = 1'000'000'000'000'000'000, kTo = 2'200'000'000'000'000'000;
  if (!trace.anchors().empty()) {
    const ClockAnchor& anchor = trace.anchors().front();
    std::int64_t ahead = 0;
    if (anchor.wall_ns < kFrom || anchor.wall_ns > kTo || __builtin_sub_overflow(anchor.wall_ns, anchor.ns, &ahead)) {
      return {};
    }
    return ahead;
  }
  const bool is_wall = trace.window_start() > kFrom && trace.window_start() < kTo;
  return is_wall ? std::optional<std::int64_t>(0) : std::nullopt;
}

// None where a trace has none, or they are more than a day apart: that is not one run.
std::optional<Alignment> by_wall_clock(const std::vector<NamedTrace>& traces) {
  constexpr std::int64_t kDay = 86'400'000'000'000;
  Alignment made{.by = Alignment::By::wall_clock};
  std::int64_t first = 0;
  for (const NamedTrace& one : traces) {
    const std::optional<std::int64_t> ahead = wall_ahead(one.trace);
    std::int64_t start = 0;
    if (!ahead || __builtin_add_overflow(one.trace.window_start(), *ahead, &start)) return {};
    if (made.later_ns.empty()) first = start;
    if (std::abs(start - first) > kDay) return {};
    made.later_ns.push_back(*ahead);
  }
  return made;
}

// ---- files ----

struct File {
  fs::path path;
  const Format* format;
};

bool is_named(const Format* format, std::string_view part) { return format->name.find(part) != format->name.npos; }

// Those that are traces, in the order of their names.
std::vector<File> files_of(const fs::path& folder, std::uint64_t* others) {
  constexpr std::size_t kMostFiles = 4096;
  constexpr int kMostDepth = 4;  // as XLA lays them: plugins/profile/<time>/<host>.xplane.pb
  std::vector<fs::path> paths;
  std::error_code problem;
  for (fs::recursive_directory_iterator at(folder, problem), end; !problem && at != end; at.increment(problem)) {
    if (at.depth() >= kMostDepth) at.disable_recursion_pending();
    std::error_code unknown;
    if (at->is_regular_file(unknown)) paths.push_back(at->path());
    if (paths.size() > kMostFiles) fail(ErrorKind::file, "{}: it has more than {} files", folder.string(), kMostFiles);
  }
  if (problem) fail(ErrorKind::file, "{}: it cannot be listed: {}", folder.string(), problem.message());
  std::ranges::sort(paths);
  std::vector<File> files;
  for (const fs::path& path : paths) {
    try {
      files.push_back({path, &format_of(TraceFile(path))});
    } catch (const Error&) {
      *others += 1;
    }
  }
  if (files.empty()) fail(ErrorKind::file, "{}: none of its {} files is a trace", folder.string(), *others);
  return files;
}

// Copies in JSON that XLA made of a profile beside them: how many there were.
std::uint64_t leave_copies_out(std::vector<File>* files) {
  const auto is_profile = [](const File& file) { return is_named(file.format, "XPlane"); };
  if (std::ranges::none_of(*files, is_profile)) return 0;
  return std::erase_if(*files, [](const File& file) { return is_named(file.format, "JSON trace"); });
}

// "trace_rank3.json", "rank-3", "rank_3": the number that follows the word.
std::optional<int> rank_in(const std::string& name) {
  for (std::size_t at = name.find("rank"); at != name.npos; at = name.find("rank", at + 1)) {
    std::size_t digit = at + 4;
    while (digit < name.size() && (name[digit] == '-' || name[digit] == '_' || name[digit] == '.')) ++digit;
    int rank = 0;
    const auto [end, problem] = std::from_chars(name.data() + digit, name.data() + name.size(), rank);
    if (problem == std::errc{} && rank >= 0) return rank;
  }
  return {};
}

bool is_ours(const Trace& trace) {
  return std::ranges::all_of(trace.processes(),
                             [](const Process& process) { return process.source == Source::paoding; });
}

// Every process of a trace gets the rank of its file, by which those of different machines are told apart.
void give_ranks(std::vector<NamedTrace>* traces, std::uint64_t* by_order) {
  std::map<int, std::string> taken;
  std::vector<std::optional<int>> ranks;
  for (const NamedTrace& one : *traces) {
    std::optional<int> rank;
    for (const Process& process : one.trace.processes()) {
      if (process.rank >= 0) rank = process.rank;
    }
    if (!rank) rank = rank_in(fs::path(one.name).filename().string());
    ranks.push_back(rank);
    if (!rank) continue;
    const auto [found, is_new] = taken.try_emplace(*rank, one.name);
    if (!is_new) {
      fail(ErrorKind::argument, "{} and {} are both of rank {}: only traces of different ranks go together",
           found->second, one.name, *rank);
    }
  }
  int next = 0;
  for (std::size_t i = 0; i < traces->size(); ++i) {
    if (!ranks[i]) {
      while (taken.contains(next)) ++next;
      ranks[i] = next;
      taken[next] = (*traces)[i].name;
      *by_order += 1;
    }
    (*traces)[i].trace.set_rank(*ranks[i]);
  }
}

void say_alignment(const Alignment& alignment, Trace* all) {
  switch (alignment.by) {
    case Alignment::By::collectives:
      all->add_note(fmt::format("collectives on whose ends the clocks of the ranks are set beside each other; half of "
                                "them end within {} ns of each other then",
                                alignment.apart_ns),
                    alignment.collectives);
      break;
    case Alignment::By::wall_clock:
      all->add_note("ranks whose times are set beside each other by their wall clocks", alignment.later_ns.size());
      break;
    case Alignment::By::nothing:
      all->add_note("ranks whose clocks nothing sets beside each other: each begins at its own first event",
                    alignment.later_ns.size());
      break;
  }
}

}  // namespace

Alignment align(const std::vector<NamedTrace>& traces) {
  if (std::optional<Alignment> found = by_collectives(traces)) return *found;
  if (std::optional<Alignment> found = by_wall_clock(traces)) return *found;
  Alignment made;
  for (const NamedTrace& one : traces) made.later_ns.push_back(-one.trace.window_start());
  return made;
}

Trace merge_traces(std::vector<NamedTrace> traces) {
  const bool are_ours = std::ranges::all_of(traces, [](const NamedTrace& one) { return is_ours(one.trace); });
  if (are_ours || traces.size() == 1) return merge(std::move(traces));
  std::uint64_t by_order = 0;
  give_ranks(&traces, &by_order);
  std::ranges::sort(traces, {}, [](const NamedTrace& one) {
    return one.trace.processes().empty() ? -1 : one.trace.processes().front().rank;
  });
  const Alignment alignment = align(traces);
  Trace all = merge_ranks(std::move(traces), alignment.later_ns);
  say_alignment(alignment, &all);
  if (by_order > 0) all.add_note("files that do not say their rank, numbered in the order of their names", by_order);
  return all;
}

std::vector<fs::path> without_copies(const std::vector<fs::path>& paths) {
  std::vector<File> files;
  for (const fs::path& path : paths) files.push_back({path, &format_of(TraceFile(path))});
  leave_copies_out(&files);
  std::vector<fs::path> kept;
  for (File& file : files) kept.push_back(std::move(file.path));
  return kept;
}

Trace read_traces(const std::vector<std::string>& paths) {
  std::vector<File> files;
  std::uint64_t others = 0, copies = 0;
  for (const std::string& path : paths) {
    std::error_code unknown;
    if (!fs::is_directory(path, unknown)) {
      files.push_back({path, nullptr});
      continue;
    }
    std::vector<File> found = files_of(path, &others);
    copies += leave_copies_out(&found);
    files.insert(files.end(), found.begin(), found.end());
  }
  std::vector<NamedTrace> traces;
  for (const File& file : files) traces.push_back({file.path.string(), read_trace(file.path)});
  Trace all = merge_traces(std::move(traces));
  if (others > 0) all.add_note("files of the folder that are no trace", others);
  if (copies > 0) all.add_note("JSON files that XLA made of a profile beside them, left out", copies);
  return all;
}

}  // namespace paoding::trace
