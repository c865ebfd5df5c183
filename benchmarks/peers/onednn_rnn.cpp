// SPDX-License-Identifier: Apache-2.0
// oneDNN's LSTM primitive (onednn_layer.h), timed. Reads requests from stdin as protocol.py describes them. Built by
// benchmarks/compare where there is a compiler and oneDNN 2.
#include <iostream>

#include "onednn_layer.h"

namespace {

void time_layer(const std::string& name, const Request& r) {
  OneDnnLayer layer(r);
  std::vector<double> times;
  for (int i = 0; i < 3; ++i) layer.run();
  const double begin = microseconds(), most_us = r.is_quick ? 1e5 : 5e5;
  while (times.size() < 5 || (times.size() < 100 && microseconds() - begin < most_us)) {
    const double start = microseconds();
    layer.run();
    times.push_back(microseconds() - start);
  }
  print_row(name, r.wall_cache, "wall", times);
}

}  // namespace

int main() {
  for (std::string line; std::getline(std::cin, line);) {
    const Request r = parse(line);
    const bool is_lstm = r.kind == "lstm_forward" || r.kind == "lstm_training";
    if (is_lstm && (r.dtype == "f32" || r.dtype == "bf16") && r.layers == 1 && r.directions == 1 && !r.has_lengths) {
      const std::string name = "oneDNN " + std::to_string(dnnl_version()->major) + "." +
                               std::to_string(dnnl_version()->minor) + " LSTM primitive";
      try {
        time_layer(name, r);
      } catch (const std::exception& error) {
        print_refusal(name, error.what());
      }
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}
