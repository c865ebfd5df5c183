// SPDX-License-Identifier: Apache-2.0
// Model files whose graphs are texts with extents: called at every size.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "paoding/graph_text.h"
#include "paoding/model.h"
#include "tests/support/program_check.h"
#include "tests/support/temporary_folder.h"

namespace paoding::testing_program {
namespace {

constexpr const char* kScale =
    "paoding graph 1\n"
    "extent rows = 1..100 multiples_of(4)\n"
    "extent width = 0..8\n"
    "x = input f32[rows,width,2]\n"
    "w = parameter f32[2]\n"
    "xw = mul(x, w)\n"
    "y = reshape(xw) {shape=[rows*width,2]}\n"
    "fetch y\n";

ModelFile model_of_any_size() {
  ModelFile file{.model = "scale"};
  file.graphs["scale"] = kScale;
  file.parameters["w"] = Tensor::from(f32, {2}, Dense{2, -3});
  return file;
}

std::map<std::string, Tensor> fed(std::int64_t rows, std::int64_t width) {
  Dense values;
  for (std::int64_t i = 0; i < rows * width * 2; ++i) values.push_back(static_cast<double>(i % 11));
  return {{"x", Tensor::from(f32, {rows, width, 2}, values)}};
}

TEST(ModelOfAnySize, IsCalledAtEveryBucket) {
  const TemporaryFolder folder;
  save_model(folder.path() / "a.pd", model_of_any_size());
  const Model model = Model::load(folder.path() / "a.pd");
  EXPECT_EQ(model.entries(), std::vector<std::string>{"scale"});
  const GraphText text(kScale);
  for (const std::int64_t rows : {4, 8, 100}) {
    for (const std::int64_t width : {0, 1, 7, 8}) {
      Program alone(*text.at({rows, width}), {}, &model.parameters());
      expect_same_bits(alone.run(fed(rows, width)), model.run("scale", fed(rows, width)));
    }
  }
}

TEST(ModelOfAnySize, IsCalledByThreadsAtOnce) {
  const Model model(model_of_any_size());
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  for (std::int64_t each = 0; each < 4; ++each) {
    threads.emplace_back([&, each] {
      for (std::int64_t i = 0; i < 20; ++i) {
        const std::int64_t rows = 4 * (1 + (i + each) % 5);
        const Tensor y = model.run("scale", fed(rows, 3)).at("y");
        right += y.shape() == Shape{rows * 3, 2} && y.to_doubles()[2] == 4 && y.to_doubles()[3] == -9;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 80);
}

TEST(ModelOfAnySize, SaysWhichSizesItTakes) {
  const Model model(model_of_any_size());
  const auto error = [&](const std::map<std::string, Tensor>& feeds) {
    return message_of([&] { model.run("scale", feeds); });
  };
  EXPECT_EQ(error(fed(7, 3)),
            "model: there are programs for buckets: inputs of rows=7, width=3 are padded to rows=8, width=3");
  EXPECT_EQ(error(fed(104, 3)), "rows is 104; this class holds 1 to 100");
  EXPECT_TRUE(has(error({{"x", Tensor::from(f32, {2}, Dense{1, 2})}}), "it takes\n  x f32[rows,width,2]"));
  EXPECT_TRUE(has(error({{"x", Tensor::from(f32, {4, 1, 3}, Dense(12))}}), "input 'x' is f32[4,1,2], not f32[4,1,3]"));
  EXPECT_TRUE(has(message_of([&] { model.graph("scale"); }), "graph 'scale' has extents: rows (1 to 100), width"));
  EXPECT_EQ(model.inputs("scale").at(0).at("x"), (Type{f32, {4, 0, 2}}));
}

TEST(ModelOfAnySize, RefusesTextsThatAreNone) {
  ModelFile file = model_of_any_size();
  file.graphs["scale"] = "paoding graph 1\nextent rows = 1..2\nx = input f32[rws]\nfetch x\n";
  EXPECT_TRUE(has(message_of([&] { Model{file}; }), "there is no extent 'rws'"));
  const TemporaryFolder folder;
  EXPECT_TRUE(has(message_of([&] { save_model(folder.path() / "a.pd", file); }), "there is no extent 'rws'"));
  file = model_of_any_size();
  file.parameters.clear();
  EXPECT_TRUE(has(message_of([&] { save_model(folder.path() / "a.pd", file); }), "its parameter 'w'"));
}

}  // namespace
}  // namespace paoding::testing_program
