// SPDX-License-Identifier: Apache-2.0
// categorical: the largest of logits and noise.
#include "paoding/ops/sampling.h"

#include <cmath>

#include "base/check.h"
#include "base/one_line.h"
#include "ops/axes.h"
#include "ops/families.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "paoding/range.h"

namespace paoding {
namespace {

struct Limits {
  double temperature, top_p;
  std::int64_t drawn_from;  // how many of the largest logits
  bool is_sorted;           // whether those have to be found, in their order
};

Limits limits_of(const Value& logits, const Attrs& attrs) {
  const char* op = "categorical";
  const Shape& shape = logits.shape();
  const Attrs none;
  const OpCall call{*find_op(op), {}, none, {}, logits.graph().scope};
  if (!is_float(logits.dtype())) {
    call.fail(ErrorKind::dtype, fmt::format("logits are {}, needed are floats", to_string(logits.dtype())));
  }
  if (shape.rank() == 0 || shape[shape.rank() - 1] == 0) {
    call.fail(ErrorKind::shape, fmt::format("logits have shape {}; needed is [.., categories]", to_string(shape)));
  }
  const std::int64_t categories = shape[shape.rank() - 1], top_k = attrs.get_int("top_k");
  const double temperature = attrs.get_float("temperature"), top_p = attrs.get_float("top_p");
  check_range(op, "temperature", temperature, Range::at_least(0));
  check_range(op, "top_p", top_p, {.least = 0, .most = 1, .is_above = true});
  check_range(op, "top_k", static_cast<double>(top_k), Range::at_least(0));
  const bool has_limit = top_k > 0 && top_k < categories;
  return {temperature, top_p, has_limit ? top_k : categories, has_limit || top_p < 1};
}

// The noise of Gumbel's that a uniform number makes: of 0, -inf, which is not drawn.
Value gumbel(const Value& u) { return -log(-log(clamp(u, 0, 1))); }

Values compose_categorical(std::span<const Value> in, const Attrs& attrs) {
  const Value &logits = in[0], &uniform = in[1];
  const Limits limits = limits_of(logits, attrs);
  check_range("categorical", "temperature", limits.temperature, Range::above(0));
  const int last = logits.shape().rank() - 1;
  const Shape wanted = logits.shape().with_dim(last, limits.drawn_from);
  if (!(uniform.shape() == wanted) || !is_float(uniform.dtype())) {
    fail(ErrorKind::shape, "categorical: uniform is {}, needed are floats {}{}", to_string(uniform.type()),
         to_string(wanted), in_scope(logits.graph().scope.str()));
  }
  const Value wide = cast(logits, compute_dtype(logits.dtype())), noise = cast(gumbel(uniform), wide.dtype());
  if (!limits.is_sorted) return {argmax(wide * (1 / limits.temperature) + noise, last)};
  const Sorted largest =
      limits.drawn_from < logits.shape()[last] ? topk(wide, limits.drawn_from, last) : sort(wide, last, true);
  const Value scores = largest.values * (1 / limits.temperature);
  Value noisy = scores + noise;
  if (limits.top_p < 1) {
    const Value before = cumsum(softmax(scores, last), last, true);
    noisy = select(less(before, full(noisy.graph(), {}, limits.top_p, before.dtype())), noisy, -HUGE_VAL);
  }
  const Value drawn = argmax(noisy, last, true);
  return {reshape(gather_elements(largest.indices, drawn, last), logits.shape().with_removed(last))};
}

}  // namespace

void register_sampling_ops() {
  const auto options = [](double temperature, std::int64_t top_k, double top_p) {
    return Attrs{{"temperature", temperature}, {"top_k", top_k}, {"top_p", top_p}};
  };
  // Their uniform numbers have to lie between 0 and 1: sampling_test.cpp.
  register_op({
      .name = "categorical",
      .summary = "the category that uniform numbers choose with the probabilities softmax(logits / temperature)",
      .kind = OpKind::composed,
      .inputs = {"logits", "uniform"},
      .attrs = {{.name = "temperature", .example = 1.0, .doc = "what logits are divided by"},
                {.name = "top_k", .example = std::int64_t{0}, .doc = "how many logits are drawn from; all when 0"},
                {.name = "top_p", .example = 1.0, .doc = "the share of the probability that is drawn from"}},
      .compose = compose_categorical,
      .cases = {{.shapes = {{4, 7}, {4, 7}}},
                {.shapes = {{4, 7}, {4, 3}}, .attrs = options(0.5, 3, 1)},
                {.shapes = {{4, 7}, {4, 3}}, .attrs = options(0.5, 3, 0.6)},
                {.shapes = {{4, 7}, {4, 7}}, .attrs = options(1, 0, 0.6)},
                {.shapes = {{4, 7}, {4, 7}}, .attrs = options(1, 3, 1), .error = "uniform is f32[4,7], needed"},
                {.shapes = {{4, 7}, {4, 7}}, .attrs = options(-1, 0, 1), .error = "temperature = -1"},
                {.shapes = {{4, 7}, {4, 7}}, .attrs = options(1, -2, 1), .error = "top_k = -2"},
                {.shapes = {{4, 7}, {4, 7}}, .attrs = options(1, 0, 0), .error = "top_p = 0, needs to be above 0"},
                {.shapes = {{4}, {4}}, .dtypes = {i32, f32}, .error = "logits are i32"},
                {.shapes = {{4, 0}, {4, 0}}, .error = "needed is [.., categories]"},
                {.shapes = {{}, {}}, .error = "needed is [.., categories]"}},
  });
}

Value categorical(const Value& logits, const CategoricalOptions& options) {
  const Attrs attrs{{"temperature", options.temperature}, {"top_k", options.top_k}, {"top_p", options.top_p}};
  const Limits limits = limits_of(logits, attrs);
  const int last = logits.shape().rank() - 1;
  if (options.temperature == 0) return argmax(logits, last);
  // A purpose that is set is the graph's that all bodies are of.
  const Graph* root = &logits.graph();
  while (root->parent != nullptr) root = root->parent;
  const RandomPurpose purpose(logits.graph(),
                              root->random_purpose.empty() ? std::string_view("sampling") : root->random_purpose.str());
  const Value uniform = random_uniform(logits.graph(), logits.shape().with_dim(last, limits.drawn_from), 0, 1,
                                       logits.dtype() == f64 ? f64 : f32);
  return call("categorical", {logits, uniform}, attrs);
}

}  // namespace paoding
