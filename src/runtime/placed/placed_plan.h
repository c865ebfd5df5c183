// SPDX-License-Identifier: Apache-2.0
// A plan that runs on memory of somebody else's: it reads inputs or parameters of its graph, and every call says where
// each is, and where each fetch goes. It serves callers without a store, arena or captured graph of their own: the C
// interface.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "paoding/placed.h"
#include "profile/recorder.h"
#include "runtime/compile.h"
#include "runtime/executor.h"
#include "schedule/schedule.h"

namespace paoding {

/// The parts of a placed plan.
struct PlacedSource {
  const char* name;  // of its runs in recordings
  CompiledPlan compiled;
  std::vector<void*> parameters = {};  // where a store has them, per Plan::parameters; empty: the caller, in every run
};

class PlacedPlan : public StoreUser {
 public:
  /// The places of a compiled plan's parameters in a store.
  using FindParameters = std::function<std::vector<void*>(CompiledPlan*, const CompileOptions&)>;
  /// Errors: as compile_plan's; (unsupported) the graph prints, or on a GPU has something for the CPU to do.
  /// `name`: of its runs in recordings. With `find` the parameters are a store's, and not among those that a run is
  /// told.
  static std::unique_ptr<PlacedPlan> make(const char* name, const Graph& graph, const Device& device,
                                          const PlacedOptions& options = {}, const FindParameters& find = {});

  const Plan& plan() const { return compiled_.plan; }
  const std::vector<PassRecord>& passes() const { return compiled_.passes; }
  /// The values whose places a run is told: inputs, then parameters that are no store's, with their slots.
  const std::vector<std::pair<std::string, int>>& reads() const { return reads_; }
  /// The bytes of memory that a run needs beside its parameters.
  std::int64_t workspace_bytes() const { return workspace_bytes_; }
  /// Where in the workspace a run's fault words are, and how many bytes; none unless faults are reported.
  std::int64_t fault_offset() const { return fault_offset_; }
  std::int64_t fault_bytes() const { return fault_bytes_; }
  /// Throws the error of the first launch that left a fault; `words` are on the host.
  virtual void check(const std::uint64_t* /*words*/) const {}
  /// Reads the fault words of the run that was enqueued last, without waiting; where too many are under way, waits for
  /// the oldest, and throws its error.
  virtual void follow_faults(const void* /*workspace*/, void* /*stream*/) {}
  /// Throws the error of the first of those that has one: of runs that have ended or, with `waits`, of all.
  virtual void raise_faults(bool /*waits*/) {}
  /// Whether the stream is captured.
  virtual bool is_captured(void* /*stream*/) const { return false; }
  /// Called in front of a run that reads a store, for precede() and follow(); they stand still while it is captured.
  virtual void use_stream(void* /*stream*/) {}
  void finish() override {}
  /// Runs on the memory of each of reads(), and leaves each of plan().fetches in memory that it is given; on
  /// a GPU in the stream, without waiting. One at a time.
  void run(std::span<const void* const> reads, std::span<void* const> fetches, void* workspace, void* stream);

 protected:
  /// `batches_groups`: ScheduleOptions.
  explicit PlacedPlan(PlacedSource source, bool batches_groups = false);
  /// Memory of the plan's own for a slot: a constant, or the state of a kernel from run to run, which is zero at first.
  virtual void* own_memory(const Slot& slot, const Tensor* constant) = 0;
  /// Starts a run whose memory is placed: begin(), every entry of the schedule, end(). Lets recordings see it.
  virtual void start(std::uint32_t number, void* stream) = 0;
  /// Called in front of the entries: kernels' state from run to run is where the plan has it or, where the run may be
  /// beside others (`is_beside`), in the workspace, zeroed; fault words are cleared.
  void begin(void* stream, bool is_beside);
  /// Called after the entries: copies fetches that are not where the caller wants them.
  void end(void* stream);
  virtual void copy(void* to, const void* from, std::int64_t bytes, void* stream) = 0;
  virtual void clear(void* address, std::int64_t bytes, void* stream) = 0;
  /// Sets fault words to those of no fault.
  virtual void clear_faults(void* /*words*/, std::int64_t /*bytes*/, void* /*stream*/) {}
  /// Gives every launch that may fault two words.
  void add_faults();
  static constexpr std::int64_t kFaultWords = 2;  // per launch
  /// The fault words of launches in front of `end`, at most so many: their address and their number.
  std::pair<void*, std::int64_t> faults_before(std::size_t end, std::int64_t most) const;
  /// Has so many bytes of the workspace for the plan's own use; returns where.
  std::int64_t add_to_workspace(std::int64_t bytes);
  std::byte* in_workspace(std::int64_t offset) const { return workspace_ + offset; }
  void place_own();
  const Schedule& schedule() const { return schedule_; }
  /// Whether kernels keep state from run to run.
  bool has_state() const { return !states_.empty(); }
  bool reads_store() const { return !parameters_.empty(); }
  /// All addresses that the caller has given the run under way.
  std::span<void* const> given() const { return given_; }
  /// Where a launch of the run under way has its operands, and its step's own memory. A launch's operands are found
  /// here, in a list that stays where it is from run to run.
  struct Memory {
    void* const* operands;
    void* workspace;
    void* state;
    void* fault;  // its fault words; nullptr where it has none
  };
  Memory memory_of(std::size_t launch) const;

 private:
  std::byte* base(int slot) const { return slot < 0 ? nullptr : bases_[static_cast<std::size_t>(slot)]; }
  // The slot that holds nothing but the fetch, and so is where that is wanted; -1: it is copied.
  int slot_of(std::size_t fetch) const;
  void refuse_entries() const;
  void add_state(const Step& step);
  // Finds all operands of the run, unless the last one had the same addresses.
  void place(std::span<const void* const> reads, std::span<void* const> fetches, void* workspace);
  bool is_given(std::span<const void* const> reads, std::span<void* const> fetches, const void* workspace) const;

  const CompiledPlan compiled_;
  const std::vector<void*> parameters_;  // of a store
  const profile::SiteId run_site_;
  std::vector<std::pair<std::string, int>> reads_;
  const Schedule schedule_;
  std::vector<int> fetch_slots_;
  std::vector<std::byte*> bases_;                        // per slot
  std::vector<std::pair<int, std::int64_t>> addresses_;  // operands of all launches: slot, offset
  std::vector<void*> pointers_;                          // the same where they are
  std::vector<std::size_t> first_pointer_;               // per launch
  std::vector<void*> given_;  // reads, fetches and the workspace of the last run; empty before the first
  std::byte* workspace_ = nullptr;
  struct KernelState {
    int slot;
    std::byte* own;
    std::int64_t offset;  // from fresh_state_at_
  };
  std::vector<KernelState> states_;
  std::int64_t workspace_bytes_ = 0;
  std::int64_t fresh_state_at_ = 0, fresh_state_bytes_ = 0;  // of the workspace, in runs that may be beside others
  std::int64_t fault_offset_ = 0, fault_bytes_ = 0;
  std::vector<std::int64_t> fault_at_;  // per launch, from the first fault word on; -1: it has none; empty: none has
};

std::unique_ptr<PlacedPlan> make_placed_cpu_plan(PlacedSource source);

// ---- placed_plan_gpu.cpp, or cuda_missing.cpp ----

std::unique_ptr<PlacedPlan> make_placed_gpu_plan(PlacedSource source, const Device& device,
                                                 const PlacedOptions& options);
/// Zeros, in the stream.
void clear_gpu_memory(const Device& device, void* address, std::int64_t bytes, void* stream);

}  // namespace paoding
