// SPDX-License-Identifier: Apache-2.0
#include "tests/reference/reference_evaluator.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <stdexcept>
#include <utility>

#include "graph/formula.h"
#include "paoding/op.h"
#include "scalar/primitive.h"
#include "tests/reference/reference_ops.h"
#include "tests/support/disturbed_evaluator.h"

namespace paoding {
namespace {

using namespace reference;

std::map<std::string, std::function<std::vector<Dense>(const Call&)>>& meanings() {
  static std::map<std::string, std::function<std::vector<Dense>(const Call&)>> table;
  return table;
}

class Evaluation {
 public:
  Evaluation(const Graph& graph, const std::vector<Dense>& inputs, const std::vector<Dense>& parameters,
             const Disturb& disturb)
      : graph_(graph), disturb_(disturb), values_(at(graph.size())) {
    for (std::size_t i = 0; i < inputs.size(); ++i) values_[at(graph.inputs()[i])] = {inputs[i]};
    for (std::size_t i = 0; i < parameters.size(); ++i) values_[at(graph.parameters()[i])] = {parameters[i]};
    for (NodeId id = 0; id < graph.size(); ++id) {
      const Node& node = graph.node(id);
      if (node.op->name != "input" && node.op->name != "parameter") values_[at(id)] = disturbed(node);
    }
  }

  std::vector<Dense> fetches() const {
    std::vector<Dense> result;
    for (const Graph::Fetch& fetch : graph_.fetches()) result.push_back(value(fetch.ref));
    return result;
  }

 private:
  const Dense& value(Ref ref) const { return values_[at(ref.node)][at(ref.output)]; }
  Ints shape_of(Ref ref) const { return to_ints(graph_.type(ref).shape); }

  // Ops that hold bodies, move elements or choose among them do not round.
  static bool rounds(const Node& node) {
    static const std::set<std::string> exact = {"full",    "iota",    "reshape", "expand", "slice", "pad", "concat",
                                                "print",   "barrier", "variant", "assign", "max",   "min", "maximum",
                                                "minimum", "select",  "sort",    "gather", "neg",   "abs", "relu"};
    return node.bodies.empty() && node.op->kind != OpKind::composed && !exact.contains(node.op->name);
  }

  std::vector<Dense> disturbed(const Node& node) {
    if (!disturb_ || !rounds(node)) return run(node);
    const std::int64_t addends = addends_of(node);
    std::vector<std::pair<Ref, Dense>> kept;
    for (const Ref& ref : node.inputs) {
      if (addends == 0 || !is_float(graph_.type(ref).dtype)) continue;
      Dense& addend = values_[at(ref.node)][at(ref.output)];
      kept.emplace_back(ref, addend);
      disturb_(graph_.type(ref).dtype, addends, addend);
    }
    std::vector<Dense> made = run(node);
    for (auto entry = kept.rbegin(); entry != kept.rend(); ++entry) {
      values_[at(entry->first.node)][at(entry->first.output)] = entry->second;
    }
    for (std::size_t i = 0; i < made.size(); ++i) {
      if (is_float(node.types[i].dtype)) disturb_(node.types[i].dtype, 0, made[i]);
    }
    return made;
  }

  // How many elements are summed into one of the result; 0 where none are.
  std::int64_t addends_of(const Node& node) const {
    if (node.op->name == "matmul" || node.op->name == "matmul_wide") {
      const Ints shape = shape_of(node.inputs[0]);
      return shape[shape.size() - (node.attrs.get_bool("transpose_a") ? 2 : 1)];
    }
    const bool adds = node.op->name == "sum" || node.op->name == "prod";
    const std::int64_t results = adds ? node.types[0].shape.elements() : 0;
    return results == 0 ? 0 : graph_.type(node.inputs[0]).shape.elements() / results;
  }

  std::vector<Dense> run(const Node& node) {
    const std::string& op = node.op->name;
    if (op == "scan") return run_scan(node);
    if (op == "branch") return run_branch(node);
    if (op == "while") return run_while(node);
    if (op == "print" || op == "barrier") return inputs_of(node);
    if (op == "assign") return {value(node.inputs[1])};
    if (op == "variant") return {value(node.inputs[1 + chosen(node.inputs[0], node.inputs.size() - 1)])};
    if (op == "group" || op == "checkpoint") {
      std::vector<Dense> inputs;
      for (const Ref& ref : node.inputs) inputs.push_back(value(ref));
      return Evaluation(*node.bodies.at(0), inputs, {}, disturb_).fetches();
    }
    if (node.op->kind == OpKind::formula) return {run_formula(node)};
    if (op == "full") return {Dense(at(node.types[0].shape.elements()), node.attrs.get_float("value"))};
    if (op == "reshape") return {value(node.inputs[0])};
    if (op == "expand") return {run_expand(node)};
    if (op == "slice") return {run_slice(node)};
    if (op == "pad") return {run_pad(node)};
    if (op == "concat") return {run_concat(node)};
    if (op == "iota") return {run_iota(node)};
    if (node.op->kind == OpKind::reduction) return {run_reduction(node)};
    if (op == "matmul" || op == "matmul_wide") return {run_matmul(node)};
    const bool is_taken_apart = disturb_ && node.op->kind == OpKind::composed;
    if (const auto it = meanings().find(op); it != meanings().end() && !is_taken_apart) {
      return it->second(call_of(node));
    }
    if (node.op->kind == OpKind::composed) return run_composed(node);
    throw std::invalid_argument("reference evaluator: does not know op '" + op + "'");
  }

  // A composed op that has no definition here is evaluated by its composition.
  std::vector<Dense> run_composed(const Node& node) {
    Graph parts;
    Values values;
    std::vector<Dense> inputs;
    for (const Ref& ref : node.inputs) {
      const Type& type = graph_.type(ref);
      values.push_back(parts.input("in" + std::to_string(values.size()), type.dtype, type.shape));
      inputs.push_back(value(ref));
    }
    const Values made = expand_composed(parts, *node.op, values, node.attrs);
    for (const Value& output : made) parts.fetch("out" + std::to_string(parts.fetches().size()), output);
    return Evaluation(parts, inputs, {}, disturb_).fetches();
  }

  std::vector<Dense> inputs_of(const Node& node) const {
    std::vector<Dense> list;
    for (const Ref& ref : node.inputs) list.push_back(value(ref));
    return list;
  }

  // Which of `count` branches an index stands for: the last one when there is none of that number.
  std::size_t chosen(Ref index, std::size_t count) const {
    const double number = value(index)[0];
    return number >= 0 && number < static_cast<double>(count) ? static_cast<std::size_t>(number) : count - 1;
  }

  // Results that only branches give which are not taken are NaN: nothing may depend on them.
  std::vector<Dense> run_branch(const Node& node) {
    const std::size_t taken = chosen(node.inputs[0], node.bodies.size()), common = at(node.attrs.get_int("common"));
    std::vector<Dense> inputs = inputs_of(node);
    inputs.erase(inputs.begin());
    const std::vector<Dense> made = Evaluation(*node.bodies[taken], inputs, {}, disturb_).fetches();
    std::vector<Dense> results(made.begin(), made.begin() + static_cast<std::ptrdiff_t>(common));
    std::size_t own = common;
    for (std::int64_t owner : node.attrs.get_ints("owners")) {
      const bool is_made = at(owner) == taken;
      const Type& type = node.types[results.size()];
      results.push_back(is_made ? made[own++] : Dense(at(type.shape.elements()), std::nan("")));
    }
    return results;
  }

  std::vector<Dense> run_while(const Node& node) {
    std::vector<Dense> values = inputs_of(node);
    while (Evaluation(*node.bodies[0], values, {}, disturb_).fetches()[0][0] != 0) {
      const std::vector<Dense> next = Evaluation(*node.bodies[1], values, {}, disturb_).fetches();
      std::copy(next.begin(), next.end(), values.begin());
    }
    values.resize(node.types.size());
    return values;
  }

  Call call_of(const Node& node) const {
    Call call{node, {}, {}};
    for (const Ref& ref : node.inputs) {
      call.inputs.push_back(value(ref));
      call.types.push_back(graph_.type(ref));
    }
    return call;
  }

  Dense run_formula(const Node& node) {
    std::vector<DType> dtypes;
    for (const Ref& ref : node.inputs) dtypes.push_back(graph_.type(ref).dtype);
    const TracedFormula& formula = traced_formula(*node.op, dtypes, node.attrs);
    Dense result;
    for_each_index(to_ints(node.types[0].shape), [&](const Ints& index) {
      Dense arguments;
      for (const Ref& ref : node.inputs) arguments.push_back(value(ref)[at(broadcast_offset(index, shape_of(ref)))]);
      result.push_back(evaluate(formula.expr, arguments)[at(formula.root)]);
    });
    return result;
  }

  Dense run_expand(const Node& node) {
    const Dense& a = value(node.inputs[0]);
    const Ints shape = shape_of(node.inputs[0]);
    Dense result;
    for_each_index(to_ints(node.types[0].shape),
                   [&](const Ints& index) { result.push_back(a[at(broadcast_offset(index, shape))]); });
    return result;
  }

  Dense run_slice(const Node& node) {
    const Dense& a = value(node.inputs[0]);
    const Ints shape = shape_of(node.inputs[0]), start = node.attrs.get_ints("start");
    Ints step = node.attrs.get_ints("step");
    step.resize(start.size(), 1);
    Dense result;
    for_each_index(to_ints(node.types[0].shape), [&](Ints index) {
      for (std::size_t axis = 0; axis < index.size(); ++axis) index[axis] = start[axis] + index[axis] * step[axis];
      result.push_back(a[at(offset(index, shape))]);
    });
    return result;
  }

  Dense run_pad(const Node& node) {
    const Dense& a = value(node.inputs[0]);
    const Ints before = node.attrs.get_ints("before"), whole = to_ints(node.types[0].shape);
    Ints between = node.attrs.get_ints("interior");
    between.resize(before.size(), 0);
    Dense result(at(node.types[0].shape.elements()), node.attrs.get_float("value"));
    std::size_t next = 0;
    for_each_index(shape_of(node.inputs[0]), [&](Ints index) {
      for (std::size_t k = 0; k < index.size(); ++k) index[k] = before[k] + index[k] * (between[k] + 1);
      result[at(offset(index, whole))] = a[next++];
    });
    return result;
  }

  Dense run_concat(const Node& node) {
    const Ints whole = to_ints(node.types[0].shape);
    const std::size_t axis = plain(node.attrs.get_int("axis"), whole.size());
    Dense result(at(node.types[0].shape.elements()), 0.0);
    std::int64_t start = 0;
    for (const Ref& ref : node.inputs) {
      std::size_t next = 0;
      for_each_index(shape_of(ref), [&](Ints index) {
        index[axis] += start;
        result[at(offset(index, whole))] = value(ref)[next++];
      });
      start += shape_of(ref)[axis];
    }
    return result;
  }

  Dense run_iota(const Node& node) {
    const Ints& strides = node.attrs.get_ints("strides");
    Dense result;
    for_each_index(to_ints(node.types[0].shape), [&](const Ints& index) {
      std::int64_t value = node.attrs.get_int("start");
      for (std::size_t axis = 0; axis < index.size(); ++axis) value += index[axis] * strides[axis];
      result.push_back(static_cast<double>(value));
    });
    return result;
  }

  // The result of a reduction of no element.
  static double start_of(const std::string& op, DType dtype) {
    const bool is_max = op == "max";
    if (op == "sum") return 0;
    if (op == "prod") return 1;
    if (dtype == DType::boolean) return is_max ? 0 : 1;
    if (dtype == DType::u8) return is_max ? 0 : 255;
    if (dtype == DType::i32) return is_max ? -2147483648.0 : 2147483647.0;
    if (dtype == DType::i64) return is_max ? -0x1p63 : 0x1p63;
    return is_max ? -INFINITY : INFINITY;
  }

  Dense run_reduction(const Node& node) {
    const Dense& a = value(node.inputs[0]);
    const Ints shape = shape_of(node.inputs[0]);
    const Ints axes = node.attrs.get_ints("axes");
    const std::string& op = node.op->name;
    std::vector<bool> reduced(shape.size(), axes.empty());
    for (std::int64_t axis : axes) reduced[plain(axis, shape.size())] = true;
    Ints kept;  // the result's shape with reduced axes as 1: the same order of elements with and without keepdims
    for (std::size_t axis = 0; axis < shape.size(); ++axis) kept.push_back(reduced[axis] ? 1 : shape[axis]);
    Dense result(at(node.types[0].shape.elements()), start_of(op, node.types[0].dtype));
    std::size_t next = 0;
    for_each_index(shape, [&](const Ints& index) {
      double& so_far = result[at(broadcast_offset(index, kept))];
      const double x = a[next++];
      if (op == "sum") so_far += x;
      if (op == "prod") so_far *= x;
      if (op == "max" && !(std::isnan(so_far) || x <= so_far)) so_far = x;
      if (op == "min" && !(std::isnan(so_far) || x >= so_far)) so_far = x;
    });
    return result;
  }

  Dense run_matmul(const Node& node) {
    const Dense &a = value(node.inputs[0]), &b = value(node.inputs[1]);
    const Ints a_shape = shape_of(node.inputs[0]), b_shape = shape_of(node.inputs[1]);
    const bool ta = node.attrs.get_bool("transpose_a"), tb = node.attrs.get_bool("transpose_b");
    const std::size_t rank_a = a_shape.size(), rank_b = b_shape.size();
    const Ints a_batch(a_shape.begin(), a_shape.end() - 2), b_batch(b_shape.begin(), b_shape.end() - 2);
    const std::int64_t inner = a_shape[rank_a - (ta ? 2 : 1)];
    Dense result;
    for_each_index(to_ints(node.types[0].shape), [&](const Ints& index) {
      const Ints batch(index.begin(), index.end() - 2);
      const std::int64_t m = index[index.size() - 2], n = index[index.size() - 1];
      const std::int64_t a_start = broadcast_offset(batch, a_batch) * a_shape[rank_a - 2] * a_shape[rank_a - 1];
      const std::int64_t b_start = broadcast_offset(batch, b_batch) * b_shape[rank_b - 2] * b_shape[rank_b - 1];
      double total = 0;
      for (std::int64_t k = 0; k < inner; ++k) {
        const std::int64_t ia = ta ? k * a_shape[rank_a - 1] + m : m * a_shape[rank_a - 1] + k;
        const std::int64_t ib = tb ? n * b_shape[rank_b - 1] + k : k * b_shape[rank_b - 1] + n;
        total += a[at(a_start + ia)] * b[at(b_start + ib)];
      }
      result.push_back(total);
    });
    return result;
  }

  // Inputs: carries, sequences, constants; outputs: last carries, then each step's fetches after them, stacked.
  std::vector<Dense> run_scan(const Node& node) {
    const std::size_t carries = at(node.attrs.get_int("carries")), sequences = at(node.attrs.get_int("sequences"));
    const std::int64_t length = node.attrs.get_int("length");
    const bool reverse = node.attrs.get_bool("reverse");
    std::vector<Dense> results(node.types.size());
    for (std::size_t i = 0; i < results.size(); ++i) {
      results[i] = i < carries ? value(node.inputs[i]) : Dense(at(node.types[i].shape.elements()), 0.0);
    }
    for (std::int64_t step = 0; step < length; ++step) {
      const std::int64_t t = reverse ? length - 1 - step : step;
      std::vector<Dense> inputs;
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        const Dense& whole = value(node.inputs[i]);
        if (i < carries) {
          inputs.push_back(results[i]);
        } else if (i < carries + sequences) {
          const std::int64_t size = static_cast<std::int64_t>(whole.size()) / length;
          inputs.emplace_back(whole.begin() + t * size, whole.begin() + (t + 1) * size);
        } else {
          inputs.push_back(whole);
        }
      }
      const std::vector<Dense> made = Evaluation(*node.bodies.at(0), inputs, {}, disturb_).fetches();
      for (std::size_t i = 0; i < made.size(); ++i) {
        if (i < carries) {
          results[i] = made[i];
        } else {
          std::copy(made[i].begin(), made[i].end(), results[i].begin() + t * static_cast<std::int64_t>(made[i].size()));
        }
      }
    }
    return results;
  }

  const Graph& graph_;
  const Disturb& disturb_;
  std::vector<std::vector<Dense>> values_;  // [node][output]
};

std::vector<Dense> fed(const Graph& graph, const std::vector<NodeId>& nodes,
                       const std::map<std::string, Dense>& feeds) {
  std::vector<Dense> list;
  for (NodeId id : nodes) {
    const Node& node = graph.node(id);
    const auto it = feeds.find(node.name.str());
    if (it == feeds.end()) throw std::invalid_argument("reference evaluator: no feed for '" + node.name.str() + "'");
    if (it->second.size() != at(node.types[0].shape.elements())) {
      throw std::invalid_argument("reference evaluator: the feed for '" + node.name.str() + "' has " +
                                  std::to_string(it->second.size()) + " elements, its type is " +
                                  to_string(node.types[0]));
    }
    list.push_back(it->second);
  }
  return list;
}

}  // namespace

std::map<std::string, std::vector<double>> evaluate_graph(const Graph& graph,
                                                          const std::map<std::string, std::vector<double>>& feeds) {
  return evaluate_graph(graph, feeds, {});
}

std::map<std::string, std::vector<double>> evaluate_graph(const Graph& graph,
                                                          const std::map<std::string, std::vector<double>>& feeds,
                                                          const Disturb& disturb) {
  const std::vector<Dense> results =
      Evaluation(graph, fed(graph, graph.inputs(), feeds), fed(graph, graph.parameters(), feeds), disturb).fetches();
  std::map<std::string, Dense> named;
  for (std::size_t i = 0; i < results.size(); ++i) named[graph.fetches()[i].name] = results[i];
  return named;
}

bool reference::add(const std::string& op, std::function<std::vector<Dense>(const Call&)> meaning) {
  return meanings().emplace(op, std::move(meaning)).second;
}

}  // namespace paoding
