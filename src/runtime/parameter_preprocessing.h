// SPDX-License-Identifier: Apache-2.0
// Values that a program which only reads its parameters makes of them alone: weights with a norm folded in, in 16 bits,
// in the order that a kernel wants. They are made when a program first runs and again when somebody has written a
// parameter, not in every run; programs of one store that make the same share them.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "ops/decision.h"
#include "runtime/executor.h"
#include "runtime/shadows.h"

namespace paoding {

/// A part of a graph that reads parameters only; it assigns its results to parameters, by whose names the rest of the
/// graph reads them.
struct PreprocessingPart {
  std::unique_ptr<Graph> graph;    // nullptr: there is none
  std::vector<std::string> names;  // of those parameters
};

/// Takes it out of a graph that has been through the passes; there is none where the graph is fed nothing, or writes a
/// parameter. Values much larger than their operands stay. Weights of convolutions and of recurrences are in it where
/// the kernels that run them want them in another order.
PreprocessingPart take_preprocessing(Graph* graph, const KernelSetting& kernels);

/// Values of one such part, in the memory of a store.
struct PreprocessedSet {
  std::mutex making;
  std::uint64_t made = 0;  // the value of PreprocessedParameters::written then
  Plan plan;
  std::map<std::string, std::unique_ptr<DeviceBuffer>> buffers;
  std::vector<Shadow*> shadows;        // that it reads
  std::unique_ptr<Executor> executor;  // of the plan
};

/// All of a store.
class PreprocessedParameters {
 public:
  /// The one of this text; without an executor at first.
  PreprocessedSet& at(const std::string& text);

  std::atomic<std::uint64_t> written{1};  // goes up whenever a parameter is written

 private:
  std::mutex mutex_;
  std::map<std::string, std::unique_ptr<PreprocessedSet>> all_;  // none goes
};

}  // namespace paoding
