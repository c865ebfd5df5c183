// SPDX-License-Identifier: Apache-2.0
// Transformer layers against PyTorch 2.11's results in float64 (tests/reference/peer/record_transformer.py); a decoder
// that makes one step after another against one that sees all.
#include "paoding/nn/transformer.h"

#include "paoding/ops/group_norm.h"
#include "paoding/ops/lists.h"
#include "tests/support/program_check.h"
#include "tests/support/recorded.h"

namespace paoding::testing_program {
namespace {

const Tensor& transformer_record(const std::string& name) {
  static const Tensors all = recorded_tensors(recorded_folder() / "transformer.safetensors");
  return all.at(name);
}

Tensor layer_transposed(const Tensor& matrix) {
  if (matrix.shape().rank() != 2) return matrix;
  const Dense values = matrix.to_doubles();
  const std::int64_t rows = matrix.shape()[0], columns = matrix.shape()[1];
  Dense result;
  for (std::int64_t c = 0; c < columns; ++c) {
    for (std::int64_t r = 0; r < rows; ++r) result.push_back(values[static_cast<std::size_t>(r * columns + c)]);
  }
  return Tensor::from(f64, {columns, rows}, result);
}

// Our names of a layer's parameters by PyTorch's.
std::map<std::string, std::string> names_of(bool has_memory) {
  std::map<std::string, std::string> names{{"linear1.weight", "in/weight"},
                                           {"linear1.bias", "in/bias"},
                                           {"linear2.weight", "out/weight"},
                                           {"linear2.bias", "out/bias"}};
  const auto add_attention = [&](const std::string& theirs, const std::string& ours) {
    names[theirs + ".in_proj_weight"] = ours + "/in/weight";
    names[theirs + ".in_proj_bias"] = ours + "/in/bias";
    names[theirs + ".out_proj.weight"] = ours + "/out/weight";
    names[theirs + ".out_proj.bias"] = ours + "/out/bias";
  };
  add_attention("self_attn", "self");
  if (has_memory) add_attention("multihead_attn", "memory");
  for (const char* norm : {"norm1", "norm2", "norm3"}) {
    if (!has_memory && norm == std::string("norm3")) continue;
    names[std::string(norm) + ".weight"] = std::string(norm) + "/gamma";
    names[std::string(norm) + ".bias"] = std::string(norm) + "/beta";
  }
  return names;
}

TEST(Transformer, LayersGiveWhatPyTorchGives) {
  for (const bool has_memory : {false, true}) {
    for (const bool norm_first : {false, true}) {
      for (const bool is_gelu : {false, true}) {
        const std::string name = std::string(has_memory ? "decoder_" : "encoder_") + (norm_first ? "pre_" : "post_") +
                                 (is_gelu ? "gelu" : "relu");
        SCOPED_TRACE(name);
        Graph g;
        const nn::TransformerOptions options{
            .feed_forward = 12,
            .activation = is_gelu ? nn::FeedForwardKind::gelu : nn::FeedForwardKind::relu,
            .norm_first = norm_first,
            .dtype = f64};
        Values wanted{g.input("x0", f64, transformer_record(name + "/x0").shape())};
        Value y;
        if (has_memory) {
          wanted.push_back(g.input("x1", f64, transformer_record(name + "/x1").shape()));
          y = nn::TransformerDecoderLayer(g, "l", 8, 2, options)(wanted[0], wanted[1]);
        } else {
          y = nn::TransformerEncoderLayer(g, "l", 8, 2, options)(wanted[0]);
        }
        const auto names = names_of(has_memory);
        ASSERT_EQ(g.parameters().size(), names.size());
        for (const auto& [theirs, ours] : names) wanted.push_back(g.find("l/" + ours));
        const Values grads = gradients(std::array{y}, wanted, std::array{g.input("dy", f64, y.shape())});
        g.fetch("y", y);
        for (std::size_t i = 0; i < grads.size(); ++i) g.fetch("grad" + std::to_string(i), grads[i]);
        Parameters parameters(g, Device::cpu());
        for (const auto& [theirs, ours] : names)
          parameters.set("l/" + ours, layer_transposed(transformer_record(name + "/" + theirs)));
        Program program(g, {}, &parameters);
        Tensors feeds;
        for (const std::string& in : program.input_names()) feeds[in] = transformer_record(name + "/" + in);
        const Tensors got = program.run(feeds);
        expect_close("y", got.at("y").to_doubles(), transformer_record(name + "/y").to_doubles(), 1e-12);
        std::size_t next = 0;
        for (; next < (has_memory ? 2u : 1u); ++next) {
          const std::string n = std::to_string(next);
          expect_close("dx" + n, got.at("grad" + n).to_doubles(), transformer_record(name + "/dx" + n).to_doubles(),
                       1e-12);
        }
        for (const auto& [theirs, ours] : names) {
          const Dense expected = layer_transposed(transformer_record(name + "/grad/" + theirs)).to_doubles();
          expect_close(ours, got.at("grad" + std::to_string(next++)).to_doubles(), expected, 1e-12);
        }
      }
    }
  }
}

// All steps at once, the first `chunk` of them together and the rest one by one in a scan, and, where rows have
// positions of their own, each step of each row.
void check_steps(const nn::TransformerOptions& options, std::int64_t chunk) {
  constexpr std::int64_t B = 2, T = 6, S = 3, W = 8;
  Graph g;
  const nn::TransformerDecoderLayer layer(g, "l", W, 2, options);
  const Value x = g.input("x", f64, {B, T, W}), memory = options.memory ? g.input("memory", f64, {B, S, W}) : Value();
  const Value lengths = g.input("lengths", i64, {B});
  AttentionOptions seen;
  if (options.memory) seen.lengths = lengths;
  g.fetch("whole", layer(x, memory, seen));
  nn::TransformerDecoderLayer::Cache cache = layer.start(g, B, T + 1, memory);
  const auto first = layer.step(slice(x, 1, 0, chunk), cache, full(g, {}, 0, i64), seen);
  const Values carries{first.cache.self.keys, first.cache.self.values};
  const auto step_with = [&](const Values& kept, const Value& element, const Value& position) {
    nn::TransformerDecoderLayer::Cache now = cache;
    now.self = {kept[0], kept[1]};
    const auto made = layer.step(reshape(element, Shape{B, 1, W}), now, position, seen);
    return step({made.cache.self.keys, made.cache.self.values}, {reshape(made.result, Shape{B, W})});
  };
  const Value rest = transpose(slice(x, 1, chunk, T), {1, 0, 2});
  const StepResult shared = scan(carries, {rest}, [&](const Values& kept, const Values& elements) {
    return step_with(kept, elements[0], step_index(kept[0].graph()) + static_cast<double>(chunk));
  });
  const StepResult own = scan(carries, {rest}, [&](const Values& kept, const Values& elements) {
    const Value position = step_index(kept[0].graph()) + static_cast<double>(chunk);
    return step_with(kept, elements[0], expand(position, {B}));
  });
  for (const auto& [name, made] : {std::pair{"shared", shared}, std::pair{"own", own}}) {
    const Value behind = transpose(made.outputs[0], {1, 0, 2});
    g.fetch(name, concat({first.result, behind}, 1));
  }
  Parameters parameters(g, Device::cpu(), {.seed = 4});
  Feeds feeds = make_feeds(g, 5);
  feeds["lengths"] = {2, 3};
  const Tensors got = Program(g, {}, &parameters).run(to_tensors(g, feeds));
  expect_close("shared", got.at("shared").to_doubles(), got.at("whole").to_doubles(), 1e-12);
  expect_close("own", got.at("own").to_doubles(), got.at("whole").to_doubles(), 1e-12);
}

TEST(Transformer, ADecoderMakesStepByStepWhatItMakesAtOnce) {
  check_steps({.feed_forward = 12, .dtype = f64}, 1);
  check_steps({.feed_forward = 12, .norm_first = true, .dtype = f64}, 3);
  check_steps({.norm_first = true, .rotary_base = 100, .memory = false, .dtype = f64}, 2);
}

TEST(Transformer, PositionsAreAddedFromAnyPlaceOn) {
  Graph g;
  const nn::LearnedPositions positions(g, "positions", 7, 3, f64);
  const Value x = g.input("x", f64, {2, 4, 3}), at = g.input("at", i64, {});
  g.fetch("y", positions(x));
  g.fetch("later", positions(x, at));
  Parameters parameters(g, Device::cpu(), {.seed = 4});
  Feeds feeds = make_feeds(g, 5);
  feeds["at"] = {2};
  const Tensors got = Program(g, {}, &parameters).run(to_tensors(g, feeds));
  const Dense table = parameters.get("positions/weight").to_doubles();
  for (std::size_t i = 0; i < 24; ++i) {
    EXPECT_EQ(got.at("y").to_doubles()[i], feeds.at("x")[i] + table[i % 12]);
    EXPECT_EQ(got.at("later").to_doubles()[i], feeds.at("x")[i] + table[i % 12 + 6]);
  }
}

TEST(Transformer, LayersSayWhatDoesNotFit) {
  Graph g;
  const nn::TransformerDecoderLayer with(g, "with", 8, 2), without(g, "without", 8, 2, {.memory = false});
  const Value x = g.input("x", f32, {2, 4, 8}), one = slice(x, 1, 0, 1), at = g.input("at", i64, {2});
  EXPECT_TRUE(has(message_of([&] { with(x); }), "'with': needs the memory that it attends to"));
  EXPECT_TRUE(has(message_of([&] { without(x, x); }), "'without': has a memory to attend to, but was made without"));
  const auto cache = without.start(g, 2, 3);
  EXPECT_TRUE(has(message_of([&] { without.step(x, cache, full(g, {}, 0, i64)); }), "at least T"));
  EXPECT_TRUE(
      has(message_of([&] { without.step(slice(x, 1, 0, 2), cache, at); }), "i64[2] of single steps; there are 2"));
  EXPECT_TRUE(has(message_of([&] { nn::LearnedPositions(g, "p", 3, 8)(x); }), "needed is [.., at most 3, 8]"));
  EXPECT_NO_THROW(without.step(one, cache, at));
}

TEST(NormLayers, HaveWhatTheirOpsTake) {
  Graph g;
  const Value x = g.input("x", f32, {2, 6, 3});
  const nn::RmsNorm rms(g, "rms", 3);
  const nn::GroupNorm group(g, "group", 6, 2);
  g.fetch("rms", rms(x) - rms_norm(x));
  g.fetch("group", group(x) - group_norm(x, 2));
  Parameters parameters(g, Device::cpu());
  for (const auto& [name, tensor] : Program(g, {}, &parameters).run(to_tensors(g, make_feeds(g, 1)))) {
    EXPECT_LT(largest(tensor.to_doubles()), 1e-6) << name;
  }
  EXPECT_TRUE(has(message_of([&] { nn::GroupNorm(g, "bad", 6, 4); }), "group_norm 'bad': 4 groups do not divide 6"));
}

}  // namespace
}  // namespace paoding::testing_program
