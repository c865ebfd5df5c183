// SPDX-License-Identifier: Apache-2.0
// libFuzzer target: whatever tensors are handed to from_pytorch and from_onnx, they give weights that fit each other,
// or Error (shape or dtype). Build and run: make fuzz
#include <algorithm>
#include <cstdint>

#include "paoding/error.h"
#include "paoding/recurrent_weights.h"

namespace {

using namespace paoding;

// Reads choices off the bytes; all zero after the end.
struct Bytes {
  const std::uint8_t* at;
  const std::uint8_t* end;
  int below(int bound) { return at == end ? 0 : *at++ % bound; }

  Tensor tensor() {
    constexpr DType dtypes[] = {DType::f32, DType::f64, DType::bf16, DType::f16, DType::i32, DType::u8, DType::boolean};
    const DType dtype = dtypes[std::max(0, below(16) - 9)];
    std::vector<std::int64_t> dims(static_cast<std::size_t>(below(5)));
    for (auto& dim : dims) dim = below(13);
    Tensor tensor(Type{dtype, Shape{std::span<const std::int64_t>(dims)}});
    std::fill(tensor.bytes(), tensor.bytes() + tensor.size_bytes(), std::byte{1});
    return tensor;
  }
};

void check(RecurrentKind kind, const RecurrentWeights& made) {
  const std::int64_t gates = kind == RecurrentKind::lstm ? 4 : kind == RecurrentKind::gru ? 3 : 1;
  const Shape &w = made.w.shape(), &u = made.u.shape();
  if (w.rank() != 2 || u.rank() != 2 || w[1] != u[1] || w[1] % gates != 0 || made.b.shape().rank() != 1)
    __builtin_trap();
  const std::int64_t hidden = w[1] / gates, biases = made.b.shape()[0];
  if (biases != w[1] && !(kind == RecurrentKind::gru && biases == 4 * hidden)) __builtin_trap();
  if (made.projection.shape().elements() > 0 && !(made.projection.shape() == Shape{hidden, u[0]})) __builtin_trap();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size_bytes) {
  Bytes bytes{data, data + size_bytes};
  const auto kind = static_cast<RecurrentKind>(bytes.below(3));
  const int options = bytes.below(4);
  try {
    const Tensor a = bytes.tensor(), b = bytes.tensor(), c = bytes.tensor(), d = bytes.tensor(), e = bytes.tensor();
    if (options < 2) {
      check(kind, from_pytorch(kind, a, b, c, d, options == 0 ? Tensor() : e));
    } else {
      for (const RecurrentWeights& made : from_onnx(kind, a, b, c, options == 2)) check(kind, made);
    }
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::shape && error.kind() != ErrorKind::dtype) __builtin_trap();
  }
  return 0;
}
