// SPDX-License-Identifier: Apache-2.0
#include "gpu/driver/kernel_cache.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <optional>
#include <thread>

#include "gpu/driver/nvrtc.h"

namespace paoding::gpu {
namespace {

namespace fs = std::filesystem;

class KernelCacheTest : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (fs::temp_directory_path() / "paoding_cache_XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  void TearDown() override {
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }

  /// "Compiles" a source to "arch|source"; a source with "broken" in it fails.
  KernelCompiler fake(int version = 1) {
    return {version, {}, [this](const std::string& source, const std::string&, const std::string& arch, auto) {
              ++calls_;
              int now = ++running_;
              int seen = most_running_;
              while (seen < now && !most_running_.compare_exchange_weak(seen, now)) {
              }
              std::this_thread::sleep_for(std::chrono::milliseconds(5));
              --running_;
              if (source.find("broken") != std::string::npos) fail(ErrorKind::device, "fake: {}", source);
              std::string cubin = arch + "|" + source;
              return std::vector<char>(cubin.begin(), cubin.end());
            }};
  }

  static std::string text_of(const KernelCache::Cubin& cubin) { return {cubin->begin(), cubin->end()}; }

  std::size_t files() const {
    return static_cast<std::size_t>(std::distance(fs::directory_iterator(folder_), fs::directory_iterator()));
  }

  fs::path folder_;
  std::atomic<int> calls_{0}, running_{0}, most_running_{0};
};

TEST_F(KernelCacheTest, ASecondCallIsAMemoryHit) {
  KernelCache cache(folder_, fake());
  KernelCache::Cubin first = cache.cubin("one", "sm_90a");
  KernelCache::Cubin second = cache.cubin("one", "sm_90a", "another_name.cu");
  EXPECT_EQ(first, second);
  EXPECT_EQ(text_of(first), "sm_90a|one");
  CacheCounts counts = cache.counts();
  EXPECT_EQ(counts.compiles, 1);
  EXPECT_EQ(counts.memory_hits, 1);
  EXPECT_EQ(counts.disk_hits, 0);
  EXPECT_GE(counts.compile_milliseconds, 4.0);
}

TEST_F(KernelCacheTest, AnotherProcessFindsTheFile) {
  KernelCache(folder_, fake()).cubin("one", "sm_90a");
  KernelCache other(folder_, fake());
  EXPECT_EQ(text_of(other.cubin("one", "sm_90a")), "sm_90a|one");
  EXPECT_EQ(other.counts().disk_hits, 1);
  EXPECT_EQ(other.counts().compiles, 0);
  EXPECT_EQ(calls_, 1);
  EXPECT_EQ(files(), 1u);  // no temporary file is left
}

TEST_F(KernelCacheTest, SourceArchitectureVersionAndOptionsEachMakeAnotherKernel) {
  KernelCache cache(folder_, fake());
  cache.cubin("one", "sm_90a");
  EXPECT_EQ(text_of(cache.cubin("one", "sm_80")), "sm_80|one");
  EXPECT_EQ(text_of(cache.cubin("two", "sm_90a")), "sm_90a|two");
  EXPECT_EQ(cache.counts().compiles, 3);

  KernelCompiler with_option = fake();
  with_option.options = {"-DN=1"};
  EXPECT_NE(KernelCache(folder_, with_option).file_of("one", "sm_90a"), cache.file_of("one", "sm_90a"));
  EXPECT_NE(KernelCache(folder_, fake(2)).file_of("one", "sm_90a"), cache.file_of("one", "sm_90a"));
  EXPECT_EQ(KernelCache(folder_, fake()).file_of("one", "sm_90a"), cache.file_of("one", "sm_90a"));
}

TEST_F(KernelCacheTest, ADamagedFileIsCompiledAnewAndReplaced) {
  const fs::path file = KernelCache(folder_, fake()).file_of("one", "sm_90a");
  auto recompiles_after = [&](auto&& damage) {
    KernelCache(folder_, fake()).cubin("one", "sm_90a");
    damage();
    KernelCache damaged(folder_, fake());
    EXPECT_EQ(text_of(damaged.cubin("one", "sm_90a")), "sm_90a|one");
    KernelCache repaired(folder_, fake());
    EXPECT_EQ(text_of(repaired.cubin("one", "sm_90a")), "sm_90a|one");
    EXPECT_EQ(repaired.counts().disk_hits, 1);
    return damaged.counts().compiles == 1 && damaged.counts().disk_hits == 0;
  };
  EXPECT_TRUE(recompiles_after([&] { fs::resize_file(file, fs::file_size(file) - 1); }));
  EXPECT_TRUE(recompiles_after([&] { fs::resize_file(file, 10); }));
  EXPECT_TRUE(recompiles_after([&] { std::ofstream(file, std::ios::trunc); }));
  EXPECT_TRUE(recompiles_after([&] {  // a sparse file whose header says its size: nothing may be taken for it
    constexpr std::uint64_t kTerabyte = std::uint64_t{1} << 40, kHeader = 56, kCubinBytes = kTerabyte - kHeader;
    std::fstream bytes(file, std::ios::binary | std::ios::in | std::ios::out);
    bytes.seekp(32);
    bytes.write(reinterpret_cast<const char*>(&kCubinBytes), sizeof(kCubinBytes));
    bytes.close();
    fs::resize_file(file, kTerabyte);
  }));
  fs::remove(file);
  fs::create_directory(file);  // no file at all
  KernelCache blocked(folder_, fake());
  EXPECT_EQ(text_of(blocked.cubin("one", "sm_90a")), "sm_90a|one");
  fs::remove(file);
  KernelCache(folder_, fake()).cubin("one", "sm_90a");
  for (std::uintmax_t at = 0; at < fs::file_size(file); ++at) {  // every single byte, header and cubin
    EXPECT_TRUE(recompiles_after([&] {
      std::fstream bytes(file, std::ios::binary | std::ios::in | std::ios::out);
      bytes.seekg(static_cast<std::streamoff>(at));
      char byte = static_cast<char>(bytes.get() ^ 1);
      bytes.seekp(static_cast<std::streamoff>(at));
      bytes.put(byte);
    })) << "byte "
        << at;
  }
}

TEST_F(KernelCacheTest, AFolderThatCannotBeMadeLeavesMemoryOnly) {
  std::ofstream(folder_ / "file") << "in the way";
  KernelCache cache(folder_ / "file" / "below", fake());
  EXPECT_EQ(text_of(cache.cubin("one", "sm_90a")), "sm_90a|one");
  EXPECT_EQ(text_of(cache.cubin("one", "sm_90a")), "sm_90a|one");
  EXPECT_EQ(cache.counts().compiles, 1);
  EXPECT_EQ(cache.counts().memory_hits, 1);
}

TEST_F(KernelCacheTest, NoFolderMeansMemoryOnly) {
  KernelCache cache({}, fake());
  cache.cubin("one", "sm_90a");
  EXPECT_EQ(files(), 0u);
  EXPECT_FALSE(fs::exists(cache.file_of("one", "sm_90a")));
}

TEST_F(KernelCacheTest, AFailedCompilationIsTriedAgain) {
  KernelCache cache(folder_, fake());
  EXPECT_THROW(cache.cubin("broken", "sm_90a"), Error);
  EXPECT_THROW(cache.cubin("broken", "sm_90a"), Error);
  EXPECT_EQ(cache.counts().compiles, 2);
  EXPECT_EQ(cache.counts().memory_hits, 0);
  EXPECT_EQ(files(), 0u);
}

TEST_F(KernelCacheTest, ManyThreadsCompileEachSourceOnce) {
  KernelCache cache(folder_, fake());
  std::vector<std::thread> threads;
  for (int t = 0; t < 8; ++t) {
    threads.emplace_back([&cache] {
      for (int i = 0; i < 10; ++i) {
        std::string source = "text " + std::to_string(i);
        EXPECT_EQ(text_of(cache.cubin(source, "sm_90a")), "sm_90a|" + source);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(calls_, 10);
  EXPECT_EQ(cache.counts().compiles, 10);
  EXPECT_EQ(cache.counts().memory_hits, 70);
  EXPECT_EQ(files(), 10u);
}

TEST_F(KernelCacheTest, CompileAllUsesUpToFourThreadsAndReportsTheError) {
  KernelCache cache(folder_, fake());
  std::vector<KernelSource> sources;
  for (int i = 0; i < 16; ++i) sources.push_back("text " + std::to_string(i));
  cache.compile_all(sources, "sm_90a");
  EXPECT_EQ(cache.counts().compiles, 16);
  EXPECT_LE(most_running_, 4);
  EXPECT_GE(most_running_, 2);
  cache.compile_all(sources, "sm_90a");
  EXPECT_EQ(cache.counts().compiles, 16);

  sources = {"broken", "after the failed one"};
  EXPECT_THROW(cache.compile_all(sources, "sm_90a"), Error);
  EXPECT_EQ(text_of(cache.cubin("after the failed one", "sm_90a")), "sm_90a|after the failed one");
  EXPECT_EQ(cache.counts().compiles, 18);
}

/// Sets or unsets an environment variable and restores its old value.
class ScopedVariable {
 public:
  ScopedVariable(const char* name, const char* value) : name_(name) {
    if (const char* old = getenv(name)) old_ = old;
    value == nullptr ? unsetenv(name) : setenv(name, value, 1);
  }
  ~ScopedVariable() { old_ ? setenv(name_, old_->c_str(), 1) : unsetenv(name_); }

 private:
  const char* name_;
  std::optional<std::string> old_;
};

TEST(KernelCacheFolder, FollowsTheEnvironment) {
  ScopedVariable home("HOME", "/home/someone"), xdg("XDG_CACHE_HOME", "/xdg"), own("PAODING_CACHE_DIR", "/own/place");
  EXPECT_EQ(KernelCache::folder_from_environment(), "/own/place");
  {
    ScopedVariable empty("PAODING_CACHE_DIR", "");
    EXPECT_TRUE(KernelCache::folder_from_environment().empty());
  }
  ScopedVariable unset("PAODING_CACHE_DIR", nullptr);
  EXPECT_EQ(KernelCache::folder_from_environment(), "/xdg/paoding");
  ScopedVariable relative("XDG_CACHE_HOME", "not/absolute");
  EXPECT_EQ(KernelCache::folder_from_environment(), "/home/someone/.cache/paoding");
  ScopedVariable no_home("HOME", nullptr);
  EXPECT_TRUE(KernelCache::folder_from_environment().empty());
}

TEST_F(KernelCacheTest, KeepsWhatNvrtcCompiled) {
  if (nvrtc() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << nvrtc_problem();
  const std::string source = "extern \"C\" __global__ void k(int* x) { *x = 1; }";
  KernelCache cache(folder_, KernelCompiler::nvrtc());
  KernelCache::Cubin made = cache.cubin(source, "sm_90a");
  KernelCache other(folder_, KernelCompiler::nvrtc());
  EXPECT_EQ(*other.cubin(source, "sm_90a"), *made);
  EXPECT_EQ(other.counts().compiles, 0);
  EXPECT_THROW(other.cubin("not CUDA", "sm_90a"), Error);

  std::vector<KernelSource> sources;
  for (int i = 0; i < 8; ++i) {
    sources.push_back("extern \"C\" __global__ void k" + std::to_string(i) + "(int* x) { *x = 1; }");
  }
  cache.compile_all(sources, "sm_90a");
  EXPECT_EQ(cache.counts().compiles, 9);
}

}  // namespace
}  // namespace paoding::gpu
