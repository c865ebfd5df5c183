// SPDX-License-Identifier: Apache-2.0
// The knowledge that CTAs which wait for each other have of each other's stores: a CTA may read a store of another
// plainly only where a release after the store was seen by an acquire in front of the load. Where it was not shows in
// any schedule, whatever the values. Within a warp all is taken to be in order, and threads of a CTA are the schedules'
// matter.
#pragma once

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "fibers.h"
#include "tensor_map_words.h"

namespace emulation {

/// Stores that a warp may count on.
class Known {
 public:
  void join(const Known& other) {
    join(&synchronized_, other.synchronized_);
    join(&releases_, other.releases_);
  }
  /// Adds a CTA's stores before it met so often, or a warp's stores before its so manyeth release.
  void add_cta(int cta, std::uint64_t met) { raise(&synchronized_, cta, met); }
  void add_warp(int warp, std::uint64_t releases) { raise(&releases_, warp, releases); }
  bool has(int cta, std::uint64_t met, int warp, std::uint64_t releases) const {
    return met < at(synchronized_, cta) || releases < at(releases_, warp);
  }

 private:
  using Counts = std::vector<std::uint64_t>;
  static std::uint64_t at(const Counts& counts, int i) {
    return static_cast<std::size_t>(i) < counts.size() ? counts[static_cast<std::size_t>(i)] : 0;
  }
  static void raise(Counts* counts, int i, std::uint64_t to) {
    if (counts->size() <= static_cast<std::size_t>(i)) counts->resize(static_cast<std::size_t>(i) + 1);
    std::uint64_t& count = (*counts)[static_cast<std::size_t>(i)];
    count = std::max(count, to);
  }
  static void join(Counts* counts, const Counts& others) {
    for (std::size_t i = 0; i < others.size(); ++i) {
      if (others[i] != 0) raise(counts, static_cast<int>(i), others[i]);
    }
  }

  Counts synchronized_, releases_;
};

class MemoryOrder {
 public:
  /// Only where plain accesses are told: see plain_accesses.h.
  void begin(bool is_looked_at) {
    *this = MemoryOrder();
    is_on_ = is_looked_at;
  }
  /// Whether something was wrong.
  bool ends() {
    is_on_ = false;
    return is_wrong_;
  }

  void releases(const void* at) {
    if (is_on_) told_[at].join(released());
  }
  void acquires(const void* at) {
    if (is_on_) learns(told_[at]);
  }
  /// A load that acquires nothing before there is a fence, a store that releases only the stores before the last one.
  void looks(const void* at) {
    if (!is_on_) return;
    if (const auto found = told_.find(at); found != told_.end()) mine(&looked_).join(found->second);
  }
  void stores_behind_fence(const void* at) {
    if (is_on_) told_[at].join(mine(&fenced_));
  }
  void fence() {
    if (!is_on_) return;
    learns(mine(&looked_));
    mine(&fenced_) = released();
  }

  /// This thread reads so many bytes of memory that is common to all.
  void reads(const void* at, std::size_t bytes) {
    for (std::size_t i = 0; is_on_ && i < (bytes + 1) / 2; ++i) {
      if (const auto found = stores_.find(unit_of(at) + i); found != stores_.end()) look_at(found->second);
    }
  }
  void writes(const void* at, std::size_t bytes) {
    for (std::size_t i = 0; is_on_ && i < (bytes + 1) / 2; ++i) stores_[unit_of(at) + i] = own();
  }

 private:
  struct Store {
    int cta, warp;
    std::uint64_t met, releases;
  };
  // The lesson of a warp of a CTA that had synchronized so often: all know it when they synchronize next.
  struct Lesson {
    std::uint64_t met;
    Known known;
  };

  static int warp() { return this_thread() / kWarp; }
  static std::uintptr_t unit_of(const void* at) { return reinterpret_cast<std::uintptr_t>(at) / 2; }
  template <class T>
  static T& mine(std::vector<T>* all, int i = warp()) {
    if (all->size() <= static_cast<std::size_t>(i)) all->resize(static_cast<std::size_t>(i) + 1);
    return (*all)[static_cast<std::size_t>(i)];
  }
  Store own() { return {this_cta().number, warp(), this_cta().met, mine(&releases_)}; }
  const Known& known_by_cta() {
    std::vector<Lesson>& lessons = mine(&lessons_, this_cta().number);
    Known& known = mine(&by_ctas_, this_cta().number);
    std::erase_if(lessons, [&](const Lesson& lesson) {
      const bool has_been_told = lesson.met < this_cta().met;
      if (has_been_told) known.join(lesson.known);
      return has_been_told;
    });
    return known;
  }
  const Known& released() {
    Known& known = mine(&by_warps_);
    known.join(known_by_cta());
    known.add_cta(this_cta().number, this_cta().met);
    known.add_warp(warp(), ++mine(&releases_));
    return known;
  }
  void learns(const Known& others) {
    mine(&by_warps_).join(others);
    mine(&lessons_, this_cta().number).push_back({this_cta().met, others});
  }
  void look_at(const Store& store) {
    if (store.cta == this_cta().number) return;
    const auto is_in = [&](const Known& known) { return known.has(store.cta, store.met, store.warp, store.releases); };
    is_wrong_ |= !is_in(mine(&by_warps_)) && !is_in(known_by_cta());
  }

  bool is_on_ = false, is_wrong_ = false;
  std::unordered_map<std::uintptr_t, Store> stores_;  // the last of every two bytes
  std::unordered_map<const void*, Known> told_;       // by words that are read and written atomically
  std::vector<std::uint64_t> releases_;               // of warps
  std::vector<Known> by_warps_, by_ctas_, looked_, fenced_;
  std::vector<std::vector<Lesson>> lessons_;  // of CTAs
};
inline MemoryOrder& memory_order = *new MemoryOrder;

}  // namespace emulation
