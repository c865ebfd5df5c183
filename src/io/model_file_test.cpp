// SPDX-License-Identifier: Apache-2.0
// save_model() refuses models that Model would not load, and graphs that drop as in training.
#include "paoding/model.h"
#include "tests/support/program_check.h"
#include "tests/support/temporary_folder.h"

namespace paoding::testing_program {
namespace {

ModelFile with_graph(std::string text) {
  ModelFile file;
  file.graphs["run"] = std::move(text);
  return file;
}

std::string nested(int depth) {
  const auto level = [](const auto& self, const Value& value, int left) -> Value {
    if (left == 0) return value + 1;
    return scan({value}, {arange(value.graph(), 0, 1)},
                [&](const Values& carries, const Values&) {
                  return StepResult{{self(self, carries[0], left - 1)}, {}};
                })
        .carries[0];
  };
  Graph g;
  g.fetch("y", level(level, g.input("x", f32, {}), depth));
  return to_text(g);
}

std::string named(std::size_t length) {
  Graph g;
  g.fetch("y", g.input(std::string(length, 'x'), f32, {}) + 1);
  return to_text(g);
}

// Every file that is written can be loaded; a model that could not be loaded is not written.
TEST(SaveModel, WritesWhatModelLoads) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.pd";
  for (const std::string& text : {nested(16), named(65536)}) {
    save_model(path, with_graph(text));
    EXPECT_EQ(Model::load(path).entries(), std::vector<std::string>{"run"});
    std::filesystem::remove(path);
  }
  const auto refused = [&](const ModelFile& file, std::string_view why) {
    const std::string message = message_of([&] { save_model(path, file); });
    EXPECT_TRUE(has(message, why)) << message;
    EXPECT_TRUE(has(message, "a.pd: graph 'run': ")) << message;
    EXPECT_FALSE(std::filesystem::exists(path));
  };
  refused(with_graph(nested(17)), "bodies are nested deeper than 16");
  refused(with_graph(named(65537)), "a name of more than 65536 bytes");
  refused(with_graph("text"), "<graph text>:1:1");
  refused(with_graph(to_text(Graph())), "it fetches nothing");
  Graph g;
  g.fetch("y", g.parameter("w", f32, {2}) * 2);
  ModelFile file = with_graph(to_text(g));
  refused(file, "no value is given for its parameter 'w'");
  file.parameters["w"] = Tensor::from(f32, {3}, Dense{1, 2, 3});
  refused(file, "its parameter 'w' is f32[2], not f32[3]");
}

TEST(SaveModel, RefusesAGraphThatDropsAsInTraining) {
  const TemporaryFolder folder;
  for (const bool training : {true, false}) {
    Graph g;
    const Value x = g.input("x", f32, {4, 2});
    {
      const Scope scope(g, "decoder");
      g.fetch("y", scan({x}, {arange(g, 0, 2)}, [&](const Values& carries, const Values&) {
                     return StepResult{{dropout(carries[0], 0.5, training)}, {}};
                   }).carries[0]);
    }
    ModelFile file = with_graph(to_text(g));
    for (const NodeId id : g.parameters()) {
      file.parameters[g.node(id).name.str()] = Tensor::from(i64, {2}, Dense{1, 0});
    }
    const std::string message = message_of([&] { save_model(folder.path() / "a.pd", file); });
    EXPECT_EQ(has(message, "graph 'run': it drops values as in training"), training) << message;
    EXPECT_EQ(has(message, "(in decoder"), training) << message;
  }
}

}  // namespace
}  // namespace paoding::testing_program
