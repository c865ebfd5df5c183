// SPDX-License-Identifier: Apache-2.0
// The two programs of the story that began this engine, with their inputs fed. In the first, predicates choose between
// branches of other shapes and dtypes; in the second, a part is cut out of a tensor to the shape of another, and six of
// ten runs are profiled.
#include <iostream>
#include <map>
#include <string>
#include <vector>

#include "paoding/paoding.h"

namespace pd = paoding;

namespace {

std::string text_of(const pd::Tensor& tensor) {
  std::string text = to_string(tensor.type()) + " [";
  for (double value : tensor.to_doubles()) text += (text.back() == '[' ? "" : " ") + std::to_string(value).substr(0, 4);
  return text + "]";
}

// case over scalar predicates: the first that is true chooses.
void choose() {
  pd::Graph g;
  const pd::Value x = g.input("x", pd::f32, {1}), y = g.input("y", pd::f32, {1}), z = g.input("z", pd::f32, {1});
  const auto fn_1 = [&] { return pd::Values{pd::full(g, {1, 2}, 1, pd::f32)}; };
  const auto fn_2 = [&] { return pd::Values{pd::full(g, {2, 2}, 2, pd::i32)}; };
  const auto fn_3 = [&] { return pd::Values{pd::full(g, {3}, 3, pd::i32)}; };
  const pd::Value is_first = pd::less(z, x), is_second = pd::less(x, y), is_third = pd::equal(x, y);
  g.fetch("out_1", pd::case_variant({{is_first, fn_1}, {is_second, fn_2}}, fn_3));
  g.fetch("out_2", pd::case_variant({{is_second, fn_2}, {is_third, fn_3}}));  // the last case is the default

  pd::Program program(g);
  pd::Profiler seen(pd::State::cpu, pd::Detail::instances);
  const auto run = [&](float x_value, float y_value, float z_value) {
    const auto results = program.run({{"x", pd::Tensor::from({x_value})},  //
                                      {"y", pd::Tensor::from({y_value})},
                                      {"z", pd::Tensor::from({z_value})}});
    std::cout << "x " << x_value << ", y " << y_value << ", z " << z_value
              << ": out_1 = " << text_of(results.at("out_1")) << ", out_2 = " << text_of(results.at("out_2")) << "\n";
  };
  run(0.3f, 0.1f, 0.2f);  // the values of the example
  run(0.1f, 0.3f, 0.2f);
  run(0.1f, 0.1f, 0.2f);
  std::cout << "\n" << seen.stop(pd::SortBy::none) << "\n" << program.plan_text();
}

// crop to the shape of another tensor, profiled from the third run to the eighth.
void cut_out() {
  pd::Graph g;
  const pd::Value data1 = g.input("data1", pd::f32, {1, 3, 8, 8}), data2 = g.input("data2", pd::f32, {1, 3, 5, 5});
  g.fetch("shape", pd::shape_of(data2));
  // Shapes are known while a graph is built, so the amounts that crop takes off are plain arithmetic.
  const std::vector<std::int64_t> before(4, 0);
  std::vector<std::int64_t> after;
  for (int axis = 0; axis < 4; ++axis) after.push_back(data1.shape()[axis] - data2.shape()[axis]);
  g.fetch("out", pd::crop(data1, before, after));

  pd::Program program(g);
  const std::map<std::string, pd::Tensor> feeds = {
      {"data1", pd::Tensor::from({1, 3, 8, 8}, std::vector<float>(192, 0.5f))},
      {"data2", pd::Tensor::from({1, 3, 5, 5}, std::vector<float>(75, 0.5f))}};
  for (int iteration = 0; iteration < 10; ++iteration) {
    if (iteration == 2) pd::start_profiler(pd::State::all, pd::Detail::op);
    if (iteration == 8) std::cout << "\n" << pd::stop_profiler(pd::SortBy::total);
    const auto results = program.run(feeds);
    if (iteration < 9) continue;
    const pd::Tensor& out = results.at("out");
    std::cout << "shape = " << text_of(results.at("shape")) << "\nout = " << to_string(out.type()) << " of "
              << out.values<float>()[0] << "\n";
  }
}

}  // namespace

int main() {
  choose();
  cut_out();
}
