// SPDX-License-Identifier: Apache-2.0
// The value behind a Fetched, and which alternative of a Variant a run took.
#pragma once

#include <exception>
#include <memory>
#include <optional>

#include "plan/plan.h"
#include "runtime/executor.h"

namespace paoding {

struct Fetched::State {
  explicit State(std::unique_ptr<LaterRead> started) : read(std::move(started)) {}
  std::unique_ptr<LaterRead> read;
  std::optional<Tensor> value;
  std::exception_ptr error;
};

/// The alternative, of `count`, that the run's index chooses.
inline std::size_t chosen_of(const Tensor& index, std::size_t count) {
  return chosen(index.dtype(), index.bytes(), count);
}

}  // namespace paoding
