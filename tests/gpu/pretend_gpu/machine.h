// SPDX-License-Identifier: Apache-2.0
// The inside of the pretended GPU: streams as queues of work, events, graphs, memory that is counted.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <set>
#include <vector>

#include "tests/gpu/pretend_gpu/pretend_gpu.h"

struct CUevent_st {
  std::uint64_t recorded = 0, done = 0;  // how often

  // ---- recorded last in a capture ----
  CUgraph captured = nullptr;
  int number = -1;         // of the graph's events
  int lane = 0;            // of the stream in which it was recorded
  std::size_t behind = 0;  // so many pieces of the lane
  std::uint64_t node = 0;  // the last of the lane
};

struct Piece;

/// The bodies of a conditional node, in a graph or, with nodes of their own, in an executable one.
struct Conditional {
  const unsigned* value = nullptr;  // that kernels set: which body; of a loop whether there is another turn
  bool is_loop = false;
  std::vector<std::vector<Piece>> bodies;
};

/// A piece of work; one that waits for an event has no work of its own, nor has a conditional node.
struct Piece {
  std::function<void()> work;
  CUevent event = nullptr;
  std::uint64_t version = 0;
  std::shared_ptr<const Conditional> conditional = {};
  std::function<bool()> is_ready = {};  // whether it can run, where that is no event's to say

  // ---- in a graph ----
  int lane = 0;                  // of the stream in which it was captured: 0 of the first
  int records = -1, waits = -1;  // an event of the graph's: no node
  bool is_node() const { return records < 0 && waits < 0; }

  // ---- for CUPTI's records ----
  enum class Kind { none, kernel, from_host, to_host, same_device, fill } kind = Kind::none;
  std::string name = {};  // of a kernel
  std::uint64_t node = 0;
  std::uint32_t graph = 0, correlation = 0;
  bool is_pageable = false;  // copies: the host's memory
  std::uint64_t bytes = 0;   // of a copy from the host
};

struct CUgraph_st {
  std::vector<Piece> nodes;
  int events = 0;
  std::vector<std::size_t> pieces{0}, joined{0};  // by lane: nodes in it, and up to which lane 0 has waited for it
  std::vector<CUstream> streams;                  // of the lanes after the first
  /// A conditional node, by its number: until the graph is instantiated its bodies are graphs.
  struct Condition {
    const unsigned* value;
    bool is_loop;
    std::vector<std::unique_ptr<CUgraph_st>> bodies;
    std::vector<CUgraph> handles;  // of the bodies
  };
  std::map<std::uint64_t, Condition> conditions;
};
/// The handle of a graph's node: its number.
inline CUgraphNode node_handle(std::uint64_t number) { return reinterpret_cast<CUgraphNode>(number); }
struct CUgraphExec_st {
  std::vector<Piece> nodes;
  std::size_t bytes;  // of the device
  std::uint32_t number = 0;
  std::vector<CUevent> events = {};
  std::vector<CUstream> streams = {};  // of the lanes after the first
  bool is_traced = false;              // was launched while CUPTI looked: not again when it has gone
};

struct CUstream_st {
  std::deque<Piece> queue;

  // ---- while it captures ----
  CUgraph captured = nullptr;
  int lane = 0;
  std::vector<CUgraphNode> last = {};  // the next node waits for them
};

struct CUfunc_st {
  std::string name;
  int (*run)(void** arguments, unsigned grid, unsigned block, const unsigned* order) = nullptr;
  int (*together)(void** arguments, unsigned grid, unsigned block, unsigned cluster, std::size_t shared,
                  unsigned seed) = nullptr;
  std::vector<unsigned> sizes;          // bytes of each argument
  std::size_t shared_bytes = 47 << 10;  // that a launch may have; a KB of 48 is the source's own
};

struct CUmod_st {
  void* library = nullptr;
  std::map<std::string, CUfunc_st> functions;
};

namespace paoding::pretend {

class Machine : public Gpu {
 public:
  static Machine& get();

  void schedule(unsigned seed, unsigned haste) override;
  std::vector<std::string> calls() const override;
  void forget_calls() override;
  void before(const std::string& function, std::function<void()> then) override;
  void busy_for(std::chrono::milliseconds time) override { busy_until_ = std::chrono::steady_clock::now() + time; }
  bool is_busy() const { return std::chrono::steady_clock::now() < busy_until_; }
  void break_at(const std::string& kernel, CUresult error) override;
  void profile(bool keeps_order, unsigned timeless_every) override;
  void spoil_records(const CuptiFaults& faults) override { cupti_faults = faults; }
  void revive() override;
  std::size_t bytes_in_use() const override;
  std::size_t graph_bytes() const override;
  void set_memory(std::size_t bytes) override;
  std::size_t waiting() const override;
  std::size_t busy_streams() const override;
  std::size_t kernels_run() const override;

  /// At the beginning of every call: notes it, lets some work run. Returns the call's error when the device is broken.
  CUresult enter(const char* function);

  CUstream_st* stream(CUstream given);
  CUstream make_stream();
  CUevent make_event();  // stays to the end: something may wait for one that was destroyed
  void drop_stream(CUstream given);
  /// Puts the piece after the work in the stream, or into the graph that it captures.
  void enqueue(CUstream given, Piece piece);
  /// Events in a capture, which may bring another stream into it (captured_streams.cpp).
  void record(CUevent event, CUstream given);
  CUresult wait_for(CUevent event, CUstream given);
  CUresult end_capture(CUstream given, CUgraph* graph);
  void launch(CUgraphExec exec, CUstream stream, std::uint32_t correlation);
  /// Runs work that can run, anywhere, until `is_done`. False when nothing can run any more, or the device has broken.
  bool run_until(const std::function<bool()>& is_done);
  CUresult wait_until(const std::function<bool()>& is_done);
  bool run_one();
  void launched(const std::string& kernel, int rc);
  unsigned random() { return static_cast<unsigned>(random_()); }

  /// Numbers of nodes, graphs and launches.
  std::uint64_t next_number() { return ++last_number_; }
  /// Called after a piece that CUPTI shows.
  std::function<void(const Piece& piece, std::int64_t start_ns, std::int64_t end_ns)> ran = {};
  bool keeps_order = true;
  unsigned timeless_every = 0;
  CuptiFaults cupti_faults;

  bool take(std::size_t bytes);  // false when there is no room
  void give_back(std::size_t bytes) { used_ -= bytes; }
  void add_graph(std::int64_t bytes);

  mutable std::recursive_mutex mutex;
  std::size_t memory_bytes = std::size_t{1} << 30;
  std::map<CUdeviceptr, std::size_t> allocations;
  std::map<char*, std::size_t> pinned;
  CUresult broken = CUDA_SUCCESS;

  bool is_pinned(const void* at) const;
  std::size_t free_bytes() const { return memory_bytes - used_; }

 private:
  Machine();
  static void decide(const Piece& node, std::deque<Piece>* queue);
  bool waits_for_ranks() const;
  std::map<CUstream_st*, std::unique_ptr<CUstream_st>> streams_;
  std::vector<std::unique_ptr<CUevent_st>> events_;
  CUstream_st null_stream_;
  std::mt19937 random_;
  unsigned haste_ = 0;
  std::chrono::steady_clock::time_point busy_until_{};
  std::size_t used_ = 0, graphs_ = 0, kernels_run_ = 0;
  std::vector<std::string> calls_;
  std::map<std::string, std::function<void()>> before_;
  std::string break_at_;
  CUresult break_with_ = CUDA_SUCCESS;
  bool is_running_ = false;
  std::uint64_t last_number_ = 0;
};

}  // namespace paoding::pretend
