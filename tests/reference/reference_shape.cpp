// SPDX-License-Identifier: Apache-2.0
// The definitions of constants, transposes and ops on indices, element by element.
#include <cmath>
#include <numeric>
#include <stdexcept>

#include "tests/reference/reference_ops.h"

namespace paoding::reference {
namespace {

std::vector<Dense> constant(const Call& call) {
  const AttrValue& values = *call.node.attrs.find("values");
  if (const Ints* ints = std::get_if<Ints>(&values)) return {Dense(ints->begin(), ints->end())};
  return {std::get<Dense>(values)};
}

std::vector<Dense> transpose(const Call& call) {
  const Ints shape = call.shape(0), permutation = call.node.attrs.get_ints("permutation");
  Dense result;
  for_each_index(call.result_shape(), [&](const Ints& index) {
    Ints from(index.size());
    for (std::size_t i = 0; i < index.size(); ++i) from[plain(permutation[i], index.size())] = index[i];
    result.push_back(call.inputs[0][at(offset(from, shape))]);
  });
  return {result};
}

std::int64_t checked(double id, std::int64_t extent) {
  if (id < 0 || id >= static_cast<double>(extent)) throw std::invalid_argument("an index is out of range");
  return static_cast<std::int64_t>(id);
}

// The index into a (the gathered side) for an index of the other side: the indices' axes become one.
Ints gathered(const Ints& index, std::size_t axis, std::size_t index_rank, std::int64_t id) {
  Ints from(index.begin(), index.begin() + static_cast<std::ptrdiff_t>(axis));
  from.push_back(id);
  from.insert(from.end(), index.begin() + static_cast<std::ptrdiff_t>(axis + index_rank), index.end());
  return from;
}

Ints index_part(const Ints& index, std::size_t axis, std::size_t index_rank) {
  return {index.begin() + static_cast<std::ptrdiff_t>(axis),
          index.begin() + static_cast<std::ptrdiff_t>(axis + index_rank)};
}

std::vector<Dense> gather(const Call& call) {
  const Ints shape = call.shape(0), indices = call.shape(1);
  const std::size_t axis = plain(call.node.attrs.get_int("axis"), shape.size());
  Dense result;
  for_each_index(call.result_shape(), [&](const Ints& index) {
    const double id = call.inputs[1][at(offset(index_part(index, axis, indices.size()), indices))];
    result.push_back(
        call.inputs[0][at(offset(gathered(index, axis, indices.size(), checked(id, shape[axis])), shape))]);
  });
  return {result};
}

std::vector<Dense> scatter_add(const Call& call) {
  const Ints indices = call.shape(0), shape = call.result_shape();
  const std::size_t axis = plain(call.node.attrs.get_int("axis"), shape.size());
  Dense result(at(call.node.types[0].shape.elements()), 0.0);
  std::size_t next = 0;
  for_each_index(call.shape(1), [&](const Ints& index) {
    const double id = call.inputs[0][at(offset(index_part(index, axis, indices.size()), indices))];
    result[at(offset(gathered(index, axis, indices.size(), checked(id, shape[axis])), shape))] +=
        call.inputs[1][next++];
  });
  return {result};
}

std::vector<Dense> scatter_add_sorted(const Call& call) {
  const Ints indices = call.shape(0), shape = call.result_shape(), all = call.shape(3);
  const std::size_t axis = plain(call.node.attrs.get_int("axis"), shape.size());
  std::vector<double> id_at(call.inputs[1].size());  // by place
  for (std::size_t k = 0; k < id_at.size(); ++k) id_at.at(at(std::int64_t(call.inputs[2][k]))) = call.inputs[1][k];
  Dense result(at(call.node.types[0].shape.elements()), 0.0);
  std::size_t next = 0;
  for_each_index(all, [&](const Ints& index) {
    const double id = id_at[at(offset(index_part(index, axis, indices.size()), indices))],
                 update = call.inputs[3][next++];
    if (id == static_cast<double>(call.node.attrs.get_int("padding"))) return;
    result[at(offset(gathered(index, axis, indices.size(), checked(id, shape[axis])), shape))] += update;
  });
  return {result};
}

std::vector<Dense> gather_elements(const Call& call) {
  const Ints shape = call.shape(0);
  const std::size_t axis = plain(call.node.attrs.get_int("axis"), shape.size());
  Dense result;
  for_each_index(call.result_shape(), [&](Ints index) {
    index[axis] = checked(call.inputs[1][result.size()], shape[axis]);
    result.push_back(call.inputs[0][at(offset(index, shape))]);
  });
  return {result};
}

std::vector<Dense> scatter_add_elements(const Call& call) {
  const Ints shape = call.result_shape();
  const std::size_t axis = plain(call.node.attrs.get_int("axis"), shape.size());
  Dense result(at(call.node.types[0].shape.elements()), 0.0);
  std::size_t next = 0;
  for_each_index(call.shape(1), [&](Ints index) {
    index[axis] = checked(call.inputs[0][next], shape[axis]);
    result[at(offset(index, shape))] += call.inputs[1][next++];
  });
  return {result};
}

// Visits every row along `axis`: the positions of its elements in a value of `shape`.
void for_each_row(Ints shape, std::size_t axis, const std::function<void(const std::vector<std::size_t>&)>& visit) {
  const std::int64_t extent = shape[axis];
  Ints one = shape;
  one[axis] = 1;
  for_each_index(one, [&](Ints index) {
    std::vector<std::size_t> row;
    for (std::int64_t i = 0; i < extent; ++i) {
      index[axis] = i;
      row.push_back(at(offset(index, shape)));
    }
    visit(row);
  });
}

// The first `taken` in order, a NaN being above every number; equal ones as they stood.
std::vector<Dense> ordered(const Call& call, bool descending, std::int64_t taken) {
  const Ints shape = call.shape(0);
  const std::size_t axis = plain(call.node.attrs.get_int("axis"), shape.size());
  const Dense& a = call.inputs[0];
  const auto elements = at(call.node.types[0].shape.elements());
  Dense values(elements), indices(elements);
  std::vector<std::vector<std::size_t>> targets;
  Ints kept = shape;
  kept[axis] = taken;
  for_each_row(kept, axis, [&](const std::vector<std::size_t>& row) { targets.push_back(row); });
  std::size_t next = 0;
  const auto above = [](double x, double y) { return std::isnan(x) ? !std::isnan(y) : x > y; };
  for_each_row(shape, axis, [&](const std::vector<std::size_t>& row) {
    std::vector<std::size_t> order(row.size());
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t x, std::size_t y) {
      return descending ? above(a[row[x]], a[row[y]]) : above(a[row[y]], a[row[x]]);
    });
    for (std::size_t i = 0; i < at(taken); ++i) {
      values[targets[next][i]] = a[row[order[i]]];
      indices[targets[next][i]] = static_cast<double>(order[i]);
    }
    ++next;
  });
  return {values, indices};
}

std::vector<Dense> sort(const Call& call) {
  const Ints shape = call.shape(0);
  return ordered(call, call.node.attrs.get_bool("descending"),
                 shape[plain(call.node.attrs.get_int("axis"), shape.size())]);
}

std::vector<Dense> topk(const Call& call) {
  return ordered(call, call.node.attrs.get_bool("largest"), call.node.attrs.get_int("k"));
}

std::vector<Dense> cumsum(const Call& call) {
  const Ints shape = call.shape(0);
  Dense result(call.inputs[0].size());
  for_each_row(shape, plain(call.node.attrs.get_int("axis"), shape.size()), [&](std::vector<std::size_t> row) {
    if (call.node.attrs.get_bool("reverse")) std::reverse(row.begin(), row.end());
    double total = 0;
    for (const std::size_t i : row) {
      const double before = total;
      total += call.inputs[0][i];
      result[i] = call.node.attrs.get_bool("exclusive") ? before : total;
    }
  });
  return {result};
}

[[maybe_unused]] const bool added[] = {
    add("constant", constant),
    add("transpose", transpose),
    add("gather", gather),
    add("check_indices", [](const Call& call) { return std::vector<Dense>{call.inputs[0]}; }),
    add("scatter_add", scatter_add),
    add("scatter_add_sorted", scatter_add_sorted),
    add("gather_elements", gather_elements),
    add("scatter_add_elements", scatter_add_elements),
    add("sort", sort),
    add("topk", topk),
    add("cumsum", cumsum),
};

}  // namespace
}  // namespace paoding::reference
