// SPDX-License-Identifier: Apache-2.0
// Times of other programs for a case: commands that answer requests as benchmarks/peers/protocol.py describes them.
#pragma once

#include "cli/bench/case.h"

namespace paoding::cli::bench {

/// A time of a peer, or why there is none.
struct PeerRow {
  std::string name, why;
  double us = 0, us_min = 0, us_max = 0;
};

/// For each of `works` the answers of all commands: wall time with warm caches. A command that does not start, or
/// gives another kind of answer, has rows that say so.
std::vector<std::vector<PeerRow>> peer_rows(const std::vector<std::string>& commands, const Cases& works,
                                            bool is_quick);

}  // namespace paoding::cli::bench
