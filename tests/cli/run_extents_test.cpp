// SPDX-License-Identifier: Apache-2.0
// `paoding run` and `paoding dump` of texts with extents: sizes from the command line and from feeds.
#include "tests/cli/cli_run.h"

namespace paoding::cli_run {
namespace {

class RunExtents : public Cli {
 protected:
  void SetUp() override {
    Cli::SetUp();
    write("any.txt",
          "paoding graph 1\n"
          "extent batch = 1..9\n"
          "extent time = 1..64 multiples_of(8)\n"
          "x = input f32[batch,2]\n"
          "t = iota() {shape=[time-1], strides=[1]}\n"
          "y = sum(x)\n"
          "fetch y\n"
          "fetch t\n");
    Tensor x(f32, {5, 2});
    std::fill_n(x.data<float>(), 10, 0.5f);
    save("x.safetensors", {{"x", x}});
  }
};

TEST_F(RunExtents, ReadsTheTextAtTheSizesThatAreGiven) {
  const Ran ran = run("run $D/any.txt --device cpu --extents batch=3,time=12 --random 1 --json");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_TRUE(has(ran.out, R"("name":"t","dtype":"i64","shape":[11])")) << ran.out;
  const Ran dumped = run("dump $D/any.txt --extents time=64 --extents batch=9");
  EXPECT_EQ(dumped.code, 0) << dumped.err;
  EXPECT_TRUE(has(dumped.out, "x = input f32[9,2]")) << dumped.out;
  EXPECT_TRUE(has(dumped.out, "i64[63]")) << dumped.out;
}

TEST_F(RunExtents, TakesOthersFromWhatIsFed) {
  const Ran ran =
      run("run $D/any.txt --device cpu --extents time=2 --feed $D/x.safetensors --fetch $D/out.safetensors");
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_EQ(load_safetensors(path("out.safetensors")).at("y").to_doubles(), std::vector<double>{5});
  const Ran other =
      run("run $D/any.txt --device cpu --extents time=2,batch=4 --feed $D/x.safetensors --fetch $D/out.safetensors");
  EXPECT_EQ(other.code, 1);
  EXPECT_TRUE(has(other.err, "input 'x' is f32[4,2] in the graph, but f32[5,2]")) << other.err;
}

TEST_F(RunExtents, NamesThoseThatAreMissingOrWrong) {
  const auto error = [&](const std::string& arguments) {
    const Ran ran = run(arguments);
    EXPECT_NE(ran.code, 0);
    return ran.err;
  };
  EXPECT_TRUE(has(error("run $D/any.txt --device cpu --random 1 --extents time=2"),
                  path("any.txt") + ": batch has no size; the extents are: batch (1 to 9), time (1 to 64)"));
  EXPECT_TRUE(has(error("dump $D/any.txt"), "batch has no size, time has no size"));
  EXPECT_TRUE(has(error("dump $D/any.txt --extents batch=1,time=65"), "time is 65; this class holds 1 to 64"));
  EXPECT_TRUE(has(error("dump $D/any.txt --extents batch=1,time=5,rows=2"), "there is no extent 'rows'"));
  EXPECT_TRUE(has(error("dump $D/scale.txt --extents batch=1"), "there is no extent 'batch'; the extents are: none"));
  EXPECT_TRUE(has(error("dump $D/any.txt --extents batch"), "'batch' is no NAME=SIZE"));
  EXPECT_TRUE(has(error("dump $D/any.txt --extents batch=1.5,time=5"), "'batch=1.5' is no NAME=SIZE"));
  write("bad.txt", "paoding graph 1\nextent n = 1..9\nx = input f32[n/2]\n");
  EXPECT_TRUE(has(error("dump $D/bad.txt --extents n=3"), path("bad.txt") + ":3:16: 3 / 2 is no integer"));
}

}  // namespace
}  // namespace paoding::cli_run
