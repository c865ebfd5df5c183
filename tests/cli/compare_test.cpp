// SPDX-License-Identifier: Apache-2.0
// `paoding compare`: equal graphs are equal, and where a fault was put the node is named, with both values.
#include <cmath>

#include "paoding/model.h"
#include "tests/cli/cli_run.h"

namespace paoding::cli_run {
namespace {

class Compare : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    // exp(600.25) is no f32, and its logarithm is 600.25 in f64.
    write("overflow.txt",
          "paoding graph 1\n"
          "x = input f32[2,3]\n"
          "a = mul(x, x) @\"score\"\n"
          "e = exp(a) @\"score\"\n"
          "l = log(e)\n"
          "y = add(l, x)\n"
          "fetch y\n");
    save("overflow.safetensors", {{"x", Tensor::from(f32, {2, 3}, {1, 2, 3, 1, 24.5, 2})}});
  }
  // The JSON of a comparison that has this exit code.
  simdjson::dom::element compared(const std::string& arguments, int code) {
    const Ran ran = run("compare " + arguments + " --device cpu --json");
    EXPECT_EQ(ran.code, code) << ran.out << ran.err;
    return parser_.parse(simdjson::padded_string(ran.out));
  }
  static std::string text_of(simdjson::dom::element element) { return std::string(element.get_c_str().value()); }

 private:
  simdjson::dom::parser parser_;
};

TEST_F(Compare, FindsGraphsEqualThatDifferByRounding) {
  for (const char* way : {"cpu", "f64"}) {
    SCOPED_TRACE(way);
    const auto found = compared(std::string("$D/scale.txt --random 5 --every-node --with ") + way, 0);
    EXPECT_TRUE(found["equal"].get_bool().value());
    EXPECT_EQ(found["results"].get_array().size(), 2u);
    EXPECT_EQ(found["nodes"].get_array().size(), 0u);
  }
  const Ran ran = run("compare $D/scale.txt --with f64 --device cpu");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, "cpu beside f64 on the CPU, op by op\n")) << ran.out;
  EXPECT_TRUE(has(ran.out, "\nequal\n")) << ran.out;
}

TEST_F(Compare, NamesTheOpThatOverflowsWithBothValuesAndWhatItRead) {
  const Ran ran = run("compare $D/overflow.txt --feed $D/overflow.safetensors --with f64 --device cpu");
  EXPECT_EQ(ran.code, 1) << ran.err;
  EXPECT_TRUE(has(ran.out, "the first node that differs: exp in score (f32[2,3]), element [1, 1]: inf here, 4.84"))
      << ran.out;
  EXPECT_TRUE(
      has(ran.out, "1 of 6 elements differ\n  it read: mul f32[2,3], 600.25 there and 600.25, relative difference 0\n"))
      << ran.out;
  EXPECT_TRUE(has(ran.out, "\ndifferent\n")) << ran.out;
  const auto found = compared("$D/overflow.txt --feed $D/overflow.safetensors --with f64", 1);
  EXPECT_EQ(text_of(found["nodes"].at(0)["op"]), "exp");
  EXPECT_EQ(text_of(found["nodes"].at(0)["scope"]), "score");
  EXPECT_TRUE(found["nodes"].at(0)["value"].is_null()) << "an infinity is no number of JSON";
  EXPECT_EQ(found["results"].at(0)["differing"].get_int64().value(), 1);
  // In its own types the graph overflows on the CPU as well.
  EXPECT_TRUE(compared("$D/overflow.txt --feed $D/overflow.safetensors --with cpu", 0)["equal"].get_bool().value());
}

// 0.1f * 10 is a little more than 1, and 1 in f32.
TEST_F(Compare, NamesTheFirstFloatBehindAComparisonThatTurns) {
  write("turn.txt",
        "paoding graph 1\n"
        "x = input f32[2]\n"
        "ten = input f32[2]\n"
        "one = input f32[2]\n"
        "p = mul(x, ten)\n"
        "c = greater(p, one)\n"
        "y = select(c, x, ten)\n"
        "fetch y\n");
  save("turn.safetensors", {{"x", Tensor::from(f32, {2}, {0.1, 0.5})},
                            {"ten", Tensor::from(f32, {2}, {10, 10})},
                            {"one", Tensor::from(f32, {2}, {1, 1})}});
  const auto found = compared("$D/turn.txt --feed $D/turn.safetensors --with f64", 1);
  ASSERT_EQ(found["nodes"].get_array().size(), 2u);
  EXPECT_EQ(text_of(found["nodes"].at(0)["op"]), "greater");
  EXPECT_EQ(found["nodes"].at(0)["index"].at(0).get_int64().value(), 0);
  EXPECT_EQ(text_of(found["nodes"].at(1)["op"]), "select");
}

TEST_F(Compare, TellsRoundingOfMixedPrecisionByItsTolerance) {
  write("product.txt",
        "paoding graph 1\n"
        "x = input f32[64,64]\n"
        "w = parameter f32[64,64]\n"
        "p = matmul(x, w) @\"layer\"\n"
        "y = tanh(p)\n"
        "fetch y\n");
  compared("$D/product.txt --random 2 --with f64 --dtype bf16", 0);
  const auto found = compared("$D/product.txt --random 2 --with f64 --dtype bf16 --tolerance 1e-5", 1);
  EXPECT_EQ(text_of(found["nodes"].at(0)["op"]), "matmul");
  EXPECT_EQ(text_of(found["nodes"].at(0)["scope"]), "layer");
  compared("$D/product.txt --random 2 --with f64 --tolerance 1e-5", 0);
}

TEST_F(Compare, TellsAChangedWeightFromAnOpThatFails) {
  save("record.safetensors",
       {{"x", Tensor::from(f32, {2, 3}, {1, 2, 3, 4, 5, 6})}, {"y", Tensor::from(f32, {2, 3}, {2, 6, 12, 8, 15, 24})}});
  const auto model = [&](double weight) {
    ModelFile file;
    file.graphs["run"] =
        "paoding graph 1\n"
        "x = input f32[2,3]\n"
        "w = parameter f32[3]\n"
        "y = mul(x, w)\n"
        "fetch y\n";
    file.parameters["w"] = Tensor::from(f32, {3}, {2.0, 3.0, weight});
    save_model(folder_ / "model.pd", file);
  };
  model(4);
  compared("$D/model.pd --with $D/record.safetensors", 0);
  model(4.1);
  const auto changed = compared("$D/model.pd --with $D/record.safetensors", 1);
  EXPECT_EQ(changed["results"].at(0)["index"].at(0).get_int64().value(), 1);
  EXPECT_EQ(changed["results"].at(0)["differing"].get_int64().value(), 2);
  EXPECT_EQ(changed["nodes"].get_array().size(), 0u);
  EXPECT_TRUE(has(text_of(changed["note"]), "its weights, its ops or what was fed are not those of the record"));
  model(std::nan(""));
  compared("$D/model.pd --with $D/record.safetensors", 1);
  // A record that overflow spoils here, not in f64.
  save("sum.safetensors", {{"y", Tensor::from(f32, {2, 3}, {2, 6, 12, 2, 624.75, 6})}});
  const auto spoiled = compared("$D/overflow.txt --feed $D/overflow.safetensors --with $D/sum.safetensors", 1);
  EXPECT_EQ(text_of(spoiled["nodes"].at(0)["op"]), "exp");
}

TEST_F(Compare, ComparesWhatAssignmentsLeave) {
  write("counts.txt",
        "paoding graph 1\n"
        "x = input f32[2]\n"
        "n = parameter f32[2]\n"
        "m = add(n, x)\n"
        "assign n = m\n");
  const auto found = compared("$D/counts.txt --random 1 --with f64", 0);
  EXPECT_EQ(text_of(found["results"].at(0)["name"]), "n after the run");
}

TEST_F(Compare, SaysWhatIsWrongBeforeItRuns) {
  save("other.safetensors", {{"z", Tensor::from(f32, {1}, {1})}});
  save("shape.safetensors", {{"y", Tensor::from(f32, {3}, {1, 2, 3})}});
  save("surplus.safetensors",
       {{"y", Tensor::from(f32, {2, 3}, {1, 2, 3, 4, 5, 6})}, {"yy", Tensor::from(f32, {1}, {1})}});
  const auto error = [&](const std::string& arguments) {
    const Ran ran = run("compare $D/scale.txt " + arguments);
    EXPECT_EQ(ran.code, 2) << ran.out;
    return ran.err;
  };
  EXPECT_TRUE(has(error("--with torch"), "paoding.torch.compare(model, args)"));
  EXPECT_TRUE(has(error("--with f46"), "--with is 'f46', needs to be cpu, f64, or a safetensors file of results"));
  EXPECT_TRUE(has(error(""), "--with"));
  EXPECT_TRUE(has(error("--with f64 --tolerance -1"), "'-1' is no number from 0"));
  EXPECT_TRUE(has(error("--with $D/other.safetensors --allow-surplus"), "has none of the graph's results: y, dw"));
  EXPECT_TRUE(has(error("--with $D/shape.safetensors --random 1"), "result 'y' here and in "));
  EXPECT_TRUE(has(error("--with $D/surplus.safetensors --random 1"),
                  "'yy' (did you mean 'y'?) is no result and no input of the graph; --allow-surplus leaves it out"));
  EXPECT_TRUE(has(error("--with $D/surplus.safetensors --allow-surplus"), "parameter 'w', f32[3], is not fed"));
}

}  // namespace
}  // namespace paoding::cli_run
