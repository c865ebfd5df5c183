// SPDX-License-Identifier: Apache-2.0
// all_reduce, reduce_scatter, all_gather, broadcast, is_rank. They are lowered when the number of ranks is known:
// passes/lower_collectives.cpp. Kernels: ranks_kernel.cpp.
#include "base/check.h"
#include "base/one_line.h"
#include "ops/collective/reduction_attr.h"
#include "ops/families.h"
#include "paoding/communicator.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

constexpr std::int64_t kMostRanks = 1 << 20;  // of any machine there is, and far from where products overflow

void check_reduction(const OpCall& call) {
  const std::string& reduction = std::get<std::string>(*call.attrs.find("reduction"));
  const Type& x = call.inputs[0];
  if (reduction != "sum" && reduction != "mean" && reduction != "max" && reduction != "min") {
    call.fail(ErrorKind::argument,
              fmt::format("reduction = '{}', needs to be sum, mean, max or min", one_line(reduction)));
  }
  if (x.dtype == boolean) call.fail(ErrorKind::dtype, "x is bool; cast it to an integer first");
  if (reduction == "mean" && !is_float(x.dtype)) {
    call.fail(ErrorKind::dtype, fmt::format("x is {}, of which there is no mean; cast it first", to_string(x)));
  }
}

std::int64_t ranks_of(const OpCall& call) {
  const std::int64_t ranks = call.attrs.get_int("ranks");
  if (ranks < 1 || ranks > kMostRanks) {
    call.fail(ErrorKind::argument, fmt::format("ranks = {}, needs to be from 1 to {}", ranks, kMostRanks));
  }
  if (call.inputs[0].shape.rank() == 0) call.fail(ErrorKind::shape, "x is a scalar, needed is an axis 0");
  return ranks;
}

std::vector<Type> infer_all_reduce(const OpCall& call) {
  check_reduction(call);
  return {call.inputs[0]};
}

std::vector<Type> infer_reduce_scatter(const OpCall& call) {
  check_reduction(call);
  const std::int64_t ranks = ranks_of(call);
  const Type& x = call.inputs[0];
  if (x.shape[0] % ranks != 0) {
    call.fail(ErrorKind::shape, fmt::format("x is {}, whose axis 0 is no multiple of {} ranks", to_string(x), ranks));
  }
  return {Type{x.dtype, x.shape.with_dim(0, x.shape[0] / ranks)}};
}

std::vector<Type> infer_all_gather(const OpCall& call) {
  const std::int64_t ranks = ranks_of(call);
  const Type& x = call.inputs[0];
  if (x.dtype == boolean) call.fail(ErrorKind::dtype, "x is bool; cast it to an integer first");
  if (x.shape[0] > (std::int64_t{1} << 40) / ranks) {
    call.fail(ErrorKind::shape, fmt::format("x is {}: {} of it are too many", to_string(x), ranks));
  }
  return {Type{x.dtype, x.shape.with_dim(0, x.shape[0] * ranks)}};
}

std::vector<Type> infer_broadcast(const OpCall& call) {
  const std::int64_t root = call.attrs.get_int("root");
  if (root < 0 || root >= kMostRanks) {
    call.fail(ErrorKind::argument, fmt::format("root = {}, needs to be the number of a rank", root));
  }
  if (call.inputs[0].dtype == boolean) call.fail(ErrorKind::dtype, "x is bool; cast it to an integer first");
  return {call.inputs[0]};
}

std::vector<Type> infer_is_rank(const OpCall& call) {
  const std::int64_t number = call.attrs.get_int("number");
  if (number < 0 || number >= kMostRanks) {
    call.fail(ErrorKind::argument, fmt::format("number = {}, needs to be the number of a rank", number));
  }
  return {Type{boolean, {}}};
}

std::string_view reduction_text(const Node& node) { return std::get<std::string>(*node.attrs.find("reduction")); }

bool is_linear(std::string_view reduction) { return reduction == "sum" || reduction == "mean"; }

Values all_reduce_gradient(const GradCall& call) {
  const std::string_view reduction = reduction_text(call.node);
  const Value& g = call.grads[0];
  if (is_linear(reduction)) return {all_reduce(g, reduction)};
  const Value &x = call.inputs[0], &y = call.outputs[0];
  const Value is_it = cast(equal(x, y), g.dtype());
  return {all_reduce(g, "sum") * is_it / all_reduce(is_it, "sum")};
}

Values reduce_scatter_gradient(const GradCall& call) {
  const std::string_view reduction = reduction_text(call.node);
  const std::int64_t ranks = call.node.attrs.get_int("ranks");
  if (!is_linear(reduction)) {
    fail(ErrorKind::unsupported, "reduce_scatter: there is no gradient of its {}{}", reduction,
         in_scope(call.node.scope.str()));
  }
  const Value all = all_gather(call.grads[0], ranks);
  return {reduction == "sum" ? all : all * (1.0 / static_cast<double>(ranks))};
}

Values all_gather_gradient(const GradCall& call) {
  return {reduce_scatter(call.grads[0], call.node.attrs.get_int("ranks"))};
}

Values broadcast_gradient(const GradCall& call) {
  const Value sum = all_reduce(call.grads[0]);
  const Value is_root = is_rank(call.graph, call.node.attrs.get_int("root"));
  return {select(is_root, sum, full(call.graph, {}, 0, sum.dtype()))};
}

// Network and memory of other ranks: the time is not known.
OpCost no_flops(const CostCall&) { return {}; }

AttrSpec reduction_attr() {
  return {.name = "reduction", .example = std::string("sum"), .doc = "sum, mean, max or min"};
}
AttrSpec ranks_attr() {
  return {.name = "ranks", .example = std::int64_t{1}, .required = true, .doc = "how many ranks there are"};
}

}  // namespace

bool asks_for_mean(const Attrs& attrs) {
  const AttrValue* reduction = attrs.find("reduction");
  return reduction != nullptr && std::get<std::string>(*reduction) == "mean";
}

Attrs with_sum(Attrs attrs) {
  attrs.set("reduction", std::string("sum"));
  return attrs;
}

Reduction reduction_of(const Attrs& attrs) {
  const std::string& text = std::get<std::string>(*attrs.find("reduction"));
  return text == "max" ? Reduction::max : text == "min" ? Reduction::min : Reduction::sum;
}

std::string_view to_string(Reduction reduction) {
  constexpr std::string_view kNames[] = {"sum", "max", "min"};
  return kNames[static_cast<std::size_t>(reduction)];
}

Value all_reduce(const Value& x, std::string_view reduction) {
  return call("all_reduce", {x}, {{"reduction", std::string(reduction)}});
}
Value reduce_scatter(const Value& x, std::int64_t ranks, std::string_view reduction) {
  return call("reduce_scatter", {x}, {{"ranks", ranks}, {"reduction", std::string(reduction)}});
}
Value all_gather(const Value& x, std::int64_t ranks) { return call("all_gather", {x}, {{"ranks", ranks}}); }
Value broadcast(const Value& x, std::int64_t root) { return call("broadcast", {x}, {{"root", root}}); }
Value is_rank(Graph& graph, std::int64_t number) {
  return call(*find_op("is_rank"), {}, {{"number", number}}, {}, &graph).front();
}

void register_collectives() {
  register_op({
      .name = "all_reduce",
      .summary = "the sum of the ranks' x, or their mean, max or min, on every rank",
      .kind = OpKind::kernel,
      .inputs = {"x"},
      .attrs = {reduction_attr()},
      .cost = no_flops,
      .aliases = {{.result = 0, .input = 0}},
      .collective = Collective::all_reduce,
      .infer = infer_all_reduce,
      .gradient = all_reduce_gradient,
  });
  register_op({
      .name = "reduce_scatter",
      .summary = "the rank's part, along axis 0, of the sum of the ranks' x, or of their mean, max or min",
      .kind = OpKind::kernel,
      .inputs = {"x"},
      .attrs = {ranks_attr(), reduction_attr()},
      .cost = no_flops,
      .collective = Collective::reduce_scatter,
      .infer = infer_reduce_scatter,
      .gradient = reduce_scatter_gradient,
  });
  register_op({
      .name = "all_gather",
      .summary = "the ranks' x along axis 0, in the order of the ranks",
      .kind = OpKind::kernel,
      .inputs = {"x"},
      .attrs = {ranks_attr()},
      .cost = no_flops,
      .collective = Collective::all_gather,
      .infer = infer_all_gather,
      .gradient = all_gather_gradient,
  });
  register_op({
      .name = "broadcast",
      .summary = "the x of rank root, on every rank",
      .kind = OpKind::kernel,
      .inputs = {"x"},
      .attrs = {{.name = "root", .example = std::int64_t{0}, .doc = "the rank whose x it is"}},
      .cost = no_flops,
      .aliases = {{.result = 0, .input = 0}},
      .collective = Collective::broadcast,
      .infer = infer_broadcast,
      .gradient = broadcast_gradient,
  });
  register_op({
      .name = "is_rank",
      .summary = "whether this is the rank of that number",
      .kind = OpKind::kernel,
      .attrs = {{.name = "number", .example = std::int64_t{0}, .required = true, .doc = "the number of a rank"}},
      .collective = Collective::rank_test,
      .infer = infer_is_rank,
  });
}

}  // namespace paoding
