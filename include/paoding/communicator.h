// SPDX-License-Identifier: Apache-2.0
// Communicator: the ranks of a job, on which collectives run. A rank is a process, or a thread, with its own part of
// the data and the same program. Collectives of paoding/ops/collective.h call it; a program gets it by
// CompileOptions::communicator.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "paoding/types.h"

namespace paoding {

/// How values of the ranks become one.
enum class Reduction : std::uint8_t {
  sum,
  max,
  min,
};

std::string_view to_string(Reduction reduction);

/// The ranks 0 .. size() - 1 and the work that they do together. All ranks call the same functions in the same order
/// with the same counts and dtypes, each from one thread at a time; abort() and name() may be called from any thread.
/// Sizes are numbers of elements. Memory is the device's: of the host, or of the GPU, where calls are enqueued in
/// `stream`, a CUstream that may be capturing, and do not wait. `in` may be `out` where both have the same size. All
/// ranks get the same bits. Every function: Error (device) when a rank is gone, the network fails, or the wait is too
/// long; its text names the ranks that are known to be missing. After one the communicator is of no more use.
class Communicator {
 public:
  virtual ~Communicator() = default;

  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Whose memory it works on.
  virtual Device device() const = 0;
  /// Its library, for reports: "gloo", "nccl 2.28.9".
  virtual std::string name() const = 0;

  /// Element i of `out` is the sum, or other reduction, of the ranks' elements i.
  virtual void all_reduce(const void* in, void* out, std::int64_t count, DType dtype, Reduction reduction,
                          void* stream) = 0;
  /// `out` is the part that has the rank's number of the size() equal parts, of `count` elements each, of the reduced
  /// `in`.
  virtual void reduce_scatter(const void* in, void* out, std::int64_t count, DType dtype, Reduction reduction,
                              void* stream) = 0;
  /// `out` is the `count` elements of every rank, one rank after the other.
  virtual void all_gather(const void* in, void* out, std::int64_t count, DType dtype, void* stream) = 0;
  /// `out` is the `in` of rank `root`.
  virtual void broadcast(const void* in, void* out, std::int64_t count, DType dtype, int root, void* stream) = 0;

  /// Returns when every rank has called it. It waits for no work on a GPU.
  virtual void barrier() = 0;
  /// Ends the waiting of other threads here, and on the other ranks as far as they can be reached; `reason` is part of
  /// the errors that follow.
  virtual void abort(const std::string& reason) noexcept = 0;
};

}  // namespace paoding
