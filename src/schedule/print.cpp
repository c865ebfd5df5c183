// SPDX-License-Identifier: Apache-2.0
// A schedule as text. Turns of a loop repeat the same entries: they are printed once, with how often they come again.
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <tuple>

#include "base/one_line.h"
#include "schedule/schedule.h"

namespace paoding {
namespace {

using Kind = LaunchEntry::Kind;

class Printer {
 public:
  explicit Printer(const Schedule& schedule) : s_(schedule) {
    for (const LaunchEntry& entry : s_.entries) {
      const Step* const step = s_.launches[entry.launch].step;
      const std::size_t kernel = entry.kind == Kind::fused ? s_.fused[static_cast<std::size_t>(entry.fused)].kernel : 0;
      keys_.emplace_back(entry.kind, step, kernel, depth_of(entry));
    }
  }

  std::string print() {
    text_ = fmt::format("schedule: {} launches in {} entries", s_.launches.size(), s_.entries.size());
    if (!s_.is_captured) {
      text_ += ", one by one\n";
      add_entries(0, s_.entries.size());
    } else {
      text_ += s_.segments.size() == 1 ? ", one graph\n" : fmt::format(", {} segments\n", s_.segments.size());
      for (std::size_t i = 0; i < s_.segments.size(); ++i) add_segment(i);
    }
    add_completion();
    for (const std::string& note : s_.notes) text_ += "launch: " + note + "\n";
    return std::move(text_);
  }

 private:
  using Key = std::tuple<Kind, const Step*, std::size_t, int>;

  int depth_of(const LaunchEntry& entry) const {
    int depth = 0;
    for (int body = entry.body_of; body >= 0; ++depth) body = around_.at(body);
    if (entry.kind == Kind::choice || entry.kind == Kind::host_choice) around_.emplace(entry.choice, entry.body_of);
    return depth;
  }

  void add_segment(std::size_t i) {
    const Segment& segment = s_.segments[i];
    if (s_.segments.size() > 1) {
      const char* const names[] = {"a graph", "on the CPU", "the host chooses"};
      text_ += fmt::format("segment {}: {}{}{}\n", i, names[static_cast<std::size_t>(segment.kind)],
                           segment.prints ? ", then values are printed" : "", next_of(i, segment));
    }
    add_entries(segment.first, segment.end);
  }

  void add_entries(std::size_t begin, std::size_t end) {
    for (std::size_t k = begin; k < end;) {
      const auto [period, times] = repetition(k, begin, end);
      if (times > 0) {
        text_ +=
            fmt::format("       entries {} to {} again, {} time{}\n", k - period, k - 1, times, times == 1 ? "" : "s");
        k += period * times;
      } else {
        last_[keys_[k]] = k;
        text_ += fmt::format("  {:>4} {:>{}}{}\n", k, "", 2 * std::get<int>(keys_[k]), line_of(s_.entries[k]));
        ++k;
      }
    }
  }

  std::string next_of(std::size_t i, const Segment& segment) const {
    const auto name = [&](std::size_t next) {
      return next == s_.segments.size() ? std::string("the end") : fmt::format("{}", next);
    };
    if (segment.kind != Segment::Kind::choice) return segment.next == i + 1 ? "" : "; next " + name(segment.next);
    std::string text = "; next ";
    for (const std::size_t target : segment.targets) text += (text.size() > 7 ? " or " : "") + name(target);
    return text;
  }

  // How often the entries in front of k, from the last one like it on, come again from k on.
  std::pair<std::size_t, std::size_t> repetition(std::size_t k, std::size_t begin, std::size_t end) const {
    const auto found = last_.find(keys_[k]);
    if (found == last_.end() || found->second < begin) return {0, 0};
    const std::size_t period = k - found->second;
    std::size_t times = 0;
    const auto at = [&](std::size_t i) { return keys_.begin() + static_cast<std::ptrdiff_t>(i); };
    while (k + (times + 1) * period <= end && std::equal(at(k - period), at(k), at(k + times * period))) {
      ++times;
    }
    return {period, times};
  }

  std::string line_of(const LaunchEntry& entry) const {
    const Launch& launch = s_.launches[entry.launch];
    const Step& step = *launch.step;
    const std::string waits = entry.waits_for < 0 ? "" : fmt::format(", waits for entry {}", entry.waits_for);
    switch (entry.kind) {
      case Kind::launch:
      case Kind::fused:
      case Kind::print: return launch_line(entry) + waits;
      case Kind::guard: return "commit guard" + waits;
      case Kind::poll: return "cancellation poll";
      case Kind::again: return fmt::format("the choice of step {} again", step.position);
      case Kind::host:
        return fmt::format("from step {} on: {} launches on the CPU", step.position, host_launches(entry));
      case Kind::results:
        return fmt::format("{} results to the host, {} bytes{}", s_.results.results.size(), s_.results.bytes, waits);
      case Kind::choice:
      case Kind::host_choice: break;
    }
    const Choice& choice = s_.choice_of(entry);
    const char* const who = entry.kind == Kind::choice ? "" : "the host: ";
    if (choice.is_loop) return fmt::format("{}step {}: repeats what follows while it holds", who, step.position);
    if (choice.selects.empty()) {
      return fmt::format("{}step {}: one of the {} bodies that follow", who, step.position, choice.bodies.size());
    }
    return fmt::format("step {}: chooses for {} branch{}, whose kernels all start", step.position,
                       choice.selects.size(), choice.selects.size() == 1 ? "" : "es");
  }

  std::size_t host_launches(const LaunchEntry& entry) const {
    const HostRun& run = *s_.host.find(entry.launch);
    return run.end - run.first;
  }

  std::string launch_line(const LaunchEntry& entry) const {
    std::string text;
    bool writes = false, faults = false, polls = false;
    std::vector<int> positions;
    for (const std::size_t i : s_.members(entry)) {
      positions.push_back(s_.launches[i].step->position);
      if (s_.guards.writes.empty()) continue;
      writes |= s_.guards.writes[i] != 0, faults |= s_.guards.may_fault[i] != 0, polls |= s_.guards.asks[i] != 0;
    }
    const Step& first = *s_.launches[entry.launch].step;
    if (entry.kind == Kind::fused) {
      text = fmt::format("steps {} as one launch", fmt::join(positions, ", "));
    } else {
      text = fmt::format("step {} {}", first.position, one_line(first.label.op));
    }
    if (entry.overlaps_before) text += ", PDL";
    if (entry.stream != 0) text += ", in the collectives' stream";
    if (entry.branch >= 0) {
      const Branch& branch = s_.branches[static_cast<std::size_t>(entry.branch)];
      text += fmt::format(", in branch {} of step {}", branch.number, s_.launches[branch.select].step->position);
    }
    if (writes) text += ", writes parameters";
    if (faults) text += ", may fault";
    if (polls) text += ", polls for cancellation";
    return text;
  }

  void add_completion() {
    const Completion& completion = s_.completion;
    if (!completion.can_signal) return;
    text_ += "completion flag, in runs that are waited for";
    if (!completion.moved.empty()) {
      text_ += fmt::format("; its kernel makes the {} cop{} from entry {} on", completion.moved.size(),
                           completion.moved.size() == 1 ? "y" : "ies", completion.moved_from);
    }
    if (!completion.packed.empty()) {
      text_ += fmt::format("; {} result{} to the host, {} bytes", completion.packed.size(),
                           completion.packed.size() == 1 ? "" : "s", completion.packed_bytes - Completion::kCounters);
    }
    text_ += "\n";
  }

  const Schedule& s_;
  mutable std::map<int, int> around_;  // the choice around each choice
  std::vector<Key> keys_;              // per entry: equal where they start the same
  std::map<Key, std::size_t> last_;    // the last entry printed of each
  std::string text_;
};

}  // namespace

std::string to_string(const Schedule& schedule) { return Printer(schedule).print(); }

}  // namespace paoding
