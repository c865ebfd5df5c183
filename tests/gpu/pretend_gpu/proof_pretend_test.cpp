// SPDX-License-Identifier: Apache-2.0
// The statements of docs/limits.md on each kind of GPU agree with the library and with `paoding doctor`.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <sstream>

#include "gpu/driver/proof.h"
#include "tests/support/temporary_folder.h"

namespace paoding::gpu {
namespace {

const std::map<std::string, Proof>& proofs() {
  static const std::map<std::string, Proof> words{{"run", Proof::run},
                                                  {"compiled and emulated only", Proof::compiled},
                                                  {"untested", Proof::untested},
                                                  {"refused", Proof::refused}};
  return words;
}

TEST(ProofOfGpus, IsWhatTheTableOfLimitsSays) {
  std::ifstream file("docs/limits.md");  // tests run from the root of the sources
  const std::regex cells(R"(^\| [^|]+ \| (\d+)\.(\d+) \| ([a-z ]+) \|.*)");
  int rows = 0;
  std::map<Proof, int> seen;
  for (std::string line; std::getline(file, line);) {
    std::smatch found;
    if (!std::regex_match(line, found, cells)) continue;
    ++rows;
    ASSERT_TRUE(proofs().contains(found[3])) << line;
    const Proof proof = proof_of(std::stoi(found[1]), std::stoi(found[2]));
    ++seen[proof];
    EXPECT_EQ(proof, proofs().at(found[3])) << line;
    EXPECT_TRUE(proof_text(proof).starts_with(std::string(found[3]))) << line;
  }
  EXPECT_GE(rows, 8);
  EXPECT_EQ(seen.size(), proofs().size()) << "a kind of proof has no row";
}

TEST(ProofOfGpus, IsWhatDoctorSaysAndAGpuThatIsRefusedIsNotUsed) {
  const std::filesystem::path paoding = std::filesystem::read_symlink("/proc/self/exe").parent_path() / "paoding";
  if (!std::filesystem::exists(paoding)) GTEST_SKIP() << "NOT CHECKED: " << paoding << " is not built";
  const TemporaryFolder folder;
  const auto doctor = [&](const char* capability) {
    const std::string out = (folder / "out").string();
    const std::string line = fmt::format("PAODING_CUDA_PATH={} PAODING_PRETEND_CAPABILITY={} {} doctor > {} 2>&1",
                                         PAODING_PRETEND_FOLDER, capability, paoding.string(), out);
    std::stringstream text;
    text << std::system(line.c_str()) << " " << std::ifstream(out).rdbuf();
    return text.str();
  };
  for (const auto& [capability, proof] :
       std::map<const char*, Proof>{{"90", Proof::run}, {"80", Proof::compiled}, {"120", Proof::untested}}) {
    const std::string text = doctor(capability);
    EXPECT_TRUE(text.starts_with("0 ")) << text;
    EXPECT_NE(text.find(proof_text(proof)), std::string::npos) << capability << "\n" << text;
    EXPECT_NE(text.find("best device cuda:0"), std::string::npos) << text;
  }
  const std::string refused = doctor("70");
  EXPECT_TRUE(refused.starts_with("0 ")) << refused;
  EXPECT_NE(refused.find("has compute capability 7.0, needed 7.5 or later"), std::string::npos) << refused;
  EXPECT_NE(refused.find("best device cpu"), std::string::npos) << refused;
}

}  // namespace
}  // namespace paoding::gpu
