// SPDX-License-Identifier: Apache-2.0
#include "side_by_side.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "command.h"
#include "graph/verify.h"
#include "paoding/op.h"

namespace paoding::cli {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

std::vector<std::int64_t> index_at(const Shape& shape, std::int64_t at) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(shape.rank()));
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    index[static_cast<std::size_t>(axis)] = at % shape[axis];
    at /= shape[axis];
  }
  return index;
}

double distance(double value, double reference) {
  if (value == reference || (std::isnan(value) && std::isnan(reference))) return 0;
  const double between = std::abs(value - reference);
  return std::isfinite(between) ? between : kInfinity;
}

Type widened(Type type) {
  if (is_float(type.dtype)) type.dtype = f64;
  return type;
}

void widen_nodes(Graph& graph) {
  for (NodeId id = 0; id < graph.size(); ++id) {
    Node& node = graph.mutable_node(id);
    for (Type& type : node.types) type = widened(type);
    Attrs attrs;
    for (const auto& [name, value] : node.attrs.entries()) {
      const DType* dtype = std::get_if<DType>(&value);
      attrs.set(name, dtype != nullptr && is_float(*dtype) ? AttrValue(f64) : value);
    }
    node.attrs = attrs;
    for (const std::shared_ptr<Graph>& body : node.bodies) widen_nodes(*body);
  }
}

}  // namespace

Difference difference_of(const Tensor& value, const Tensor& reference, double tolerance) {
  if (!(value.shape() == reference.shape())) {
    fail(ErrorKind::shape, "one is {}, the other {}", to_string(value.type()), to_string(reference.type()));
  }
  const std::vector<double> ours = value.to_doubles(), theirs = reference.to_doubles();
  const bool is_exact = !is_float(value.dtype());
  double scale = 0;
  for (const double each : theirs) {
    if (std::isfinite(each)) scale = std::max(scale, std::abs(each));
  }
  Difference found;
  found.tolerance = is_exact ? 0 : tolerance;
  found.elements = static_cast<std::int64_t>(ours.size());
  std::int64_t most = 0;
  for (std::size_t i = 0; i < ours.size(); ++i) {
    const double absolute = distance(ours[i], theirs[i]);
    if (absolute == 0) continue;
    const double relative = is_exact || scale == 0 ? kInfinity : absolute / scale;
    if (relative > found.tolerance) ++found.differing;
    if (absolute > found.absolute) {
      found.absolute = absolute;
      most = static_cast<std::int64_t>(i);
    }
    found.relative = std::max(found.relative, relative);
  }
  if (!ours.empty()) {
    found.index = index_at(value.shape(), most);
    found.value = ours[static_cast<std::size_t>(most)];
    found.reference = theirs[static_cast<std::size_t>(most)];
  }
  return found;
}

double tolerance_of(DType dtype, const CompileOptions& options) {
  if (dtype == f32 && options.precision != f32) dtype = options.precision;
  if (dtype == f32 && options.allow_tf32) dtype = f16;  // the same bits of mantissa
  switch (dtype) {
    case DType::f64: return 1e-9;
    case DType::f32: return 1e-3;
    case DType::f16: return 2e-2;
    case DType::bf16: return 6e-2;
    default: return 0;
  }
}

void widen(Graph& graph) {
  widen_nodes(graph);
  try {
    verify(graph, "in f64");
  } catch (const InternalError& error) {
    fail(ErrorKind::unsupported,
         "an op of the graph cannot be computed in f64: {}; --with cpu computes it in its own types", error.what());
  }
}

Way::Way(const Graph& graph, const std::map<std::string, Tensor>& feeds, CompileOptions options, bool is_wide)
    : graph_(graph), feeds_(feeds), options_(std::move(options)), is_wide_(is_wide) {}

std::vector<Tensor> Way::values(std::span<const Ref> refs) const {
  const std::unique_ptr<Graph> graph = graph_.clone();
  if (is_wide_) widen(*graph);
  graph->mutable_fetches().clear();
  for (std::size_t i = 0; i < refs.size(); ++i) graph->fetch(fmt::format("{}", i), graph->value(refs[i]));
  graph->compact();
  CompileOptions options = options_;
  options.after_pass = [](const std::string& pass, const Graph&) {
    check_interrupted();
    show_progress("compiling: " + pass);
  };
  options.on_print = [](const Printed&) {};
  const auto fed = [&](const std::string& name, const Type& type) {
    const Tensor& given = feeds_.at(name);
    return given.type() == type ? given : Tensor::from(type.dtype, type.shape, given.to_doubles());
  };
  Parameters parameters(*graph, options.device);
  for (const std::string& name : parameters.names()) parameters.set(name, fed(name, graph->find(name).type()));
  Program program(*graph, options, &parameters);
  for (const std::string& name : program.input_names()) {
    program.set_input(program.input_index(name), fed(name, graph->find(name).type()));
  }
  show_progress("");
  check_interrupted();
  program.run();
  program.wait();
  std::vector<Tensor> values;
  for (std::size_t i = 0; i < refs.size(); ++i) {
    values.push_back(program.fetch(program.fetch_index(fmt::format("{}", i))));
  }
  return values;
}

std::vector<Ref> comparable(const Graph& graph) {
  std::vector<Ref> refs;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    const OpRole role = node.op->role;
    if (role == OpRole::source || role == OpRole::update || role == OpRole::alternatives) continue;
    for (std::size_t k = 0; k < node.types.size(); ++k) refs.push_back({id, static_cast<std::int32_t>(k)});
  }
  return refs;
}

std::vector<DifferingNode> first_differing(const Graph& graph, std::span<const Ref> refs, const Way& way,
                                           const Way& reference, const std::function<double(DType)>& tolerance,
                                           std::int64_t most_bytes) {
  std::vector<DifferingNode> found;
  for (std::size_t begin = 0; begin < refs.size();) {
    std::size_t end = begin;
    for (std::int64_t bytes = 0; end < refs.size(); ++end) {
      bytes += graph.type(refs[end]).shape.elements() * 8;
      if (end > begin && bytes > most_bytes) break;
    }
    const auto portion = refs.subspan(begin, end - begin);
    const std::vector<Tensor> ours = way.values(portion), theirs = reference.values(portion);
    for (std::size_t i = 0; i < portion.size(); ++i) {
      const DType dtype = graph.type(portion[i]).dtype;
      if (!found.empty() && !is_float(dtype)) continue;
      const Difference difference = difference_of(ours[i], theirs[i], tolerance(dtype));
      if (difference.is_equal()) continue;
      found.push_back({portion[i], difference});
      if (is_float(dtype)) return found;
    }
    begin = end;
  }
  return found;
}

}  // namespace paoding::cli
