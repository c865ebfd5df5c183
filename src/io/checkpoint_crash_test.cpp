// SPDX-License-Identifier: Apache-2.0
// The contents of a run's folder after saves that came to no end: processes killed, disks full, folders that may not be
// written.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <functional>
#include <random>
#include <thread>

#include "base/check.h"
#include "io/checkpoint_names.h"
#include "io/files.h"
#include "paoding/checkpoint.h"
#include "paoding/error.h"
#include "tests/support/temporary_folder.h"

namespace paoding {
namespace {

namespace fs = std::filesystem;

std::string crash_error_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::file) << error.what();
    return error.what();
  }
  return "no error";
}

/// Every byte of it follows from step and generation.
Checkpoint made(std::int64_t step, int generation, std::int64_t elements = 5000) {
  Checkpoint checkpoint;
  checkpoint.manifest.model = "test";
  checkpoint.manifest.step = step;
  checkpoint.manifest.score = static_cast<double>(step % 7);
  checkpoint.manifest.notes["generation"] = std::to_string(generation);
  std::mt19937 random(static_cast<unsigned>(step * 1000 + generation));
  Tensor tensor(i32, {elements});
  for (std::int64_t i = 0; i < elements; ++i) tensor.data<std::int32_t>()[i] = static_cast<std::int32_t>(random());
  checkpoint.tensors["w"] = tensor;
  checkpoint.files["words.txt"] = std::string(static_cast<std::size_t>(random() % 3000), 'w');
  return checkpoint;
}

void expect_whole(const Checkpoint& read) {
  const Checkpoint expected = made(read.manifest.step, std::stoi(read.manifest.notes.at("generation")));
  EXPECT_EQ(read.files, expected.files);
  const Tensor &is = read.tensors.at("w"), &was = expected.tensors.at("w");
  ASSERT_EQ(is.type(), was.type());
  EXPECT_EQ(std::memcmp(is.bytes(), was.bytes(), static_cast<std::size_t>(was.size_bytes())), 0);
}

std::vector<std::string> hidden_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const std::string name = entry.path().filename().string();
    if (name.starts_with(".") && name != checkpoints::kLockFile) names.push_back(name);
  }
  return names;
}

/// Runs `function` in a process of its own, which is killed after `microseconds` (or at its end).
void run_and_kill(unsigned microseconds, const std::function<void()>& function) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    try {
      function();
    } catch (...) {
      _exit(3);
    }
    _exit(0);
  }
  usleep(microseconds);
  kill(child, SIGKILL);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_FALSE(WIFEXITED(status) && WEXITSTATUS(status) == 3) << "the child failed";
}

TEST(CheckpointCrash, WhatIsThereIsWholeWheneverTheSavingProcessIsKilled) {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < 5; ++i) CheckpointFolder(run).save(made(0, 0));
  // Disks differ: a child has time for about five saves.
  const auto most = std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin);
  std::mt19937 random(11);
  std::int64_t last = 0;
  int leftovers = 0;
  for (int round = 1; round <= 200; ++round) {
    run_and_kill(500 + random() % static_cast<unsigned>(most.count()), [&] {
      CheckpointFolder saved(run, 2);
      for (std::int64_t step = last + 1;; ++step) {
        saved.save(made(step, round));
        saved.save(made(step, round + 1000));  // the same step again
      }
    });
    const Checkpoint latest = load_checkpoint(run, true);
    EXPECT_GE(latest.manifest.step, last) << "round " << round;
    last = latest.manifest.step;
    expect_whole(latest);
    expect_whole(load_checkpoint(run));
    for (const fs::path& path : checkpoints::all_in(run)) expect_whole(load_checkpoint(path));
    if (HasFatalFailure() || HasFailure()) FAIL() << "in round " << round;
    leftovers += hidden_in(run).empty() ? 0 : 1;
  }
  // Else nothing was tested: kills must have hit saves, and saves must have come to an end.
  EXPECT_GT(leftovers, 20);
  EXPECT_GT(last, 20);
  CheckpointFolder(run).save(made(last + 1, 0));
  EXPECT_EQ(hidden_in(run), std::vector<std::string>());
}

TEST(CheckpointCrash, LoadingGoesOnWhileAnotherProcessSavesAndDrops) {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  CheckpointFolder(run).save(made(0, 0));
  std::atomic<bool> is_over = false;
  int loads = 0;
  std::thread reader([&] {
    while (!is_over) {
      expect_whole(load_checkpoint(run, loads % 2 == 0));
      ++loads;
    }
  });
  {
    CheckpointFolder saved(run, 1);
    for (int i = 0; i < 150; ++i) saved.save(made(i / 3, i));
  }
  is_over = true;
  reader.join();
  EXPECT_GT(loads, 5);
}

TEST(CheckpointCrash, AReplacementWithoutExchangeThatWasCutShortIsFinished) {
  const TemporaryFolder folder;
  const fs::path run = folder / "run", place = run / "step-00000001", aside = run / ".replaced-step-00000001";
  CheckpointFolder(run).save(made(1, 0));
  fs::copy(place, folder / "new", fs::copy_options::recursive);
  spill(folder / "new/mark", "");
  files::replace_folder(folder / "new", place, aside, false);
  EXPECT_TRUE(fs::exists(place / "mark"));
  EXPECT_TRUE(fs::exists(aside / "manifest.json"));
  fs::remove_all(place);  // as if it had ended between the two renames
  { const CheckpointFolder again(run); }
  expect_whole(load_checkpoint(run));
  EXPECT_EQ(hidden_in(run), std::vector<std::string>());
}

TEST(CheckpointCrash, WhatOthersPutThereIsNotDeleted) {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  fs::create_directories(run / ".new-things");
  fs::create_directories(run / ".new-step-00000009/deep");
  spill(run / "notes.txt", "mine");
  CheckpointFolder(run, 1).save(made(1, 0));
  EXPECT_EQ(hidden_in(run), std::vector<std::string>{".new-things"});
  EXPECT_TRUE(fs::exists(run / "notes.txt"));
}

TEST(CheckpointCrash, AFullDiskLeavesWhatWasThere) {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  CheckpointFolder saved(run);
  saved.save(made(1, 0));
  rlimit old_limit{};
  getrlimit(RLIMIT_FSIZE, &old_limit);
  const auto old_action = signal(SIGXFSZ, SIG_IGN);
  // Each save fails in its first file, in the tensors; the manifest alone would fit into the last limit.
  for (const rlim_t most : {rlim_t{0}, rlim_t{1}, rlim_t{100}, rlim_t{10000}, rlim_t{19999}}) {
    const rlimit limit{most, old_limit.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
    const std::string same = crash_error_of([&] { saved.save(made(1, 7)); });
    const std::string next = crash_error_of([&] { saved.save(made(2, 0)); });
    setrlimit(RLIMIT_FSIZE, &old_limit);
    EXPECT_NE(same.find(": cannot write: File too large"), std::string::npos) << same;
    EXPECT_NE(next.find("step-00000002/"), std::string::npos) << next;
    EXPECT_EQ(load_checkpoint(run).manifest.notes.at("generation"), "0");
    EXPECT_EQ(hidden_in(run), std::vector<std::string>());
  }
  signal(SIGXFSZ, old_action);
  saved.save(made(2, 0));
  EXPECT_EQ(load_manifest(run, true).step, 2);
}

/// A file system of its own over a folder, where we may mount one.
class Mounted {
 public:
  explicit Mounted(const fs::path& path, const char* options) : path_(path) {
    is_there_ = mount("tmpfs", path.c_str(), "tmpfs", 0, options) == 0;
  }
  Mounted(const Mounted&) = delete;
  Mounted& operator=(const Mounted&) = delete;
  ~Mounted() {
    if (is_there_) umount2(path_.c_str(), MNT_DETACH);
  }
  bool is_there() const { return is_there_; }
  void make_read_only() const { ASSERT_EQ(mount("tmpfs", path_.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, ""), 0); }

 private:
  fs::path path_;
  bool is_there_;
};

TEST(CheckpointCrash, AFileSystemWithoutSpaceLeavesWhatWasThere) {
  const TemporaryFolder folder;
  const Mounted small(folder.path(), "size=1m");
  if (!small.is_there())
    GTEST_SKIP() << "NOT CHECKED: needs the right to mount a file system of 1 MB: " << std::strerror(errno);
  const fs::path run = folder / "run";
  CheckpointFolder saved(run);
  saved.save(made(1, 0));
  const std::string text = crash_error_of([&] { saved.save(made(2, 0, 300000)); });
  EXPECT_NE(text.find("cannot write: No space left on device"), std::string::npos) << text;
  expect_whole(load_checkpoint(run, true));
  EXPECT_EQ(hidden_in(run), std::vector<std::string>());
  saved.save(made(3, 0));
  EXPECT_EQ(load_manifest(run, true).step, 3);
}

TEST(CheckpointCrash, AFileSystemThatMayOnlyBeReadIsRefusedForTrainingAndLoadsAllTheSame) {
  const TemporaryFolder folder;
  const Mounted mounted(folder.path(), "size=1m");
  if (!mounted.is_there())
    GTEST_SKIP() << "NOT CHECKED: needs the right to mount a file system: " << std::strerror(errno);
  CheckpointFolder(folder / "run").save(made(1, 0));
  mounted.make_read_only();
  for (const char* name : {"run", "other"}) {
    const std::string text = crash_error_of([&] { CheckpointFolder(folder / name); });
    EXPECT_NE(text.find("Read-only file system"), std::string::npos) << text;
  }
  expect_whole(load_checkpoint(folder / "run"));
}

TEST(CheckpointCrash, SaysWhenAFolderCannotBeWritten) {
  const TemporaryFolder folder;
  spill(folder / "file", "");
  const std::string in_file = crash_error_of([&] { CheckpointFolder(folder / "file"); });
  EXPECT_EQ(in_file.find((folder / "file").string() + ": cannot make the folder: "), 0u) << in_file;
  EXPECT_NE(crash_error_of([&] { CheckpointFolder(folder / "file/below"); }).find("cannot make the folder"),
            std::string::npos);
  EXPECT_NE(crash_error_of([&] { CheckpointFolder(""); }), "no error");
  EXPECT_NE(crash_error_of([&] { CheckpointFolder("/proc/paoding"); }), "no error");
  fs::create_directories(folder / "run");
  fs::permissions(folder / "run", fs::perms::owner_read | fs::perms::owner_exec);
  if (geteuid() == 0) return;  // whom no permission stops
  EXPECT_NE(crash_error_of([&] { CheckpointFolder(folder / "run"); }).find("Permission denied"), std::string::npos);
}

TEST(CheckpointCrash, OneTrainsIntoAFolderAtATime) {
  const TemporaryFolder folder;
  const fs::path run = folder / "run";
  {
    CheckpointFolder first(run);
    EXPECT_EQ(crash_error_of([&] { CheckpointFolder second(run); }),
              (run / ".lock").string() + ": this process trains into this folder already");
    CheckpointFolder moved = std::move(first);
    EXPECT_NE(crash_error_of([&] { CheckpointFolder second(run); }), "no error");
    moved.save(made(1, 0));
  }
  { const CheckpointFolder after(run); }

  std::array<int, 2> ready{}, done{};
  ASSERT_EQ(pipe(ready.data()) | pipe(done.data()), 0);
  const pid_t child = fork();
  if (child == 0) {
    const CheckpointFolder held(run);
    char byte = 0;
    if (write(ready[1], &byte, 1) == 1 && read(done[0], &byte, 1) == 1) _exit(0);
    _exit(1);
  }
  char byte = 0;
  ASSERT_EQ(read(ready[0], &byte, 1), 1);
  EXPECT_EQ(crash_error_of([&] { CheckpointFolder second(run); }),
            fmt::format("{}: another process (number {}) trains into this folder", (run / ".lock").string(), child));
  EXPECT_EQ(load_manifest(run).step, 1);  // loading needs no lock
  ASSERT_EQ(write(done[1], &byte, 1), 1);
  waitpid(child, nullptr, 0);
  for (const int end : {ready[0], ready[1], done[0], done[1]}) close(end);
  { const CheckpointFolder after(run); }
}

}  // namespace
}  // namespace paoding
