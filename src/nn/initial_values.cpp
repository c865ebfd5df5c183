// SPDX-License-Identifier: Apache-2.0
// Initial values of parameters, made on the host.
#include <cmath>
#include <numbers>
#include <random>

#include "base/check.h"
#include "paoding/can_hold.h"
#include "paoding/nn.h"
#include "paoding/range.h"

namespace paoding::nn {
namespace {

using Doubles = std::vector<double>;

// The distributions of <random> differ between standard libraries; the engine does not.
class Source {
 public:
  explicit Source(std::uint64_t seed) : engine_(seed) {}
  double uniform() { return static_cast<double>(engine_() >> 11) * 0x1p-53; }  // [0, 1)
  double normal() {
    const double radius = std::sqrt(-2 * std::log(1 - uniform()));
    return radius * std::cos(2 * std::numbers::pi * uniform());
  }

 private:
  std::mt19937_64 engine_;
};

template <class Draw>
Tensor filled(const Type& type, std::uint64_t seed, Draw draw) {
  Source source(seed);
  Doubles values(static_cast<std::size_t>(type.shape.elements()));
  for (double& value : values) {
    value = draw(source);
    if (!can_hold(type.dtype, value)) {
      fail(ErrorKind::dtype, "initial value: {} for a parameter of {}, and no {} is that", value, to_string(type),
           to_string(type.dtype));
    }
  }
  return Tensor::from(type.dtype, type.shape, values);
}

struct Fan {
  double inputs, outputs;
};

Fan fan_of(const Shape& shape) {
  const auto extent = [&](int axis) { return static_cast<double>(shape[axis]); };
  if (shape.rank() == 0) return {1, 1};
  if (shape.rank() == 1) return {extent(0), extent(0)};
  if (shape.rank() == 2) return {extent(0), extent(1)};
  double window = 1;
  for (int axis = 2; axis < shape.rank(); ++axis) window *= extent(axis);
  return {extent(1) * window, extent(0) * window};
}

// Gram and Schmidt, twice for each row, as once leaves rounding errors.
void make_orthonormal(std::vector<Doubles>* rows) {
  const auto dot = [](const Doubles& a, const Doubles& b) {
    double total = 0;
    for (std::size_t i = 0; i < a.size(); ++i) total += a[i] * b[i];
    return total;
  };
  for (std::size_t r = 0; r < rows->size(); ++r) {
    Doubles& row = (*rows)[r];
    for (int pass = 0; pass < 2; ++pass) {
      for (std::size_t before = 0; before < r; ++before) {
        const double share = dot(row, (*rows)[before]);
        for (std::size_t i = 0; i < row.size(); ++i) row[i] -= share * (*rows)[before][i];
      }
      const double length = std::sqrt(dot(row, row));
      for (double& element : row) element /= length;
    }
  }
}

}  // namespace

Initializer constant(double value) {
  return [=](const Type& type, std::uint64_t) { return filled(type, 0, [=](Source&) { return value; }); };
}

Initializer uniform(double low, double high) {
  check_range("uniform", "low", low, {});
  check_range("uniform", "high", high, Range::at_least(low));
  return [=](const Type& type, std::uint64_t seed) {
    return filled(type, seed, [=](Source& source) { return low + (high - low) * source.uniform(); });
  };
}

Initializer normal(double mean, double deviation) {
  check_range("normal", "mean", mean, {});
  check_range("normal", "deviation", deviation, Range::at_least(0));
  return [=](const Type& type, std::uint64_t seed) {
    return filled(type, seed, [=](Source& source) { return mean + deviation * source.normal(); });
  };
}

Initializer xavier_uniform(double gain) {
  check_range("xavier_uniform", "gain", gain, Range::at_least(0));
  return [=](const Type& type, std::uint64_t seed) {
    const Fan fan = fan_of(type.shape);
    const double bound = gain * std::sqrt(6 / (fan.inputs + fan.outputs));
    return uniform(-bound, bound)(type, seed);
  };
}

Initializer xavier_normal(double gain) {
  check_range("xavier_normal", "gain", gain, Range::at_least(0));
  return [=](const Type& type, std::uint64_t seed) {
    const Fan fan = fan_of(type.shape);
    return normal(0, gain * std::sqrt(2 / (fan.inputs + fan.outputs)))(type, seed);
  };
}

Initializer kaiming_uniform(double gain) {
  check_range("kaiming_uniform", "gain", gain, Range::at_least(0));
  return [=](const Type& type, std::uint64_t seed) {
    const double bound = gain * std::sqrt(3 / fan_of(type.shape).inputs);
    return uniform(-bound, bound)(type, seed);
  };
}

Initializer kaiming_normal(double gain) {
  check_range("kaiming_normal", "gain", gain, Range::at_least(0));
  return [=](const Type& type, std::uint64_t seed) {
    return normal(0, gain / std::sqrt(fan_of(type.shape).inputs))(type, seed);
  };
}

Initializer orthogonal(double gain, int blocks) {
  check_range("orthogonal", "gain", gain, Range::at_least(0));
  check_range("orthogonal", "blocks", blocks, Range::at_least(1));
  return [=](const Type& type, std::uint64_t seed) {
    const Shape& shape = type.shape;
    if (shape.rank() != 2 || shape[1] % blocks != 0) {
      fail(ErrorKind::shape, "orthogonal: the parameter is {}, needed is a matrix of {} equal blocks of columns",
           to_string(type), blocks);
    }
    const auto rows = static_cast<std::size_t>(shape[0]), all = static_cast<std::size_t>(shape[1]);
    const std::size_t columns = all / static_cast<std::size_t>(blocks);
    Source source(seed);
    Doubles values(rows * all);
    for (std::size_t block = 0; block < static_cast<std::size_t>(blocks); ++block) {
      const bool is_wide = rows <= columns;  // then its rows are made orthonormal, else its columns
      std::vector<Doubles> vectors(is_wide ? rows : columns, Doubles(is_wide ? columns : rows));
      for (Doubles& vector : vectors) {
        for (double& element : vector) element = source.normal();
      }
      make_orthonormal(&vectors);
      for (std::size_t r = 0; r < rows; ++r) {
        for (std::size_t c = 0; c < columns; ++c) {
          values[r * all + block * columns + c] = gain * (is_wide ? vectors[r][c] : vectors[c][r]);
        }
      }
    }
    return Tensor::from(type.dtype, shape, values);
  };
}

Initializer value(const Tensor& tensor) {
  return [=](const Type& type, std::uint64_t) {
    if (!(tensor.type() == type)) {
      fail(tensor.dtype() == type.dtype ? ErrorKind::shape : ErrorKind::dtype,
           "initial value: the parameter is {}, the value {}", to_string(type), to_string(tensor.type()));
    }
    return tensor;
  };
}

}  // namespace paoding::nn
