// SPDX-License-Identifier: Apache-2.0
// A call of a model with tensors, as it waits for others.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "paoding/model.h"
#include "paoding/tensor.h"

namespace paoding::cli {

struct TensorCall {
  std::string entry;
  std::map<std::string, Tensor> feeds;
  std::int64_t rows = 1;  // along the model's batch
};
inline std::size_t lines_in(const TensorCall& call) {
  return static_cast<std::size_t>(std::max<std::int64_t>(1, call.rows));
}
using TensorAnswer = std::map<std::string, Tensor>;
using Signatures = std::map<std::string, ModelSignature, std::less<>>;  // by entry point

/// The rows of a call whose feeds have the signature's names and ranks; 1 where it has no batch.
std::int64_t rows_in(const ModelSignature& signature, const std::map<std::string, Tensor>& feeds);

/// Runs calls, of which those of one entry point whose other extents, and inputs without the batch, are the same run
/// together: the rows of one after those of the other. Calls `before_run` before each run. Errors: as Model::run.
std::vector<TensorAnswer> run_calls(const Model& model, const Signatures& signatures, std::span<const TensorCall> calls,
                                    const std::function<void()>& before_run);

}  // namespace paoding::cli
