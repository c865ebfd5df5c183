// SPDX-License-Identifier: Apache-2.0
// Programs: one model for batches of many shapes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "paoding/graph.h"
#include "paoding/program.h"

namespace paoding {

class PlansAhead;

/// The programs of one model, one per shape: made when a shape is first asked for, kept, all with the same parameters
/// and in one arena, so the fetches that a run left in it are there until another of them runs. The arena grows where
/// it is; only where a GPU's driver cannot do that, a program that needs more than all before it gets a larger one.
class Programs {
 public:
  /// The extents that tell shapes apart: lengths, a batch; `build` makes a graph from them.
  using Key = std::vector<std::int64_t>;
  using Build = std::function<std::unique_ptr<Graph>(const Key& key)>;

  /// `parameters` must outlive this.
  Programs(Build build, CompileOptions options, const Parameters* parameters = nullptr)
      : build_(std::move(build)), options_(std::move(options)), parameters_(parameters) {}

  /// Compiled at the first call, bound when the key is new, found otherwise. Errors: as build, Program, Program::bind;
  /// (argument) while another call is under way, on another thread or around `build`.
  Program& at(const Key& key);

  /// Plans of keys that at() will be asked for are made and, on a GPU, kernels compiled on other threads, in this
  /// order, while programs run. at() then waits at most for its own key. Graphs are built here, and errors thrown by
  /// at(). Keys that are there already are left out. Does nothing where CompileOptions::tune needs the device, or
  /// after_pass would be called on another thread. Errors: as build; (argument) while another call is under way.
  void prepare(std::span<const Key> keys);

  std::int64_t size() const { return static_cast<std::int64_t>(programs_.size()); }
  /// Spent on making programs, their graphs among it.
  double milliseconds() const { return milliseconds_; }
  /// The bytes of the arena, which the program that needs the most decides.
  std::int64_t arena_bytes() const;

 private:
  Build build_;
  CompileOptions options_;
  const Parameters* parameters_;
  std::unique_ptr<Graph> graph_of(const Key& key) const;

  std::map<Key, Program> programs_;
  std::shared_ptr<PlansAhead> ahead_;
  double milliseconds_ = 0;
  // A moved object is in no call, so the flag does not move with it.
  struct InUse {
    InUse() = default;
    InUse(InUse&&) noexcept {}
    InUse& operator=(InUse&&) noexcept { return *this; }
    std::atomic<bool> now{false};
  } in_use_;
};

}  // namespace paoding
