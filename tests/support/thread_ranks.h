// SPDX-License-Identifier: Apache-2.0
// Ranks as threads of one process, with a pretended communicator between them: collectives meet by their number, and a
// rank that comes with another one than the others is told so. Arrivals are delayed at random, by a seed; faults can be
// planted. Sums are made in the order of the ranks, in double.
#pragma once

#include <atomic>
#include <condition_variable>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "paoding/communicator.h"
#include "paoding/error.h"
#include "paoding/tensor.h"

namespace paoding::testing_program {

/// One call of one rank.
struct CollectiveCall {
  std::string what;  // "all_reduce f32 sum"
  std::int64_t count = 0;
  friend bool operator==(const CollectiveCall&, const CollectiveCall&) = default;
};

class ThreadRanks {
 public:
  explicit ThreadRanks(int size, unsigned seed = 0, Device device = Device::cpu());

  int size() const { return size_; }
  std::shared_ptr<Communicator> rank(int number);
  /// Runs `work` once on every rank, each in a thread; returns the text of the error of each, "" where there was none.
  /// A rank that throws is gone for the others.
  std::vector<std::string> run(const std::function<void(int rank, std::shared_ptr<Communicator>)>& work);
  /// The calls of a rank so far.
  const std::vector<CollectiveCall>& calls(int rank) const { return calls_[static_cast<std::size_t>(rank)]; }
  /// From its collective of that number on the rank gets an error, as NCCL's watchdogs report one.
  void fail_at(int rank, std::size_t number) { failing_ = {rank, number}; }

 private:
  friend class OneOfThreads;
  struct Meeting {
    CollectiveCall call;
    int first = -1;                       // rank that came first
    std::vector<std::vector<double>> in;  // by rank
    int come = 0, left = 0;
    explicit Meeting(int size) : in(static_cast<std::size_t>(size)) {}
  };

  /// All ranks' inputs, once all have come.
  std::vector<std::vector<double>> meet(int rank, const CollectiveCall& call, std::vector<double> in);
  void leave(int rank, const std::string& why);

  const int size_;
  const unsigned seed_;
  const Device device_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::shared_ptr<Meeting>> meetings_;
  std::vector<std::vector<CollectiveCall>> calls_;
  std::vector<std::mt19937> random_;
  std::string gone_;  // why nobody needs to wait any more
  std::optional<std::pair<int, std::size_t>> failing_;
};

}  // namespace paoding::testing_program
