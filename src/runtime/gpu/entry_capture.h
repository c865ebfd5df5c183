// SPDX-License-Identifier: Apache-2.0
// Enqueues entries of a schedule into a stream that is captured, conditional nodes and their bodies among them. The
// capture is a program's, or one that a caller has begun in a stream of its own.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "gpu/driver/driver.h"
#include "schedule/schedule.h"

namespace paoding {

class EntryCapture {
 public:
  /// Enqueues an entry of the schedule; `node` is the conditional node that a choice is for, else 0.
  using Start = std::function<void(std::size_t, CUstream, CUgraphConditionalHandle node)>;
  /// The node that was the last one after each entry.
  using Lasts = std::vector<std::pair<std::size_t, CUgraphNode>>;
  /// The body of a conditional node; `number` counts them from 1 in the order in which they were made.
  struct Body {
    CUgraph graph = nullptr;
    std::size_t number = 0;
    Lasts lasts = {};
  };

  /// Makes the streams that bodies of the entries [first, end) are captured in, since not everything can be made in a
  /// capture. `schedule` must outlive it.
  EntryCapture(const gpu::GpuDevice& device, const Schedule& schedule, std::size_t first, std::size_t end);

  /// Enqueues the entries in `stream`, whose capture has begun. Where `lasts` is given, it and bodies() are filled.
  void run(CUstream stream, const Start& start, Lasts* lasts = nullptr);

  /// Those of the last run that have entries, inner ones in front of those around them.
  const std::vector<Body>& bodies() const { return bodies_; }
  /// How many bodies the last run made, those without entries too.
  std::size_t body_count() const { return body_count_; }

  /// The node captured last, which the next one will wait for; null before the first.
  static CUgraphNode last_node(const gpu::Driver& driver, CUstream stream);

 private:
  void add_streams(std::size_t first, std::size_t end, std::size_t depth);
  void start_beside(CUstream stream, std::size_t k, Lasts* lasts);
  void wait_for_collective(CUstream stream, std::size_t k);
  void start_all(CUstream stream, std::size_t first, std::size_t end, std::size_t depth, Lasts* lasts);
  CUgraph graph_of(CUstream stream) const;
  bool waits_for(CUstream stream, CUgraphNode node) const;
  CUgraphConditionalHandle new_handle(CUstream stream);
  void add_conditional(CUstream stream, int number, std::size_t depth);
  void add_body(CUgraph graph, const std::pair<std::size_t, std::size_t>& body, std::size_t depth, std::size_t number);

  static constexpr std::size_t kNone = ~std::size_t{0};
  const gpu::GpuDevice& device_;
  const gpu::Driver& driver_;
  const Schedule& schedule_;
  const std::size_t first_, end_;
  std::vector<gpu::Stream> streams_;  // one for each depth
  gpu::Stream collectives_;           // entries of stream 1; there where there are some
  gpu::Event fork_;
  std::map<std::size_t, gpu::Event> ended_;  // collectives, by their entries
  // The run under way:
  const Start* start_ = nullptr;
  bool is_listed_ = false;
  CUgraph root_ = nullptr;
  std::size_t last_beside_ = kNone;                  // the last collective that nobody has waited for
  std::map<int, CUgraphConditionalHandle> handles_;  // by the numbers of choices
  std::vector<Body> bodies_;
  std::size_t body_count_ = 0;
};

}  // namespace paoding
