// SPDX-License-Identifier: Apache-2.0
// Values that stand for others, chains of them included (a to b, b to c). A chain is walked once: who asked is then
// told its end at once. They are kept by the number of the node that is replaced, since every pass asks about every
// input of every node.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "paoding/graph.h"

namespace paoding {

class Replacements {
 public:
  Replacements() = default;
  explicit Replacements(const std::map<Ref, Ref>& given) {
    for (const auto& [from, to] : given) add(from, to);
  }

  void add(Ref from, Ref to) {
    if (from == to) return;
    if (Ref* known = find(from); known != nullptr) {
      *known = to;
      return;
    }
    const auto node = static_cast<std::size_t>(from.node);
    if (node >= last_.size()) last_.resize(node + 1, -1);
    replaced_.push_back({from.output, last_[node], to});
    last_[node] = static_cast<std::int32_t>(replaced_.size()) - 1;
  }

  /// The current replacement of `ref`.
  Ref now(Ref ref) {
    Ref* const first = find(ref);
    if (first == nullptr) return ref;
    Ref end = *first;
    for (const Ref* next = find(end); next != nullptr; next = find(end)) end = *next;
    for (Ref* link = first; link != nullptr && !(*link == end);) {
      Ref* const next = find(*link);
      *link = end;
      link = next;
    }
    return end;
  }

  bool empty() const { return replaced_.empty(); }

 private:
  struct Replaced {
    std::int32_t output;    // of the node
    std::int32_t previous;  // the one before of the same node, -1: none
    Ref to;
  };

  Ref* find(Ref ref) {
    const auto node = static_cast<std::size_t>(ref.node);
    if (ref.node < 0 || node >= last_.size()) return nullptr;
    for (std::int32_t at = last_[node]; at >= 0; at = replaced_[static_cast<std::size_t>(at)].previous) {
      Replaced& each = replaced_[static_cast<std::size_t>(at)];
      if (each.output == ref.output) return &each.to;
    }
    return nullptr;
  }

  std::vector<std::int32_t> last_;  // by node: its last one of replaced_, -1: none
  std::vector<Replaced> replaced_;
};

}  // namespace paoding
