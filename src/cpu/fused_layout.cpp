// SPDX-License-Identifier: Apache-2.0
// Which stretches of a tile list can be fused, and where their values live.
#include <algorithm>
#include <map>

#include "cpu/fused_routine.h"
#include "scalar/primitive.h"

namespace paoding {
namespace {

using Kind = Meaning::Kind;
using ValueKind = FusedLayout::Value::Kind;

constexpr int kMasks = 4;  // of k1..k7: one for the last elements, two for the steps of a function
constexpr int kMostSums = 3;

bool is_vector(DType dtype) { return dtype == f32 || dtype == f64; }

// True also where the instruction may be one: it then compares a constant with an operand that must be an index.
bool is_index_comparison(const Meaning& m) {
  const bool compares = m.prim == Prim::less || m.prim == Prim::less_equal || m.prim == Prim::equal;
  const bool is_integer = m.compute == DType::i64 || m.compute == DType::i32;
  return m.kind == Kind::prim && compares && is_integer && (m.scalar_args == 1 || m.scalar_args == 2);
}

// Functions of f64 and those that are rare stay with the interpreter.
bool is_fusable_prim(const Meaning& m) {
  switch (m.prim) {
    case Prim::add:
    case Prim::sub:
    case Prim::mul:
    case Prim::div:
    case Prim::neg:
    case Prim::abs:
    case Prim::minimum:
    case Prim::maximum:
    case Prim::floor:
    case Prim::ceil:
    case Prim::round:
    case Prim::trunc:
    case Prim::sqrt:
    case Prim::rsqrt:
    case Prim::less:
    case Prim::less_equal:
    case Prim::equal: return is_vector(m.compute) || is_index_comparison(m);
    case Prim::select: return is_vector(m.compute);
    case Prim::exp:
    case Prim::expm1:
    case Prim::tanh:
    case Prim::sigmoid:
    case Prim::erf: return m.compute == f32;
    case Prim::logical_and:
    case Prim::logical_or:
    case Prim::logical_not: return m.compute == boolean && m.scalar_args == 0;
    default: return false;
  }
}

bool gives_mask(const Meaning& m) {
  if (m.kind == Kind::load) return m.stored == boolean;
  if (m.kind != Kind::prim) return false;
  return m.prim == Prim::less || m.prim == Prim::less_equal || m.prim == Prim::equal || m.compute == boolean;
}

bool takes_mask(const Meaning& m, int arg) {
  if (m.kind == Kind::store || m.kind == Kind::convert) return m.compute == boolean;
  return m.kind == Kind::prim && (m.compute == boolean || (m.prim == Prim::select && arg == 0));
}

int arity_of(const Meaning& m) { return m.kind == Kind::prim ? primitive(m.prim).arity : 1; }

// The dtype of the vectors, or nothing where only masks are.
std::optional<DType> vector_dtype(const Meaning& m) {
  if (m.kind == Kind::convert) return is_vector(m.compute) ? m.compute : compute_dtype(m.stored);
  if (is_vector(m.compute)) return m.compute;
  return std::nullopt;
}

class LayoutBuilder {
 public:
  LayoutBuilder(const FusedRun& run, VectorIsa isa)
      : run_(run), most_vectors_(fused_vectors(isa)), vectors_(static_cast<std::size_t>(most_vectors_)) {
    result_.isa = isa;
  }

  std::optional<FusedLayout> build() {
    if (!find_dtype()) return std::nullopt;
    result_.steps.resize(run_.instructions.size());
    for (std::size_t i = 0; i < run_.instructions.size(); ++i) {
      const bool is_named = run_.instructions[i].meaning.kind == Kind::index    ? name_index(i)
                            : is_index_comparison(run_.instructions[i].meaning) ? name_comparison(i)
                                                                                : name_values(i);
      if (!is_named || writes_over_input(i)) return std::nullopt;
    }
    for (std::size_t i = 0; i < run_.instructions.size(); ++i) {
      if (!place_values(i)) return std::nullopt;
    }
    const auto sums = static_cast<int>(result_.sums.size());
    if (sums > kMostSums || result_.vectors + sums > most_vectors_ || result_.streams.size() > FusedLayout::kStreams)
      return std::nullopt;
    return std::move(result_);
  }

 private:
  bool find_dtype() {
    std::optional<DType> found;
    for (const Instruction& instruction : run_.instructions) {
      const std::optional<DType> dtype = vector_dtype(instruction.meaning);
      if (dtype && found && *dtype != *found) return false;
      if (dtype) found = dtype;
    }
    result_.compute = found.value_or(f32);
    return true;
  }

  int add_value(ValueKind kind) {
    result_.values.push_back({kind, -1});
    last_use_.push_back(-1);
    return static_cast<int>(result_.values.size()) - 1;
  }

  void add_stream(std::uint16_t slot) {
    std::vector<std::uint16_t>& streams = result_.streams;
    if (std::find(streams.begin(), streams.end(), slot) == streams.end()) streams.push_back(slot);
  }

  int scalar(std::uint16_t slot) {
    std::vector<std::uint16_t>& scalars = result_.scalars;
    auto found = std::find(scalars.begin(), scalars.end(), slot);
    if (found == scalars.end()) found = scalars.insert(scalars.end(), slot);
    return -1 - static_cast<int>(found - scalars.begin());
  }

  bool name_index(std::size_t i) {
    const Instruction& instruction = run_.instructions[i];
    if (run_.is_stored[i] || !run_.single_row || instruction.one_col || instruction.col_stride != 1) return false;
    const int value = add_value(ValueKind::index);
    index_slots_[value] = instruction.a;
    result_.steps[i].out = current_[instruction.out] = value;
    return true;
  }

  // Names a comparison of one of this segment's indices with a constant.
  bool name_comparison(std::size_t i) {
    const Instruction& instruction = run_.instructions[i];
    const bool is_number_first = instruction.meaning.scalar_args == 1;
    const auto found = current_.find(is_number_first ? instruction.b : instruction.a);
    if (found == current_.end() || kind_of(found->second) != ValueKind::index) return false;
    FusedLayout::Step& step = result_.steps[i];
    step.target = static_cast<int>(result_.targets.size());
    result_.targets.push_back({index_slots_.at(found->second), is_number_first ? instruction.a : instruction.b,
                               instruction.meaning.compute == DType::i64});
    name_result(i);
    return true;
  }

  void name_result(std::size_t i) {
    const Instruction& instruction = run_.instructions[i];
    const ValueKind kind = gives_mask(instruction.meaning) ? ValueKind::mask : ValueKind::vector;
    result_.steps[i].out = current_[instruction.out] = add_value(kind);
    last_use_.back() = static_cast<int>(i);
    if (run_.is_stored[i]) add_stream(instruction.out);
  }

  bool name_values(std::size_t i) {
    const Instruction& instruction = run_.instructions[i];
    const Meaning& m = instruction.meaning;
    FusedLayout::Step& step = result_.steps[i];
    const std::uint16_t slots[3] = {instruction.a, instruction.b, instruction.c};
    if (m.kind == Kind::prefetch) {
      add_stream(instruction.a);
      return true;
    }
    for (int k = 0; m.kind != Kind::load && k < arity_of(m); ++k) {
      if (m.kind == Kind::prim && (m.scalar_args >> k & 1)) {
        step.args[k] = scalar(slots[k]);
        continue;
      }
      auto [found, is_new] = current_.try_emplace(slots[k], -1);
      if (is_new) {
        found->second = add_value(takes_mask(m, k) ? ValueKind::mask : ValueKind::vector);
        step.loads.push_back({slots[k], found->second});
        add_stream(slots[k]);
      }
      if (kind_of(found->second) == ValueKind::index) return false;
      step.args[k] = found->second;
      last_use_[static_cast<std::size_t>(found->second)] = static_cast<int>(i);
    }
    if (m.kind == Kind::load) add_stream(instruction.a);
    if (has_result(m)) {
      name_result(i);
    } else if (m.kind == Kind::store) {
      add_stream(instruction.out);
    } else if (instruction.cols_reduced) {
      result_.sums.push_back(i);
    } else {
      add_stream(instruction.out);  // sums of columns
    }
    return true;
  }

  // A register that first held bytes and then holds floats: the floats would cover bytes that are still to be read.
  bool writes_over_input(std::size_t i) const {
    const int out = result_.steps[i].out;
    if (out < 0 || !run_.is_stored[i]) return false;
    for (const FusedLayout::Step& step : result_.steps) {
      for (const FusedLayout::Input& input : step.loads) {
        if (input.slot == run_.instructions[i].out && kind_of(input.value) != kind_of(out)) return true;
      }
    }
    return false;
  }

  ValueKind kind_of(int value) const { return result_.values[static_cast<std::size_t>(value)].kind; }

  // AVX2 has masks in vectors.
  std::vector<bool>& registers_for(ValueKind kind) {
    return kind == ValueKind::mask && result_.isa == VectorIsa::avx512 ? masks_ : vectors_;
  }

  bool place(int value) {
    FusedLayout::Value& v = result_.values[static_cast<std::size_t>(value)];
    if (v.kind == ValueKind::index) return true;
    std::vector<bool>& taken = registers_for(v.kind);
    const auto free = std::find(taken.begin(), taken.end(), false);
    if (free == taken.end()) return false;
    *free = true;
    v.reg = static_cast<int>(free - taken.begin());
    if (&taken == &vectors_) result_.vectors = std::max(result_.vectors, v.reg + 1);
    return true;
  }

  // The result never takes a register of an argument: functions write it before they have read all.
  bool place_values(std::size_t i) {
    const FusedLayout::Step& step = result_.steps[i];
    for (const FusedLayout::Input& input : step.loads) {
      if (!place(input.value)) return false;
    }
    if (step.out >= 0 && !place(step.out)) return false;
    std::vector<int> used(step.args, step.args + 3);
    used.push_back(step.out);
    std::sort(used.begin(), used.end());
    used.erase(std::unique(used.begin(), used.end()), used.end());
    for (const int value : used) {
      if (value < 0 || last_use_[static_cast<std::size_t>(value)] != static_cast<int>(i)) continue;
      const FusedLayout::Value& v = result_.values[static_cast<std::size_t>(value)];
      if (v.kind != ValueKind::index) registers_for(v.kind)[static_cast<std::size_t>(v.reg)] = false;
    }
    return true;
  }

  const FusedRun& run_;
  const int most_vectors_;
  FusedLayout result_;
  std::map<std::uint16_t, int> current_;                           // the value that a slot holds
  std::map<int, std::uint16_t> index_slots_;                       // of values that are an index
  std::vector<int> last_use_;                                      // per value: the instruction
  std::vector<bool> vectors_, masks_ = std::vector<bool>(kMasks);  // whether they are taken
};

}  // namespace

bool has_result(const Meaning& m) {
  return m.kind == Kind::prim || m.kind == Kind::load || m.kind == Kind::convert || m.kind == Kind::index;
}

bool reduces(const Meaning& m) { return m.kind == Kind::accumulate || m.kind == Kind::reduce; }

bool is_fusable(const Instruction& instruction, bool single_row) {
  const Meaning& m = instruction.meaning;
  switch (m.kind) {
    case Kind::other: return false;
    case Kind::prim: return is_fusable_prim(m);
    case Kind::index:
    case Kind::prefetch: return true;
    case Kind::load:
    case Kind::store:
      return m.stored == boolean || m.stored == f32 || m.stored == f64 || m.stored == f16 || m.stored == bf16;
    case Kind::convert:
      if (m.compute == boolean) return m.stored == f32 || m.stored == f64;
      return m.compute == f32 && (m.stored == f16 || m.stored == bf16);
    case Kind::accumulate:
    case Kind::reduce:
      if (!is_vector(m.compute) || m.combine == Combine::prod || m.combine == Combine::none) return false;
      if (instruction.cols_reduced) return single_row || instruction.rows_reduced;
      return m.kind == Kind::accumulate && single_row;
  }
  return false;
}

std::optional<FusedLayout> layout_of(const FusedRun& run, VectorIsa isa) { return LayoutBuilder(run, isa).build(); }

}  // namespace paoding
