// SPDX-License-Identifier: Apache-2.0
// Model files whose checksum is right and whose parts are not each other's: refused before anything is answered, by
// `paoding serve`, `paoding predict` and the library alike. And models that do not end.
#include <chrono>
#include <limits>
#include <set>
#include <thread>

#include "models/served.h"
#include "paoding/error.h"
#include "paoding/graph.h"
#include "paoding/model.h"
#include "paoding/ops.h"
#include "tests/cli/serving_run.h"

namespace paoding {
namespace {

using namespace std::chrono_literals;

std::string error_of(const auto& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

class ServeModelFiles : public ServingWords {
 protected:
  void SetUp() override {
    ServingWords::SetUp();
    good_ = load_model_file(folder_ / "g2p.pd");
  }
  // Expects that every command refuses the changed file with these words; `library`: Model::load does, too.
  void refused(const std::string& what, const ModelFile& file, const char* words, bool library = true) const {
    SCOPED_TRACE(what);
    save_model(folder_ / "bad.pd", file);
    const std::string serve = "timeout 60 " + program_.string() + " serve bad.pd --port 0";
    for (const std::string& command : {serve, std::string("echo bada | paoding predict bad.pd")}) {
      const Ran ran = shell(command);
      EXPECT_EQ(ran.code, 1) << command << ran.out;
      EXPECT_EQ(ran.out, "") << command;
      EXPECT_TRUE(has(ran.err, "bad.pd: ") && has(ran.err, words)) << command << ran.err;
    }
    EXPECT_EQ(has(error_of([&] { Model::load(folder_ / "bad.pd"); }), words), library);
    EXPECT_TRUE(has(error_of([&] { models::Served(folder_ / "bad.pd", {}); }), words));
  }
  static std::string rotated(const std::string& text, std::size_t first) {
    std::vector<std::string> lines = lines_of(text);
    std::rotate(lines.begin() + static_cast<std::ptrdiff_t>(first),
                lines.begin() + static_cast<std::ptrdiff_t>(first) + 1, lines.end());
    std::string made;
    for (const std::string& line : lines) made += line + "\n";
    return made;
  }
  ModelFile good_;
};

TEST_F(ServeModelFiles, VocabulariesThatAreNotTheWeightsAreRefused) {
  for (const char* name : {"letters.txt", "phonemes.txt"}) {
    const std::string& text = good_.files.at(name);
    ModelFile file = good_;
    file.files[name] = text.substr(0, text.rfind('\n', text.size() - 2) + 1);
    refused(std::string("fewer ") + name, file, "is not the one that its weights were trained with");
    file.files[name] = text + "zz\n";
    refused(std::string("more ") + name, file, "is not the one that its weights were trained with");
    file.files[name] = rotated(text, 2);
    refused(std::string("rotated ") + name, file, "is not the one that its weights were trained with");
    // A file of before there were seals, or whose seals were made anew: the parameters know how many there are.
    file.files[name] = text + "zz\n";
    seal_files(&file);
    refused(std::string("sealed ") + name, file, "by its name, and the file's options and vocabulary", false);
  }
  ModelFile file = good_;
  std::erase_if(file.options, [](const auto& option) { return option.first.starts_with("crc32:"); });
  save_model(folder_ / "older.pd", file);
  EXPECT_EQ(shell("echo bada | paoding predict older.pd").out, "B A D A\n") << "a file of before there were seals";
}

TEST_F(ServeModelFiles, GraphsAndWeightsThatAreNotWhatTheyArCalledAreRefused) {
  ModelFile file = good_;
  std::swap(file.graphs.at("search[4,1,1]"), file.graphs.at("search[5,1,1]"));
  refused("swapped", file, "which is none of its name's numbers");
  file = good_;
  const auto changed = [&](const std::string& from, const std::string& to) {
    ModelFile other = good_;
    std::string& text = other.graphs.at("search[5,8,1]");
    const std::size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << text.substr(0, 500);
    for (std::size_t i = 0; (i = text.find(from, i)) != std::string::npos; i += to.size())
      text.replace(i, from.size(), to);
    return other;
  };
  refused("renamed", changed("lengths", "sizes"), "'search[5,8,1]' has the inputs source i64[5,8], sizes i64[8]; ",
          false);
  refused("results", changed("fetch totals", "fetch sums"), "'search[5,8,1]' has the results", false);
  file.graphs.erase("search[36,64,1]");
  refused("one less", file, "there is no graph 'search[36,64,1]'", false);
  file = good_;
  file.options["hidden"] = "25";
  refused("options", file, "by its name, and the file's options and vocabulary", false);
  file = good_;
  file.options["beam"] = "1000000000000000";
  refused("beam", file, "bad.pd: ", false);
  for (const float wrong : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    file = good_;
    Tensor& tensor = file.parameters.begin()->second;
    tensor = Tensor::from(f32, tensor.shape(), tensor.to_doubles());
    tensor.data<float>()[1] = wrong;
    refused("weights", file, "has a NaN or an infinity: what such a model says means nothing");
  }
}

// A graph whose results are all right but for one: how the hypotheses go on, or a loop in front of it.
ModelFile with(const ModelFile& file, const std::string& fetch, const std::function<Value(const Value&)>& change) {
  ModelFile other = file;
  for (auto& [name, text] : other.graphs) {
    const std::unique_ptr<Graph> graph = parse_graph(text);
    for (Graph::Fetch& each : graph->mutable_fetches()) {
      if (each.name == fetch) each.ref = change(graph->value(each.ref)).ref();
    }
    text = to_text(*graph);
  }
  return other;
}

TEST_F(ServeModelFiles, ResultsThatCannotBeAreAnErrorOfTheRequest) {
  save_model(folder_ / "far.pd", with(good_, "parents", [](const Value& parents) { return parents + 123456789012; }));
  const Ran ran = shell("echo bada | paoding predict far.pd");
  EXPECT_EQ(ran.code, 1);
  EXPECT_TRUE(has(ran.err, "a hypothesis goes on from hypothesis 123456789012 of 1")) << ran.err;
}

TEST_F(ServeModelFiles, AModelThatDoesNotEndIsCalledOffAndHoldsNoSignal) {
  save_model(folder_ / "endless.pd", with(good_, "totals", [](const Value& totals) {
               return while_loop(
                   {totals}, [](const Values& v) { return less(sum(v[0] * 0.0), 1); },
                   [](const Values& v) { return Values{v[0] + 1.0}; })[0];
             }));
  ServingRun::start("endless.pd", {"--run-seconds", "1", "--executors", "1"});
  const std::string answer = ask("POST", "/predict", "bada");
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 503") && has(answer, "the model ran for more than 1 s and was called off"))
      << answer;
  // The end comes while one runs and others wait.
  std::vector<int> clients;
  for (int i = 0; i < 3; ++i) {
    clients.push_back(connected());
    const std::string request = "POST /predict HTTP/1.1\r\nHost: x\r\nContent-Length: 4\r\n\r\nbada";
    ::send(clients.back(), request.data(), request.size(), MSG_NOSIGNAL);
  }
  while (!has(ask("GET", "/metrics"), "paoding_batches_total 2\n")) std::this_thread::sleep_for(1ms);
  EXPECT_EQ(end(), 0);
  for (const int fd : clients) {
    const std::string last = all_of(fd);
    EXPECT_TRUE(last.starts_with("HTTP/1.1 503") && has(last, "\r\nConnection: close\r\n") &&
                has(last, "the server ends"))
        << last;
  }
  const Ran ran = shell("echo bada | timeout --preserve-status -s INT 1 " + program_.string() + " predict endless.pd");
  EXPECT_EQ(ran.code, 130) << ran.err;
}

}  // namespace
}  // namespace paoding
