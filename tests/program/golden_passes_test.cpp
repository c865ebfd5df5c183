// SPDX-License-Identifier: Apache-2.0
// Each pass, shown on a graph made for it: tests/golden/passes/NAME.txt says in its first lines the purpose of the
// pass, then has the graph before and after it. A new pass needs such a file: write the first lines and the
// graph in front, and PAODING_RECORD_GOLDEN=1 build/paoding_tests --gtest_filter='*Golden*' adds the rest.
//
//   # the effect of the pass, and its reason        at least two lines, for a reader
//   for: h200, bf16, tf32, ranks                    only if it needs them: the target, the precision, TF32, two ranks
//   --- before
//   paoding graph 1                                 and so on
//   --- after
//   # the notes of the pass
//   paoding graph 1
//
// Where a pass leaves the graph alone, since it is listed to be switched off and the planner does it, there are two
// plans instead, under "--- planned without it" and "--- planned with it".
#include <algorithm>
#include <array>
#include <map>
#include <set>
#include <sstream>

#include "graph/verify.h"
#include "ops/matmul/matmul_packed.h"
#include "passes/pass.h"
#include "tests/program/golden.h"
#include "tests/support/thread_ranks.h"

namespace paoding {
namespace {

using testing_program::ThreadRanks;

using golden::fs::path;
using Run = void (*)(Graph&, PassNotes&);

// Every pass that may run, by name. The list of passes has all that can be switched off; these are the others.
const std::map<std::string, Run>& passes() {
  static const std::map<std::string, Run> all = [] {
    std::map<std::string, Run> found{{"inline_checkpoints", inline_checkpoints},
                                     {"recognize_recurrences", recognize_recurrences},
                                     {"narrow_composed", narrow_composed},
                                     {"expand_composed_ops", expand_composed_ops}};
    for (const Pass& pass : pipeline()) found.emplace(pass.name, pass.run);
    return found;
  }();
  return all;
}

std::vector<std::string> pass_names() {
  std::vector<std::string> names;
  for (const auto& [name, run] : passes()) names.push_back(name);
  return names;
}

path folder() { return golden::folder() / "passes"; }

// A file in its parts.
struct PassFile {
  std::string head;                 // comments and the line "for:", as they stand
  std::string before;               // the graph in front
  std::vector<std::string> wanted;  // the words after "for:"
};

PassFile read_pass_file(const path& file) {
  PassFile made;
  std::istringstream lines(slurp(file));
  std::string* part = &made.head;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("---")) {
      part = line == "--- before" ? &made.before : nullptr;
      continue;
    }
    if (part != nullptr) *part += line + "\n";
    if (part != &made.head || !line.starts_with("for: ")) continue;
    std::istringstream words(line.substr(5));
    for (std::string word; std::getline(words >> std::ws, word, ',');) made.wanted.push_back(word);
  }
  return made;
}

// The circumstances that a pass knows besides the graph.
struct Circumstances {
  TargetPtr target = std::make_shared<const Target>();
  std::string target_name;
  DType precision = f32;
  bool allow_tf32 = false;
  ThreadRanks ranks{2};
  KernelEnvironment environment = {};  // with their communicator where the words say so

  explicit Circumstances(const std::vector<std::string>& wanted) {
    for (const std::string& word : wanted) {
      if (word == "tf32") {
        allow_tf32 = true;
      } else if (word == "ranks") {
        environment.communicator = ranks.rank(0);
      } else if (word == "bf16" || word == "f16") {
        precision = word == "bf16" ? bf16 : f16;
      } else {
        target = std::make_shared<const Target>(named_target(word));
        target_name = word;
      }
    }
  }
};

// Empty when the pass leaves the graph alone.
std::string behind(const std::string& name, const PassFile& file, const Circumstances& around) {
  const auto graph = parse_graph(file.before);
  const std::string in_front = to_text(*graph);
  constexpr std::int64_t kBucketBytes = 520;  // so that a small graph has several
  PassNotes notes({.target = around.target,
                   .allow_tf32 = around.allow_tf32,
                   .environment = std::make_shared<const KernelEnvironment>(around.environment)},
                  around.precision, true, false, kBucketBytes);
  passes().at(name)(*graph, notes);
  verify(*graph, name);
  if (to_text(*graph) == in_front) return "";
  std::string text = "--- after\n";
  for (const std::string& note : notes.list()) text += "# " + note + "\n";
  return text + to_text(*graph);
}

std::string plans(const std::string& name, const PassFile& file, const Circumstances& around) {
  const auto graph = parse_graph(file.before);
  const std::string flags =
      "--plan" + (around.target_name.empty() ? "" : " --device cuda --target " + around.target_name);
  const std::string without = golden::dump_of(*graph, flags + " --no-pass " + name),
                    with = golden::dump_of(*graph, flags);
  EXPECT_NE(without, with) << "the pass does nothing to this graph, nor to its plan";
  return "--- planned without it\n" + without + "--- planned with it\n" + with;
}

class GoldenPass : public testing::TestWithParam<std::string> {};

TEST_P(GoldenPass, DoesWhatItDid) {
  const path at = folder() / (GetParam() + ".txt");
  const PassFile file = read_pass_file(at);
  ASSERT_NE(file.before, "") << at << ": write what the pass does and the graph in front of it";
  EXPECT_GE(std::count(file.head.begin(), file.head.end(), '\n'), 2) << at << " says too little of the pass";
#ifdef __clang__
  GTEST_SKIP() << "NOT CHECKED: GCC makes the nodes of a call's last argument first, clang those of its first";
#endif
  if (GetParam() == "pack_weights" && packed_order(f32, 5, 384, 384).order.empty()) {
    GTEST_SKIP() << "NOT CHECKED: oneDNN reads plain weights on this machine";
  }
  const Circumstances around(file.wanted);
  std::string shown = behind(GetParam(), file, around);
#if !PAODING_WITH_CUDA
  if (shown.empty() && around.target->is_gpu()) GTEST_SKIP() << "NOT CHECKED: this build has no GPU back end";
#endif
  if (shown.empty()) shown = plans(GetParam(), file, around);
  golden::compare(at, file.head + "--- before\n" + to_text(*parse_graph(file.before)) + shown);
}

INSTANTIATE_TEST_SUITE_P(Golden, GoldenPass, testing::ValuesIn(pass_names()),
                         [](const auto& tested) { return tested.param; });

// All that run, as the records of a compilation have them: also those that no list names.
TEST(GoldenPasses, AreThoseThatRun) {
  std::set<std::string> run{"inline_checkpoints"}, shown;  // that one leaves no record
  Graph empty;
  PassOptions options;
  options.precision = bf16;  // one runs in mixed precision only
  for (const PassRecord& record : run_passes(empty, options)) run.insert(record.name);
  for (const auto& entry : golden::fs::directory_iterator(folder())) shown.insert(entry.path().stem().string());
  EXPECT_EQ(shown, run) << "tests/golden/passes/ has one file a pass";
  const std::vector<std::string> tested = pass_names();
  EXPECT_EQ(std::set<std::string>(tested.begin(), tested.end()), run);
}

}  // namespace
}  // namespace paoding
