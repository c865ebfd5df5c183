// SPDX-License-Identifier: Apache-2.0
// Programs under a limit of addresses (ulimit -v), as clusters set it, and with more threads than the system starts:
// whatever does not fit is one error with the needed and the available size; no signal ends the program.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/support/allocation_count.h"
#include "tests/support/temporary_folder.h"

namespace paoding {
namespace {

namespace fs = std::filesystem;
using testing_program::AllocationCount;

struct Ended {
  int code = 0, signal = 0;
  std::string err;
};

bool contains(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

class MemoryLimits : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!AllocationCount::works()) GTEST_SKIP() << "NOT CHECKED: sanitizers reserve terabytes of addresses";
    program_ = fs::read_symlink("/proc/self/exe").parent_path() / "paoding";
    ASSERT_TRUE(fs::exists(program_)) << program_ << " is not there: build all targets";
    write("group.txt", "x = input f32[256,256]\ny = sin(x)\nz = exp(y)\ns = sum(z)\nfetch s\n");
    write("softmax.txt", "x = input f32[64,4096]\ny = softmax(x)\nfetch y\n");
    write("product.txt", "a = input f32[128,256]\nb = input f32[256,128]\ny = matmul(a, b)\nfetch y\n");
    write("conv.txt", "x = input f32[2,16,32,32]\nw = input f32[32,16,3,3]\ny = conv2d(x, w)\nfetch y\n");
  }

  void write(const std::string& name, const std::string& statements) const {
    std::ofstream(folder_.path() / name) << "paoding graph 1\n" << statements;
  }

  // `paoding run` of a graph of this folder, with a limit in megabytes; 0: none.
  Ended run(const std::string& graph, int megabytes, const std::string& environment) const {
    return paoding("run " + (folder_.path() / graph).string() + " --random 7 --device cpu", megabytes, environment);
  }
  Ended paoding(const std::string& words, int megabytes, const std::string& environment) const {
    const fs::path err = folder_.path() / "stderr";
    std::ostringstream command;
    command << "ulimit -c 0; ";
    if (megabytes > 0) command << "ulimit -v " << megabytes * 1024 << "; ";
    command << environment << " exec " << program_.string() << " " << words << " >/dev/null 2>" << err.string()
            << " </dev/null";
    // A shell of its own, so that a signal is seen as one.
    const int status = std::system(("exec bash -c '" + command.str() + "'").c_str());
    std::ifstream file(err);
    std::ostringstream text;
    text << file.rdbuf();
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, WIFSIGNALED(status) ? WTERMSIG(status) : 0, text.str()};
  }

  TemporaryFolder folder_;
  fs::path program_;
};

// The loader itself stops below the first of these sizes; how much is enough depends on the libraries of the machine.
TEST_F(MemoryLimits, EndInOneErrorOrInSuccess) {
  for (const char* environment : {"OMP_NUM_THREADS=1", "OMP_NUM_THREADS=4"}) {
    for (const char* graph : {"group.txt", "product.txt", "conv.txt"}) {
      int enough = 0;
      for (int megabytes = 50; megabytes <= 1000 && enough < 3; megabytes += 9) {
        const Ended ended = run(graph, megabytes, environment);
        SCOPED_TRACE(std::string(environment) + " " + graph + " in " + std::to_string(megabytes) + " MB: " + ended.err);
        EXPECT_EQ(ended.signal, 0);
        if (ended.code == 127) continue;  // the loader: "error while loading shared libraries"
        if (ended.code == 0) ++enough;
        if (ended.code == 0) continue;
        EXPECT_EQ(ended.code, 1);
        EXPECT_TRUE(ended.err.starts_with("paoding: ")) << "not an error of paoding's";
        EXPECT_TRUE(contains(ended.err, "ulimit -v leaves")) << "does not say what there is";
      }
      EXPECT_EQ(enough, 3) << environment << " " << graph << ": no limit was enough";
    }
  }
}

// Spans take memory, however large the file is that they are read from.
TEST_F(MemoryLimits, OfReportsOfLargeTracesNameTheFile) {
  const std::string trace = (folder_.path() / "trace.json").string();
  {
    std::ofstream file(trace);
    file << "{\"traceEvents\": [";
    for (int i = 0; i < 600'000; ++i) {
      file << (i > 0 ? ",\n" : "\n") << "{\"ph\":\"X\",\"cat\":\"cpu_op\",\"name\":\"op" << i % 50
           << "\",\"pid\":1,\"tid\":1,\"ts\":" << 2 * i << ",\"dur\":1}";
    }
    file << "\n]}\n";
  }
  int refused = 0, enough = 0;
  for (int megabytes = 80; megabytes <= 1000 && enough == 0; megabytes += 12) {
    const Ended ended = paoding("report " + trace, megabytes, "OMP_NUM_THREADS=1");
    SCOPED_TRACE(std::to_string(megabytes) + " MB: " + ended.err);
    EXPECT_EQ(ended.signal, 0);
    if (ended.code == 127) continue;  // the loader
    if (ended.code == 0) ++enough;
    if (ended.code == 0) continue;
    EXPECT_EQ(ended.code, 1);
    EXPECT_TRUE(contains(ended.err, "ulimit -v leaves")) << "does not say what there is";
    if (contains(ended.err, trace + ": not enough memory for a report of it")) ++refused;
  }
  EXPECT_GE(refused, 1);
  EXPECT_EQ(enough, 1) << "no limit was enough";
}

TEST_F(MemoryLimits, OfAFewHundredMegabytesAreEnoughForManyThreads) {
  for (const char* graph : {"group.txt", "softmax.txt", "product.txt"}) {
    const Ended ended = run(graph, 400, "OMP_NUM_THREADS=8");
    EXPECT_EQ(ended.code, 0) << graph << ": " << ended.err;
  }
}

// Work is counted in elements: however far windows go, there is nothing to do for none.
TEST_F(MemoryLimits, OfAFewHundredMegabytesAreEnoughForNoElements) {
  write("max_pool.txt", "x = input f32[0,1,1073741824,1]\ny, i = max_pool2d(x) {kernel=[2,1]}\nfetch y\n");
  write("avg_pool.txt",
        "x = input f32[0,1,4,1]\ny = avg_pool2d(x) {kernel=[536870912,1], padding=[536870911,536870911,0,0]}\n"
        "fetch y\n");
  write("avg_grad.txt",
        "x = input f32[0,1,1,1]\ny = avg_pool2d_grad(x) {kernel=[1,1], size=[1073741824,1], stride=[1073741824,1]}\n"
        "fetch y\n");
  write("loop.txt",
        "x = input f32[0]\nl = scan(x) {carries=1, sequences=0, length=4194303} [\na = input f32[0]\nn = neg(a)\n"
        "fetch n\n]\nfetch l\n");
  for (const char* graph : {"max_pool.txt", "avg_pool.txt", "avg_grad.txt", "loop.txt"}) {
    const Ended ended = run(graph, 400, "OMP_NUM_THREADS=2");
    EXPECT_EQ(ended.code, 0) << graph << ": " << ended.err;
  }
}

// A launch of an unrolled loop takes about 300 bytes, and is asked for before it is made.
TEST_F(MemoryLimits, OfLoopsAreSaidBeforeTheyAreUnrolled) {
  write("loop.txt",
        "x = input f32[2]\nl = scan(x) {carries=1, sequences=0, length=1000000} [\na = input f32[2]\nn = neg(a)\n"
        "fetch n\n]\nfetch l\n");
  const Ended enough = run("loop.txt", 600, "OMP_NUM_THREADS=1");
  EXPECT_EQ(enough.code, 0) << enough.err;
  const Ended little = run("loop.txt", 300, "OMP_NUM_THREADS=1");
  EXPECT_EQ(little.code, 1);
  EXPECT_TRUE(contains(little.err, "plan: a run of 1000001 launches: needs 286 MB of memory, but ulimit -v leaves"))
      << little.err;
}

TEST_F(MemoryLimits, OfThreadsAreAnErrorToo) {
  for (const char* environment : {"OMP_NUM_THREADS=100000", "OMP_NUM_THREADS=1000000000"}) {
    const Ended ended = run("group.txt", 0, environment);
    EXPECT_EQ(ended.code, 1) << ended.err;
    EXPECT_EQ(ended.signal, 0);
    EXPECT_TRUE(contains(ended.err, "OMP_NUM_THREADS")) << ended.err;
    EXPECT_TRUE(contains(ended.err, "4096")) << ended.err;
  }
  const Ended stacks = run("group.txt", 4000, "OMP_NUM_THREADS=64 OMP_STACKSIZE=1G");
  EXPECT_EQ(stacks.code, 1) << stacks.err;
  EXPECT_TRUE(contains(stacks.err, "threads: 64 are needed")) << stacks.err;
}

}  // namespace
}  // namespace paoding
