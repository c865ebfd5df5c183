// SPDX-License-Identifier: Apache-2.0
// A GPU that is not there: a libcuda.so.1, a libcublasLt.so.13 and a libnvrtc.so.13 of our own, which paoding loads
// like NVIDIA's. Memory is the host's, kernels are compiled by g++ against cuda_emulation.h, and enqueued work runs
// late and, between streams, in an order that a seed decides: work that no event orders shows as a wrong result. Tests
// look at it and turn it from here; any program runs on it that is started with PAODING_CUDA_PATH=build/pretend_gpu.
#pragma once

#include <cuda.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace paoding::pretend {

/// The changes that CUPTI makes to the records of a recording before it hands them out; 0: none.
struct CuptiFaults {
  unsigned shuffled = 0;           // in an order that this seed decides
  unsigned lost_every = 0;         // one in so many is dropped, and counted
  unsigned doubled_every = 0;      // comes twice
  unsigned backwards_every = 0;    // ends before it begins
  unsigned foreign_every = 0;      // is said to be of a graph that nobody made
  unsigned overlapping_every = 0;  // goes on for 100 us or more, into the next one, as where launches need not wait
  std::int64_t clock_step_ns = 0;  // by which the clock of records is set at once
  int refusal = 0;                 // the error that whoever asks for records is given
};

class Gpu {
 public:
  virtual ~Gpu() = default;

  /// Decides the order of all work from here on. `haste`: up to so many pieces of work run after every call; with 0
  /// nothing runs before it is waited for.
  virtual void schedule(unsigned seed, unsigned haste) = 0;

  /// The names of the driver functions that were called since forget_calls(), in their order.
  virtual std::vector<std::string> calls() const = 0;
  virtual void forget_calls() = 0;
  /// Called before each call of this function; nothing where `then` is empty.
  virtual void before(const std::string& function, std::function<void()> then) = 0;

  /// For so long whoever asks whether an event is done finds the GPU busy with another process's work.
  virtual void busy_for(std::chrono::milliseconds time) = 0;
  /// The next launch that runs of a kernel whose name begins so ends the device's life with this error, as a wild
  /// pointer does; every call from then on gives it. revive() ends that.
  virtual void break_at(const std::string& kernel, CUresult error) = 0;
  virtual void revive() = 0;

  /// The behaviour of CUPTI: show the kernels of a graph's launch in the order in which they ran, or with times out of
  /// order; have no time for every so many of its records (0: for all).
  virtual void profile(bool keeps_order, unsigned timeless_every = 0) = 0;
  virtual void spoil_records(const CuptiFaults& faults) = 0;

  /// Bytes of the device in use, those of executable graphs among them; and how many it has.
  virtual std::size_t bytes_in_use() const = 0;
  virtual std::size_t graph_bytes() const = 0;
  virtual void set_memory(std::size_t bytes) = 0;
  /// How many pieces of work wait, and in how many streams; how many kernels have run.
  virtual std::size_t waiting() const = 0;
  virtual std::size_t busy_streams() const = 0;
  virtual std::size_t kernels_run() const = 0;
};

/// In the library libcuda.so.1, under this name.
extern "C" Gpu* paoding_pretend_gpu();

/// The cost of a node of an executable graph.
inline constexpr std::size_t kGraphNodeBytes = 4096;

}  // namespace paoding::pretend
