// SPDX-License-Identifier: Apache-2.0
// Section L: out = x + w (y - x) with broadcasting on five shapes, forward and its gradients.
#include "cli/bench/lerp.h"

#include <algorithm>

#include "cli/bench/expected.h"
#include "cli/numbers.h"
#include "io/json_text.h"
#include "paoding/autodiff.h"
#include "paoding/ops.h"

namespace paoding::cli::bench {
namespace {

std::vector<LerpShapes> shapes() {
  return {
      {1, {16, 102400}, {16, 102400}, {1}, {16, 102400}, f32},
      {2, {16, 204800}, {16, 204800}, {1}, {16, 204800}, f64},
      {3, {16, 1, 1, 1}, {16, 3, 224, 224}, {1}, {16, 3, 224, 224}, f32},
      {4, {16, 1, 1, 1}, {16, 3, 244, 244}, {3, 1, 244}, {16, 3, 244, 244}, f32},
      {5, {64, 1, 512, 1}, {64, 256, 1, 128}, {256, 512, 128}, {64, 256, 512, 128}, f32},
  };
}

bool has_dx(LerpResult result) { return result == LerpResult::both || result == LerpResult::dx; }
bool has_dy(LerpResult result) { return result == LerpResult::both || result == LerpResult::dy; }

void build(Graph& graph, const LerpShapes& s, LerpResult result, DType dtype, const std::string& suffix) {
  const Value x = graph.input("x" + suffix, dtype, s.x), y = graph.input("y" + suffix, dtype, s.y);
  const Value out = lerp(x, y, graph.input("w" + suffix, dtype, s.w));
  if (result == LerpResult::forward) return graph.fetch("out" + suffix, out);
  const Value dout = graph.input("dout" + suffix, dtype, s.out);
  Values wanted;
  if (has_dx(result)) wanted.push_back(x);
  if (has_dy(result)) wanted.push_back(y);
  const Values outputs = {out}, seeds = {dout};
  const Values grads = gradients(outputs, wanted, seeds);
  if (has_dx(result)) graph.fetch("dx" + suffix, grads.front());
  if (has_dy(result)) graph.fetch("dy" + suffix, grads.back());
}

Expected expect(const LerpShapes& s, LerpResult result, const Feeds& feeds) {
  const Tensor& w = feeds.at("w");
  if (result == LerpResult::forward) {
    const Tensor &x = feeds.at("x"), &y = feeds.at("y");
    const Four xs = strides(s.x), ys = strides(s.y), size = extents(s.out);
    return {{"out", sum_to(s.out, s.out, s.w, [&](std::int64_t i, std::int64_t in_w) {
               std::int64_t rest = i, in_x = 0, in_y = 0;
               for (std::size_t axis = 4; axis-- > 0;) {
                 in_x += rest % size[axis] * xs[axis];
                 in_y += rest % size[axis] * ys[axis];
                 rest /= size[axis];
               }
               return element(x, in_x) + element(w, in_w) * (element(y, in_y) - element(x, in_x));
             })}};
  }
  const Tensor& dout = feeds.at("dout");
  Expected all;
  if (has_dx(result)) {
    all["dx"] =
        sum_to(s.x, s.out, s.w, [&](std::int64_t i, std::int64_t k) { return (1 - element(w, k)) * element(dout, i); });
  }
  if (has_dy(result)) {
    all["dy"] =
        sum_to(s.y, s.out, s.w, [&](std::int64_t i, std::int64_t k) { return element(w, k) * element(dout, i); });
  }
  return all;
}

Need need_of(const LerpShapes& s, LerpResult result) {
  const double size = static_cast<double>(size_bytes(s.dtype));
  const auto bytes = [&](const Shape& shape) { return size * static_cast<double>(shape.elements()); };
  if (result == LerpResult::forward) return {.read = bytes(s.w) + bytes(s.x) + bytes(s.y), .written = bytes(s.out)};
  return {.read = bytes(s.w) + bytes(s.out),
          .written = (has_dx(result) ? bytes(s.x) : 0) + (has_dy(result) ? bytes(s.y) : 0)};
}

std::string shape_json(const Shape& shape) {
  std::vector<std::string> extents;
  for (int i = 0; i < shape.rank(); ++i) extents.push_back(std::to_string(shape[i]));
  return json_array(extents);
}

Case make(const LerpShapes& s, LerpResult result) {
  const char* const names[] = {"", "/dx", "/dy", ""};
  Case c;
  c.section = 'L';
  c.kind = result == LerpResult::forward ? "lerp" : "lerp_grad";
  c.name = fmt::format("{}/{}{}", c.kind, s.number, names[static_cast<int>(result)]);
  c.what = fmt::format("x {}, y {}, w {}", to_string(s.x), to_string(s.y), to_string(s.w));
  c.sizes = JsonObject()
                .add_json("x", shape_json(s.x))
                .add_json("y", shape_json(s.y))
                .add_json("w", shape_json(s.w))
                .add_json("out", shape_json(s.out))
                .text();
  c.dtype = s.dtype;
  c.need = need_of(s, result);
  c.build = [s, result](Graph& graph, DType dtype, const std::string& suffix) {
    build(graph, s, result, dtype, suffix);
  };
  c.expected = [s, result](const Feeds& feeds) { return expect(s, result, feeds); };
  return c;
}

}  // namespace

Cases lerp_cases() {
  const double gradient_goals[] = {5.4, 20, 6.5, 7.5, 1000};
  Cases cases;
  for (const LerpResult result : {LerpResult::both, LerpResult::forward}) {
    for (const LerpShapes& s : shapes()) {
      Case c = make(s, result);
      if (result == LerpResult::both) c.goal.cold = gradient_goals[s.number - 1];
      if (result == LerpResult::forward && s.number == 5) c.goal.cold = 1170;
      if (s.number == 1) c.cpu_goal = {.faster_2 = 1, .faster_16 = 1, .copies = 1};
      c.on_cpu = s.number != 5;  // 4.4 GB: asked for by its name
      cases.push_back(std::move(c));
    }
  }
  return cases;
}

// Each shape with its own w and dtype in every result; with other kinds of w and other dtypes both gradients, or with
// `all` every result. The largest comes with its own only.
Cases lerp_variants(bool all) {
  Cases cases;
  for (const LerpShapes& own : shapes()) {
    std::vector<Shape> weights = {own.w};
    std::vector<DType> dtypes = {own.dtype};
    if (own.number != 5) {
      for (const Shape& w : {Shape{1}, Shape{own.out[own.out.rank() - 1]}, own.out}) {
        if (std::find(weights.begin(), weights.end(), w) == weights.end()) weights.push_back(w);
      }
      for (const DType dtype : {f32, f64, bf16}) {
        if (dtype != own.dtype) dtypes.push_back(dtype);
      }
    }
    for (const DType dtype : dtypes) {
      for (std::size_t w = 0; w < weights.size(); ++w) {
        const int same = (dtype == own.dtype ? 1 : 0) + (w == 0 ? 1 : 0);
        for (const LerpResult result : {LerpResult::both, LerpResult::dx, LerpResult::dy, LerpResult::forward}) {
          if (!all && same != 2 && (same != 1 || result != LerpResult::both)) continue;
          LerpShapes s = own;
          s.w = weights[w];
          s.dtype = dtype;
          Case c = make(s, result);
          const char* const kinds[] = {"", "_w1", "_w2", "_w3"};
          if (same != 2) c.name += fmt::format("/{}{}", to_string(dtype), kinds[w]);
          cases.push_back(std::move(c));
        }
      }
    }
  }
  return cases;
}

}  // namespace paoding::cli::bench
