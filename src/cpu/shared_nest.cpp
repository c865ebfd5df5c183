// SPDX-License-Identifier: Apache-2.0
#include "cpu/shared_nest.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <mutex>
#include <unordered_map>

#include "base/hash.h"
#include "cpu/fused_routine.h"
#include "cpu/parallel.h"
#include "cpu/this_cpu.h"

namespace paoding {
namespace {

using Key = std::vector<std::uint64_t>;

struct KeyHash {
  std::size_t operator()(const Key& key) const {
    return hash_of_text({reinterpret_cast<const char*>(key.data()), key.size() * sizeof(std::uint64_t)});
  }
};

// All that a nest depends on, each list with its length in front.
class KeyWriter {
 public:
  explicit KeyWriter(std::size_t words) { key_.reserve(words); }
  template <class Number>
  void add(Number number) {
    key_.push_back(static_cast<std::uint64_t>(number));
  }
  void add_list(const std::vector<std::int64_t>& numbers) {
    add(numbers.size());
    for (const std::int64_t number : numbers) add(number);
  }
  void add_node(const ExprNode& node) {
    add(static_cast<std::uint64_t>(node.prim) << 8 | static_cast<std::uint64_t>(node.dtype));
    for (const std::int32_t arg : node.args) add(arg);
    add(node.index);
    add(std::bit_cast<std::uint64_t>(node.value));  // so that -0.0 and NaN stay themselves
    add(node.whole);
  }
  Key take() { return std::move(key_); }

 private:
  Key key_;
};

Key key_of(const Group& group, int threads, Sharing sharing, const std::vector<bool>& far) {
  KeyWriter to(32 + 8 * group.expr.nodes().size() +
               (group.operands() + group.indices.size()) * (5 + group.extents.size()));
  to.add(allowed_instructions());
  to.add(fused_isa());
  to.add(max_threads());
  to.add(threads);
  to.add(sharing);
  to.add(far.size());
  for (const bool is_far : far) to.add(is_far);
  to.add_list(group.extents);
  to.add(group.loads.size());
  for (const GroupLoad& load : group.loads) to.add(load.dtype), to.add_list(load.strides);
  to.add(group.outputs.size());
  for (const GroupOutput& output : group.outputs) {
    to.add(output.dtype), to.add(output.value), to.add(output.reduce_mask), to.add(output.combine);
    to.add_list(output.strides);
  }
  to.add(group.indices.size());
  for (const GroupIndex& index : group.indices) to.add(index.dtype), to.add(index.start), to.add_list(index.strides);
  to.add(group.reductions.size());
  for (const GroupReduction& each : group.reductions)
    to.add(each.value), to.add(each.combine), to.add(each.reduce_mask);
  for (const ExprNode& node : group.expr.nodes()) to.add_node(node);
  return to.take();
}

}  // namespace

std::shared_ptr<const Nest> shared_nest(const Group& group, int threads, Sharing sharing,
                                        const std::vector<bool>& far) {
  static std::mutex mutex;
  static std::unordered_map<Key, std::weak_ptr<const Nest>, KeyHash> made;
  static std::size_t most_known = 4096;  // then those of programs that are gone are forgotten
  Key key = key_of(group, threads, sharing, far);
  {
    const std::lock_guard lock(mutex);
    if (const auto found = made.find(key); found != made.end()) {
      if (std::shared_ptr<const Nest> known = found->second.lock()) return known;
    }
  }
  auto nest = std::make_shared<const Nest>(build_nest(group, threads, sharing, far));
  const std::lock_guard lock(mutex);
  if (made.size() >= most_known) {
    std::erase_if(made, [](const auto& entry) { return entry.second.expired(); });
    most_known = std::max<std::size_t>(4096, 2 * made.size());
  }
  made.insert_or_assign(std::move(key), nest);
  return nest;
}

}  // namespace paoding
