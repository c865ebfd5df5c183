// SPDX-License-Identifier: Apache-2.0
// Recurrent layers on a GPU against float64, and the same bits of every run.
#include <gtest/gtest.h>

#include <cctype>

#include "runtime/compile.h"
#include "tests/gpu/enqueued_runs.h"
#include "tests/support/recurrence_layer.h"

namespace paoding::testing_program {
namespace {

std::vector<LayerCase> all_layers() {
  std::vector<LayerCase> layers = small_layers();
  const std::vector<LayerCase> larger = {{bf16, false, 3, 2, 512},
                                         {f32, false, 3, 1, 300, false, true, false},
                                         {f16, false, 3, 20, 200, true, true},
                                         {bf16, false, 3, 128, 512},
                                         {f32, true, 4, 33, 512, true},
                                         {f16, false, 4, 16, 768},
                                         {bf16, false, 5, 70, 333, true, true},
                                         {f32, false, 8, 1, 512, false, false, false},
                                         {bf16, false, 300, 5, 128, true},
                                         {f32, true, 20, 8, 256, true, true},
                                         {bf16, false, 4, 9, 1024, true, false},
                                         {f32, true, 3, 5, 1024, false, true},
                                         {f32, false, 9, 1, 1024, false, false, false},
                                         {f32, true, 2, 128, 512, true},
                                         {f16, false, 4, 6, 900, true, true, true, gru},
                                         {f32, true, 4, 8, 512, true, false, true, gru},
                                         {f32, false, 9, 1, 512, false, true, false, gru},
                                         {f32, false, 12, 1, 512},
                                         {f32, false, 9, 5, 512, true, true},
                                         {f32, false, 5, 16, 700, false, true},
                                         {f32, false, 4, 2, 1024},
                                         {f32, false, 9, 8, 301, true, false, true, gru},
                                         {f32, false, 12, 3, 61, true, true, true, gru},
                                         {f32, false, 6, 13, 1000, true, false, true, rnn},
                                         {f32, false, 20, 1, 130, false, false, true, relu_rnn},
                                         {bf16, false, 20, 1, 1024, false, false, true, rnn},
                                         {f32, true, 4, 16, 700, true, true, true, rnn},
                                         {f32, true, 3, 7, 2048, true, true},
                                         {f32, true, 4, 17, 1536, true, true},
                                         {bf16, false, 5, 17, 1400, true, false, true, gru},
                                         {f32, false, 4, 300, 96, true, true, false}};
  layers.insert(layers.end(), larger.begin(), larger.end());
  return layers;
}

class RecurrentLayer : public testing::TestWithParam<LayerCase> {};

TEST_P(RecurrentLayer, IsRightOnAGpu) {
  PD_SKIP_WITHOUT_A_GPU();
  const LayerCase& c = GetParam();
  CompileOptions options = on_gpu();
  options.allow_tf32 = c.is_tf32;
  const auto graph = graph_of(c, true);
  Program program(*graph, options);
  const Feeds feeds = feeds_of(c);
  const Tensors tensors = to_tensors(*graph, feeds);
  const Tensors first = program.run(tensors);
  expect_near(c, first, feeds);
  for (int i = 0; i < 3; ++i) expect_same_bits(first, program.run(tensors));
}

INSTANTIATE_TEST_SUITE_P(Layers, RecurrentLayer, testing::ValuesIn(all_layers()), [](const auto& of) {
  std::string name;
  for (const char c : of.param.text()) {
    if (std::isalnum(static_cast<unsigned char>(c)) != 0) name += c;
  }
  return name;
});

}  // namespace
}  // namespace paoding::testing_program
