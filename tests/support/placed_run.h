// SPDX-License-Identifier: Apache-2.0
// A PlacedGraph on the CPU with memory for its inputs and results.
#pragma once

#include "paoding/placed.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {

class PlacedRun {
 public:
  explicit PlacedRun(PlacedGraph& placed) : placed_(placed), workspace_(u8, {placed.workspace_bytes() + 64}) {
    for (const PlacedGraph::Place& place : placed.results()) {
      results_.emplace_back(place.type);
      places_.push_back(results_.back().bytes());
    }
  }

  Tensors run(const Tensors& feeds) {
    std::vector<const void*> inputs;
    for (const PlacedGraph::Place& place : placed_.inputs()) inputs.push_back(feeds.at(place.name).bytes());
    placed_.run(inputs, places_, workspace_.bytes());
    Tensors made;
    for (std::size_t i = 0; i < results_.size(); ++i) {
      Tensor& copy = made.emplace(placed_.results()[i].name, Tensor(results_[i].type())).first->second;
      std::copy_n(results_[i].bytes(), results_[i].size_bytes(), copy.bytes());
    }
    return made;
  }

 private:
  PlacedGraph& placed_;
  std::vector<Tensor> results_;
  std::vector<void*> places_;
  Tensor workspace_;
};

}  // namespace paoding::testing_program
