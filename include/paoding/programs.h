// SPDX-License-Identifier: Apache-2.0
// Programs: one model for batches of many sizes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <vector>

#include "paoding/extents.h"
#include "paoding/graph.h"
#include "paoding/program.h"

namespace paoding {

class PlansAhead;

/// The programs of one model, one per bucket of its extents: made when a size is first asked for, all with the same
/// parameters and in one arena, so the fetches that a run left in it are there until another of them runs. The arena
/// grows where it is; only where a GPU's driver cannot do that, a program that needs more than all before it gets a
/// larger one.
///
///   pd::Programs programs({{"batch", 1, 256}, {"time", 1, 512, pd::multiples_of(8)}}, build, options, &parameters);
///   pd::Program& program = programs.at({{"batch", 32}, {"time", 57}});  // the graph of build({32, 64})
///   programs.bucket_of({{"batch", 32}, {"time", 57}});                  // {32, 64}: feeds are padded to it
///
/// When there are more than keeps_at_most(), those go that were not asked for for longest: their memory is freed, and
/// they are made again when they are asked for.
class Programs {
 public:
  /// Sizes in the order of the extents; `build` makes the graph for them.
  using Key = Extents::Key;
  using Build = std::function<std::unique_ptr<Graph>(const Key& sizes)>;

  /// A shape class: a graph is made for the bucket of the sizes that are asked for. `parameters` must outlive this.
  /// Errors: as Extents.
  Programs(std::vector<ExtentSpec> extents, Build build, CompileOptions options = {},
           const Parameters* parameters = nullptr)
      : Programs(Extents(std::move(extents)), std::move(build), std::move(options), parameters) {}
  Programs(Extents extents, Build build, CompileOptions options = {}, const Parameters* parameters = nullptr)
      : extents_(std::move(extents)),
        is_named_(true),
        build_(std::move(build)),
        options_(std::move(options)),
        parameters_(parameters) {}
  /// The same without names, bounds or buckets: any key that `build` takes.
  Programs(Build build, CompileOptions options, const Parameters* parameters = nullptr)
      : build_(std::move(build)), options_(std::move(options)), parameters_(parameters) {}

  /// The program of the sizes' bucket: compiled at the first call, bound when the bucket is new, found otherwise. It
  /// stays where it is until keeps_at_most() others have been asked for. Errors: as Extents::bucket_of, build, Program,
  /// Program::bind; (argument) while another call is under way, on another thread or around `build`.
  Program& at(const Key& sizes);
  Program& at(const Sizes& sizes);

  /// Without names there are none.
  const Extents& extents() const { return extents_; }
  /// The sizes of the graph that runs these, to pad feeds to. Errors: as Extents::bucket_of.
  Key bucket_of(const Key& sizes) const { return is_named_ ? extents_.bucket_of(sizes) : sizes; }
  Key bucket_of(const Sizes& sizes) const { return extents_.bucket_of(sizes); }

  /// Whether the program of this bucket is there.
  bool has(const Key& bucket) const { return programs_.contains(bucket); }
  /// Keeps at most so many programs from now on. Error (argument) unless it is at least 1.
  void keep_at_most(std::int64_t programs);
  std::int64_t keeps_at_most() const { return most_; }

  /// Plans of sizes that at() will be asked for are made and, on a GPU, kernels compiled on other threads, in this
  /// order, while programs run. at() then waits at most for its own key. Graphs are built here, and errors thrown by
  /// at(). Those that are there already are left out, and those beyond keeps_at_most(). Does nothing where
  /// CompileOptions::tune needs the device, or after_pass would be called on another thread. Errors: as
  /// Extents::bucket_of and build; (argument) while another call is under way.
  void prepare(std::span<const Key> sizes);

  /// The programs that are there, and those that were made in all.
  std::int64_t size() const { return static_cast<std::int64_t>(programs_.size()); }
  std::int64_t made() const { return made_; }
  /// Spent on making programs, their graphs among it.
  double milliseconds() const { return milliseconds_; }
  /// The bytes of the arena, which the program that needs the most of all that were made decides.
  std::int64_t arena_bytes() const { return arena_bytes_; }

 private:
  struct Kept {
    Program program;
    std::int64_t last_use;  // counted in calls of at()
  };
  std::unique_ptr<Graph> graph_of(const Key& key) const;
  Program& found_or_made(const Key& key);
  void drop_all_but(std::int64_t count, const Key& except);

  Extents extents_;
  bool is_named_ = false;
  Build build_;
  CompileOptions options_;
  const Parameters* parameters_;
  std::map<Key, Kept> programs_;
  std::shared_ptr<PlansAhead> ahead_;
  std::int64_t most_ = 256, uses_ = 0, made_ = 0, arena_bytes_ = 0;
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
