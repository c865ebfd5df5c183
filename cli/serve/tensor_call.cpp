// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/tensor_call.h"

#include <cstring>

#include "runtime/batch_rows.h"

namespace paoding::cli {
namespace {

bool is_same(const Tensor& a, const Tensor& b) {
  return a.type() == b.type() && std::memcmp(a.bytes(), b.bytes(), static_cast<std::size_t>(a.size_bytes())) == 0;
}

bool can_join(const ModelSignature& signature, const TensorCall& a, const TensorCall& b) {
  if (!signature.has_batch || a.entry != b.entry) return false;
  return std::ranges::all_of(signature.inputs, [&](const ModelTensor& input) {
    const Tensor &x = a.feeds.at(input.name), &y = b.feeds.at(input.name);
    if (input.batch_axis < 0) return is_same(x, y);
    return x.dtype() == y.dtype() && x.shape().rank() == y.shape().rank() &&
           x.shape().with_dim(input.batch_axis, 1) == y.shape().with_dim(input.batch_axis, 1);
  });
}

using Group = std::vector<std::size_t>;  // positions of calls

std::map<std::string, Tensor> joined_feeds(const ModelSignature& signature, std::span<const TensorCall> calls,
                                           const Group& group) {
  std::map<std::string, Tensor> feeds = calls[group[0]].feeds;
  for (const ModelTensor& input : signature.inputs) {
    if (input.batch_axis < 0) continue;
    std::vector<Tensor> parts;
    for (const std::size_t each : group) parts.push_back(calls[each].feeds.at(input.name));
    feeds[input.name] = joined_rows(parts, input.batch_axis);
  }
  return feeds;
}

}  // namespace

std::int64_t rows_in(const ModelSignature& signature, const std::map<std::string, Tensor>& feeds) {
  for (const ModelTensor& input : signature.inputs) {
    if (input.batch_axis >= 0) return feeds.at(input.name).shape()[input.batch_axis];
  }
  return 1;
}

std::vector<TensorAnswer> run_calls(const Model& model, const Signatures& signatures, std::span<const TensorCall> calls,
                                    const std::function<void()>& before_run) {
  std::vector<Group> groups;
  for (std::size_t i = 0; i < calls.size(); ++i) {
    const ModelSignature& signature = signatures.at(calls[i].entry);
    const auto found = std::ranges::find_if(
        groups, [&](const Group& group) { return can_join(signature, calls[group[0]], calls[i]); });
    if (found == groups.end()) {
      groups.push_back({i});
    } else {
      found->push_back(i);
    }
  }
  std::vector<TensorAnswer> answers(calls.size());
  for (const Group& group : groups) {
    const TensorCall& first = calls[group[0]];
    const ModelSignature& signature = signatures.at(first.entry);
    before_run();
    if (group.size() == 1) {
      answers[group[0]] = model.run(first.entry, first.feeds);
      continue;
    }
    const std::map<std::string, Tensor> results = model.run(first.entry, joined_feeds(signature, calls, group));
    std::int64_t row = 0;
    for (const std::size_t each : group) {
      for (const ModelTensor& result : signature.results) {
        answers[each][result.name] =
            rows_of(results.at(result.name), result.batch_axis, row, calls[each].rows, calls[each].rows);
      }
      row += calls[each].rows;
    }
  }
  return answers;
}

}  // namespace paoding::cli
