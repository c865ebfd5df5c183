// SPDX-License-Identifier: Apache-2.0
// Results of PyTorch: for every case of every op that it has too, and for random graphs with their gradients. The
// graphs and numbers lie in tests/reference/peer/recorded/; tests/reference/peer/record.sh writes them anew.
#include <fmt/format.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <sstream>

#include "paoding/io.h"
#include "tests/support/gpu_refusals.h"
#include "tests/support/op_case.h"
#include "tests/support/random_graph.h"
#include "tests/support/recorded.h"
#include "tests/support/temporary_folder.h"
#include "text/print.h"

namespace paoding::testing_program {
namespace {

namespace fs = std::filesystem;

struct PeerGraph {
  std::string name, text;
};

// The graphs of a file: each begins with a line "### name".
std::vector<PeerGraph> read_graphs(const fs::path& path) {
  std::istringstream file(recorded_bytes(path));
  std::vector<PeerGraph> graphs;
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("### ")) {
      graphs.push_back({line.substr(4), ""});
    } else {
      graphs.back().text += line + "\n";
    }
  }
  return graphs;
}

// Numbers one after the other: feeds by graph and input, results by graph and fetch.
struct PeerNumbers {
  Dense all;
  std::size_t next = 0;
  Dense take(std::size_t count) {
    if (count > all.size() - next) throw std::runtime_error("the recorded numbers end too early: record them anew");
    next += count;
    return {all.begin() + static_cast<std::ptrdiff_t>(next - count), all.begin() + static_cast<std::ptrdiff_t>(next)};
  }
};

// ---- writing: the files that record.sh has PyTorch read ----

class Writer {
 public:
  explicit Writer(fs::path stem) : stem_(std::move(stem)), text_(stem_.string() + ".txt") {}
  ~Writer() {
    save_safetensors(stem_.string() + ".feeds.safetensors",
                     {{"feeds", Tensor::from(f32, {static_cast<std::int64_t>(feeds_.size())}, feeds_)}});
  }

  void add(const std::string& name, const std::string& text, const Graph& graph, const Feeds& feeds) {
    text_ << "### " << name << "\n" << text;
    for (NodeId id : graph.inputs()) {
      const Dense& values = feeds.at(graph.node(id).name.str());
      feeds_.insert(feeds_.end(), values.begin(), values.end());
    }
  }

 private:
  fs::path stem_;
  std::ofstream text_;
  Dense feeds_;
};

std::string list(const char* stem, std::size_t count) {
  std::string text;
  for (std::size_t i = 0; i < count; ++i) text += (i == 0 ? "" : ", ") + std::string(stem) + std::to_string(i);
  return text;
}

// A case of an op as text, composed ops and gradients not expanded.
std::string case_text(const SweepCase& c, const CaseGraph& made) {
  const Graph& graph = made.graph;
  std::string text = "paoding graph 1\n", floats, seeds, wanted;
  for (NodeId id : graph.inputs()) {
    text += graph.node(id).name.str() + " = input " + to_string(graph.node(id).types[0]) + "\n";
  }
  std::size_t outputs = 0;
  for (const Graph::Fetch& fetch : graph.fetches()) outputs += fetch.name.starts_with("out");
  text += list("out", outputs) + " = " + c.op->name + "(" + list("in", c.shape.shapes.size()) + ")" +
          attrs_text(*c.op, c.shape.attrs) + "\n";
  for (std::size_t i = 0, seed = 0; i < outputs; ++i) {
    text += "fetch out" + std::to_string(i) + "\n";
    if (!made.has_gradient || !is_float(graph.type(graph.fetches()[i].ref).dtype)) continue;
    wanted += (wanted.empty() ? "" : ", ") + std::string("out") + std::to_string(i);
    seeds += (seeds.empty() ? "" : ", ") + std::string("seed") + std::to_string(seed++);
  }
  if (!made.has_gradient) return text;
  for (const Value& in : made.floats) {
    floats += (floats.empty() ? "" : ", ") + graph.node(in.ref().node).name.str();
  }
  const bool is_one = wanted.find(',') == std::string::npos;
  text += list("gradient", made.floats.size()) + " = gradients(" + wanted + (is_one ? ", " : "; ") + seeds + ") by (" +
          floats + ")\n";
  for (std::size_t i = 0; i < made.floats.size(); ++i) text += "fetch gradient" + std::to_string(i) + "\n";
  return text;
}

// Other tests of this program register ops.
bool is_ours(const OpDef& op) { return !op.name.starts_with("test_") && !op.name.starts_with("my_"); }

// How many cases there are.
std::size_t write_ops(const fs::path& folder) {
  Writer writer(folder / "ops");
  std::size_t count = 0;
  for (const SweepCase& c : sweep_cases(f32)) {
    if (!c.shape.error.empty() || !is_ours(*c.op)) continue;
    const CaseGraph made(c, Around::nothing, true);
    writer.add(c.op->name + "/" + c.name, case_text(c, made), made.graph, feeds_of(c, made.graph, 11));
    ++count;
  }
  return count;
}

// Types after an op are optional, and half of the text.
std::string without_types(const std::string& text) {
  std::istringstream lines(text);
  std::string shorter;
  for (std::string line; std::getline(lines, line);) shorter += line.substr(0, line.find(" : ")) + "\n";
  return shorter;
}

void write_random(const fs::path& folder, unsigned first, unsigned count) {
  Writer writer(folder / "random");
  for (unsigned seed = first; seed < first + count; ++seed) {
    Graph graph;
    std::string statements;
    const RandomGraph made(graph, seed, &statements);
    Feeds feeds = make_feeds(graph, seed);
    for (auto& [name, values] : feeds) {
      for (double& value : values) value = static_cast<float>(value);
    }
    if (statements.empty()) graph.compact();
    writer.add("seed" + std::to_string(seed), without_types(to_text(graph)) + statements, graph, feeds);
  }
}

unsigned peer_number(const char* name, unsigned otherwise) {
  const char* text = std::getenv(name);
  return text == nullptr ? otherwise : static_cast<unsigned>(std::strtoul(text, nullptr, 10));
}

// The written files read back: so many graphs, and a value for every element of their inputs.
void expect_readable(const fs::path& folder, const std::string& set, std::size_t count) {
  const std::vector<PeerGraph> graphs = read_graphs(folder / (set + ".txt"));
  EXPECT_EQ(graphs.size(), count);
  PeerNumbers feeds{recorded_tensors(folder / (set + ".feeds.safetensors")).at("feeds").to_doubles()};
  for (const PeerGraph& peer : graphs) {
    const auto graph = parse_graph(peer.text);
    EXPECT_FALSE(graph->fetches().empty()) << peer.name;
    for (NodeId id : graph->inputs()) feeds.take(static_cast<std::size_t>(graph->node(id).types[0].shape.elements()));
  }
  EXPECT_EQ(feeds.next, feeds.all.size());
}

// Where tests/reference/peer/record.sh says, which has PyTorch read it; else to look at here.
class PeerFolder {
 public:
  fs::path path() const { return given_ == nullptr ? own_.path() : fs::path(given_); }
  bool is_given() const { return given_ != nullptr; }

 private:
  const char* given_ = std::getenv("PAODING_PEER_WRITE");
  TemporaryFolder own_;
};

TEST(Peer, WritesTheOpsForPyTorch) {
  const PeerFolder folder;
  expect_readable(folder.path(), "ops", write_ops(folder.path()));
}

TEST(Peer, WritesRandomGraphsForPyTorch) {
  const PeerFolder folder;
  const unsigned count = peer_number("PAODING_RANDOM_GRAPHS", folder.is_given() ? 1000 : 20);
  write_random(folder.path(), peer_number("PAODING_RANDOM_SEED", 0), count);
  expect_readable(folder.path(), "random", count);
}

// ---- comparing ----

// The record of a result: its size, sum and sum of magnitudes, and a few elements.
constexpr std::size_t kSamples = 6;

Dense summary(const Dense& values) {
  Dense result{static_cast<double>(values.size()), 0, 0};
  for (double value : values) result[1] += value, result[2] += std::fabs(value);
  const std::size_t count = std::min(values.size(), kSamples);
  for (std::size_t i = 0; i < count; ++i) result.push_back(values[i * values.size() / count]);
  return result;
}

std::size_t summary_size(std::int64_t elements) { return 3 + std::min(static_cast<std::size_t>(elements), kSamples); }

std::string difference(const Dense& mine, const Dense& wanted, double limit) {
  const Dense got = summary(mine);
  if (got[0] != wanted[0]) return "has another size";
  const double size = std::max(1.0, got[0]), scale = std::max(1.0, wanted[2] / size);
  // A graph may leave the range in which a comparison means something.
  if (!std::isfinite(wanted[2]) || wanted[2] > 1e6 * size)
    return std::isfinite(got[2]) && wanted[2] != wanted[2] ? "is finite" : "";
  if (!(std::fabs(got[1] - wanted[1]) <= limit * scale * size)) {
    return fmt::format("has the sum {}, not {}", got[1], wanted[1]);
  }
  for (std::size_t i = 3; i < got.size(); ++i) {
    if (!(std::fabs(got[i] - wanted[i]) <= limit * std::max(scale, std::fabs(wanted[i])))) {
      return fmt::format("sample {} is {}, not {}", i - 3, got[i], wanted[i]);
    }
  }
  return "";
}

struct Compared {
  std::size_t same = 0, missing = 0, refused = 0, failed = 0;  // missing there, refused by the device here
};

struct Comparison {
  Device device = Device::cpu();
  std::size_t most = std::numeric_limits<std::size_t>::max();  // graphs that are compared, from the first on
  /// Called before each graph with its name.
  std::function<void(const PeerGraph&)> at = [](const PeerGraph&) {};
  /// Called with the problem of a graph; true when that is enough.
  std::function<bool(const PeerGraph&, const std::string& problem)> failed = {};
};

// The problem of the results of a graph; "" when there is none.
std::string problem_of(const Graph& graph, const Feeds& feeds, const std::map<std::string, Dense>& wanted,
                       const Device& device, double f32_limit, bool* is_refused) {
  const double limit = to_text(graph).find("f32[") != std::string::npos ? f32_limit : 1e-10;
  std::string problems;
  try {
    CompileOptions options;
    options.device = device;
    Program program(graph, options);
    const Tensors got = program.run(to_tensors(graph, feeds));
    for (const auto& [name, numbers] : wanted) {
      const std::string problem = difference(got.at(name).to_doubles(), numbers, limit);
      if (!problem.empty()) problems += fmt::format("{} {}\n", name, problem);
    }
  } catch (const Error& error) {
    *is_refused = device.kind != DeviceKind::cpu && is_known_gpu_refusal(error);
    if (!*is_refused) problems = fmt::format("threw: {}\n", error.what());
  } catch (const std::exception& error) {
    problems = fmt::format("threw: {}\n", error.what());
  }
  return problems;
}

Compared compare(const std::string& set, const fs::path& folder, double f32_limit, const Comparison& how) {
  Compared counts;
  const std::vector<PeerGraph> graphs = read_graphs(folder / (set + ".txt"));
  EXPECT_FALSE(graphs.empty()) << "nothing is recorded for " << set;
  PeerNumbers feeds{recorded_tensors(folder / (set + ".feeds.safetensors")).at("feeds").to_doubles()};
  PeerNumbers results{recorded_tensors(folder / (set + ".results.safetensors")).at("results").to_doubles()};
  for (std::size_t i = 0; i < graphs.size(); ++i) {
    if (i >= how.most) return counts;
    const PeerGraph& peer = graphs[i];
    how.at(peer);
    const auto graph = parse_graph(peer.text);
    Feeds mine;
    for (NodeId id : graph->inputs()) {
      const Node& node = graph->node(id);
      mine[node.name.str()] = feeds.take(static_cast<std::size_t>(node.types[0].shape.elements()));
    }
    if (results.take(1)[0] == 0) {
      ++counts.missing;
      continue;
    }
    std::map<std::string, Dense> wanted;
    for (const Graph::Fetch& fetch : graph->fetches()) {
      wanted[fetch.name] = results.take(summary_size(graph->type(fetch.ref).shape.elements()));
    }
    bool is_refused = false;
    const std::string problem = problem_of(*graph, mine, wanted, how.device, f32_limit, &is_refused);
    ++(is_refused ? counts.refused : problem.empty() ? counts.same : counts.failed);
    if (!problem.empty() && how.failed(peer, problem)) return counts;
  }
  EXPECT_EQ(feeds.next, feeds.all.size());
  EXPECT_EQ(results.next, results.all.size());
  return counts;
}

// Shows the first five that fail.
Comparison shown(const Device& device) {
  Comparison how;
  how.device = device;
  how.failed = [count = 0](const PeerGraph& peer, const std::string& problem) mutable {
    ADD_FAILURE() << peer.name << ": " << problem << peer.text;
    return ++count == 5;
  };
  return how;
}

TEST(Peer, OpsGiveWhatPyTorchGave) { compare("ops", recorded_folder(), 1e-5, shown(Device::cpu())); }

TEST(Peer, RandomGraphsGiveWhatPyTorchGave) { compare("random", recorded_folder(), 1e-3, shown(Device::cpu())); }

TEST(Peer, OpsGiveWhatPyTorchGaveOnAGpu) {
  if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  const Compared counts = compare("ops", recorded_folder(), 1e-5, shown(Device::best()));
  std::printf("%zu cases of ops as PyTorch gave them, %zu NOT CHECKED without a kernel\n", counts.same, counts.refused);
}

// For many more than are recorded: tests/reference/peer/many.sh. In the folder, compared.<device>.txt gets the counts,
// failed.<device>.txt the failures, and at.<device>.txt names the graph being compared, in case the program dies of it.
TEST(Peer, GraphsOfAFolderGiveWhatPyTorchGave) {
  const char* folder = std::getenv("PAODING_PEER_CHECK");
  if (folder == nullptr)
    GTEST_SKIP() << "NOT CHECKED: only on request, tests/reference/peer/many.sh sets PAODING_PEER_CHECK";
  const char* device = std::getenv("PAODING_PEER_DEVICE");
  Comparison how;
  if (device != nullptr && std::string(device) == "cuda") how.device = Device::cuda();
  const std::string name = how.device.kind == DeviceKind::cuda ? "cuda" : "cpu";
  const auto file = [&](const std::string& stem) { return fs::path(folder) / (stem + "." + name + ".txt"); };
  std::ofstream failed(file("failed"));
  how.most = peer_number("PAODING_PEER_MOST", std::numeric_limits<unsigned>::max());
  how.at = [&](const PeerGraph& peer) { std::ofstream(file("at")) << peer.name << "\n"; };
  how.failed = [&](const PeerGraph& peer, const std::string& problem) {
    failed << "### " << peer.name << " on " << name << "\n" << problem << peer.text << "\n" << std::flush;
    return false;
  };
  const Compared counts = compare("random", folder, 1e-3, how);
  std::ofstream(file("compared")) << fmt::format("{} {} {} {}\n", counts.same, counts.missing, counts.refused,
                                                 counts.failed);
  EXPECT_EQ(counts.failed, 0U) << file("failed");
}

// Every op was shown to PyTorch, so that a new one is recorded too.
TEST(Peer, EveryOpWasRecorded) {
  std::set<std::string> seen;
  for (const PeerGraph& peer : read_graphs(recorded_folder() / "ops.txt"))
    seen.insert(peer.name.substr(0, peer.name.find('/')));
  for (const OpDef* op : all_ops()) {
    bool has_result = false;
    for (const OpCase& c : op->cases) has_result |= c.error.empty();
    const bool is_of_passes =
        op->name.starts_with("conv2d_pool") || op->name == "conv2d_add" ||  // nobody else makes them
        op->name == "store_as" || op->name == "matmul_wide" || op->name == "conv2d_grad_weight_wide";
    if (!has_result || !is_ours(*op) || is_of_passes) continue;
    EXPECT_TRUE(seen.contains(op->name)) << op->name << ": run tests/reference/peer/record.sh";
  }
}

}  // namespace
}  // namespace paoding::testing_program
