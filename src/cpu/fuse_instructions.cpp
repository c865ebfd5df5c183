// SPDX-License-Identifier: Apache-2.0
// Which stretches of a tile list become one routine.
#include <algorithm>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <tuple>
#include <utility>

#include "cpu/fused_routine.h"

namespace paoding {
namespace {

using Kind = Meaning::Kind;

// Longest routine: every longer stretch is laid out anew, and code that leaves the cache of instructions saves nothing.
constexpr std::size_t kMostInstructions = 256;

bool touches(const Instruction& a, const Instruction& b) {
  return a.out == b.out || a.out == b.a || a.out == b.b || a.out == b.c || b.out == a.a || b.out == a.b || b.out == a.c;
}

bool is_element(const Instruction& i) { return i.meaning.kind == Kind::prim && i.one_row && i.one_col; }

// Single elements are computed as early as they can be, so that they do not stand between instructions on whole tiles.
// Those that write operands stay: another operand may share the memory. Returns where each instruction was.
std::vector<std::uint32_t> move_elements_up(std::size_t operands, std::vector<Instruction>* list) {
  std::vector<std::uint32_t> order(list->size());
  std::iota(order.begin(), order.end(), 0u);
  for (std::size_t i = 1; i < list->size(); ++i) {
    if (!is_element((*list)[i]) || (*list)[i].out < operands) continue;
    for (std::size_t at = i; at > 0 && !touches((*list)[at - 1], (*list)[at]); --at) {
      std::swap((*list)[at - 1], (*list)[at]);
      std::swap(order[at - 1], order[at]);
    }
  }
  return order;
}

class ListFuser {
 public:
  ListFuser(VectorIsa isa, const std::vector<bool>& is_temporary, bool single_row, const std::vector<Instruction>& list)
      : isa_(isa), is_temporary_(is_temporary), single_row_(single_row), list_(list), last_read_(list.size()) {
    std::vector<std::size_t> reader;  // per slot, the last reader of its contents after instruction i
    for (std::size_t i = list.size(); i-- > 0;) {
      const Instruction& instruction = list[i];
      const std::uint16_t slots[] = {instruction.out, instruction.a, instruction.b, instruction.c};
      reader.resize(std::max<std::size_t>(reader.size(), *std::ranges::max_element(slots) + 1u));
      last_read_[i] = std::exchange(reader[instruction.out], 0);
      for (const std::uint16_t slot : {instruction.a, instruction.b, instruction.c}) {
        if (reader[slot] == 0) reader[slot] = i;
      }
    }
  }

  // The layout of the longest stretch from `begin` on, and its end.
  std::optional<FusedLayout> longest(std::size_t begin, std::size_t* end) const {
    constexpr std::size_t kPatience = 6;  // a longer stretch may succeed where a shorter cannot: use up an index
    std::optional<FusedLayout> best;
    std::size_t best_end = begin + 1;
    if (!is_fusable(list_[begin], single_row_)) return best;
    const std::size_t last = std::min(list_.size(), begin + kMostInstructions);
    for (*end = begin + 1; *end < last; ++*end) {
      const Instruction& next = list_[*end];
      if (!is_fusable(next, single_row_) || elements(list_[begin]) != elements(next)) break;
      std::optional<FusedLayout> longer = layout_of(stretch(begin, *end + 1), isa_);
      if (longer) {
        best = std::move(longer);
        best_end = *end + 1;
      } else if (*end > best_end + kPatience) {
        break;
      }
    }
    *end = best_end;
    return best;
  }

  FusedRun stretch(std::size_t begin, std::size_t end) const {
    FusedRun run{std::span(list_).subspan(begin, end - begin), {}, single_row_};
    for (std::size_t i = begin; i < end; ++i) run.is_stored.push_back(is_read(i, end));
    std::tie(run.one_row, run.one_col) = elements(list_[begin]);
    return run;
  }

 private:
  // one_row and one_col. A reduction goes over the whole tile and has none of its own.
  std::pair<bool, bool> elements(const Instruction& i) const {
    return reduces(i.meaning) ? std::pair(single_row_, false) : std::pair(i.one_row, i.one_col);
  }

  // Whether the result of instruction i is read after the stretch that ends at `end`.
  bool is_read(std::size_t i, std::size_t end) const {
    if (!has_result(list_[i].meaning)) return false;
    const std::uint16_t slot = list_[i].out;
    return slot >= is_temporary_.size() || !is_temporary_[slot] || last_read_[i] >= end;
  }

  VectorIsa isa_;
  const std::vector<bool>& is_temporary_;
  bool single_row_;
  const std::vector<Instruction>& list_;
  std::vector<std::size_t> last_read_;  // the last reader of an instruction's result; 0: none
};

// How a list is fused: its instructions in another order, and the stretches that are one routine each.
struct Fusing {
  struct Stretch {
    std::size_t begin, end;
    std::shared_ptr<const FusedCode> code;
    bool one_row, one_col;
  };
  std::vector<std::uint32_t> order;
  std::vector<Stretch> stretches;
};

std::shared_ptr<const Fusing> fuse(const TileRegisters& registers, bool single_row, VectorIsa isa,
                                   std::vector<Instruction> list) {
  auto fusing = std::make_shared<Fusing>();
  fusing->order = move_elements_up(registers.operands, &list);
  const ListFuser fuser(isa, registers.is_register, single_row, list);
  for (std::size_t i = 0; i < list.size();) {
    std::size_t end = i + 1;
    if (const std::optional<FusedLayout> layout = fuser.longest(i, &end)) {
      const FusedRun run = fuser.stretch(i, end);
      if (auto code = make_fused_routine(run, *layout))
        fusing->stretches.push_back({i, end, std::move(code), run.one_row, run.one_col});
    }
    i = end;
  }
  return fusing;
}

// All that fuse() asks of a list. Extents and strides are arguments of the routines, so lists of groups that differ in
// those alone have one key.
std::vector<std::uint32_t> key_of(const TileRegisters& registers, bool single_row, VectorIsa isa,
                                  const std::vector<Instruction>& list) {
  std::vector<std::uint32_t> key;
  key.reserve(2 + registers.is_register.size() / 32 + 1 + 6 * list.size());
  key.push_back(static_cast<std::uint32_t>(registers.operands));
  key.push_back(single_row | static_cast<std::uint32_t>(isa) << 1 |
                static_cast<std::uint32_t>(registers.is_register.size()) << 8);
  for (std::size_t i = 0; i < registers.is_register.size(); ++i) {
    if (i % 32 == 0) key.push_back(0);
    key.back() |= static_cast<std::uint32_t>(registers.is_register[i]) << i % 32;
  }
  for (const Instruction& instruction : list) {
    add_to_key(instruction, &key);
    key.push_back(instruction.col_stride == 1);  // only then an index follows from the element
  }
  return key;
}

// Trying stretch after stretch takes most of the time in which a group's kernel is prepared, so lists that some kernel
// has are not fused again.
std::shared_ptr<const Fusing> fusing_of(const TileRegisters& registers, bool single_row, VectorIsa isa,
                                        const std::vector<Instruction>& list) {
  static std::mutex mutex;
  static std::map<std::vector<std::uint32_t>, std::weak_ptr<const Fusing>> made;
  constexpr std::size_t kMostKnown = 4096;  // then those of kernels that are gone are forgotten
  std::vector<std::uint32_t> key = key_of(registers, single_row, isa, list);
  {
    const std::lock_guard lock(mutex);
    if (const auto found = made.find(key); found != made.end()) {
      if (auto fusing = found->second.lock()) return fusing;
    }
  }
  auto fusing = fuse(registers, single_row, isa, list);
  const std::lock_guard lock(mutex);
  if (made.size() > kMostKnown) std::erase_if(made, [](const auto& entry) { return entry.second.expired(); });
  made.insert_or_assign(std::move(key), fusing);
  return fusing;
}

}  // namespace

void add_to_key(const Instruction& n, std::vector<std::uint32_t>* key) {
  const Meaning& m = n.meaning;
  key->push_back(static_cast<std::uint32_t>(m.kind) | static_cast<std::uint32_t>(m.prim) << 8 |
                 static_cast<std::uint32_t>(m.compute) << 16 | static_cast<std::uint32_t>(m.stored) << 24);
  key->push_back(static_cast<std::uint32_t>(m.combine) | m.scalar_args << 8 | m.streams << 16 | n.one_row << 17 |
                 n.one_col << 18 | n.rows_reduced << 19 | n.cols_reduced << 20);
  key->push_back(static_cast<std::uint32_t>(m.ahead));
  key->push_back(n.out | static_cast<std::uint32_t>(n.a) << 16);
  key->push_back(n.b | static_cast<std::uint32_t>(n.c) << 16);
}

void fuse_instructions(const TileRegisters& registers, bool single_row, std::vector<Instruction>* list,
                       std::vector<std::shared_ptr<const FusedCode>>* code) {
  if (list->size() < 2) return;
  const VectorIsa isa = fused_isa();
  if (isa == VectorIsa::scalar) return;
  const std::shared_ptr<const Fusing> fusing = fusing_of(registers, single_row, isa, *list);
  std::vector<Instruction> result;
  auto stretch = fusing->stretches.begin();
  for (std::size_t i = 0; i < list->size();) {
    if (stretch == fusing->stretches.end() || stretch->begin != i) {
      result.push_back((*list)[fusing->order[i++]]);
      continue;
    }
    code->emplace_back(fusing, stretch->code.get());  // the list is known as long as the code
    Instruction& fused = result.emplace_back();
    fused.routine = stretch->code->routine();
    fused.one_row = stretch->one_row;
    fused.one_col = stretch->one_col;
    i = stretch->end;
    ++stretch;
  }
  *list = std::move(result);
}

}  // namespace paoding
