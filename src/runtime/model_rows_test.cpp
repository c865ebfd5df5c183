// SPDX-License-Identifier: Apache-2.0
// Model files that say their batch: any number of rows is run, padded or in parts, with the results of one row at a
// time.
#include <random>

#include "io/model_signature.h"
#include "paoding/graph_text.h"
#include "paoding/model.h"
#include "tests/support/program_check.h"
#include "tests/support/temporary_folder.h"

namespace paoding::testing_program {
namespace {

// softmax(x @ w) * scale over axes [time, rows, 3]; the rows are the middle axis.
std::string scores(std::int64_t time, std::int64_t rows) {
  Graph g;
  const Value x = g.input("x", f32, {time, rows, 3}), scale = g.input("scale", f32, {}),
              w = g.parameter("w", f32, {3, 3}), kinds = g.input("kinds", i64, {rows});
  g.fetch("chances", softmax(matmul(x, w)) * scale);
  g.fetch("kinds", kinds + 1);
  return to_text(g);
}

constexpr const char* kFamily =
    "paoding graph 1\n"
    "extent rows = 1..6 sizes(1, 4, 6)\n"
    "extent time = 2..3\n"
    "x = input f32[time,rows,3]\n"
    "w = parameter f32[3,3]\n"
    "y = matmul(x, w)\n"
    "fetch y\n";

ModelFile rows_model() {
  ModelFile file{.model = "scores", .batch = "rows"};
  for (const std::int64_t rows : {1, 4}) {
    for (const std::int64_t time : {2, 3}) {
      file.graphs[graph_name("scores", Sizes{{"time", time}, {"rows", rows}})] = scores(time, rows);
    }
  }
  file.graphs["family"] = kFamily;
  file.parameters["w"] = Tensor::from(f32, {3, 3}, Dense{1, 2, 3, -1, 0.5, 2, 0.25, -3, 1});
  return file;
}

Tensor random_tensor(const Shape& shape, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Dense values;
  for (std::int64_t i = 0; i < shape.elements(); ++i) values.push_back(normal(random));
  return Tensor::from(f32, shape, values);
}

// Row `row` of axis 1 of a tensor [a, b, c].
Tensor row_of(const Tensor& x, std::int64_t row) {
  Dense values;
  const Dense all = x.to_doubles();
  const std::int64_t a = x.shape()[0], b = x.shape()[1], c = x.shape()[2];
  for (std::int64_t i = 0; i < a; ++i) {
    for (std::int64_t k = 0; k < c; ++k) values.push_back(all[static_cast<std::size_t>((i * b + row) * c + k)]);
  }
  return Tensor::from(f32, {a, 1, c}, values);
}

TEST(ModelRows, AnyNumberOfThemGivesWhatEachGivesAlone) {
  const Model model(rows_model(), {}, "m");
  for (const std::int64_t time : {2, 3}) {
    for (const std::int64_t rows : {1, 2, 3, 4, 5, 7, 8, 9, 17}) {
      const Tensor x = random_tensor({time, rows, 3}, static_cast<unsigned>(rows));
      std::vector<double> kinds;
      for (std::int64_t i = 0; i < rows; ++i) kinds.push_back(static_cast<double>(10 * i));
      const Tensor scale = Tensor::from(f32, {}, Dense{2.5});
      const auto all = model.run("scores", {{"x", x}, {"scale", scale}, {"kinds", Tensor::from(i64, {rows}, kinds)}});
      const Tensor family = model.run("family", {{"x", x}}).at("y");
      ASSERT_EQ(all.at("chances").shape(), (Shape{time, rows, 3}));
      ASSERT_EQ(family.shape(), (Shape{time, rows, 3}));
      for (std::int64_t row = 0; row < rows; ++row) {
        const double kind = kinds[static_cast<std::size_t>(row)];
        const auto alone = model.run(
            "scores", {{"x", row_of(x, row)}, {"scale", scale}, {"kinds", Tensor::from(i64, {1}, Dense{kind})}});
        const Tensor of_family = model.run("family", {{"x", row_of(x, row)}}).at("y");
        EXPECT_EQ(all.at("kinds").to_doubles()[static_cast<std::size_t>(row)], kind + 1);
        const Dense got = row_of(all.at("chances"), row).to_doubles(), want = alone.at("chances").to_doubles();
        const Dense got_family = row_of(family, row).to_doubles(), want_family = of_family.to_doubles();
        for (std::size_t k = 0; k < want.size(); ++k) {
          EXPECT_NEAR(got[k], want[k], 1e-6) << rows << " rows, row " << row;
          EXPECT_NEAR(got_family[k], want_family[k], 1e-6) << rows << " rows, row " << row;
        }
      }
    }
  }
}

TEST(ModelRows, ATextOfEverySizeIsAskedForPowersOfTwo) {
  ModelFile file = rows_model();
  file.graphs["family"] =
      "paoding graph 1\nextent rows = 1..100\nx = input f32[rows,3]\ny = add(x, x)\nn = full() {value=rows, "
      "shape=[rows], "
      "dtype=i64}\nfetch y\nfetch n\n";
  const Model model(file, {}, "m");
  for (const auto& [rows, made] :
       std::vector<std::pair<std::int64_t, double>>{{1, 1}, {3, 4}, {5, 8}, {64, 64}, {65, 100}}) {
    const auto results = model.run("family", {{"x", random_tensor({rows, 3}, 1)}});
    EXPECT_EQ(results.at("n").to_doubles(), Dense(static_cast<std::size_t>(rows), made));
    EXPECT_EQ(results.at("y").shape(), (Shape{rows, 3}));
  }
}

TEST(ModelRows, NoRowsGiveNone) {
  const Model model(rows_model(), {}, "m");
  EXPECT_EQ(model.run("family", {{"x", Tensor(f32, {3, 0, 3})}}).at("y").shape(), (Shape{3, 0, 3}));
}

TEST(ModelRows, WrongCallsAreSaidSo) {
  const Model model(rows_model(), {}, "m");
  const Tensor scale = Tensor::from(f32, {}, Dense{1});
  const auto said = [&](const Tensor& x, const Tensor& kinds) {
    return message_of([&] { model.run("scores", {{"x", x}, {"scale", scale}, {"kinds", kinds}}); });
  };
  EXPECT_TRUE(has(said(Tensor(f32, {2, 5, 3}), Tensor(i64, {4})), "m: 'scores': rows is 4 in 'kinds' and 5 in 'x'") ||
              has(said(Tensor(f32, {2, 5, 3}), Tensor(i64, {4})), "m: 'scores': rows is 5 in 'x' and 4 in 'kinds'"));
  EXPECT_TRUE(has(said(Tensor(f32, {9, 5, 3}), Tensor(i64, {5})), "m: 'scores' got ")) << "no graph of this time";
  EXPECT_TRUE(has(said(Tensor(f32, {2, 5, 4}), Tensor(i64, {5})), "it takes"));
  EXPECT_TRUE(has(said(Tensor(f64, {2, 5, 3}), Tensor(i64, {5})), "it takes"));
  EXPECT_TRUE(has(message_of([&] { model.run("family", {{"x", Tensor(f32, {7, 5, 3})}}); }), "time is 7"));
  EXPECT_EQ(message_of([&] { model.check("family", {{"x", {f32, {2, 500, 3}}}}); }), "no error");
  EXPECT_TRUE(has(message_of([&] { model.check("family", {{"z", {f32, {2, 500, 3}}}}); }), "it takes"));
}

TEST(ModelRows, SignaturesSayWhatVariesAndWhatTheBatchIs) {
  const Model model(rows_model(), {}, "m");
  const ModelSignature signature = model.signature("scores");
  ASSERT_EQ(signature.inputs.size(), 3u);
  EXPECT_EQ(signature.inputs[0].name, "x");
  EXPECT_EQ(signature.inputs[0].shape, (std::vector<std::int64_t>{-1, -1, 3}));
  EXPECT_EQ(signature.inputs[0].batch_axis, 1);
  EXPECT_EQ(signature.inputs[1].batch_axis, -1) << "the scale is everybody's";
  EXPECT_EQ(signature.inputs[2].batch_axis, 0);
  EXPECT_EQ(signature.results[1].dtype, i64);
  EXPECT_TRUE(signature.has_batch);
  EXPECT_EQ(model.signature("family").results[0].batch_axis, 1);
  ModelFile without = rows_model();
  without.batch.clear();
  EXPECT_FALSE(Model(without, {}, "m").signature("scores").has_batch);
  EXPECT_TRUE(has(message_of([&] { model.signature("none"); }), "there are: family, scores"));
}

TEST(ModelRows, AFileIsReadWithItsBatchAndOneThatIsNoneIsRefused) {
  const TemporaryFolder folder;
  const auto path = folder / "a.pd";
  save_model(path, rows_model());
  EXPECT_EQ(load_model_file(path).batch, "rows");
  ModelFile model = rows_model();
  model.batch = "batch";
  EXPECT_TRUE(has(message_of([&] { save_model(path, model); }),
                  "batch = 'batch': no graph has this extent; there are: rows, time"));
  EXPECT_TRUE(has(message_of([&] { Model(model, {}, "m"); }), "m: batch = 'batch': no graph has this extent"));
  // A mean over the rows is of none of them.
  model = rows_model();
  model.graphs["family"] += "all = mean(y)\nfetch all\n";
  EXPECT_TRUE(has(message_of([&] { save_model(path, model); }), "no axis of its result 'all' f32[]"));
  // One size alone, as long as another axis.
  model = rows_model();
  model.graphs = {{"scores[rows=3]", scores(3, 3)}};
  EXPECT_TRUE(has(message_of([&] { save_model(path, model); }),
                  "which axis of 'x' f32[3,3,3] is the batch cannot be told: 0 and 1 are as long"));
  model = rows_model();
  model.graphs["scores"] = scores(2, 9);
  EXPECT_TRUE(has(message_of([&] { save_model(path, model); }), "graph 'scores' has no extent 'rows'"));
}

TEST(ModelRows, PreparedModelsHaveEveryProgramOfEveryExecutor) {
  const Model model(rows_model(), {.executors = 3}, "m");
  model.prepare();
  EXPECT_EQ(model.run("family", {{"x", Tensor(f32, {2, 4, 3})}}).at("y").shape(), (Shape{2, 4, 3}));
}

TEST(ModelRows, NamesOfGraphsTellSizes) {
  EXPECT_EQ(graph_name("classify", Sizes{{"batch", 8}, {"time", 16}}), "classify[batch=8,time=16]");
  EXPECT_EQ(named_sizes("classify[batch=8,time=16]"),
            (std::map<std::string, std::int64_t>{{"batch", 8}, {"time", 16}}));
  for (const char* other :
       {"classify", "classify[8]", "classify[batch=8", "classify[=8]", "classify[batch=]", "classify[batch=8,batch=9]",
        "classify[batch=8x]", "classify[batch=99999999999999999999]"}) {
    EXPECT_TRUE(named_sizes(other).empty()) << other;
  }
}

}  // namespace
}  // namespace paoding::testing_program
