// SPDX-License-Identifier: Apache-2.0
// `paoding run` and `paoding dump` of model files: weights come from the file.
#include "paoding/model.h"
#include "tests/cli/cli_run.h"

namespace paoding::cli_run {
namespace {

class RunModelFile : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    ModelFile file;
    file.graphs["scale"] =
        "paoding graph 1\n"
        "extent rows = 1..9\n"
        "x = input f32[rows,2]\n"
        "w = parameter f32[2]\n"
        "y = mul(x, w)\n"
        "fetch y\n";
    file.parameters["w"] = Tensor::from(f32, {2}, {3.0, 5.0});
    save_model(folder_ / "one.pd", file);
    file.graphs["other"] =
        "paoding graph 1\n"
        "x = input f32[2]\n"
        "v = parameter f32[]\n"
        "y = mul(x, v)\n"
        "fetch y\n";
    file.parameters["v"] = Tensor::from(f32, {}, {7.0});
    save_model(folder_ / "two.pd", file);
    save("x.safetensors", {{"x", Tensor::from(f32, {1, 2}, {1.0, 10.0})}});
    save("v.safetensors", {{"v", Tensor::from(f32, {}, {2.0})}, {"x", Tensor::from(f32, {2}, {1.0, 10.0})}});
  }
  std::vector<double> result(const std::string& arguments) {
    const Ran ran = run("run " + arguments + " --device cpu --fetch $D/out.safetensors");
    EXPECT_EQ(ran.code, 0) << ran.err;
    return load_safetensors(path("out.safetensors")).at("y").to_doubles();
  }
};

TEST_F(RunModelFile, TakesWeightsFromTheFileAndSizesFromTheFeeds) {
  EXPECT_EQ(result("$D/one.pd --feed $D/x.safetensors"), (std::vector<double>{3, 50}));
  const Ran dumped = run("dump $D/one.pd --extents rows=4");
  EXPECT_TRUE(has(dumped.out, "x = input f32[4,2]")) << dumped.out << dumped.err;
}

TEST_F(RunModelFile, FedWeightsComeFirst) {
  EXPECT_EQ(result("$D/two.pd --entry other --feed $D/v.safetensors"), (std::vector<double>{2, 20}));
}

TEST_F(RunModelFile, SaysWhichGraphsThereAre) {
  const auto error = [&](const std::string& arguments) { return run(arguments).err; };
  EXPECT_TRUE(has(error("run $D/two.pd --random 1"),
                  path("two.pd") + ": the file has several graphs; --entry names one of its graphs: other, scale"));
  EXPECT_TRUE(has(error("dump $D/two.pd --entry third"), "there is no graph 'third'; --entry names one"));
  EXPECT_TRUE(has(error("run $D/scale.txt --entry y --random 1"), "scale.txt: --entry is for model files"));
  EXPECT_TRUE(has(error("run $D/x.safetensors --random 1"), "x.safetensors")) << "a file of tensors is no model";
}

}  // namespace
}  // namespace paoding::cli_run
