// SPDX-License-Identifier: Apache-2.0
// Model files that mean harm: their seal is right, their graphs are not. Each is an Error or a model that runs.
#include <random>

#include "paoding/model.h"
#include "paoding/nn.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

ModelFile recurrent_model() {
  Graph g;
  const Value xs = g.input("xs", f32, {3, 2, 4});
  const nn::Gru gru(g, "gru", 4, 5);
  g.fetch("y", softmax(gru(xs).outputs));
  const Value ids = g.input("ids", i64, {3});
  g.fetch("rows", gather(g.parameter("table", f32, {6, 2}), ids));
  ModelFile file{.model = "small"};
  file.graphs[graph_name("use", {3})] = to_text(g);
  for (const NodeId id : g.parameters()) {
    const Type& type = g.node(id).types[0];
    file.parameters[g.node(id).name.str()] =
        Tensor::from(type.dtype, type.shape, Dense(static_cast<std::size_t>(type.shape.elements()), 0.5));
  }
  return file;
}

// A character, a line, or a stretch of the text is another, is gone, or is there twice.
void change(std::string* text, std::mt19937_64& random) {
  static const std::string kCharacters = "0123456789-+.,()[]{}=@\"\\#\n xyzsum\x01\xff";
  const std::size_t at = random() % text->size();
  switch (random() % 5) {
    case 0: (*text)[at] = kCharacters[random() % kCharacters.size()]; return;
    case 1: text->erase(at, 1 + random() % 8); return;
    case 2: text->insert(at, text->substr(random() % text->size(), random() % 30)); return;
    case 3: text->insert(at, std::string(1 + random() % 20, '9')); return;
    default: {
      const std::size_t begin = text->rfind('\n', at), end = text->find('\n', at);
      if (begin != std::string::npos && end != std::string::npos) text->erase(begin, end - begin);
    }
  }
}

double elements_of(const std::map<std::string, Type>& inputs) {
  double count = 0;
  for (const auto& [name, type] : inputs) count += static_cast<double>(type.shape.elements());
  return count;
}

TEST(HostileModel, IsAnErrorOrRunsWhateverItsGraphsSay) {
  std::mt19937_64 random(16);
  int ran = 0, refused = 0;
  for (int i = 0; i < 600; ++i) {
    ModelFile file = recurrent_model();
    std::string& text = file.graphs.begin()->second;
    for (std::uint64_t k = random() % 3; k < 3 && !text.empty(); ++k) change(&text, random);
    try {
      const Model model(std::move(file), {.executors = 1}, "hostile");
      for (const std::string& entry : model.entries()) {
        for (const auto& inputs : model.inputs(entry)) {
          if (elements_of(inputs) > 1e5) continue;
          std::map<std::string, Tensor> feeds;
          for (const auto& [name, type] : inputs) {
            feeds[name] = Tensor::from(type.dtype, type.shape, Dense(static_cast<std::size_t>(type.shape.elements())));
          }
          model.run(entry, feeds);
          ++ran;
        }
      }
    } catch (const Error& error) {
      EXPECT_FALSE(std::string(error.what()).empty());
      ++refused;
    }
  }
  EXPECT_GT(refused, 300);
  EXPECT_GT(ran, 5);
}

}  // namespace
}  // namespace paoding::testing_program
