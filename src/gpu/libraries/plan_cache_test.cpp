// SPDX-License-Identifier: Apache-2.0
// Timings on disk: a request with the same key finds them, no other does; a faulty file is reported and ignored;
// threads and processes may write at once.
#include "gpu/libraries/plan_cache.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <fstream>
#include <random>
#include <sstream>
#include <thread>

#include "paoding/error.h"
#include "tests/support/temporary_folder.h"

namespace paoding::gpu {
namespace {

namespace fs = std::filesystem;

const std::string kKey = "conv2d f32[1,2,3,4], NVIDIA H200 sm_90a, cudnn 91900";

TimedChoice some_choice() { return {true, "34 k2=1 k24=5", 82.125, 112.5}; }

std::string read(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}
void write(const fs::path& path, const std::string& text) { std::ofstream(path, std::ios::binary) << text; }

std::string problem_of(const std::string& text, const std::string& key = kKey) {
  try {
    parse_entry(text, key);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::file);
    return error.what();
  }
  return "none";
}

TEST(PlanCache, FindsWhatWasKeptAlsoInAnotherProcess) {
  const TemporaryFolder folder;
  const fs::path at = folder.path() / "cache";
  PlanCache first(at);
  EXPECT_EQ(first.find(kKey), std::nullopt);
  first.keep(kKey, some_choice());
  EXPECT_EQ(first.find(kKey), some_choice()) << "also where it was not there before";
  PlanCache second(at);
  EXPECT_EQ(second.find(kKey), some_choice());
  const TimedChoice other{false, "", 0, 3.5};
  second.keep(kKey, other);
  EXPECT_EQ(PlanCache(at).find(kKey), other);
  EXPECT_EQ(std::distance(fs::directory_iterator(at), {}), 1) << "no temporary file is left";
}

TEST(PlanCache, AnUpdatedLibraryFindsNothing) {
  const TemporaryFolder folder;
  PlanCache(folder.path()).keep(kKey, some_choice());
  std::string ignored;
  EXPECT_EQ(PlanCache(folder.path()).find("conv2d f32[1,2,3,4], NVIDIA H200 sm_90a, cudnn 91901", &ignored),
            std::nullopt);
  EXPECT_EQ(ignored, "");
}

TEST(PlanCache, WithoutAFolderItKeepsChoicesInMemory) {
  const TemporaryFolder folder;
  write(folder.path() / "file", "not a folder");
  for (const fs::path& at : {fs::path(), folder.path() / "file"}) {
    PlanCache cache(at);
    cache.keep(kKey, some_choice());
    EXPECT_EQ(cache.find(kKey), some_choice());
    EXPECT_EQ(PlanCache(at).find(kKey), std::nullopt);
  }
}

TEST(PlanCache, SaysWhyAFileIsIgnored) {
  const TemporaryFolder folder;
  PlanCache writer(folder.path());
  writer.keep(kKey, some_choice());
  const fs::path path = writer.file_of(kKey);
  const std::string whole = read(path);
  const auto ignored_of = [&](const std::string& text) {
    write(path, text);
    std::string ignored;
    EXPECT_EQ(PlanCache(folder.path()).find(kKey, &ignored), std::nullopt) << text;
    return ignored;
  };
  EXPECT_EQ(ignored_of(""), path.string() + " is ignored: it does not begin with 'paoding plan 1'");
  EXPECT_NE(ignored_of(std::string(1 << 20, 'x')).find("it has 1048576 bytes"), std::string::npos);
  write(path, whole);
  fs::resize_file(path, std::uintmax_t{1} << 40);  // sparse
  std::string terabyte;
  EXPECT_EQ(PlanCache(folder.path()).find(kKey, &terabyte), std::nullopt);
  EXPECT_NE(terabyte.find("it has 1099511627776 bytes"), std::string::npos) << terabyte;
  std::string later = whole;
  later.replace(later.find("plan 1"), 6, "plan 2");
  EXPECT_NE(ignored_of(later).find("does not begin with"), std::string::npos);
  const std::string other = "another call";
  EXPECT_NE(ignored_of(entry_text(other, some_choice())).find("it is of another call"), std::string::npos);
  std::string changed = whole;
  changed.replace(changed.find("82.125"), 6, "12.125");
  EXPECT_NE(ignored_of(changed).find("its seal is of something else"), std::string::npos);
  // And then it is measured anew.
  PlanCache again(folder.path());
  again.keep(kKey, some_choice());
  EXPECT_EQ(read(path), whole);
  std::string ignored = "something";
  EXPECT_EQ(PlanCache(folder.path()).find(kKey, &ignored), some_choice());
  EXPECT_EQ(ignored, "");
}

TEST(PlanCache, WritesNothingThatItWouldNotRead) {
  const TemporaryFolder folder;
  const std::string long_key(1 << 15, 'k');
  PlanCache cache(folder.path());
  cache.keep(long_key, some_choice());
  EXPECT_EQ(cache.find(long_key), some_choice());
  EXPECT_FALSE(fs::exists(cache.file_of(long_key)));
  std::string ignored = "something";
  EXPECT_EQ(PlanCache(folder.path()).find(long_key, &ignored), std::nullopt);
  EXPECT_EQ(ignored, "");
}

TEST(PlanCache, ReadsNothingThatIsSealedAndMakesNoSense) {
  EXPECT_EQ(problem_of(entry_text(kKey, some_choice())), "none");
  EXPECT_EQ(problem_of(entry_text(kKey, {true, "", 1, 2})), "it names no engine");
  EXPECT_EQ(problem_of(entry_text(kKey, {true, "3", -1, 2})), "its library_us is no time");
  EXPECT_EQ(problem_of(entry_text(kKey, {true, "3", 1, std::numeric_limits<double>::infinity()})),
            "its own_us is no time");
}

TEST(PlanCache, EveryCutAndEveryChangedByteIsFound) {
  const std::string whole = entry_text(kKey, some_choice());
  for (std::size_t size = 0; size < whole.size(); ++size) EXPECT_NE(problem_of(whole.substr(0, size)), "none") << size;
  std::mt19937 random(5);
  for (std::size_t at = 0; at < whole.size(); ++at) {
    std::string changed = whole;
    changed[at] = static_cast<char>(static_cast<unsigned char>(changed[at]) ^ (1 + random() % 255));
    EXPECT_NE(problem_of(changed), "none") << at;
  }
}

TEST(PlanCache, ThreadsAndProcessesWriteAtOnce) {
  const TemporaryFolder folder;
  constexpr int kKeys = 8, kRounds = 40, kProcesses = 3;
  const auto key_of = [](int i) { return "call " + std::to_string(i); };
  const auto choice_of = [](int i) { return TimedChoice{true, std::to_string(i), static_cast<double>(i), 2}; };
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    bool is_right = true;
    for (int round = 0; round < kRounds; ++round) {
      const int i = static_cast<int>(random() % kKeys);
      PlanCache cache(folder.path());
      std::string ignored;
      const auto found = cache.find(key_of(i), &ignored);
      is_right &= ignored.empty() && (!found || *found == choice_of(i));
      cache.keep(key_of(i), choice_of(i));
    }
    return is_right;
  };
  std::vector<pid_t> children;
  for (unsigned i = 0; i < kProcesses; ++i) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) _exit(work(100 + i) ? 0 : 1);
    children.push_back(child);
  }
  std::atomic<bool> is_right = true;
  {
    std::vector<std::jthread> threads;
    for (unsigned i = 0; i < 3; ++i) {
      threads.emplace_back([&, i] {
        if (!work(i)) is_right = false;
      });
    }
  }
  EXPECT_TRUE(is_right);
  for (const pid_t child : children) {
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  PlanCache cache(folder.path());
  for (int i = 0; i < kKeys; ++i) {
    const auto found = cache.find(key_of(i));
    ASSERT_TRUE(found);
    EXPECT_EQ(*found, choice_of(i));
  }
}

}  // namespace
}  // namespace paoding::gpu
