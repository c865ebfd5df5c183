// SPDX-License-Identifier: Apache-2.0
#include "paoding/checkpoint.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <limits>
#include <random>

#include "io/manifest.h"
#include "paoding/error.h"
#include "paoding/io.h"
#include "tests/support/temporary_folder.h"

namespace paoding {
namespace {

namespace fs = std::filesystem;

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

Checkpoint at_step(std::int64_t step, double score = kNan) {
  Checkpoint checkpoint;
  checkpoint.manifest.model = "test";
  checkpoint.manifest.step = step;
  checkpoint.manifest.score = score;
  checkpoint.tensors["w"] = Tensor::from(f32, {2}, std::array{static_cast<double>(step), score});
  checkpoint.files["words.txt"] = "hello\nworld\n";
  return checkpoint;
}

std::string error_of(const std::function<void()>& function, ErrorKind kind = ErrorKind::file) {
  try {
    function();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), kind) << error.what();
    return error.what();
  }
  return "no error";
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

using Names = std::vector<std::string>;

TEST(CheckpointFiles, ReadsEveryBitOfEveryDTypeThatItWrote) {
  const TemporaryFolder folder;
  Checkpoint checkpoint = at_step(7, 0.25);
  std::mt19937 random(1);
  for (int i = 0; i < kDTypeCount; ++i) {
    const auto dtype = static_cast<DType>(i);
    for (const Shape& shape : {Shape{}, Shape{3, 5}, Shape{0, 4}, Shape{1000}}) {
      Tensor tensor(dtype, shape);
      for (std::int64_t b = 0; b < tensor.size_bytes(); ++b) {  // NaNs and all
        tensor.bytes()[b] = static_cast<std::byte>(dtype == DType::boolean ? random() & 1 : random());
      }
      checkpoint.tensors[to_string(tensor.type())] = tensor;
    }
  }
  std::string all_bytes(256, '\0');
  for (int i = 0; i < 256; ++i) all_bytes[static_cast<std::size_t>(i)] = static_cast<char>(i);
  checkpoint.files = {{"empty", ""}, {"bytes", all_bytes}, {"\xC3\xA9", "e"}};
  checkpoint.manifest.options = {{"hidden", "64"}};
  checkpoint.manifest.losses = {{1, 2.5}, {2, kNan}};

  const fs::path saved = CheckpointFolder(folder / "run").save(checkpoint);
  EXPECT_EQ(saved, folder / "run/step-00000007");
  const Checkpoint read = load_checkpoint(saved);
  EXPECT_EQ(read.files, checkpoint.files);
  EXPECT_EQ(read.manifest.options, checkpoint.manifest.options);
  EXPECT_EQ(read.manifest.score, 0.25);
  ASSERT_EQ(read.manifest.losses.size(), 2u);
  EXPECT_TRUE(std::isnan(read.manifest.losses[1].second));
  ASSERT_EQ(read.tensors.size(), checkpoint.tensors.size());
  for (const auto& [name, tensor] : checkpoint.tensors) {
    const Tensor& is = read.tensors.at(name);
    ASSERT_EQ(is.type(), tensor.type()) << name;
    if (tensor.size_bytes() == 0) continue;
    EXPECT_EQ(std::memcmp(is.bytes(), tensor.bytes(), static_cast<std::size_t>(tensor.size_bytes())), 0) << name;
  }
  EXPECT_EQ(load_safetensors(saved / "parameters.safetensors").size(), checkpoint.tensors.size());
  EXPECT_EQ(read_safetensors(saved / "parameters.safetensors").metadata,
            (std::map<std::string, std::string>{{"model", "test"}, {"step", "7"}}));
}

TEST(CheckpointFiles, AreWhatPythonSaysTheyAre) {
  const char* named = std::getenv("PYTHON");
  const std::string python = named != nullptr ? named : "python3";
  if (std::system((python + " -c 'import safetensors.numpy' 2>/dev/null").c_str()) != 0) {
    GTEST_SKIP() << "NOT CHECKED: needs safetensors and numpy, which " << python << " does not have";
  }
  const TemporaryFolder folder;
  Checkpoint checkpoint = at_step(3, kNan);
  checkpoint.manifest.losses = {{10, 0.1}, {20, -std::numeric_limits<double>::infinity()}};
  for (const DType dtype : {f64, f32, f16, i64, i32, u8, boolean}) {
    checkpoint.tensors[std::string(to_string(dtype))] = Tensor::from(dtype, {2, 2}, std::array{0.0, 1.0, 1.0, 0.0});
  }
  const fs::path saved = CheckpointFolder(folder / "run").save(checkpoint);
  spill(folder / "check.py", R"(
import json, os, sys, zlib
import numpy
from safetensors.numpy import load_file
os.chdir(sys.argv[1])
text = open("manifest.json", "rb").read()
manifest = json.loads(text)
assert zlib.crc32(text[:text.rindex(b",\n")]) == int(manifest["checksum"], 16)
assert sorted(manifest["files"]) == ["parameters.safetensors", "words.txt"]
for name, seal in manifest["files"].items():
    data = open(name, "rb").read()
    assert len(data) == seal["bytes"] and zlib.crc32(data) == int(seal["crc32"], 16), name
assert numpy.isnan(float(manifest["score"])) and manifest["step"] == 3
assert [float(loss) for step, loss in manifest["losses"]] == [0.1, -numpy.inf]
tensors = load_file("parameters.safetensors")
dtypes = {"f64": "float64", "f32": "float32", "f16": "float16", "i64": "int64", "i32": "int32", "u8": "uint8",
          "bool": "bool"}
assert sorted(tensors) == sorted([*dtypes, "w"]), sorted(tensors)
for name, dtype in dtypes.items():
    assert str(tensors[name].dtype) == dtype and tensors[name].tolist() == [[0, 1], [1, 0]], name
)");
  EXPECT_EQ(std::system((python + " '" + (folder / "check.py").string() + "' '" + saved.string() + "'").c_str()), 0);
}

TEST(CheckpointFiles, WritesTheSameBytesForTheSameThings) {
  const TemporaryFolder folder;
  const fs::path first = CheckpointFolder(folder / "a").save(at_step(1)),
                 second = CheckpointFolder(folder / "b").save(at_step(1));
  for (const char* name : {"manifest.json", "parameters.safetensors", "words.txt"}) {
    EXPECT_EQ(slurp(first / name), slurp(second / name)) << name;
  }
}

TEST(CheckpointFiles, KeepsTheLastAndTheBest) {
  const TemporaryFolder folder;
  CheckpointFolder run(folder / "run", 2);
  EXPECT_TRUE(run.latest().empty());
  EXPECT_TRUE(run.best().empty());
  run.save(at_step(1, 0.5));
  run.save(at_step(2, 0.2));
  run.save(at_step(3, 0.3));
  run.save(at_step(4));
  run.save(at_step(5, std::numeric_limits<double>::infinity()));
  EXPECT_EQ(names_in(folder / "run"), (Names{".lock", "step-00000002", "step-00000004", "step-00000005"}));
  EXPECT_EQ(run.best(), folder / "run/step-00000002");
  EXPECT_EQ(run.latest(), folder / "run/step-00000005");
  EXPECT_EQ(load_manifest(folder / "run").step, 2);
  EXPECT_EQ(load_manifest(folder / "run", true).step, 5);
  EXPECT_EQ(load_checkpoint(folder / "run").tensors.at("w").to_doubles()[0], 2);
  run.save(at_step(6, 0.2));  // as good, and trained longer
  EXPECT_EQ(names_in(folder / "run"), (Names{".lock", "step-00000005", "step-00000006"}));
  run.save(at_step(123456789, kNan));
  EXPECT_EQ(names_in(folder / "run"), (Names{".lock", "step-00000006", "step-123456789"}));
}

TEST(CheckpointFiles, OrdersBySteps) {
  const TemporaryFolder folder;
  CheckpointFolder run(folder / "run", 10);
  for (const std::int64_t step : {100000000, 99999999, 5, 1000}) run.save(at_step(step));
  std::vector<std::int64_t> steps;
  for (const fs::path& path : run.checkpoints()) steps.push_back(load_manifest(path).step);
  EXPECT_EQ(steps, (std::vector<std::int64_t>{5, 1000, 99999999, 100000000}));
  EXPECT_EQ(run.best(), run.latest());  // none has a score
}

TEST(CheckpointFiles, FindsEveryStepThatItSaves) {
  const TemporaryFolder folder;
  CheckpointFolder run(folder / "run", 100);
  std::vector<std::int64_t> steps = {0, 1, 99999999, 100000000, std::numeric_limits<std::int64_t>::max()};
  for (int bit = 31; bit < 63; ++bit) steps.push_back(std::int64_t{1} << bit);
  for (std::int64_t power = 10; power <= 1'000'000'000'000'000'000 / 10; power *= 10) steps.push_back(power * 10 - 1);
  std::sort(steps.begin(), steps.end());
  steps.erase(std::unique(steps.begin(), steps.end()), steps.end());
  for (const std::int64_t step : steps) EXPECT_EQ(load_manifest(run.save(at_step(step))).step, step);
  std::vector<std::int64_t> found;
  for (const fs::path& path : run.checkpoints()) found.push_back(load_manifest(path).step);
  EXPECT_EQ(found, steps);
  EXPECT_EQ(load_manifest(folder / "run", true).step, steps.back());
  // Names that no save makes are not ours.
  for (const char* name : {"step-", "step-1", "step--0000001", "step-+0000001", "step-000000001", "step-0000001x",
                           "step-9223372036854775808", "step-99999999999999999999999"}) {
    fs::create_directory(folder / "run" / name);
  }
  EXPECT_EQ(run.checkpoints().size(), steps.size());
}

TEST(CheckpointFiles, ARunsFolderMayHaveTheNameOfACheckpoint) {
  const TemporaryFolder folder;
  const fs::path run = folder / "step-00000007";
  CheckpointFolder(run).save(at_step(3));
  EXPECT_EQ(load_manifest(run).step, 3);
  EXPECT_EQ(load_checkpoint(run / "step-00000003").manifest.step, 3);
}

TEST(CheckpointFiles, NeverDropsTheOneJustSaved) {
  const TemporaryFolder folder;
  CheckpointFolder run(folder / "run", 1);
  run.save(at_step(10, 0.1));
  run.save(at_step(20, 0.2));
  run.save(at_step(15, 0.3));  // training went on from the best
  EXPECT_EQ(run.checkpoints().size(), 3u);
  EXPECT_EQ(load_manifest(folder / "run/step-00000015").step, 15);
}

TEST(CheckpointFiles, ReplacesOneOfTheSameStep) {
  const TemporaryFolder folder;
  CheckpointFolder run(folder / "run");
  run.save(at_step(1, 0.5));
  Checkpoint other = at_step(1, 0.25);
  other.files = {{"letters.txt", "abc"}};
  run.save(other);
  EXPECT_EQ(load_checkpoint(folder / "run").files, other.files);
  EXPECT_EQ(names_in(folder / "run"), (Names{".lock", "step-00000001"}));
  EXPECT_EQ(names_in(folder / "run/step-00000001"), (Names{"letters.txt", "manifest.json", "parameters.safetensors"}));
}

TEST(CheckpointFiles, LoadsWhereverTheFolderIsPut) {
  const TemporaryFolder folder;
  fs::rename(CheckpointFolder(folder / "run").save(at_step(3)), folder / "good model");
  EXPECT_EQ(load_checkpoint(folder / "good model").manifest.step, 3);
  EXPECT_EQ(load_checkpoint(folder / "good model/").manifest.step, 3);
  fs::create_directory_symlink("good model", folder / "link");
  EXPECT_EQ(load_checkpoint(folder / "link").manifest.step, 3);
  spill(folder / "good model/README", "what this is");  // others' files are no concern
  EXPECT_EQ(load_checkpoint(folder / "good model").files.size(), 1u);
}

TEST(CheckpointFiles, NoticesEveryByteOfEveryFileThatIsFlippedOrMissing) {
  const TemporaryFolder folder;
  const fs::path saved = CheckpointFolder(folder / "run").save(at_step(3));
  for (const char* name : {"manifest.json", "parameters.safetensors", "words.txt"}) {
    const std::string whole = slurp(saved / name);
    for (std::size_t i = 0; i<whole.size(); i += whole.size()> 100 ? 7 : 1) {
      std::string flipped = whole;
      flipped[i] = static_cast<char>(flipped[i] ^ 1 << i % 8);
      spill(saved / name, flipped);
      const std::string text = error_of([&] { load_checkpoint(saved); });
      EXPECT_EQ(text.find((saved / name).string() + ": "), 0u) << text;
      spill(saved / name, whole.substr(0, i));
      const std::string cut = error_of([&] { load_checkpoint(saved); });
      EXPECT_EQ(cut.find((saved / name).string() + ": "), 0u) << cut;
    }
    spill(saved / name, whole + "x");
    EXPECT_NE(error_of([&] { load_checkpoint(saved); }), "no error");
    fs::remove(saved / name);
    const std::string gone = error_of([&] { load_checkpoint(saved); });
    EXPECT_EQ(gone.find((saved / name).string() + ": cannot open: No such file or directory"), 0u) << gone;
    EXPECT_EQ(mkfifo((saved / name).c_str(), 0600), 0);
    EXPECT_NE(error_of([&] { load_checkpoint(saved); }).find("is a FIFO, not a regular file"), std::string::npos);
    fs::remove(saved / name);
    spill(saved / name, whole);
    EXPECT_EQ(load_checkpoint(saved).manifest.step, 3);
  }
  spill(saved / "words.txt", "hello\n");
  EXPECT_EQ(error_of([&] { load_checkpoint(saved); }),
            (saved / "words.txt").string() +
                ": has 6 bytes, its manifest says 12\nload another checkpoint, or copy this "
                "one again from where it is whole");
}

TEST(CheckpointFiles, TensorsThatTheManifestVouchesForAreCheckedAllTheSame) {
  const TemporaryFolder folder;
  const fs::path saved = CheckpointFolder(folder / "run").save(at_step(3));
  const std::string nonsense = "\xFF\xFF\xFF\xFF\xFF\xFF\xFF\xFFno tensors";
  checkpoints::SealedManifest sealed = checkpoints::parse_manifest(slurp(saved / "manifest.json"), "m");
  sealed.files["parameters.safetensors"] = {};
  sealed.files["parameters.safetensors"].add(nonsense.data(), nonsense.size());
  spill(saved / "manifest.json", checkpoints::manifest_text(sealed));
  spill(saved / "parameters.safetensors", nonsense);
  EXPECT_NE(error_of([&] { load_checkpoint(saved); }).find("not a safetensors file"), std::string::npos);
}

TEST(CheckpointFiles, SaysWhenThereIsNothingToLoad) {
  const TemporaryFolder folder;
  EXPECT_EQ(error_of([&] { load_checkpoint(folder / "absent"); }),
            (folder / "absent").string() + ": there is no such folder");
  spill(folder / "file", "");
  EXPECT_EQ(error_of([&] { load_checkpoint(folder / "file"); }),
            (folder / "file").string() + ": is no folder: give that of a checkpoint, or that of a run");
  EXPECT_NE(error_of([&] { load_checkpoint(folder.path()); }).find("has no checkpoint"), std::string::npos);
  fs::create_directory(folder / "step-00000001");
  fs::create_directory(folder / "step-1");  // not one of ours
  fs::create_directory(folder / "step-00000002x");
  EXPECT_NE(error_of([&] { load_checkpoint(folder.path()); }).find("step-00000001/manifest.json: cannot open"),
            std::string::npos);
  EXPECT_NE(error_of([&] { load_checkpoint(folder / "step-00000001"); }).find("manifest.json: cannot open"),
            std::string::npos);
}

TEST(CheckpointFiles, ACheckpointThatWasNeverScoredIsNotTheBest) {
  const TemporaryFolder folder;
  CheckpointFolder run(folder / "run", 4);
  run.save(at_step(1, 0.5));
  run.save(at_step(2, 0.25));
  Checkpoint checkpoint;  // as README's example saves one: nobody says a score
  checkpoint.manifest.model = "mine";
  checkpoint.manifest.step = 3;
  run.save(checkpoint);
  EXPECT_EQ(run.best(), folder / "run/step-00000002");
  EXPECT_EQ(run.latest(), folder / "run/step-00000003");
}

TEST(CheckpointFiles, SavesIntoNoFolderThatIsThereAlready) {
  const TemporaryFolder folder;
  CheckpointFolder run(folder / "run");
  fs::create_directory(folder / "elsewhere");
  folder.write("elsewhere/words.txt", "precious");
  // Entries named like a checkpoint under construction are deleted, a link without its target.
  fs::create_directory_symlink(folder / "elsewhere", folder / "run/.new-step-00000001");
  run.save(at_step(1));
  EXPECT_EQ(slurp(folder / "elsewhere/words.txt"), "precious");
  EXPECT_EQ(names_in(folder / "run"), (Names{".lock", "step-00000001"}));
}

TEST(CheckpointFiles, TheBestIsNotGuessedButSavingGoesOnBesideADamagedOne) {
  const TemporaryFolder folder;
  CheckpointFolder run(folder / "run", 1);
  spill(run.save(at_step(1, 0.1)) / "manifest.json", "{}");
  EXPECT_NE(error_of([&] { run.best(); }), "no error");
  EXPECT_NE(error_of([&] { load_checkpoint(folder / "run"); }), "no error");
  run.save(at_step(2, 0.2));
  EXPECT_EQ(names_in(folder / "run"), (Names{".lock", "step-00000002"}));
}

TEST(CheckpointFiles, RefusesNamesAndNumbersThatAManifestCannotHave) {
  const TemporaryFolder folder;
  CheckpointFolder run(folder / "run");
  for (const char* name : {"", "..", "../up", "a/b", "/etc/passwd", ".hidden", "manifest.json",
                           "parameters.safetensors", "\xFF", "a\nb"}) {
    Checkpoint checkpoint = at_step(1);
    checkpoint.files[name] = "x";
    const std::string text = error_of([&] { run.save(checkpoint); }, ErrorKind::argument);
    EXPECT_EQ(text.find("checkpoint: the file name '"), 0u) << name << ": " << text;
  }
  EXPECT_NE(error_of([&] { run.save(at_step(-1)); }, ErrorKind::argument), "no error");
  EXPECT_NE(error_of([&] { CheckpointFolder(folder / "x", 0); }, ErrorKind::argument), "no error");
  Checkpoint bad_bool = at_step(1);
  bad_bool.tensors["b"] = Tensor::from(boolean, {1}, std::array{1.0});
  bad_bool.tensors["b"].bytes()[0] = std::byte{2};
  EXPECT_NE(error_of([&] { run.save(bad_bool); }), "no error");
  Checkpoint wide = at_step(1);  // empty, but its strides are not
  wide.tensors["w"] = Tensor(f32, {0, std::int64_t{1} << 40, std::int64_t{1} << 20});
  EXPECT_NE(error_of([&] { run.save(wide); }).find("more than 2^59 elements"), std::string::npos);
  EXPECT_EQ(names_in(folder / "run"), (Names{".lock"}));
}

}  // namespace
}  // namespace paoding
