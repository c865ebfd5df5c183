// SPDX-License-Identifier: Apache-2.0
// NCCL's numbers against its own header, where PyTorch's environment has brought it, and the library beside it.
#include "distributed/gpu/nccl.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>

#include "tests/support/source_root.h"

namespace paoding::gpu {
namespace {

namespace fs = std::filesystem;

fs::path nccl_folder() {
  std::error_code ignored;
  for (const auto& each : fs::directory_iterator(source_root() / ".venv-torch/lib", ignored)) {
    const fs::path folder = each.path() / "site-packages/nvidia/nccl";
    if (fs::exists(folder / "include/nccl.h", ignored)) return folder;
  }
  return {};
}

TEST(Nccl, HasTheNumbersOfItsHeader) {
  const fs::path folder = nccl_folder();
  if (folder.empty()) return;  // nothing to compare with
  std::ifstream file(folder / "include/nccl.h");
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  const auto number_of = [&](const std::string& name) {
    std::smatch found;
    return std::regex_search(text, found, std::regex("\\b" + name + "\\s*=\\s*(\\d+)")) ? std::stoi(found[1]) : -1;
  };
  for (const auto& [name, number] :
       {std::pair("ncclSuccess", nccl::kSuccess), std::pair("ncclInProgress", nccl::kInProgress),
        std::pair("ncclUint8", int{nccl::kUint8}), std::pair("ncclInt32", int{nccl::kInt32}),
        std::pair("ncclInt64", int{nccl::kInt64}), std::pair("ncclFloat16", int{nccl::kFloat16}),
        std::pair("ncclFloat32", int{nccl::kFloat32}), std::pair("ncclFloat64", int{nccl::kFloat64}),
        std::pair("ncclBfloat16", int{nccl::kBfloat16}), std::pair("ncclSum", int{nccl::kSum}),
        std::pair("ncclMax", int{nccl::kMax}), std::pair("ncclMin", int{nccl::kMin})}) {
    EXPECT_EQ(number_of(name), number) << name;
  }
  EXPECT_TRUE(std::regex_search(text, std::regex("NCCL_UNIQUE_ID_BYTES 128")));
  SearchPlaces places;
  places.paoding_cuda_path = (folder / "lib").string();
  places.use_loader = places.use_system = false;
  const Library library({"libnccl.so.2"}, places);
  ASSERT_TRUE(library.loaded()) << library.describe();
#define PD_NCCL_FIND(name, result, parameters) EXPECT_NE((library.find<result(*) parameters>(#name)), nullptr) << #name;
  PD_NCCL_FUNCTIONS(PD_NCCL_FIND)
#undef PD_NCCL_FIND
  int version = 0;
  library.symbol<nccl::Result (*)(int*)>("ncclGetVersion")(&version);
  EXPECT_GE(version, nccl::kLeastVersion);
}

}  // namespace
}  // namespace paoding::gpu
