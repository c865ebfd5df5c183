// SPDX-License-Identifier: Apache-2.0
// Model files: written models are read back, damage is reported; models are called by name and by several threads.
#include "paoding/model.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <thread>

#include "paoding/cancellation.h"
#include "paoding/io.h"
#include "tests/support/allocation_count.h"
#include "tests/support/program_check.h"
#include "tests/support/temporary_folder.h"

namespace paoding::testing_program {
namespace {

std::string scaled(std::int64_t rows) {
  Graph g;
  const Value x = g.input("x", f32, {rows, 2}), w = g.parameter("w", f32, {2});
  g.fetch("y", x * w);
  return to_text(g);
}

ModelFile small_model() {
  ModelFile file{.model = "scale", .options = {{"hidden", "2"}}, .notes = {{"run", "runs/a"}}};
  file.files["letters.txt"] = std::string("a\nb\0\xff", 5);
  file.graphs = {{graph_name("scale", {1}), scaled(1)}, {graph_name("scale", {3}), scaled(3)}};
  Graph g;
  g.fetch("w", g.parameter("w", f32, {2}) + 0.0);
  file.graphs["weights"] = to_text(g);
  file.parameters["w"] = Tensor::from(f32, {2}, Dense{2, -3});
  return file;
}

Tensor rows(std::int64_t count) {
  Dense values;
  for (std::int64_t i = 0; i < 2 * count; ++i) values.push_back(static_cast<double>(i) + 1);
  return Tensor::from(f32, {count, 2}, values);
}

TEST(ModelFile, IsReadAsItWasWritten) {
  const TemporaryFolder folder;
  save_model(folder.path() / "a.pd", small_model());
  const ModelFile read = load_model_file(folder.path() / "a.pd"), made = small_model();
  EXPECT_EQ(read.model, made.model);
  EXPECT_EQ(read.options, made.options);
  EXPECT_EQ(read.notes, made.notes);
  EXPECT_EQ(read.files, made.files);
  EXPECT_EQ(read.graphs, made.graphs);
  EXPECT_EQ(read.parameters.at("w").to_doubles(), made.parameters.at("w").to_doubles());
}

// Every byte of the file, changed: an error, or the very same model (the header's padding).
TEST(ModelFile, SaysThatItIsDamaged) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.pd";
  save_model(path, small_model());
  const std::string whole = slurp(path);
  const auto parse = [](const std::string& bytes) { return parse_model_file(std::as_bytes(std::span(bytes)), "a.pd"); };
  int errors = 0;
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(changed[at] ^ 1);
    try {
      const ModelFile read = parse(changed);
      EXPECT_EQ(read.graphs, small_model().graphs) << at;
      EXPECT_EQ(read.files, small_model().files) << at;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::file) << error.what();
      ++errors;
    }
  }
  EXPECT_GT(errors, static_cast<int>(whole.size()) - 20);
  for (std::size_t size = 0; size < whole.size(); size += 7) {
    EXPECT_THROW(parse(whole.substr(0, size)), Error) << size;
  }
}

TEST(ModelFile, SaysWhatItIsNot) {
  const TemporaryFolder folder;
  const auto path = folder.path() / "a.pd";
  save_safetensors(path, {{"w", rows(1)}});
  EXPECT_TRUE(has(message_of([&] { load_model_file(path); }), "it is no model that `paoding export`"));
  save_safetensors(path, {{"w", rows(1)}}, {{"format", "paoding model"}, {"version", "2"}});
  EXPECT_TRUE(has(message_of([&] { load_model_file(path); }), "a model of version 2; this paoding knows version 1"));
  save_safetensors(path, {{"w", rows(1)}}, {{"format", "paoding model"}, {"version", "1"}});
  EXPECT_TRUE(has(message_of([&] { load_model_file(path); }), "its checksum is missing"));
  ModelFile model = small_model();
  model.parameters["file:x"] = rows(1);
  EXPECT_TRUE(has(message_of([&] { save_model(path, model); }), "has a name that stands for a file"));
  model.graphs.clear();
  EXPECT_TRUE(has(message_of([&] { save_model(path, model); }), "at least one graph"));
}

TEST(Model, RunsTheGraphWhoseInputsFit) {
  const Model model(small_model(), {}, "m");
  EXPECT_EQ(model.entries(), (std::vector<std::string>{"scale", "weights"}));
  EXPECT_EQ(model.inputs("scale").size(), 2u);
  EXPECT_EQ(model.run("scale", {{"x", rows(3)}}).at("y").to_doubles(), (Dense{2, -6, 6, -12, 10, -18}));
  EXPECT_EQ(model.run("scale", {{"x", rows(1)}}).at("y").to_doubles(), (Dense{2, -6}));
  EXPECT_EQ(model.run("weights", {}).at("w").to_doubles(), (Dense{2, -3}));
  EXPECT_TRUE(has(message_of([&] {
                    model.run("scale", {{"x", rows(2)}});
                  }),
                  "m: 'scale' got x f32[2,2]; it takes\n  x f32[1,2]\n  x f32[3,2]"));
  EXPECT_TRUE(has(message_of([&] { model.run("scale", {{"z", rows(1)}}); }), "got z f32[1,2]; it takes"));
  EXPECT_TRUE(has(message_of([&] { model.run("search", {}); }), "no entry point 'search'; there are: scale, weights"));
  EXPECT_TRUE(has(message_of([&] { model.run({}); }), "several entry points: scale, weights; say which"));
  EXPECT_TRUE(has(message_of([&] { model.graph("scale[7]"); }), "no graph 'scale[7]'; there are: scale[1], scale[3]"));
}

TEST(Model, SaysWhichPartOfItsFileIsWrong) {
  ModelFile model = small_model();
  model.parameters.erase("w");
  EXPECT_TRUE(has(message_of([&] { Model(model, {}, "m"); }),
                  "m: its parameters are not those of its graphs: restore: 1 of the tensors do not fit the model: 'w' "
                  "f32[2] is missing"));
  model.parameters["w"] = rows(1);
  EXPECT_TRUE(has(message_of([&] { Model(model, {}, "m"); }), "'w' is f32[1,2], must be f32[2]"));
  model.graphs["other"] = "paoding graph 1\ny = nothing()\n";
  EXPECT_TRUE(has(message_of([&] { Model(model, {}, "m"); }), "m: graph 'other': "));
  EXPECT_TRUE(has(message_of([&] { Model(small_model(), {.executors = 0}, "m"); }), "executors = 0"));
}

TEST(Model, RefusesWeightsThatAreNaN) {
  const double inf = std::numeric_limits<double>::infinity(), nan = std::numeric_limits<double>::quiet_NaN();
  for (const DType dtype : {f64, f32, f16, bf16}) {
    for (const double value : {0.0, -65504.0, 1.0 / 3, inf, -inf, nan}) {
      Graph g;
      g.fetch("y", g.parameter("w", dtype, {3}) + 0.0);
      ModelFile model{.model = "weights"};
      model.graphs["weights"] = to_text(g);
      model.parameters["w"] = Tensor::from(dtype, {3}, Dense{1, 2, value});
      const std::string said = message_of([&] { Model(model, {}, "m"); });
      EXPECT_EQ(said, std::isfinite(value)
                          ? "no error"
                          : "m: the parameter 'w' has a NaN or an infinity: what such a model says means nothing")
          << value;
    }
  }
}

TEST(Model, RefusesFilesThatItsWeightsWereNotTrainedWith) {
  const TemporaryFolder folder;
  ModelFile model = small_model();
  seal_files(&model);
  EXPECT_EQ(model.options.size(), 2u);
  EXPECT_EQ(message_of([&] { Model(model, {}, "m"); }), "no error");
  for (const std::string& other : {std::string("b\na\0\xff", 5), std::string("a\nb"), std::string()}) {
    model.files["letters.txt"] = other;
    save_model(folder.path() / "a.pd", model);
    EXPECT_TRUE(
        has(message_of([&] { Model::load(folder.path() / "a.pd"); }),
            "a.pd: its file 'letters.txt' is not the one that its weights were trained with: the checksum is "));
  }
  model.files.clear();
  EXPECT_TRUE(has(message_of([&] { Model(model, {}, "m"); }), "trained with: the checksum is missing, and was "));
}

TEST(Model, RefusesGraphsWithOtherInputsThanTheirNamesSay) {
  ModelFile model = small_model();
  model.graphs[graph_name("scale", {7, 9})] = scaled(7);  // an additional number means whatever the author wants
  EXPECT_EQ(message_of([&] { Model(model, {}, "m"); }), "no error");
  std::swap(model.graphs["scale[1]"], model.graphs["scale[3]"]);
  EXPECT_EQ(message_of([&] { Model(model, {}, "m"); }),
            "m: graph 'scale[1]': an extent of its input 'x' is 3, which is none of its name's numbers");
  // Nothing is known from one graph, or from names without numbers.
  for (const char* name : {"one[5]", "other[]", "other[a]", "other[1", "third[99999999999999999999]"}) {
    ModelFile single = small_model();
    single.graphs[name] = scaled(2);
    EXPECT_EQ(message_of([&] { Model(single, {}, "m"); }), "no error") << name;
  }
}

TEST(Model, TakesNoMemoryForParametersThatTheFileHasNot) {
  if (!AllocationCount::works()) GTEST_SKIP() << "NOT CHECKED: this build has an allocator of its own";
  ModelFile model = small_model();
  model.graphs["weights"] += "giant = parameter f32[1000000000]\nall = sum(giant)\nfetch all\n";
  const AllocationLimit limit(100 << 20);
  EXPECT_TRUE(has(message_of([&] { Model(model, {}, "m"); }), "'giant' f32[1000000000] is missing"));
  model.parameters["giant"] = rows(3);
  EXPECT_TRUE(has(message_of([&] { Model(model, {}, "m"); }), "'giant' is f32[3,2], must be f32[1000000000]"));
  EXPECT_FALSE(limit.is_passed());
}

TEST(Model, IsCalledByManyThreadsAtOnce) {
  const Model model(small_model(), {.executors = 2});
  std::atomic<int> wrong = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, copy = model, t] {
      for (int i = 0; i < 100; ++i) {
        const std::int64_t count = (t + i) % 2 == 0 ? 1 : 3;
        const Dense x = rows(count).to_doubles(), y = copy.run("scale", {{"x", rows(count)}}).at("y").to_doubles();
        for (std::size_t k = 0; k < x.size(); ++k) wrong += y[k] != x[k] * (k % 2 == 0 ? 2 : -3);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace paoding::testing_program
