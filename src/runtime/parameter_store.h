// SPDX-License-Identifier: Apache-2.0
// The store behind the handle Parameters, and who may use it when: runs, the host, callbacks of runs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/one_line.h"
#include "paoding/program.h"
#include "runtime/executor.h"
#include "runtime/parameter_preprocessing.h"
#include "runtime/shadows.h"
#include "runtime/use_order.h"

namespace paoding {

struct CompiledPlan;

/// The places of the parameters that a plan reads of a store.
struct PlannedParameters {
  std::vector<void*> addresses;             // per Plan::parameters
  std::vector<Shadow*> shadows;             // among them
  PreprocessedSet* preprocessed = nullptr;  // those of that
};

struct Parameters::Store {
  struct Entry {
    Type type;
    ParameterRole role = ParameterRole::model;
    std::unique_ptr<DeviceBuffer> buffer = {};
  };
  Device device;
  std::uint64_t seed = 0;
  std::shared_ptr<SharedFailure> failure;  // on a GPU
  std::vector<std::string> order;
  std::map<std::string, Entry, std::less<>> entries;  // which stay where they are
  mutable std::mutex adding;                          // of these two: programs add states of random numbers
  Shadows shadows;
  // Runs that write hold it alone. A GPU's run goes on after Program::run() has returned: the next comes after it
  // there.
  std::shared_mutex running;
  std::mutex writing;  // taken by writers before `running`, and kept while a callback lets others read
  std::mutex order_lock;
  UseOrder<StoreUser> order_on_gpu;
  PreprocessedParameters preprocessed;

  // Called under `running` before the host reads or writes the values.
  void finish_runs(bool writes) {
    const std::lock_guard lock(order_lock);
    for (StoreUser* user : order_on_gpu.before(writes)) {
      order_on_gpu.forget(user);  // its error is told once
      user->finish();
    }
  }
  // Called before a run is enqueued. A run that cannot be called off on the device waits here for those that may fail.
  void enqueue(StoreUser* next, bool writes) {
    const std::lock_guard lock(order_lock);
    if (writes && !next->can_fail()) {
      for (StoreUser* other : order_on_gpu.before(true)) {
        if (other != next && other->can_fail()) other->finish();
      }
    }
    order_on_gpu.use(next, writes, [&](StoreUser& other) { next->follow(other); });
  }
  void forget(const StoreUser* user) {
    const std::lock_guard lock(order_lock);
    order_on_gpu.forget(user);
  }

  /// Called before a run that reads them is enqueued.
  void refresh(const std::vector<Shadow*>& wanted) {
    shadows.refresh(wanted, [&](const std::string& of) {
      finish_runs(false);  // those that read an outdated shadow came before who outdated it
      const Entry& entry = at(of);
      return entry.buffer->read(entry.type);
    });
  }

  /// Error (argument, shape, dtype) where the store lacks a parameter of the plan, which was moved out of `compiled`.
  PlannedParameters find(const Plan& plan, CompiledPlan* compiled, const CompileOptions& options);
  /// The preprocessed values that a program's plan reads: with memory, and a way to make them.
  /// (parameter_preprocessing.cpp)
  PreprocessedSet& preprocess(CompiledPlan* compiled, const CompileOptions& options);
  /// Called under `running` before a run that reads them is enqueued.
  void refresh(PreprocessedSet& wanted) {
    const std::lock_guard lock(wanted.making);
    const std::uint64_t now = preprocessed.written;
    if (wanted.made == now) return;
    if (!wanted.shadows.empty()) refresh(wanted.shadows);
    if (device.kind == DeviceKind::cuda) enqueue(wanted.executor.get(), true);
    wanted.executor->run(0);
    wanted.made = now;
  }

  /// The first value that a parameter of this name has by its initializer.
  Tensor first_value(const Initializer& initial, const std::string& name, const Type& type) const;
  /// Zeros, or `first`; an entry that is there already keeps its value.
  Entry& add(const std::string& name, const Type& type, ParameterRole role, const std::optional<Tensor>& first);
  bool has(std::string_view name) const {
    const std::lock_guard lock(adding);
    return entries.find(name) != entries.end();
  }
  Entry& at(std::string_view name) {
    const std::lock_guard lock(adding);
    const auto it = entries.find(name);
    if (it == entries.end()) {
      fail(ErrorKind::argument, "parameters: there is none named '{}'; there are: {}", one_line(name), one_line(order));
    }
    return it->second;
  }
};

/// While it lives the calling thread is in a run, which holds the lock of its store while callbacks are called.
class UnderWayHere {
 public:
  explicit UnderWayHere(const void* store) : store_(store), outer_(innermost_) { innermost_ = this; }
  ~UnderWayHere() { innermost_ = outer_; }
  UnderWayHere(const UnderWayHere&) = delete;
  UnderWayHere& operator=(const UnderWayHere&) = delete;

  static bool is_around(const void* store) {
    const UnderWayHere* run = innermost_;
    while (run != nullptr && run->store_ != store) run = run->outer_;
    return run != nullptr;
  }

 private:
  static inline thread_local const UnderWayHere* innermost_ = nullptr;
  const void* store_;
  const UnderWayHere* outer_;
};

}  // namespace paoding
