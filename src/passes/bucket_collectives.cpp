// SPDX-License-Identifier: Apache-2.0
// bucket_collectives: reductions over the ranks that do not need each other become few, in the order in which their
// inputs are ready. A bucket is one value, into whose parts the inputs' kernels write; the planner reduces it where it
// lies.
//
//   p = all_reduce(a);  q = all_reduce(b)                                          # [64, 32], [32]
// becomes
//   s = concat(reshape(a), reshape(b));  r = all_reduce(s)                         # [2080]
//   p = reshape(slice(r, 0, 2048));  q = reshape(slice(r, 2048, 2080))
//
// Slices that a value is made of, as those of products that were combined are, become one part: the value itself, which
// is written where it is reduced. The last bucket is smaller, since nothing is left to compute while it is under way. A
// value that fills a bucket goes by itself. Within a bucket parts stand by how large a power of two divides their
// length, so that each begins where kernels can read and write several elements at once.
#include <algorithm>
#include <bit>
#include <functional>
#include <map>
#include <tuple>
#include <utility>

#include "base/check.h"
#include "ops/views.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/pass.h"

namespace paoding {
namespace {

constexpr std::int64_t kMostAligned = 64;       // elements: 256 bytes of f32, as values by themselves are
constexpr std::int64_t kShareOfLastBucket = 4;  // of CompileOptions::bucket_bytes: 1 / 4

struct Member {
  NodeId id = -1;     // the all_reduce
  NodeId ready = -1;  // the node that makes its input
  std::int64_t bytes = 0, elements = 0;
};

// Elements of a value, one after the other: all of a member's input.
struct SourceRange {
  Ref source;
  std::int64_t begin = 0;
};

// Members of a bucket have all of these alike. `level`: how many collectives they need, each for the next; those of
// a level do not need each other, whatever is merged on other levels.
using Kind = std::tuple<int, std::string, DType, Placement>;

class Buckets {
 public:
  Buckets(Graph& graph, std::int64_t bucket_bytes, PassNotes& notes)
      : graph_(graph), bucket_bytes_(bucket_bytes), notes_(notes) {}

  void run() {
    std::map<Kind, std::vector<Member>> kinds = collect();
    for (auto& [kind, members] : kinds) {
      std::ranges::stable_sort(members, {}, &Member::ready);
      cut(members);
    }
    if (replaced_.empty()) return;
    graph_.replace(replaced_);
    graph_.compact();
  }

 private:
  std::map<Kind, std::vector<Member>> collect() const {
    std::map<Kind, std::vector<Member>> kinds;
    std::vector<int> level(static_cast<std::size_t>(graph_.size()), 0);
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      int& mine = level[static_cast<std::size_t>(id)];
      for (const Ref& ref : node.inputs) mine = std::max(mine, level[static_cast<std::size_t>(ref.node)]);
      if (node.op->collective == Collective::none) continue;
      if (node.op->collective == Collective::all_reduce) {
        const Type& type = node.types[0];
        const auto& reduction = std::get<std::string>(*node.attrs.find("reduction"));
        kinds[{mine, reduction, type.dtype, node.placement}].push_back(
            {id, node.inputs[0].node, size_bytes(type), type.shape.elements()});
      }
      ++mine;
    }
    return kinds;
  }

  // Members in the order in which they are ready, from the last to the first.
  void cut(const std::vector<Member>& members) {
    std::vector<std::vector<Member>> buckets;
    std::vector<Member> open;
    std::int64_t bytes = 0;
    const auto close = [&] {
      if (open.size() > 1) buckets.push_back(open);
      if (!open.empty()) is_last_ = false;
      open.clear();
      bytes = 0;
    };
    is_last_ = true;
    for (std::size_t i = members.size(); i-- > 0;) {
      if (members[i].bytes >= bucket_bytes_) {
        if (open.empty()) is_last_ = false;  // it is the last itself
        continue;
      }
      const std::int64_t most = is_last_ ? bucket_bytes_ / kShareOfLastBucket : bucket_bytes_;
      if (bytes > 0 && bytes + members[i].bytes > most) close();
      open.push_back(members[i]);
      bytes += members[i].bytes;
    }
    close();
    for (auto bucket = buckets.rbegin(); bucket != buckets.rend(); ++bucket) merge(*bucket);
  }

  // The value that a view shows a part of, as far as its elements lie in a row there.
  SourceRange range_of(Ref ref) const {
    SourceRange range{ref, 0};
    for (;;) {
      const Node& node = graph_.node(range.source.node);
      if (node.op->view == ViewForm::reshaped) {
        range.source = node.inputs[0];
        continue;
      }
      if (node.op->view != ViewForm::sliced) return range;
      const Shape& from = graph_.type(node.inputs[0]).shape;
      const SliceRange slice = slice_range(node);
      std::int64_t inner = from.elements();
      int cut = -1;
      for (int axis = 0; axis < from.rank(); ++axis) {
        const auto at = static_cast<std::size_t>(axis);
        if (slice.step[at] != 1) return range;
        if (node.types[0].shape[axis] == from[axis]) continue;
        if (cut >= 0) return range;
        cut = axis;
      }
      for (int axis = 0; axis <= cut; ++axis) {
        inner /= std::max<std::int64_t>(from[axis], 1);
        if (axis < cut && from[axis] != 1) return range;
      }
      if (cut >= 0) range.begin += slice.start[static_cast<std::size_t>(cut)] * inner;
      range.source = node.inputs[0];
    }
  }

  // The values that the bucket consists of, each with the members that are parts of it and where they begin in it.
  struct Part {
    Ref value;
    std::int64_t elements = 0;
    std::vector<std::pair<Member, std::int64_t>> members = {};
  };
  std::vector<Part> parts_of(const std::vector<Member>& bucket) const {
    std::map<Ref, std::vector<std::pair<std::int64_t, Member>>> of_source;
    for (const Member& each : bucket) {
      const SourceRange range = range_of(graph_.node(each.id).inputs[0]);
      of_source[range.source].emplace_back(range.begin, each);
    }
    std::vector<Part> parts;
    for (const Member& each : bucket) {
      const Ref input = graph_.node(each.id).inputs[0];
      const SourceRange range = range_of(input);
      auto& all = of_source[range.source];
      if (all.empty()) continue;  // a part has it
      std::ranges::stable_sort(all, {}, [](const auto& one) { return one.first; });
      std::int64_t end = 0;
      bool is_whole = true;
      for (const auto& [begin, member] : all) is_whole &= begin == std::exchange(end, begin + member.elements);
      is_whole &= end == graph_.type(range.source).shape.elements();
      if (!is_whole) {
        parts.push_back({input, each.elements, {{each, 0}}});
        continue;
      }
      Part whole{range.source, end};
      for (const auto& [begin, member] : all) whole.members.emplace_back(member, begin);
      parts.push_back(std::move(whole));
      all.clear();
    }
    return parts;
  }

  static std::int64_t alignment_of(std::int64_t elements) {
    const auto bits = static_cast<std::uint64_t>(elements | kMostAligned);
    return std::int64_t{1} << std::countr_zero(bits);
  }

  void merge(const std::vector<Member>& bucket) {
    std::vector<Part> parts = parts_of(bucket);
    std::ranges::stable_sort(parts, std::greater(), [](const Part& each) { return alignment_of(each.elements); });
    const Node first = graph_.node(bucket[0].id);
    graph_.origin = first.op->name;
    graph_.scope = {};
    graph_.placement = first.placement;
    Values flat;
    std::int64_t bytes = 0;
    for (const Part& each : parts) flat.push_back(reshape(graph_.value(each.value), Shape{each.elements}));
    for (const Member& each : bucket) bytes += each.bytes;
    const Value together = flat.size() == 1 ? flat[0] : concat(flat, 0);
    const Value reduced = call(*first.op, std::array{together}, first.attrs)[0];
    std::int64_t at = 0;
    for (const Part& part : parts) {
      for (const auto& [each, begin] : part.members) {
        const Value mine = slice(reduced, 0, at + begin, at + begin + each.elements);
        replaced_[{each.id, 0}] = reshape(mine, graph_.node(each.id).types[0].shape).ref();
      }
      at += part.elements;
    }
    graph_.origin = {};
    graph_.placement = Placement::any;
    notes_.add(fmt::format("{} values of {} bytes are reduced over the ranks as one", bucket.size(), bytes));
  }

  Graph& graph_;
  const std::int64_t bucket_bytes_;
  PassNotes& notes_;
  bool is_last_ = true;
  std::map<Ref, Ref> replaced_;
};

}  // namespace

void bucket_collectives(Graph& graph, PassNotes& notes) {
  if (notes.kernel_setting().environment->communicator == nullptr) return;
  Buckets(graph, notes.bucket_bytes(), notes).run();
}

}  // namespace paoding
