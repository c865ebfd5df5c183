// SPDX-License-Identifier: Apache-2.0
// Traces of the ranks of one program, a file of each: files, or folders of them, become one trace.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "profile/trace.h"
#include "profile/trace_merge.h"

namespace paoding::trace {

/// How the clocks of traces were set beside each other.
struct Alignment {
  enum class By : std::uint8_t {
    collectives,  // on which all ranks end together
    wall_clock,   // that each trace has its times by
    nothing,      // each begins at its own beginning
  };
  By by = By::nothing;
  std::vector<std::int64_t> later_ns = {};  // by which each is moved
  std::size_t collectives = 0;              // that were compared
  std::int64_t apart_ns = 0;                // by collectives: how far ends are still apart, of half of them at most
};

/// By the collectives of all (NCCL's and RCCL's kernels, in their order) where these are the same on every rank; else
/// by the wall clock, where every trace has its times by one.
Alignment align(const std::vector<profile::NamedTrace>& traces);

/// Traces of one program as one: recordings of ours as profile::merge has it. Others' are beside each other by their
/// ranks, which a file says, or its name ("rank3"), or the order of names; a note says how their clocks were set beside
/// each other. Error (argument) when two files are of one rank.
profile::Trace merge_traces(std::vector<profile::NamedTrace> traces);

/// Those that are no copies in JSON that XLA made of a profile among them. Error (file) when one is no trace.
std::vector<std::filesystem::path> without_copies(const std::vector<std::filesystem::path>& paths);

/// The files, and those in folders, as one trace by merge_traces(). Copies that XLA makes of a profile are left out
/// beside it. Error (file) when a folder has no trace.
profile::Trace read_traces(const std::vector<std::string>& paths);

}  // namespace paoding::trace
