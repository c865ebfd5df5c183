// SPDX-License-Identifier: Apache-2.0
// Layers of images, tables and attention: against PyTorch 2.11's results in float64
// (tests/reference/peer/record_nn.py), and their errors for arguments that do not fit.
#include "paoding/nn.h"
#include "paoding/optimizer.h"
#include "tests/support/program_check.h"
#include "tests/support/recorded.h"

namespace paoding::testing_program {
namespace {

const Tensor& layer_record(const std::string& name) {
  static const Tensors all = recorded_tensors(recorded_folder() / "nn.safetensors");
  const auto it = all.find(name);
  if (it == all.end()) throw std::out_of_range("nn.safetensors has no " + name);
  return it->second;
}

Value layer_input(Graph& g, const std::string& name) {
  return g.input(name, layer_record(name).dtype(), layer_record(name).shape());
}

// Matrices of PyTorch beside each other, transposed: [outputs, inputs] each to [inputs, all outputs].
Tensor combined_transposes(const std::vector<Tensor>& matrices) {
  const std::int64_t inputs = matrices[0].shape()[1];
  std::int64_t outputs = 0;
  for (const Tensor& matrix : matrices) outputs += matrix.shape()[0];
  Dense result(static_cast<std::size_t>(inputs * outputs));
  std::int64_t first = 0;
  for (const Tensor& matrix : matrices) {
    const Dense values = matrix.to_doubles();
    for (std::int64_t r = 0; r < matrix.shape()[0]; ++r) {
      for (std::int64_t c = 0; c < inputs; ++c) {
        result[static_cast<std::size_t>(c * outputs + first + r)] = values[static_cast<std::size_t>(r * inputs + c)];
      }
    }
    first += matrix.shape()[0];
  }
  return Tensor::from(f64, {inputs, outputs}, result);
}

// The result and every gradient of a layer, its parameters set from records, against records. `weights` names our
// parameters and makes them from the records.
using FromRecords = std::function<Tensor(const std::string& prefix)>;
void check_layer(Graph& g, const std::string& name, const Value& y, const Values& inputs,
                 const std::map<std::string, FromRecords>& weights) {
  SCOPED_TRACE(name);
  Values wanted = inputs;
  for (const auto& [parameter, made] : weights) wanted.push_back(g.find(parameter));
  ASSERT_EQ(g.parameters().size(), weights.size());
  const Value dy = layer_input(g, name + "/dy");
  const Values grads = gradients(std::array{y}, wanted, std::array{dy});
  g.fetch("y", y);
  for (std::size_t i = 0; i < grads.size(); ++i) g.fetch("grad" + std::to_string(i), grads[i]);
  Parameters parameters(g, Device::cpu());
  for (const auto& [parameter, made] : weights) parameters.set(parameter, made(name + "/"));
  Program program(g, {}, &parameters);
  Tensors feeds;
  for (const std::string& in : program.input_names()) feeds[in] = layer_record(in);
  const Tensors got = program.run(feeds);
  expect_close("y", got.at("y").to_doubles(), layer_record(name + "/y").to_doubles(), 1e-12);
  std::size_t next = 0;
  for (; next < inputs.size(); ++next) {
    const std::string grad = "grad" + std::to_string(next);
    expect_close(grad, got.at(grad).to_doubles(), layer_record(name + "/dx" + std::to_string(next)).to_doubles(),
                 1e-12);
  }
  for (const auto& [parameter, made] : weights) {
    const std::string grad = "grad" + std::to_string(next++);
    expect_close(parameter, got.at(grad).to_doubles(), made(name + "/grad/").to_doubles(), 1e-12);
  }
}

FromRecords same(const std::string& part) {
  return [=](const std::string& prefix) { return layer_record(prefix + part); };
}
FromRecords transposed_record(const std::string& part) {
  return [=](const std::string& prefix) { return combined_transposes({layer_record(prefix + part)}); };
}

const std::map<std::string, FromRecords> kPacked = {{"a/in/bias", same("in_proj_bias")},
                                                    {"a/in/weight", transposed_record("in_proj_weight")},
                                                    {"a/out/bias", same("out_proj.bias")},
                                                    {"a/out/weight", transposed_record("out_proj.weight")}};

int count_of(const Graph& g, const std::string& op) {
  int count = 0;
  for (NodeId id = 0; id < g.size(); ++id) count += g.node(id).op->name == op;
  return count;
}

TEST(MultiHeadAttention, OfOneValueIsOneProductAndWhatPyTorchGives) {
  Graph g;
  const Value x = layer_input(g, "attention_self/x0");
  const nn::MultiHeadAttention layer(g, "a", 6, 3, {.dtype = f64});
  const Value y = layer(x, {.causal = true});
  EXPECT_EQ(count_of(g, "matmul"), 2);  // all projections, the last projection
  EXPECT_EQ(count_of(g, "attention"), 1);
  check_layer(g, "attention_self", y, {x}, kPacked);
}

TEST(MultiHeadAttention, ToAMemoryWithLengthsIsWhatPyTorchGives) {
  Graph g;
  const Value x = layer_input(g, "attention_memory/x0"), memory = layer_input(g, "attention_memory/x1");
  const Value lengths = layer_input(g, "attention_memory/lengths");
  const nn::MultiHeadAttention layer(g, "a", 6, 2, {.dtype = f64});
  const Value y = layer(x, memory, memory, {.lengths = lengths});
  EXPECT_EQ(count_of(g, "matmul"), 3);  // keys and values in one
  EXPECT_EQ(count_of(g, "attention"), 1);
  check_layer(g, "attention_memory", y, {x, memory}, kPacked);
}

TEST(MultiHeadAttention, OfOtherWidthsWithAMaskIsWhatPyTorchGives) {
  Graph g;
  const std::string name = "attention_widths";
  const Value x = layer_input(g, name + "/x0"), keys = layer_input(g, name + "/x1"),
              values = layer_input(g, name + "/x2");
  const Value seen = not_equal(layer_input(g, name + "/seen"), 0);
  const nn::MultiHeadAttention layer(g, "a", 6, 2, {.key_width = 3, .value_width = 7, .dtype = f64});
  check_layer(g, name, layer(x, keys, values, {.mask = seen}), {x, keys, values},
              {{"a/in/bias", same("in_proj_bias")},
               {"a/key/weight", transposed_record("k_proj_weight")},
               {"a/out/bias", same("out_proj.bias")},
               {"a/out/weight", transposed_record("out_proj.weight")},
               {"a/query/weight", transposed_record("q_proj_weight")},
               {"a/value/weight", transposed_record("v_proj_weight")}});
}

TEST(MultiHeadAttention, OfThreeValuesWithoutBiasIsWhatPyTorchGives) {
  Graph g;
  const std::string name = "attention_plain";
  const Value x = layer_input(g, name + "/x0"), keys = layer_input(g, name + "/x1"),
              values = layer_input(g, name + "/x2");
  const nn::MultiHeadAttention layer(g, "a", 6, 6, {.bias = false, .dtype = f64});
  check_layer(
      g, name, layer(x, keys, values), {x, keys, values},
      {{"a/in/weight", transposed_record("in_proj_weight")}, {"a/out/weight", transposed_record("out_proj.weight")}});
}

TEST(MultiHeadAttention, DropsWeightsOnlyWhileTraining) {
  const auto runs_alike = [](bool training) {
    Graph g;
    const Value x = g.input("x", f32, {2, 8, 4});
    const nn::MultiHeadAttention layer(g, "a", 4, 2, {.dropout = 0.5, .training = training});
    g.fetch("y", layer(x));
    Parameters parameters(g, Device::cpu());
    Program program(g, {}, &parameters);
    const Tensors feeds{{"x", Tensor::from(f32, {2, 8, 4}, Dense(64, 0.5))}};
    return program.run(feeds).at("y").to_doubles() == program.run(feeds).at("y").to_doubles();
  };
  EXPECT_TRUE(runs_alike(false));
  EXPECT_FALSE(runs_alike(true));
}

template <class F>
std::string layer_message_of(F f) {
  try {
    f();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(MultiHeadAttention, SaysWhatDoesNotFit) {
  Graph g;
  EXPECT_NE(
      layer_message_of([&] { nn::MultiHeadAttention(g, "odd", 6, 4); }).find("width 6 does not divide into 4 heads"),
      std::string::npos);
  const nn::MultiHeadAttention layer(g, "a", 6, 2);
  const Value x = g.input("x", f32, {2, 4, 6}), other = g.input("other", f32, {2, 5, 7});
  const Scope scope(g, "block");
  const std::string message = layer_message_of([&] { layer(x, other, other); });
  EXPECT_NE(message.find("keys [2, 5, 7]"), std::string::npos) << message;
  EXPECT_NE(message.find("(in block/a)"), std::string::npos) << message;
}

TEST(Conv2dLayer, IsWhatPyTorchGives) {
  Graph g;
  const Value x = layer_input(g, "conv2d_layer/x0");
  const nn::Conv2d layer(
      g, "c", 4, 6, {3, 2},
      {.conv = {.stride = {2, 1}, .padding = {1, 1, 0, 0}, .dilation = {1, 2}, .groups = 2}, .dtype = f64});
  check_layer(g, "conv2d_layer", layer(x), {x}, {{"c/bias", same("bias")}, {"c/weight", same("weight")}});
}

TEST(Conv2dLayer, StartsWithinTheRootOfItsInputs) {
  Graph g;
  const nn::Conv2d layer(g, "c", 6, 4, {3, 3}, {.conv = {.groups = 2}, .bias = false});
  EXPECT_FALSE(layer.bias.valid());
  const Parameters parameters(g, Device::cpu());
  const double most = largest(parameters.get("c/weight").to_doubles()), bound = 1 / std::sqrt(27.0);
  EXPECT_LE(most, bound);
  EXPECT_GT(most, 0.8 * bound);
  EXPECT_NE(layer_message_of([&] {
              nn::Conv2d(g, "odd", 6, 4, {3, 3}, {.conv = {.groups = 3}});
            }).find("3 groups"),
            std::string::npos);
}

TEST(EmbeddingLayer, IsWhatPyTorchGivesAndLeavesThePaddingAlone) {
  Graph g;
  const Value ids = layer_input(g, "embedding_layer/x0");
  const nn::Embedding layer(g, "e", 7, 4, {.padding = 2, .dtype = f64});
  check_layer(g, "embedding_layer", layer(ids), {}, {{"e/weight", same("weight")}});
  const Parameters parameters(g, Device::cpu());
  const Dense table = parameters.get("e/weight").to_doubles();
  for (std::size_t i = 0; i < table.size(); ++i) EXPECT_EQ(table[i] == 0, i / 4 == 2) << i;
}

TEST(EmbeddingLayer, OfAVocabularyOfAMillionReadsOnlyItsRows) {
  Graph g;
  const Value ids = g.input("ids", i32, {3});
  const nn::Embedding layer(g, "e", 1'000'000, 4);
  g.fetch("y", layer(ids));
  Parameters parameters(g, Device::cpu());
  Program program(g, {}, &parameters);
  EXPECT_LT(program.report().arena_bytes, 10'000);
  const Tensor got = program.run({{"ids", Tensor::from(i32, {3}, Dense{999'999, 0, 5})}}).at("y");
  const Dense rows = got.to_doubles(), whole = parameters.get("e/weight").to_doubles();
  for (std::size_t i = 0; i < 4; ++i) EXPECT_EQ(rows[i], whole[999'999 * 4 + i]);
}

TEST(EmbeddingLayer, TakesBytesAndSaysWhatDoesNotFit) {
  Graph g;
  const nn::Embedding layer(g, "e", 7, 4);
  EXPECT_EQ(layer(g.input("bytes", u8, {3})).shape(), (Shape{3, 4}));
  EXPECT_NE(layer_message_of([&] { layer(g.input("x", f32, {3})); }).find("embedding: indices are f32"),
            std::string::npos);
  EXPECT_NE(layer_message_of([&] { nn::Embedding(g, "odd", 7, 4, {.padding = 7}); }).find("there are 7 rows"),
            std::string::npos);
}

}  // namespace
}  // namespace paoding::testing_program
