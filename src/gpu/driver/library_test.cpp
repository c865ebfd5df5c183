// SPDX-License-Identifier: Apache-2.0
#include "gpu/driver/library.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>

namespace paoding::gpu {
namespace {

namespace fs = std::filesystem;

/// A folder that goes away with the test.
class TemporaryFolder {
 public:
  TemporaryFolder() {
    std::string name = (fs::temp_directory_path() / "paoding_library_XXXXXX").string();
    path_ = mkdtemp(name.data());
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// A real shared library under a name of our own: a copy of libm, found through this process's own maps.
void place_fake_library(const fs::path& file) {
  fs::create_directories(file.parent_path());
  std::ifstream maps("/proc/self/maps");
  std::string line;
  while (std::getline(maps, line)) {
    std::size_t begin = line.find('/');
    if (begin != std::string::npos && line.find("/libm.so.6") != std::string::npos) {
      fs::copy_file(line.substr(begin), file);
      return;
    }
  }
  FAIL() << "this process has no libm.so.6 to copy";
}

SearchPlaces nowhere() {
  SearchPlaces places;
  places.use_loader = false;
  places.use_system = false;
  return places;
}

TEST(Library, LoadsFromTheFolderThatTheUserNames) {
  TemporaryFolder folder;
  place_fake_library(folder.path() / "second/lib64/libpaoding_fake.so.12");
  SearchPlaces places = nowhere();
  places.paoding_cuda_path = (folder.path() / "first").string() + ":" + (folder.path() / "second").string();
  Library library({"libpaoding_fake.so.13", "libpaoding_fake.so.12"}, places);
  ASSERT_TRUE(library.loaded()) << library.describe();
  EXPECT_EQ(library.path(), (folder.path() / "second/lib64/libpaoding_fake.so.12").string());
  EXPECT_EQ(library.problem(), "");
  double (*cosine)(double) = library.symbol<double (*)(double)>("cos");
  EXPECT_EQ(cosine(0.0), 1.0);
}

TEST(Library, PrefersTheNewestNameInOnePlace) {
  TemporaryFolder folder;
  place_fake_library(folder.path() / "libpaoding_fake.so.12");
  place_fake_library(folder.path() / "libpaoding_fake.so.13");
  SearchPlaces places = nowhere();
  places.paoding_cuda_path = folder.path().string();
  Library library({"libpaoding_fake.so.13", "libpaoding_fake.so.12"}, places);
  EXPECT_EQ(library.path(), (folder.path() / "libpaoding_fake.so.13").string());
}

TEST(Library, FindsPipPackagesBesideThePythonInPath) {
  TemporaryFolder folder;
  place_fake_library(folder.path() / "lib/python3.11/site-packages/nvidia/cu13/lib/libpaoding_fake.so.13");
  SearchPlaces places = nowhere();
  places.path = "/nonexistent/bin:" + (folder.path() / "bin").string();
  EXPECT_TRUE(Library({"libpaoding_fake.so.13"}, places).loaded());

  SearchPlaces environment = nowhere();
  environment.virtual_env = folder.path().string();
  EXPECT_TRUE(Library({"libpaoding_fake.so.13"}, environment).loaded());

  SearchPlaces deps = nowhere();
  deps.deps = folder.path() / "lib/python3.11/site-packages";
  EXPECT_TRUE(Library({"libpaoding_fake.so.13"}, deps).loaded());
}

TEST(Library, LooksInCudaHomeBeforePipPackages) {
  TemporaryFolder folder;
  place_fake_library(folder.path() / "toolkit/targets/x86_64-linux/lib/libpaoding_fake.so.13");
  place_fake_library(folder.path() / "venv/lib/python3.12/site-packages/nvidia/cublas/lib/libpaoding_fake.so.13");
  SearchPlaces places = nowhere();
  places.cuda_home = (folder.path() / "toolkit").string();
  places.virtual_env = (folder.path() / "venv").string();
#if defined(__x86_64__)
  Library library({"libpaoding_fake.so.13"}, places);
  EXPECT_NE(library.path().find("toolkit/targets"), std::string::npos) << library.path();
#endif
}

TEST(Library, RelativePlacesAreNotSearched) {
  TemporaryFolder folder;
  const fs::path before = fs::current_path();
  fs::current_path(folder.path());
  for (const char* place : {".", "lib64", "venv/lib/python3.11/site-packages/nvidia/cu13/lib"}) {
    place_fake_library(folder.path() / place / "libpaoding_fake.so.13");
  }
  SearchPlaces places = nowhere();
  places.paoding_cuda_path = ".:lib64::venv/lib/python3.11/site-packages";
  places.cuda_home = places.cuda_path = ".";
  places.virtual_env = "venv";
  places.path = ".:venv/bin:./venv/bin";
  places.use_loader = true;
  const Library library({"libpaoding_fake.so.13"}, places);
  fs::current_path(before);
  EXPECT_FALSE(library.loaded()) << library.describe();
  EXPECT_NE(library.problem().find("PAODING_CUDA_PATH=lib64 is not searched, for the path is relative"),
            std::string::npos)
      << library.problem();
  EXPECT_NE(library.problem().find("CUDA_HOME=. is not searched"), std::string::npos) << library.problem();
}

TEST(Library, SaysWhatWasTriedWhenNothingLoads) {
  TemporaryFolder folder;
  SearchPlaces places = nowhere();
  places.paoding_cuda_path = folder.path().string();
  places.use_loader = true;
  Library library({"libpaoding_absent.so.13"}, places);
  EXPECT_FALSE(library.loaded());
  EXPECT_NE(library.problem().find("libpaoding_absent.so.13 was not found"), std::string::npos) << library.problem();
  EXPECT_NE(library.describe().find((folder.path() / "libpaoding_absent.so.13").string() + ": no such file"),
            std::string::npos)
      << library.describe();
  ASSERT_EQ(library.attempts().size(), 2u);
  EXPECT_EQ(library.attempts()[1].path, "libpaoding_absent.so.13");
}

TEST(Library, NamesAFileThatIsThereAndDoesNotLoad) {
  TemporaryFolder folder;
  std::ofstream(folder.path() / "libpaoding_broken.so.1") << "this is not a shared library";
  SearchPlaces places = nowhere();
  places.paoding_cuda_path = folder.path().string();
  Library library({"libpaoding_broken.so.1"}, places);
  EXPECT_FALSE(library.loaded());
  EXPECT_NE(library.problem().find("is there but does not load"), std::string::npos) << library.problem();
}

TEST(Library, AMissingSymbolNamesTheLibraryAndTheFunction) {
  TemporaryFolder folder;
  place_fake_library(folder.path() / "libpaoding_fake.so.13");
  SearchPlaces places = nowhere();
  places.paoding_cuda_path = folder.path().string();
  Library library({"libpaoding_fake.so.13"}, places);
  EXPECT_EQ(library.find<void (*)()>("paoding_no_such_function"), nullptr);
  try {
    library.symbol<void (*)()>("paoding_no_such_function");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::device);
    EXPECT_NE(std::string(error.what()).find(library.path()), std::string::npos) << error.what();
    EXPECT_NE(std::string(error.what()).find("paoding_no_such_function"), std::string::npos) << error.what();
  }
}

TEST(Library, AnUnloadedLibraryThrowsInsteadOfCrashing) {
  Library library;
  EXPECT_EQ(library.find<void (*)()>("cos"), nullptr);
  EXPECT_THROW(library.symbol<void (*)()>("cos"), Error);
}

}  // namespace
}  // namespace paoding::gpu
