// SPDX-License-Identifier: Apache-2.0
// An op of your own that declares its cost and that its result lies in an input's memory (row_cache.h): a cache that
// lives in a parameter, of which each run writes one row. On a GPU its kernel writes that row and nothing else; the
// plan has no copy of the cache.
#include <iostream>

#include "row_cache.h"

namespace pd = paoding;

int main() {
  row_cache::register_write_row();
  constexpr std::int64_t kRows = 8, kWidth = 4;
  pd::Graph g;
  const pd::Value cache = g.parameter("cache", pd::f32, {kRows, kWidth});
  const pd::Value row = g.input("row", pd::f32, {kWidth}), position = g.input("position", pd::i64, {});
  g.assign(cache, row_cache::write_row(cache, row * 2.0, position));

  const pd::Device device = pd::Device::best();
  pd::Parameters parameters(g, device);
  pd::Program program(g, {.device = device}, &parameters);
  for (std::int64_t at : {2, 5}) {
    program.run({{"row", pd::Tensor::from(pd::f32, {kWidth}, std::vector<double>(kWidth, static_cast<double>(at)))},
                 {"position", pd::Tensor::from(pd::i64, {}, {static_cast<double>(at)})}});
  }
  const std::vector<double> values = parameters.get("cache").to_doubles();
  std::cout << "on " << to_string(device) << ":";
  for (std::int64_t at = 0; at < kRows; ++at) std::cout << " " << values[static_cast<std::size_t>(at * kWidth)];
  std::cout << "\n" << program.plan_text().substr(0, program.plan_text().find("slots")) << "\n";
}
