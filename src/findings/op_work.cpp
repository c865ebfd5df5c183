// SPDX-License-Identifier: Apache-2.0
#include "findings/op_work.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <string>

#include "findings/kernel_kind.h"
#include "findings/operand_text.h"

namespace paoding::findings {
namespace {

// Products of extents that a broken file may have made large end here.
constexpr std::int64_t kMostElements = std::int64_t{1} << 50;

std::int64_t times(std::int64_t a, std::int64_t b) {
  std::int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product < 0) return kMostElements;
  return std::min(product, kMostElements);
}

constexpr std::int64_t kMostRowBytes = 200 << 10;  // about the shared memory of a multiprocessor

bool is_digit(char c) { return c >= '0' && c <= '9'; }

struct TypeOfElement {
  std::string_view name;
  int bytes;
  Unit unit;
};
constexpr auto kTypes = std::to_array<TypeOfElement>({
    {"float", 4, Unit::f32},
    {"double", 8, Unit::f64},
    {"c10::Half", 2, Unit::half},
    {"c10::BFloat16", 2, Unit::half},
    {"long int", 8, Unit::none},
    {"long", 8, Unit::none},
    {"int", 4, Unit::none},
    {"short int", 2, Unit::none},
    {"signed char", 1, Unit::none},
    {"unsigned char", 1, Unit::none},
    {"bool", 1, Unit::none},
    {"c10::Float8_e4m3fn", 1, Unit::none},
    {"c10::Float8_e5m2", 1, Unit::none},
    {"c10::complex<float>", 8, Unit::none},
    {"i32", 4, Unit::none},
    {"i64", 8, Unit::none},
    {"f32", 4, Unit::f32},
    {"f64", 8, Unit::f64},
    {"f16", 2, Unit::half},
    {"bf16", 2, Unit::half},
    {"s32", 4, Unit::none},
    {"u32", 4, Unit::none},
    {"s64", 8, Unit::none},
    {"u64", 8, Unit::none},
    {"s8", 1, Unit::none},
    {"u8", 1, Unit::none},
    {"pred", 1, Unit::none},
    {"s16", 2, Unit::none},
    {"u16", 2, Unit::none},
    {"f8e4m3fn", 1, Unit::none},
    {"f8e5m2", 1, Unit::none},
});

const TypeOfElement* type_named(std::string_view name) {
  for (const TypeOfElement& type : kTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

bool add_kineto(std::string_view shape, const TypeOfElement* type, bool is_number, std::vector<OperandShape>* to) {
  std::vector<std::string_view> extents;
  if (shape.empty()) {
    to->emplace_back();
    return true;
  }
  if (!split_list(shape, &extents)) return false;
  if (!extents.empty() && extents.front().starts_with('[')) {
    for (const std::string_view one : extents) {
      if (!add_kineto(one, type, false, to)) return false;
    }
    return true;
  }
  OperandShape operand;
  for (const std::string_view extent : extents) {
    std::int64_t value = 0;
    if (extent.empty() || extent.size() > 18 || !std::ranges::all_of(extent, is_digit)) return false;
    for (const char c : extent) value = value * 10 + (c - '0');
    operand.extents.push_back(value);
  }
  operand.is_tensor = !is_number && (!operand.extents.empty() || type != nullptr);
  if (operand.is_tensor && type != nullptr) {
    operand.element_bytes = type->bytes;
    operand.unit = type->unit;
  }
  to->push_back(std::move(operand));
  return true;
}

// A shape as XLA writes it, from `at` on, which is moved behind it.
bool take_hlo(std::string_view text, std::size_t* at, OperandShape* operand) {
  const std::size_t open = text.find('[', *at);
  if (open == text.npos) return false;
  const TypeOfElement* type = type_named(text.substr(*at, open - *at));
  if (type == nullptr) return false;
  operand->element_bytes = type->bytes;
  operand->unit = type->unit;
  operand->is_tensor = true;
  std::size_t i = open + 1;
  std::int64_t value = 0;
  bool has_digit = false, is_apart = false;
  for (; i < text.size(); ++i) {
    if (is_digit(text[i])) {
      value = std::min(value * 10 + (text[i] - '0'), kMostElements);
      has_digit = true;
    } else if (text[i] == ',' || text[i] == ']' || text[i] == ':') {
      if (is_apart) operand->apart = value;
      if (has_digit && !is_apart) operand->extents.push_back(value);
      is_apart = is_apart || text[i] == ':';
      value = 0;
      has_digit = false;
      if (text[i] == ']') break;
    } else if (text[i] != '<' && text[i] != '=' && text[i] != ' ') {
      return false;
    }
  }
  if (i == text.size()) return false;
  ++i;
  if (i < text.size() && text[i] == '{') {
    const std::size_t digits = i + 1;
    i = text.find('}', i);
    if (i == text.npos) return false;
    const std::string_view order = text.substr(digits, i - digits);
    std::size_t inner = 0;
    const auto [end, problem] = std::from_chars(order.data(), order.data() + order.size(), inner);
    if (problem == std::errc{} && inner < operand->extents.size()) operand->inner = inner;
    ++i;
  }
  *at = i;
  return true;
}

void read_hlo(std::string_view text, std::vector<OperandShape>* to) {
  for (std::size_t i = 0; i < text.size();) {
    if (text[i] == ' ' || text[i] == ',' || text[i] == '(' || text[i] == ')') {
      ++i;
      continue;
    }
    OperandShape operand;
    if (!take_hlo(text, &i, &operand)) return to->clear();
    to->push_back(std::move(operand));
  }
}

std::string_view bare(std::string_view op) {
  if (op.starts_with("aten::")) op.remove_prefix(6);
  return op;
}

bool is_any(std::string_view op, std::initializer_list<std::string_view> names) {
  return std::ranges::find(names, op) != names.end();
}

// Sizes of all tensors among the inputs; false where the type of one is not known.
bool sum_inputs(const std::vector<OperandShape>& inputs, std::int64_t* bytes) {
  *bytes = 0;
  for (const OperandShape& input : inputs) {
    if (!input.is_tensor) continue;
    if (input.element_bytes == 0) return false;
    *bytes += input.bytes();
  }
  return true;
}

const OperandShape* largest(const std::vector<OperandShape>& inputs) {
  const OperandShape* found = nullptr;
  for (const OperandShape& input : inputs) {
    if (input.is_tensor && (found == nullptr || input.elements() > found->elements())) found = &input;
  }
  return found;
}

std::optional<ProductShape> product_of(const OperandShape& a, const OperandShape& b) {
  const auto& x = a.extents;
  const auto& y = b.extents;
  ProductShape shape;
  shape.element_bytes = a.element_bytes;
  if (x.size() == 2 && y.size() == 2 && x[1] == y[0]) {
    shape.m = x[0], shape.k = x[1], shape.n = y[1];
  } else if (x.size() == 3 && y.size() == 3 && x[0] == y[0] && x[2] == y[1]) {
    shape.batch = x[0], shape.m = x[1], shape.k = x[2], shape.n = y[2];
  } else if (x.size() == 2 && y.size() == 1 && x[1] == y[0]) {
    shape.m = x[0], shape.k = x[1], shape.n = 1;
  } else {
    return {};
  }
  if (shape.m == 0 || shape.n == 0 || shape.k == 0 || shape.batch == 0) return {};
  return shape;
}

// aten::linear has its weight as [n x k].
std::optional<ProductShape> linear_of(const OperandShape& x, const OperandShape& weight) {
  if (weight.extents.size() != 2 || x.extents.empty() || x.extents.back() != weight.extents[1]) return {};
  const std::int64_t k = weight.extents[1];
  if (k == 0) return {};
  return ProductShape{1, x.elements() / k, weight.extents[0], k, x.element_bytes};
}

void add_product(const ProductShape& shape, const OperandShape& factor, OpWork* work) {
  work->product = shape;
  work->flops = shape.flops();
  work->unit = factor.unit;
  work->element_bytes = shape.element_bytes;
  work->elements = std::max({times(shape.batch, times(shape.m, shape.k)), times(shape.batch, times(shape.k, shape.n)),
                             times(shape.batch, times(shape.m, shape.n))});
  work->read = times(shape.element_bytes, times(shape.batch, times(shape.m, shape.k) + times(shape.k, shape.n)));
  work->written = times(shape.element_bytes, times(shape.batch, times(shape.m, shape.n)));
}

// The elements of "Concrete Inputs" that are lists of numbers, in order.
std::vector<std::vector<std::int64_t>> lists_of(std::string_view concrete) {
  std::vector<std::vector<std::int64_t>> lists;
  std::vector<std::string_view> elements;
  if (!split_list(concrete, &elements)) return lists;
  for (const std::string_view element : elements) {
    if (element.starts_with('[')) lists.push_back(numbers_of(element));
  }
  return lists;
}

// [n, c, spatial ..] of the input, [o, c/groups, kernel ..] of the weight.
void add_convolution(const OperandShape& x, const OperandShape& weight, std::string_view op, std::string_view concrete,
                     OpWork* work) {
  const std::size_t spatial = x.extents.size() - 2;
  if (x.extents[1] > 0) {
    work->dense_flops = 2.0 * static_cast<double>(x.elements()) / static_cast<double>(x.extents[1]) *
                        static_cast<double>(weight.elements());
  }
  const auto lists = lists_of(concrete);
  if (lists.size() < 3) return;
  // cuDNN's own op has padding in front of stride.
  const bool is_cudnn = op.starts_with("cudnn_convolution") || op.starts_with("miopen_convolution");
  const auto& padding = lists[is_cudnn ? 0 : 1];
  const auto& stride = lists[is_cudnn ? 1 : 0];
  const auto& dilation = lists[2];
  const auto at = [](const std::vector<std::int64_t>& list, std::size_t i) {
    return list.size() == 1 ? list[0] : i < list.size() ? list[i] : 0;
  };
  std::int64_t out = times(x.extents[0], weight.extents[0]), taps = weight.extents[1];
  for (std::size_t i = 0; i < spatial; ++i) {
    const std::int64_t step = at(stride, i);
    if (step <= 0) return;
    const std::int64_t reach = at(dilation, i) * (weight.extents[i + 2] - 1) + 1;
    const std::int64_t extent = x.extents[i + 2] + 2 * at(padding, i);
    if (extent < reach) return;
    out = times(out, (extent - reach) / step + 1);
    taps = times(taps, weight.extents[i + 2]);
  }
  work->flops = 2.0 * static_cast<double>(out) * static_cast<double>(taps);
  work->written = times(out, x.element_bytes);
}

void find_convolution(std::string_view op, const std::vector<OperandShape>& inputs, std::string_view concrete,
                      OpWork* work) {
  const bool is_backward = op.find("backward") != op.npos;
  const std::size_t needed = is_backward ? 3 : 2;
  if (inputs.size() < needed) return;
  bool is_transposed = op.find("transpose") != op.npos;
  if (op == "convolution" || op == "_convolution") {  // its first word of truth
    is_transposed = is_transposed || concrete.find("rue\"") < concrete.find("alse\"");
  }
  for (std::size_t i = 0; i < needed; ++i) {
    if (inputs[i].extents.size() < 3 || inputs[i].extents.size() != inputs[0].extents.size()) return;
  }
  const OperandShape& weight = inputs[needed - 1];
  work->unit = inputs[0].unit;
  work->element_bytes = inputs[0].element_bytes;
  work->read = 0;
  for (std::size_t i = 0; i < needed; ++i) work->read += inputs[i].bytes();
  work->elements = largest(inputs)->elements();
  if (is_transposed || weight.extents[0] == 0) return;
  if (!is_backward) return add_convolution(inputs[0], weight, op, concrete, work);
  // Every element of the result's gradient meets every tap of its channel, for each gradient that is wanted.
  std::int64_t taps = 1;
  for (std::size_t i = 1; i < weight.extents.size(); ++i) taps = times(taps, weight.extents[i]);
  const auto mask = concrete.rfind('[');
  bool of_input = true, of_weight = true;
  if (mask != concrete.npos && concrete.substr(mask).find("rue") != concrete.npos) {
    std::vector<std::string_view> wanted;
    const std::size_t close = concrete.find(']', mask);
    if (close != concrete.npos && split_list(concrete.substr(mask, close + 1 - mask), &wanted) && wanted.size() >= 2) {
      of_input = wanted[0] == "True" || wanted[0] == "true";
      of_weight = wanted[1] == "True" || wanted[1] == "true";
    }
  }
  const double each = 2.0 * static_cast<double>(inputs[0].elements()) * static_cast<double>(taps);
  work->flops = each * ((of_input ? 1 : 0) + (of_weight ? 1 : 0));
  work->written = (of_input ? inputs[1].bytes() : 0) + (of_weight ? weight.bytes() : 0);
}

void find_attention(std::string_view op, const std::vector<OperandShape>& inputs, std::string_view concrete,
                    OpWork* work) {
  // The gradient's own inputs begin with the result's gradient.
  const bool is_backward = op.find("backward") != op.npos;
  const std::size_t first = is_backward ? 1 : 0;
  if (inputs.size() < first + 3) return;
  const OperandShape &q = inputs[first], &k = inputs[first + 1], &v = inputs[first + 2];
  if (q.extents.size() != 4 || k.extents.size() != 4 || v.extents.size() != 4) return;
  // [batch, heads, length, width]; flash and memory-efficient kernels themselves take [batch, length, heads, width].
  const bool heads_behind = op.starts_with("_flash_attention") || op.starts_with("_efficient_attention");
  const std::size_t head = heads_behind ? 2 : 1, length = heads_behind ? 1 : 2;
  const double pairs = static_cast<double>(q.extents[0]) * static_cast<double>(q.extents[head]) *
                       static_cast<double>(q.extents[length]) * static_cast<double>(k.extents[length]);
  const double widths = static_cast<double>(q.extents[3]) + static_cast<double>(v.extents[3]);
  const bool is_causal = concrete.find("\"True\"") != concrete.npos || concrete.find("\"true\"") != concrete.npos;
  // Five products instead of two.
  work->flops = 2 * pairs * widths * (is_backward ? 2.5 : 1) * (is_causal ? 0.5 : 1);
  work->unit = q.unit;
  work->element_bytes = q.element_bytes;
  work->elements = q.elements();
  work->read = q.bytes() + k.bytes() + v.bytes() + (is_backward ? 2 * q.bytes() : 0);
  work->written = is_backward ? q.bytes() + k.bytes() + v.bytes() : q.bytes();
}

// Elementwise: every tensor once, and a result as large as all of them broadcast.
void find_pointwise(std::string_view op, const std::vector<OperandShape>& inputs, OpWork* work) {
  std::vector<std::int64_t> all;
  int widest = 0;
  std::int64_t bytes = 0;
  if (!sum_inputs(inputs, &bytes)) return;
  for (const OperandShape& input : inputs) {
    if (!input.is_tensor) continue;
    const std::size_t rank = input.extents.size();
    if (rank > all.size()) all.insert(all.begin(), rank - all.size(), 1);
    for (std::size_t i = 0; i < rank; ++i) {
      std::int64_t& extent = all[all.size() - rank + i];
      const std::int64_t own = input.extents[i];
      if (extent != own && extent != 1 && own != 1) return;  // no broadcast: something else
      extent = extent == 1 ? own : extent;
    }
    if (!input.extents.empty()) widest = std::max(widest, input.element_bytes);
  }
  std::int64_t elements = 1;
  for (const std::int64_t extent : all) elements = times(elements, extent);
  const bool is_comparison =
      is_any(op, {"eq", "ne", "lt", "le", "gt", "ge", "logical_not", "logical_and", "logical_or", "isnan", "isinf"});
  work->elements = elements;
  work->element_bytes = widest;
  work->read = bytes;
  work->written = times(elements, is_comparison ? 1 : widest);
}

// An op that somebody registered. Two matrices that fit and a name of products make it one; tensors that are all as
// large as the largest, or of one element for each of its rows or columns, are read and a result as large is written.
void find_users(std::string_view op, const std::vector<OperandShape>& inputs, OpWork* work) {
  *work = {};
  std::vector<const OperandShape*> tensors;
  for (const OperandShape& input : inputs) {
    if (input.is_tensor && !input.extents.empty()) tensors.push_back(&input);
  }
  if (tensors.empty()) return;
  bool is_product = false;
  for (const std::string_view word : {"product", "matmul", "mm", "gemm", "linear"}) {
    is_product = is_product || op.find(word) != op.npos;
  }
  if (is_product) {
    if (tensors.size() < 2) return;
    if (const auto shape = product_of(*tensors[0], *tensors[1])) add_product(*shape, *tensors[0], work);
    return;
  }
  constexpr std::size_t kMostRank = 3;  // attention has four axes
  const OperandShape* most = largest(inputs);
  std::int64_t bytes = 0;
  for (const OperandShape* tensor : tensors) {
    const bool is_row =
        tensor->extents.size() == 1 && std::ranges::find(most->extents, tensor->extents[0]) != most->extents.end();
    if (tensor->element_bytes == 0 || tensor->extents.size() > kMostRank) return;
    if (tensor->extents != most->extents && !is_row) return;
    bytes += tensor->bytes();
  }
  work->elements = most->elements();
  work->element_bytes = most->element_bytes;
  work->read = bytes;
  work->written = most->bytes();
  work->is_users = true;
}

}  // namespace

std::int64_t OperandShape::elements() const {
  std::int64_t all = 1;
  for (const std::int64_t extent : extents) all = times(all, extent);
  return all;
}

std::int64_t OperandShape::row() const {
  if (extents.empty()) return 1;
  return inner < extents.size() ? extents[inner] : extents.back();
}

std::vector<OperandShape> operands_of_kineto(std::string_view shapes, std::string_view types) {
  std::vector<std::string_view> each, named;
  std::vector<OperandShape> operands;
  if (!split_list(shapes, &each)) return {};
  const bool has_types = split_list(types, &named) && named.size() == each.size();
  for (std::size_t i = 0; i < each.size(); ++i) {
    const TypeOfElement* type = has_types ? type_named(named[i]) : nullptr;
    const bool is_number = has_types && (named[i] == "Scalar" || named[i] == "ScalarList" || named[i].empty());
    if (!add_kineto(each[i], type, is_number, &operands)) return {};
  }
  return operands;
}

HloShapes operands_of_hlo(std::string_view shapes) {
  HloShapes found;
  const std::size_t arrow = shapes.find(" -> ");
  if (arrow == shapes.npos) {
    read_hlo(shapes.starts_with("-> ") ? shapes.substr(3) : shapes, &found.results);
    return found;
  }
  read_hlo(shapes.substr(0, arrow), &found.inputs);
  read_hlo(shapes.substr(arrow + 4), &found.results);
  return found;
}

std::vector<std::int64_t> numbers_of(std::string_view list) {
  std::vector<std::string_view> elements;
  std::vector<std::int64_t> numbers;
  if (!split_list(list, &elements)) return {};
  for (std::string_view element : elements) {
    const bool is_negative = element.starts_with('-');
    if (is_negative) element.remove_prefix(1);
    if (element.empty() || element.size() > 18 || !std::ranges::all_of(element, is_digit)) return {};
    std::int64_t value = 0;
    for (const char c : element) value = value * 10 + (c - '0');
    numbers.push_back(is_negative ? -value : value);
  }
  return numbers;
}

OpWork op_work(std::string_view name, const std::vector<OperandShape>& inputs, std::string_view concrete) {
  OpWork work;
  const std::string_view op = bare(name);
  const auto tensor = [&](std::size_t i) -> const OperandShape* {
    return i < inputs.size() && inputs[i].is_tensor ? &inputs[i] : nullptr;
  };
  const auto multiply = [&](std::size_t a, std::size_t b) {
    if (tensor(a) == nullptr || tensor(b) == nullptr) return;
    if (const auto shape = product_of(inputs[a], inputs[b])) add_product(*shape, inputs[a], &work);
  };
  if (is_any(op, {"mm", "bmm", "mv", "_int_mm", "_scaled_mm"})) {
    multiply(0, 1);
    return work;
  }
  if (is_any(op, {"addmm", "baddbmm", "addmv", "_addmm_activation", "addmm_", "baddbmm_"})) {
    multiply(1, 2);
    if (work.product && tensor(0) != nullptr) work.read += inputs[0].bytes();
    return work;
  }
  if (op == "linear" && tensor(0) != nullptr && tensor(1) != nullptr) {
    if (const auto shape = linear_of(inputs[0], inputs[1])) add_product(*shape, inputs[0], &work);
    return work;
  }
  switch (kind_of_op(op)) {
    case KernelKind::convolution: find_convolution(op, inputs, concrete, &work); return work;
    case KernelKind::attention: find_attention(op, inputs, concrete, &work); return work;
    default: break;
  }
  const OperandShape* most = largest(inputs);
  if (most == nullptr || most->element_bytes == 0) return work;
  work.elements = most->elements();
  work.element_bytes = most->element_bytes;
  std::int64_t bytes = 0;
  switch (kind_of_op(op)) {
    case KernelKind::pointwise:
      work = {};
      find_pointwise(op, inputs, &work);
      break;
    case KernelKind::reduction:
      if (sum_inputs(inputs, &bytes)) work.read = bytes;
      break;
    case KernelKind::softmax:
      if (!sum_inputs(inputs, &bytes)) break;
      // Rows that fit no multiprocessor are read twice.
      if (!most->extents.empty() && most->extents.back() * most->element_bytes > kMostRowBytes) bytes *= 2;
      work.read = bytes;
      work.written = most->bytes();
      break;
    case KernelKind::normalization:
      // Each tensor once; statistics of few elements aside. A gradient is as large as the input.
      if (!sum_inputs(inputs, &bytes)) break;
      work.read = bytes;
      work.written = most->bytes();
      break;
    case KernelKind::copy:
    case KernelKind::cast:
      if (op != "copy_" || tensor(0) == nullptr || tensor(1) == nullptr) break;
      work.read = inputs[1].bytes();
      work.written = inputs[0].bytes();
      break;
    case KernelKind::fill:
      if (is_any(op, {"fill_", "zero_"}) && tensor(0) != nullptr) work.written = inputs[0].bytes();
      break;
    case KernelKind::layout:
      if (op != "cat" || !sum_inputs(inputs, &bytes)) break;
      work.read = work.written = bytes;
      break;
    case KernelKind::gather:
      // Whole rows or columns need no index for every element: elements alone count.
      if (op == "gather" && tensor(0) != nullptr && inputs.size() > 2 && tensor(2) != nullptr) {
        work.elements = inputs[2].elements();
        work.read = work.written = times(work.elements, inputs[0].element_bytes);
        work.element_bytes = inputs[0].element_bytes;
        break;
      }
      // Rows of a table, for each index one.
      if (op != "embedding" || tensor(0) == nullptr || tensor(1) == nullptr || inputs[0].extents.size() != 2) break;
      work.elements = times(inputs[1].elements(), inputs[0].extents[1]);
      work.read = times(work.elements, inputs[0].element_bytes) + inputs[1].bytes();
      work.written = times(work.elements, inputs[0].element_bytes);
      break;
    default:
      if (name.find("::") != name.npos && !name.starts_with("aten::") && !name.starts_with("autograd::")) {
        find_users(op, inputs, &work);
      }
  }
  return work;
}

}  // namespace paoding::findings
