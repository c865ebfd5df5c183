// SPDX-License-Identifier: Apache-2.0
// check_indices: indices of ops whose kernels cannot refuse one themselves: labels, lengths.
#include "ops/index/check_indices.h"

#include "base/check.h"
#include "ops/families.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

std::vector<Type> infer(const OpCall& call) {
  const DType dtype = call.inputs[0].dtype;
  if (dtype != i32 && dtype != i64) {
    call.fail(ErrorKind::dtype, fmt::format("indices are {}; they must be i32 or i64", to_string(dtype)));
  }
  if (const std::int64_t most = call.attrs.get_int("most"); most < -1) {
    call.fail(ErrorKind::argument, fmt::format("most = {}; it must be at least -1", most));
  }
  return {call.inputs[0]};
}

}  // namespace

void register_check_indices() {
  register_op({
      .name = "check_indices",
      .summary = "indices as they are; a run that has one above most, or below 0, is an error",
      .kind = OpKind::kernel,
      .inputs = {"indices"},
      .attrs = {{.name = "most", .example = std::int64_t{0}, .required = true, .doc = "the greatest that is legal"},
                {.name = "may_be_negative", .example = false, .doc = "those below 0 are legal too"},
                {.name = "on_gpu", .example = true, .doc = "a GPU looks too, by a launch of its own"},
                {.name = "what", .example = std::string("indices"), .doc = "what the error calls them"}},
      .role = OpRole::check,
      .infer = infer,
      .gradient = [](const GradCall&) { return Values(1); },
      .lift = [](const LiftCall& call) { return paoding::call(*call.node.op, call.inputs, call.node.attrs); },
      .cases = {{.shapes = {{6}}, .attrs = {{"most", std::int64_t{5}}}, .dtypes = {i64}},
                {.shapes = {{2, 3}}, .attrs = {{"most", std::int64_t{5}}, {"may_be_negative", true}}, .dtypes = {i32}},
                {.shapes = {{}}, .attrs = {{"most", std::int64_t{5}}}, .dtypes = {i32}},
                {.shapes = {{0}}, .attrs = {{"most", std::int64_t{-1}}}, .dtypes = {i64}},
                {.shapes = {{4}}, .attrs = {{"most", std::int64_t{5}}}, .error = "indices are f32"},
                {.shapes = {{4}}, .attrs = {{"most", std::int64_t{-2}}}, .dtypes = {i32}, .error = "most = -2"}},
  });
}

Value check_indices(const Value& indices, std::int64_t most, const CheckIndicesOptions& options) {
  return call("check_indices", {indices},
              {{"most", most},
               {"may_be_negative", options.may_be_negative},
               {"on_gpu", options.on_gpu},
               {"what", options.what}});
}

}  // namespace paoding
