// SPDX-License-Identifier: Apache-2.0
// Which cases of long lists run. Kernels are compiled by g++ to be emulated, thousands of them; `make test` takes a
// fifth of the cases, another fifth with each commit, and `make test-all` takes all.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace paoding {

/// PAODING_CASE_SHARE=2/3: the second of three shares. Without it all cases are in the share.
struct CaseShare {
  unsigned number = 1, of = 1;

  static CaseShare asked() {
    const char* const text = std::getenv("PAODING_CASE_SHARE");
    CaseShare share;
    if (text == nullptr || *text == 0) return share;
    char rest = 0;
    const bool is_one = std::sscanf(text, "%u/%u%c", &share.number, &share.of, &rest) == 2 && share.number >= 1 &&
                        share.number <= share.of;
    if (!is_one)
      throw std::invalid_argument("PAODING_CASE_SHARE is \"" + std::string(text) + "\": it must be a share, as 2/3");
    return share;
  }

  /// The name decides, so that neighbours of one kind are in different shares.
  bool has(std::string_view name) const {
    unsigned hash = 2166136261u;  // FNV-1a
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 16777619u;
    return (hash ^ hash >> 15) % of == number - 1;
  }
};

/// Erases the cases that are in another share, less the first where no other is in it: each test runs something.
template <class Case, class NameOf>
void keep_share(std::vector<Case>* cases, NameOf name_of) {
  const CaseShare share = CaseShare::asked();
  std::vector<Case> kept;
  for (Case& each : *cases) {
    if (share.has(name_of(each))) kept.push_back(std::move(each));
  }
  if (kept.empty() && !cases->empty()) kept.push_back(std::move(cases->front()));
  *cases = std::move(kept);
}

}  // namespace paoding
