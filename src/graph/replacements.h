// SPDX-License-Identifier: Apache-2.0
// Values that stand for others, chains of them included (a to b, b to c). A chain is walked once: who asked is then
// told its end at once.
#pragma once

#include <map>
#include <vector>

#include "paoding/graph.h"

namespace paoding {

class Replacements {
 public:
  Replacements() = default;
  explicit Replacements(const std::map<Ref, Ref>& given) : to_(given) {}

  void add(Ref from, Ref to) {
    if (!(from == to)) to_[from] = to;
  }

  /// The current replacement of `ref`.
  Ref now(Ref ref) {
    std::vector<Ref*> chain;
    for (auto it = to_.find(ref); it != to_.end(); it = to_.find(ref)) {
      chain.push_back(&it->second);
      ref = it->second;
    }
    for (Ref* link : chain) *link = ref;
    return ref;
  }

  bool empty() const { return to_.empty(); }
  const std::map<Ref, Ref>& all() const { return to_; }

 private:
  std::map<Ref, Ref> to_;
};

}  // namespace paoding
