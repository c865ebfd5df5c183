// SPDX-License-Identifier: Apache-2.0
// The segments of a schedule: entries that start without the host in between.
#include <algorithm>

#include "schedule/schedule.h"

namespace paoding {
namespace {

// The entries cut into segments.
class Cut {
 public:
  explicit Cut(const Schedule& schedule) : schedule_(schedule) {}

  std::vector<Segment> take() {
    walk(0, schedule_.entries.size());
    if (segments_.empty()) add(Segment::Kind::graph, 0, 0);  // a program without launches has a graph all the same
    return std::move(segments_);
  }

 private:
  static constexpr std::size_t kBehind = ~std::size_t{0};  // all that a choice consists of

  void walk(std::size_t begin, std::size_t end) {
    std::size_t first = begin;
    const auto cut = [&](std::size_t at) {
      if (first != at) add(Segment::Kind::graph, first, at);
      first = at;
    };
    for (std::size_t k = begin; k < end; ++k) {
      const LaunchEntry& entry = schedule_.entries[k];
      const Launch& launch = schedule_.launches[entry.launch];
      if (launch.is_commit && prints_) cut(k);
      prints_ |= launch.step->kind == Step::Kind::print;
      if (entry.kind != LaunchEntry::Kind::host && entry.kind != LaunchEntry::Kind::host_choice) continue;
      cut(k);
      if (entry.kind == LaunchEntry::Kind::host) {
        add(Segment::Kind::host, k, k + 1);
        first = k + 1;
      } else {
        const Choice& choice = schedule_.choice_of(entry);
        add_choice(k, choice);
        first = choice.end;
        k = first - 1;
      }
    }
    cut(end);
  }

  void add(Segment::Kind kind, std::size_t first, std::size_t end) {
    const bool prints = kind == Segment::Kind::graph && std::exchange(prints_, false);
    segments_.push_back({.kind = kind, .prints = prints, .first = first, .end = end, .next = segments_.size() + 1});
  }

  void add_choice(std::size_t k, const Choice& held) {
    const std::size_t choice = segments_.size(), after_body = held.is_loop ? choice : kBehind;
    add(Segment::Kind::choice, k, k + 1);
    std::vector<std::size_t> targets;
    if (held.is_loop) targets.push_back(kBehind);  // where its condition is false
    for (const auto& [begin, end] : held.bodies) {
      const std::size_t start = segments_.size();
      walk(begin, end);
      targets.push_back(segments_.size() == start ? after_body : start);
      lead(start, segments_.size(), after_body);
    }
    segments_[choice].targets = std::move(targets);
    lead(choice, kBehind, segments_.size());
  }

  // Segments from the first on that lead to one lead to another.
  void lead(std::size_t first, std::size_t from, std::size_t to) {
    for (std::size_t i = first; i < segments_.size(); ++i) {
      if (segments_[i].next == from) segments_[i].next = to;
      std::ranges::replace(segments_[i].targets, from, to);
    }
  }

  const Schedule& schedule_;
  std::vector<Segment> segments_;
  bool prints_ = false;
};

}  // namespace

void cut_segments(Schedule* schedule) { schedule->segments = Cut(*schedule).take(); }

}  // namespace paoding
