// SPDX-License-Identifier: Apache-2.0
#include "numbers.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "base/half.h"
#include "base/hash.h"
#include "base/to_odd.h"
#include "cpu/parallel.h"

namespace paoding::cli {
namespace {

struct F16 {
  std::uint16_t bits;
};
struct Bf16 {
  std::uint16_t bits;
};
struct Bool {
  std::uint8_t byte;
};

// Calls visit(T*, count) with the element type of the tensor.
template <class Visit>
void visit_elements(const Tensor& tensor, Visit visit) {
  auto* bytes = const_cast<std::byte*>(tensor.bytes());
  const std::int64_t count = tensor.shape().elements();
  switch (tensor.dtype()) {
    case DType::f64: return visit(reinterpret_cast<double*>(bytes), count);
    case DType::f32: return visit(reinterpret_cast<float*>(bytes), count);
    case DType::f16: return visit(reinterpret_cast<F16*>(bytes), count);
    case DType::bf16: return visit(reinterpret_cast<Bf16*>(bytes), count);
    case DType::i64: return visit(reinterpret_cast<std::int64_t*>(bytes), count);
    case DType::i32: return visit(reinterpret_cast<std::int32_t*>(bytes), count);
    case DType::u8: return visit(reinterpret_cast<std::uint8_t*>(bytes), count);
    case DType::boolean: return visit(reinterpret_cast<Bool*>(bytes), count);
  }
}

void store(double number, double* to) { *to = number; }
void store(double number, float* to) { *to = static_cast<float>(number); }
void store(double number, F16* to) { to->bits = float_to_f16(to_odd(number)); }
void store(double number, Bf16* to) { to->bits = float_to_bf16(to_odd(number)); }
void store(double number, std::int64_t* to) { *to = static_cast<std::int64_t>(number); }
void store(double number, std::int32_t* to) { *to = static_cast<std::int32_t>(number); }
void store(double number, std::uint8_t* to) { *to = static_cast<std::uint8_t>(number); }
void store(double number, Bool* to) { to->byte = number != 0 ? 1 : 0; }

template <class T>
double load(T value) {
  return static_cast<double>(value);
}
double load(F16 value) { return static_cast<double>(f16_to_float(value.bits)); }
double load(Bf16 value) { return static_cast<double>(bf16_to_float(value.bits)); }
double load(Bool value) { return value.byte; }

// 64 random bits from a counter (Steele, Lea, Flood: SplitMix64).
std::uint64_t mix(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

// Two normal numbers from 64 random bits (Box and Muller 1958).
std::pair<float, float> normal_pair(std::uint64_t bits) {
  const float u = (static_cast<float>(bits >> 40) + 0.5f) * 0x1p-24f;  // (0, 1)
  const float angle = static_cast<float>(bits & 0xffffffu) * 0x1p-24f * 2.0f * std::numbers::pi_v<float>;
  const float radius = std::sqrt(-2.0f * std::log(u));
  return {radius * std::cos(angle), radius * std::sin(angle)};
}

// Splits [0, count) among all threads, at even positions.
template <class Body>
void parallel_ranges(std::int64_t count, Body body) {
  constexpr std::int64_t kSmall = 1 << 14;
  struct State {
    Body& body;
    std::int64_t count, share;
  };
  const int threads = count < kSmall ? 1 : max_threads();
  State state{body, count, (count / threads + 2) & ~std::int64_t{1}};
  parallel(
      threads,
      [](int thread, void* pointer) {
        const State& s = *static_cast<State*>(pointer);
        const std::int64_t begin = std::min(s.count, thread * s.share);
        s.body(begin, std::min(s.count, begin + s.share));
      },
      &state);
}

std::uint64_t hash_name(std::string_view name) { return fnv1a(name); }

}  // namespace

Tensor random_tensor(const Type& type, std::uint64_t seed, std::string_view name) {
  Tensor tensor(type);
  const std::uint64_t start = mix(seed ^ hash_name(name));
  visit_elements(tensor, [&](auto* elements, std::int64_t count) {
    auto fill = [&](std::int64_t begin, std::int64_t end) {
      if (!is_float(type.dtype)) {
        const std::uint64_t choices = type.dtype == DType::boolean ? 2 : 10;
        for (std::int64_t i = begin; i < end; ++i) {
          store(static_cast<double>(mix(start + static_cast<std::uint64_t>(i)) % choices), elements + i);
        }
        return;
      }
      for (std::int64_t i = begin; i < end; i += 2) {
        const auto [a, b] = normal_pair(mix(start + static_cast<std::uint64_t>(i)));
        store(static_cast<double>(a), elements + i);
        if (i + 1 < end) store(static_cast<double>(b), elements + i + 1);
      }
    };
    parallel_ranges(count, fill);
  });
  return tensor;
}

Tensor filled_tensor(const Type& type, double number) {
  Tensor tensor(type);
  visit_elements(tensor, [&](auto* elements, std::int64_t count) {
    auto fill = [&](std::int64_t begin, std::int64_t end) {
      for (std::int64_t i = begin; i < end; ++i) store(number, elements + i);
    };
    parallel_ranges(count, fill);
  });
  return tensor;
}

double element(const Tensor& tensor, std::int64_t i) {
  double value = 0;
  visit_elements(tensor, [&](const auto* elements, std::int64_t) { value = load(elements[i]); });
  return value;
}

Summary summarize(const Tensor& tensor) {
  Summary summary;
  double min = std::numeric_limits<double>::infinity(), max = -min, sum = 0, squares = 0;
  std::int64_t finite = 0;
  visit_elements(tensor, [&](const auto* elements, std::int64_t count) {
    for (std::int64_t i = 0; i < count; ++i) {
      const double value = load(elements[i]);
      if (std::isfinite(value)) {
        min = std::min(min, value);
        max = std::max(max, value);
        sum += value;
        squares += value * value;
        ++finite;
      } else {
        ++(std::isnan(value) ? summary.nans : summary.infinities);
      }
    }
  });
  const double nothing = std::numeric_limits<double>::quiet_NaN();
  summary.min = finite == 0 ? nothing : min;
  summary.max = finite == 0 ? nothing : max;
  summary.mean = finite == 0 ? nothing : sum / static_cast<double>(finite);
  summary.norm = finite == 0 ? nothing : std::sqrt(squares);
  return summary;
}

}  // namespace paoding::cli
