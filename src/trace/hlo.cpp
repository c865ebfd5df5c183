// SPDX-License-Identifier: Apache-2.0
// The numbers of fields are those of xla/service/hlo.proto and xla/xla_data.proto.
#include "trace/hlo.h"

#include <algorithm>
#include <array>
#include <limits>
#include <set>

#include "trace/wire.h"

namespace paoding::trace {
namespace {

constexpr std::uint32_t kSeveral = 0xffffffffu;
constexpr int kMostTupleDepth = 8;
constexpr std::size_t kMostText = 256;
constexpr std::size_t kMostMembers = 64;

struct ElementType {
  std::string_view name;
  int bits;
};

constexpr std::array<ElementType, 26> kElementTypes = {
    {{"?", 0},          {"pred", 8},      {"s8", 8},       {"s16", 16}, {"s32", 32},  {"s64", 64},
     {"u8", 8},         {"u16", 16},      {"u32", 32},     {"u64", 64}, {"f16", 16},  {"f32", 32},
     {"f64", 64},       {"tuple", 0},     {"opaque", 0},   {"c64", 64}, {"bf16", 16}, {"token", 0},
     {"c128", 128},     {"f8e5m2", 8},    {"f8e4m3fn", 8}, {"s4", 4},   {"u4", 4},    {"f8e4m3b11fnuz", 8},
     {"f8e5m2fnuz", 8}, {"f8e4m3fnuz", 8}}};

// A ShapeProto.
struct Shape {
  std::uint64_t type = 0;
  std::vector<std::int64_t> dims;
  std::vector<std::string_view> parts;  // of a tuple

  explicit Shape(std::string_view message) {
    for (WireReader shape(message); shape.next();) {
      switch (shape.field()) {
        case 2: type = shape.number(); break;
        case 3:
          if (shape.type() == WireType::varint) {
            dims.push_back(shape.signed_number());
          } else {
            for_each_packed(shape.bytes(), [this](std::uint64_t n) { dims.push_back(static_cast<std::int64_t>(n)); });
          }
          break;
        case 4: parts.push_back(shape.bytes()); break;
        default: break;
      }
    }
  }
  const ElementType& element() const { return kElementTypes[type < kElementTypes.size() ? type : 0]; }
  // 0 where it is not known or too large for a number.
  double elements() const {
    double count = 1;
    for (const std::int64_t dim : dims) count *= dim < 0 ? 0 : static_cast<double>(dim);
    return count;
  }
};

void append_text(std::string_view message, std::string* to, int depth = 0) {
  if (to->size() > kMostText || depth > kMostTupleDepth) return;
  const Shape shape(message);
  if (!shape.parts.empty()) {
    *to += '(';
    for (std::size_t i = 0; i < shape.parts.size() && to->size() <= kMostText; ++i) {
      if (i > 0) *to += ", ";
      append_text(shape.parts[i], to, depth + 1);
    }
    *to += ')';
    return;
  }
  *to += shape.element().name;
  *to += '[';
  for (std::size_t i = 0; i < shape.dims.size() && to->size() <= kMostText; ++i) {
    *to += (i > 0 ? "," : "") + std::to_string(shape.dims[i]);
  }
  *to += ']';
}

double bytes_of(std::string_view message, int depth = 0) {
  const Shape shape(message);
  if (shape.parts.empty()) return shape.elements() * shape.element().bits / 8;
  double bytes = 0;
  if (depth < kMostTupleDepth) {
    for (const std::string_view part : shape.parts) bytes += bytes_of(part, depth + 1);
  }
  return bytes;
}

// The first field of this number that is bytes.
std::string_view part_of(std::string_view message, std::uint32_t field) {
  for (WireReader all(message); all.next();) {
    if (all.field() == field && all.type() == WireType::bytes) return all.bytes();
  }
  return {};
}

bool is_plumbing(std::string_view opcode) {
  static const std::set<std::string_view> kPlumbing = {"parameter", "constant",          "bitcast", "tuple",
                                                       "broadcast", "get-tuple-element", "reshape", "iota"};
  return kPlumbing.contains(opcode);
}

std::string kernel_name(std::string_view instruction) {
  std::string name(instruction);
  std::ranges::replace_if(
      name, [](char c) { return c == '.' || c == '-'; }, '_');
  return name;
}

}  // namespace

std::string_view last_word(std::string_view op_name) {
  const std::size_t slash = op_name.rfind('/');
  return slash == op_name.npos ? op_name : op_name.substr(slash + 1);
}

std::string_view scope_of(std::string_view op_name) {
  const std::size_t slash = op_name.rfind('/');
  return slash == op_name.npos ? std::string_view() : op_name.substr(0, slash);
}

HloModule::HloModule(std::string_view proto) {
  const std::string_view module = part_of(proto, 1);
  WireReader all(module);
  while (all.next()) {
    switch (all.field()) {
      case 3: add_computation(all.bytes()); break;
      case 17: add_frames(all.bytes()); break;
      default: break;
    }
  }
  is_broken_ = all.is_broken();
}

void HloModule::add_computation(std::string_view message) {
  std::uint64_t id = 0;
  Computation own;
  for (WireReader all(message); all.next();) {
    if (all.field() == 5) id = all.number();
    if (all.field() != 2 || all.type() != WireType::bytes) continue;
    Instruction instruction{.name = {}, .message = all.bytes()};
    std::uint64_t number = 0;
    for (WireReader one(all.bytes()); one.next();) {
      if (one.field() == 1) instruction.name = one.bytes();
      if (one.field() == 35) {
        number = one.number();
        break;
      }
    }
    const auto index = static_cast<std::uint32_t>(instructions_.size());
    instructions_.push_back(instruction);
    own.instructions.push_back(index);
    by_name_.try_emplace(instruction.name, index);
    by_id_.try_emplace(number, index);
    const auto [found, is_new] = by_kernel_.try_emplace(kernel_name(instruction.name), index);
    if (!is_new) found->second = kSeveral;
  }
  computations_.try_emplace(id, std::move(own));
}

void HloModule::add_frames(std::string_view message) {
  for (WireReader all(message); all.next();) {
    switch (all.field()) {
      case 1: files_.push_back(all.bytes()); break;
      case 3: {
        Place place;
        for (WireReader one(all.bytes()); one.next();) {
          if (one.field() == 1) place.file = one.number();
          if (one.field() == 3) place.line = one.number();
        }
        places_.push_back(place);
        break;
      }
      case 4: {
        std::uint64_t place = 0;
        for (WireReader one(all.bytes()); one.next();) {
          if (one.field() == 1) place = one.number();
        }
        frames_.push_back(place);
        break;
      }
      default: break;
    }
  }
}

const HloOp* HloModule::find(std::string_view instruction) {
  const auto found = by_name_.find(instruction);
  return found == by_name_.end() ? nullptr : decode(found->second);
}

const HloOp* HloModule::find_kernel(std::string_view kernel) {
  const auto found = by_kernel_.find(std::string(kernel));
  return found == by_kernel_.end() || found->second == kSeveral ? nullptr : decode(found->second);
}

const HloOp* HloModule::decode(std::uint32_t index) {
  const auto [found, is_new] = decoded_.try_emplace(index);
  HloOp& op = found->second;
  if (!is_new) return &op;
  op.name = instructions_[index].name;
  std::string_view shape, dimensions, left;
  std::vector<std::uint64_t> operands, called;
  const auto take = [](const WireReader& from, std::vector<std::uint64_t>* to) {
    if (from.type() == WireType::varint) {
      to->push_back(from.number());
    } else {
      for_each_packed(from.bytes(), [to](std::uint64_t n) { to->push_back(n); });
    }
  };
  for (WireReader all(instructions_[index].message); all.next();) {
    switch (all.field()) {
      case 2: op.opcode = all.bytes(); break;
      case 3: shape = all.bytes(); break;
      case 7:
        op.op_name = part_of(all.bytes(), 2);
        op.source = source_of(all.bytes());
        break;
      case 30: dimensions = all.bytes(); break;
      case 36: take(all, &operands); break;
      case 38: take(all, &called); break;
      default: break;
    }
  }
  append_text(shape, &op.shape);
  double bytes = bytes_of(shape);
  for (std::size_t i = 0; i < operands.size(); ++i) {
    const auto operand = by_id_.find(operands[i]);
    if (operand == by_id_.end()) continue;
    const std::string_view own = part_of(instructions_[operand->second].message, 3);
    if (i == 0) left = own;
    bytes += bytes_of(own);
    if (op.operands.size() > kMostText) continue;
    if (!op.operands.empty()) op.operands += ", ";
    append_text(own, &op.operands);
  }
  constexpr double kMost = 1e18;
  if (bytes < kMost) op.bytes = static_cast<std::int64_t>(bytes);
  if (op.opcode == "dot") op.flops = product_flops(dimensions, left, shape);
  if (op.opcode == "fusion" && !called.empty()) add_members(called[0], &op);
  return &op;
}

// 2 per element of the result and step of the sum.
double HloModule::product_flops(std::string_view dimensions, std::string_view left, std::string_view shape) const {
  const Shape own(left);
  double flops = 2 * Shape(shape).elements();
  for (WireReader all(dimensions); all.next();) {
    if (all.field() != 1) continue;
    const auto sum_over = [&](std::uint64_t axis) {
      if (axis < own.dims.size()) flops *= static_cast<double>(std::max<std::int64_t>(own.dims[axis], 0));
    };
    if (all.type() == WireType::varint) {
      sum_over(all.number());
    } else {
      for_each_packed(all.bytes(), sum_over);
    }
  }
  return flops < 1e300 ? flops : 0;
}

void HloModule::add_members(std::uint64_t computation, HloOp* op) const {
  const auto found = computations_.find(computation);
  if (found == computations_.end()) return;
  for (const std::uint32_t index : found->second.instructions) {
    if (op->members.size() == kMostMembers) return;
    std::string_view opcode, op_name;
    for (WireReader all(instructions_[index].message); all.next();) {
      if (all.field() == 2) opcode = all.bytes();
      if (all.field() == 7) {
        op_name = part_of(all.bytes(), 2);
        break;
      }
    }
    if (is_plumbing(opcode)) continue;
    op->members.push_back(op_name.find('/') == op_name.npos ? opcode : last_word(op_name));
  }
}

std::string HloModule::source_of(std::string_view metadata) const {
  std::string_view file;
  std::uint64_t line = 0, frame = 0;
  for (WireReader all(metadata); all.next();) {
    switch (all.field()) {
      case 3: file = all.bytes(); break;
      case 4: line = all.number(); break;
      case 15: frame = all.number(); break;
      default: break;
    }
  }
  // All of these count from 1.
  if (file.empty() && frame > 0 && frame <= frames_.size()) {
    const std::uint64_t place = frames_[frame - 1];
    if (place > 0 && place <= places_.size()) {
      const Place& own = places_[place - 1];
      line = own.line;
      if (own.file > 0 && own.file <= files_.size()) file = files_[own.file - 1];
    }
  }
  return file.empty() ? std::string() : std::string(file) + ":" + std::to_string(line);
}

}  // namespace paoding::trace
