// SPDX-License-Identifier: Apache-2.0
#include "passes/combined_weights.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "ops/views.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

// About the time of a kernel that waits for another, whatever it does.
constexpr double kLaunchUs = 1.5;
constexpr std::int64_t kAlignment = 16;  // bytes that kernels load at once

}  // namespace

std::optional<WeightsPiece> weights_piece(const ScanParts& parts, Ref weights, int axis) {
  const Shape& shape = parts.body.type(weights).shape;
  if (shape.rank() != 2) return std::nullopt;
  WeightsPiece piece{weights, 0, shape[axis]};
  const Node& node = parts.body.node(weights.node);
  if (node.op->view == ViewForm::sliced) {
    const SliceRange range = slice_range(node);
    const Shape& whole = parts.body.type(node.inputs[0]).shape;
    const auto other = static_cast<std::size_t>(1 - axis);
    if (!range.is_plain() || range.start[other] != 0 || range.end[other] != whole[1 - axis]) return std::nullopt;
    piece = {node.inputs[0], range.start[static_cast<std::size_t>(axis)], range.end[static_cast<std::size_t>(axis)]};
  }
  const ScanParts::Argument* given = parts.constant_read_as(piece.outer);
  if (given == nullptr) return std::nullopt;
  return WeightsPiece{given->outer, piece.begin, piece.end};
}

std::string why_apart(const Target& target, const ScanParts& parts, const std::vector<WeightsPiece>& pieces, int axis) {
  double bytes = 0;
  std::set<Ref> sources;
  for (const WeightsPiece& piece : pieces) {
    const Type& type = parts.graph.type(piece.outer);
    if ((piece.end - piece.begin) * size_bytes(type.dtype) % kAlignment != 0) return "their parts would not be aligned";
    if (!sources.insert(piece.outer).second) return "they read parts of one matrix";
    bytes += static_cast<double>(size_bytes(type));
  }
  const Type &first = parts.graph.type(pieces[0].outer), &last = parts.graph.type(pieces.back().outer);
  if (first.shape[1 - axis] != last.shape[1 - axis]) return "their weights do not fit together";
  const double saved = static_cast<double>(parts.length) * static_cast<double>(pieces.size() - 1) * kLaunchUs;
  const double spent = target.stream_us(bytes, bytes);
  if (saved > spent) return "";
  return fmt::format("{} steps save {:.1f} us, combining the weights takes {:.1f}", parts.length, saved, spent);
}

Ref combined_weights(ScanParts& parts, const std::vector<WeightsPiece>& pieces, int axis) {
  Graph& graph = parts.graph;
  // Whole matrices if the pieces are neighbours in them: then other products find theirs in the same one.
  bool are_neighbours = true;
  Values whole, cut;
  std::int64_t extent = 0;
  for (std::size_t i = 0; i < pieces.size(); ++i) {
    const Value source = graph.value(pieces[i].outer);
    are_neighbours = are_neighbours && (i == 0 || pieces[i].begin == 0) &&
                     (i + 1 == pieces.size() || pieces[i].end == source.shape()[axis]);
    whole.push_back(source);
    cut.push_back(slice(source, axis, pieces[i].begin, pieces[i].end));
    extent += pieces[i].end - pieces[i].begin;
  }
  const Value combined =
      are_neighbours ? slice(concat(whole, axis), axis, pieces[0].begin, pieces[0].begin + extent) : concat(cut, axis);
  return parts.add_constant(combined.ref());
}

}  // namespace paoding
