// SPDX-License-Identifier: Apache-2.0
// The spans of a Trace as columns of numbers for the page of a report (page/data.js reads them): blocks of at most
// kSpansPerBlock spans, each of which can be read by itself. A block has, one behind the other and each in front of it
// its length, the columns
//   site       SiteNumbers::number
//   start      from the start of the window, in quanta; against the end of the span in front of it at its depth, or
//              against the start of the span in front of it where that is less deep; against 0 where a block or a
//              track begins
//   duration   in quanta
//   depth      how many spans are around it, by their parents
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profile/trace.h"

namespace paoding::profile {

/// Spans of a page name their site by a number that is the smaller, the more spans have it. Sites of no span have none.
struct SiteNumbers {
  explicit SiteNumbers(const Trace& trace);
  std::vector<std::uint32_t> number;  // per site
  std::vector<SiteId> site;           // per number
};

/// How many spans are around each, by their parents on its track.
struct Depths {
  explicit Depths(const Trace& trace);
  static constexpr std::uint32_t kMost = 65'000;
  std::vector<std::uint16_t> depth;
  /// Spans whose parent is not the last one in front of them that is one less deep: each, and its parent + 1 (0: none).
  std::vector<std::pair<SpanId, SpanId>> others;
};

inline constexpr std::size_t kSpansPerBlock = 1 << 16;

/// Times are multiples of so many ns: 1 unless the page would be too large.
class SpanColumns {
 public:
  explicit SpanColumns(const Trace& trace);
  std::int64_t quantum_ns() const { return quantum_ns_; }
  std::int64_t quanta(std::int64_t ns) const;  // of a moment of the trace, from the start of its window
  const SiteNumbers& sites() const { return sites_; }
  /// Every block, packed, as base64.
  std::vector<std::string> blocks() const;
  /// The others of Depths.
  std::string other_parents() const;

 private:
  std::string block(std::size_t first) const;

  const Trace& trace_;
  const SiteNumbers sites_;
  const Depths depths_;
  std::int64_t quantum_ns_ = 1;
};

/// Spans that a span on another track caused: the distance of each from the one before, and of its cause from the cause
/// before.
std::string cause_column(const Trace& trace);
/// Trace::flows(), both ends as distances from those before.
std::string flow_column(const Trace& trace);
/// The samples of a counter, from one to another: their times in quanta and their values, as distances.
std::string sample_column(const Trace& trace, const SpanColumns& spans, std::size_t begin, std::size_t end);
/// The spans that have an argument, as distances, and its values: integers as distances, reals as 8 bytes, texts by
/// number in `texts`, which grows.
std::string argument_column(const ArgumentColumn& column, const Trace& trace, std::vector<std::string>* texts);

}  // namespace paoding::profile
