// SPDX-License-Identifier: Apache-2.0
#include "cli/serve/tensor_json.h"

#include <cmath>
#include <cstring>
#include <limits>

#include "base/check.h"
#include "base/half.h"
#include "base/one_line.h"
#include "io/json_text.h"

namespace paoding::cli {

namespace dom = simdjson::dom;

namespace {

// Stores elements of JSON one after the other.
class Elements {
 public:
  Elements(std::string_view name, Tensor* tensor) : name_(name), tensor_(*tensor) {}

  void add(const dom::element& each) {
    switch (tensor_.dtype()) {
      case DType::f64: return store(number(each));
      case DType::f32: return store(rounded(number(each)));
      case DType::f16: return store(float_to_f16(held(rounded(number(each)), 65520)));
      case DType::bf16: return store(float_to_bf16(held(rounded(number(each)), 3.3961775e38F)));
      case DType::i64: return store(integer<std::int64_t>(each));
      case DType::i32: return store(integer<std::int32_t>(each));
      case DType::u8: return store(integer<std::uint8_t>(each));
      case DType::boolean: return store(static_cast<std::uint8_t>(flag(each)));
    }
  }

 private:
  [[noreturn]] void wrong(const std::string& what) const {
    fail(ErrorKind::argument, "'{}': {}", one_line(name_), what);
  }

  template <class T>
  void store(T value) {
    std::memcpy(tensor_.bytes() + at_, &value, sizeof value);
    at_ += sizeof value;
  }
  double number(const dom::element& each) const {
    double number = 0;
    if (each.get(number) != simdjson::SUCCESS) wrong(fmt::format("{} is no number", shown(each)));
    return number;
  }
  // The number itself is looked at before it is rounded: one beyond the largest float is no number of it.
  float rounded(double number) const { return static_cast<float>(std::isfinite(number) ? checked(number) : number); }
  double checked(double number) const {
    if (std::isinf(static_cast<float>(number))) wrong(fmt::format("{} is beyond the range of {}", number, dtype()));
    return number;
  }
  // `least` is the smallest number that rounds to infinity.
  float held(float number, float least) const {
    if (std::abs(number) >= least) wrong(fmt::format("{} is beyond the range of {}", number, dtype()));
    return number;
  }
  template <class T>
  T integer(const dom::element& each) const {
    std::int64_t number = 0;
    if (each.get(number) != simdjson::SUCCESS) wrong(fmt::format("{} is no integer of {}", shown(each), dtype()));
    if (number < std::numeric_limits<T>::min() || number > std::numeric_limits<T>::max()) {
      wrong(fmt::format("{} is beyond the range of {}", number, dtype()));
    }
    return static_cast<T>(number);
  }
  bool flag(const dom::element& each) const {
    bool flag = false;
    if (each.get(flag) != simdjson::SUCCESS) wrong(fmt::format("{} is neither true nor false", shown(each)));
    return flag;
  }
  std::string_view dtype() const { return to_string(tensor_.dtype()); }
  static std::string shown(const dom::element& each) {
    if (each.is_object()) return "an object";
    if (each.is_array()) return "a list";
    const std::string text = one_line(simdjson::minify(each));
    return text.size() <= 40 ? text : text.substr(0, 40) + "..";
  }

  std::string_view name_;
  Tensor& tensor_;
  std::size_t at_ = 0;
};

// simdjson counts at most this many items of a list; longer ones are counted by going over them.
constexpr std::size_t kMostCounted = 0xFFFFFF;
std::int64_t length_of(const dom::array& items) {
  const std::size_t counted = items.size();
  if (counted < kMostCounted) return static_cast<std::int64_t>(counted);
  std::int64_t length = 0;
  for ([[maybe_unused]] const dom::element each : items) ++length;
  return length;
}

void check_lengths(std::string_view name, const dom::element& data, const Shape& shape, int axis) {
  if (axis == shape.rank()) return;
  dom::array items;
  if (data.get(items) != simdjson::SUCCESS || length_of(items) != shape[axis]) {
    fail(ErrorKind::argument, "'{}': not all lists of axis {} have {} elements", one_line(name), axis, shape[axis]);
  }
  if (axis + 1 == shape.rank()) return;
  for (const dom::element item : items) check_lengths(name, item, shape, axis + 1);
}

// The shape of lists in lists, all of which are there: memory is taken by it.
Shape shape_of_lists(std::string_view name, const dom::element& data) {
  std::vector<std::int64_t> extents;
  dom::element at = data;
  for (dom::array items; at.get(items) == simdjson::SUCCESS;) {
    extents.push_back(length_of(items));
    if (extents.size() > Shape::kMaxRank) {
      fail(ErrorKind::argument, "'{}': its lists are more than {} deep", one_line(name), Shape::kMaxRank);
    }
    if (items.at(0).get(at) != simdjson::SUCCESS) break;
  }
  const Shape shape(extents);
  check_lengths(name, data, shape, 0);
  return shape;
}

void add_lists(Elements* elements, const dom::element& data, int depth) {
  if (depth == 0) return elements->add(data);
  for (const dom::element item : dom::array(data)) add_lists(elements, item, depth - 1);
}

template <class T>
T value_at(const Tensor& tensor, std::int64_t i) {
  T value;
  std::memcpy(&value, tensor.bytes() + static_cast<std::size_t>(i) * sizeof value, sizeof value);
  return value;
}

std::string number_text(float number) {
  if (number == 0 && std::signbit(number)) return "-0.0";
  return std::isfinite(number) ? fmt::format("{}", number) : "null";
}

std::string element_text(const Tensor& tensor, std::int64_t i) {
  switch (tensor.dtype()) {
    case DType::f64: return json_number(value_at<double>(tensor, i));
    case DType::f32: return number_text(value_at<float>(tensor, i));
    case DType::f16: return number_text(f16_to_float(value_at<std::uint16_t>(tensor, i)));
    case DType::bf16: return number_text(bf16_to_float(value_at<std::uint16_t>(tensor, i)));
    case DType::i64: return fmt::format("{}", value_at<std::int64_t>(tensor, i));
    case DType::i32: return fmt::format("{}", value_at<std::int32_t>(tensor, i));
    case DType::u8: return fmt::format("{}", value_at<std::uint8_t>(tensor, i));
    case DType::boolean: return value_at<std::uint8_t>(tensor, i) != 0 ? "true" : "false";
  }
  return "";
}

void write_nested(const Tensor& tensor, int axis, std::int64_t* at, std::string* text) {
  if (axis == tensor.shape().rank()) {
    *text += element_text(tensor, (*at)++);
    return;
  }
  *text += '[';
  for (std::int64_t i = 0; i < tensor.shape()[axis]; ++i) {
    if (i > 0) *text += ',';
    write_nested(tensor, axis + 1, at, text);
  }
  *text += ']';
}

}  // namespace

Tensor tensor_of_json(std::string_view name, dom::element data, const Type& type) {
  dom::array items;
  dom::element first;
  const bool is_flat = type.shape.rank() != 1 && data.get(items) == simdjson::SUCCESS &&
                       (items.at(0).get(first) != simdjson::SUCCESS || !first.is_array());
  if (!is_flat) {
    if (const Shape shape = shape_of_lists(name, data); shape != type.shape) {
      fail(ErrorKind::argument, "'{}': its data has the shape {}; it says {}", one_line(name), to_string(shape),
           to_string(type.shape));
    }
  } else if (length_of(items) != type.shape.elements()) {
    fail(ErrorKind::argument, "'{}': its data has {} elements; its shape {} has {}", one_line(name), length_of(items),
         to_string(type.shape), type.shape.elements());
  }
  Tensor tensor(type);
  Elements elements(name, &tensor);
  add_lists(&elements, data, is_flat ? 1 : type.shape.rank());
  return tensor;
}

Tensor nested_tensor_of_json(std::string_view name, dom::element data, DType dtype) {
  return tensor_of_json(name, data, {dtype, shape_of_lists(name, data)});
}

std::string flat_json(const Tensor& tensor) {
  std::string text = "[";
  for (std::int64_t i = 0; i < tensor.shape().elements(); ++i) {
    if (i > 0) text += ',';
    text += element_text(tensor, i);
  }
  return text + "]";
}

std::string nested_json(const Tensor& tensor) {
  std::string text;
  std::int64_t at = 0;
  write_nested(tensor, 0, &at, &text);
  return text;
}

}  // namespace paoding::cli
