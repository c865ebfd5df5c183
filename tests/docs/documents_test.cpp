// SPDX-License-Identifier: Apache-2.0
// README.md, CONTRIBUTING.md and docs/ tell people to type only things that exist: commands and their options, graph
// text, make targets, files, links, counts; and tools/check_docs.py, which compares their numbers with results, finds
// wrong ones.
#include <map>
#include <regex>
#include <set>

#include "paoding/graph.h"
#include "paoding/graph_text.h"
#include "paoding/op.h"
#include "tests/cli/cli_run.h"
#include "tests/support/source_root.h"

namespace paoding::cli_run {
namespace {

std::vector<fs::path> documents() {
  std::vector<fs::path> paths{source_root() / "README.md", source_root() / "CONTRIBUTING.md"};
  for (const auto& entry : fs::recursive_directory_iterator(source_root() / "docs")) {
    if (entry.path().extension() == ".md") paths.push_back(entry.path());
  }
  return paths;
}

std::vector<std::string> matches(const std::string& text, const std::string& pattern) {
  const std::regex expression(pattern);
  std::vector<std::string> found;
  for (std::sregex_iterator it(text.begin(), text.end(), expression), end; it != end; ++it) found.push_back((*it)[1]);
  return found;
}

struct Document {
  std::string name;
  std::vector<std::string> blocks;  // between ``` and ```
  std::vector<std::string> spans;   // between ` and `
  std::string plain;                // text in no block
};

Document read(const fs::path& path) {
  Document document{path.filename(), {}, {}, {}};
  std::istringstream lines(read_file(path));
  std::string block;
  bool is_block = false;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("```")) {
      if (is_block) document.blocks.push_back(std::move(block));
      block.clear();
      is_block = !is_block;
    } else {
      (is_block ? block : document.plain) += line + "\n";
    }
  }
  EXPECT_FALSE(is_block) << path;
  document.spans = matches(document.plain, "`([^`]+)`");
  return document;
}

// Commands of `paoding`: of blocks line by line, after a pipe too, without remarks; of spans whole.
std::vector<std::string> commands_of(const Document& document) {
  std::vector<std::string> commands;
  const auto add = [&](const std::string& text) {
    for (const std::string& command :
         matches(text, "(?:^|\\| |\\$ |; )(?:build/|build/bundle/)?paoding ([a-z][^|#]*)")) {
      commands.push_back(command);
    }
  };
  for (const std::string& block : document.blocks) {
    if (block.starts_with("paoding graph")) continue;
    std::istringstream lines(block);
    for (std::string line; std::getline(lines, line);) add(line);
  }
  for (const std::string& span : document.spans) add(span);
  return commands;
}

class Documents : public Cli {
 protected:
  // The text of `paoding ... --help`, for the longest beginning of the words that is a command.
  std::string help_of(const std::vector<std::string>& words) {
    std::string command = words[0];
    const std::string& outer = help(command);
    // A command that `paoding profile` runs has options of its own.
    const auto inner =
        command == "profile" ? std::ranges::find_if(words.begin() + 1, words.end(), is_command) : words.end();
    if (inner != words.end()) return outer + help_of({inner, words.end()});
    const bool is_word = words.size() > 1 && !words[1].starts_with("-");
    if (is_word && has(outer, "\n  " + words[1] + " ")) command += " " + words[1];
    return help(command);
  }

 private:
  const std::string& help(const std::string& command) {
    const auto [it, is_new] = helps_.try_emplace(command);
    if (is_new) {
      const Ran ran = run(command + " --help");
      EXPECT_EQ(ran.code, 0) << command << "\n" << ran.err;
      it->second = ran.out;
    }
    return it->second;
  }
  static bool is_command(const std::string& word) {
    return word == "run" || word == "train" || word == "bench" || word == "predict";
  }
  std::map<std::string, std::string> helps_;
};

TEST_F(Documents, NameCommandsAndOptionsThatThereAre) {
  int options = 0;
  for (const fs::path& path : documents()) {
    for (const std::string& command : commands_of(read(path))) {
      SCOPED_TRACE(path.filename().string() + ": paoding " + command);
      std::istringstream stream(command);
      std::vector<std::string> words;
      for (std::string word; stream >> word;) words.push_back(word);
      const std::string help = help_of(words);
      for (const std::string& word : words) {
        if (!word.starts_with("--")) continue;
        ++options;
        const std::string option = word.substr(0, word.find('='));
        EXPECT_TRUE(std::regex_search(help, std::regex(option + "[ ,\n=]"))) << option;
      }
    }
  }
  EXPECT_GT(options, 30);
}

TEST_F(Documents, HaveGraphTextThatParses) {
  int graphs = 0;
  for (const fs::path& path : documents()) {
    for (const std::string& block : read(path).blocks) {
      if (!block.starts_with("paoding graph")) continue;
      ++graphs;
      const auto read_at_smallest = [&] {
        const GraphText text(block);
        text.at(text.extents().smallest());
      };
      EXPECT_NO_THROW(read_at_smallest()) << path << "\n" << block;
    }
  }
  EXPECT_GE(graphs, 2);
}

TEST_F(Documents, NameTargetsFilesAndLinksThatThereAre) {
  const std::string makefile = read_file(source_root() / "Makefile");
  int files = 0;
  for (const fs::path& path : documents()) {
    const Document document = read(path);
    std::vector<std::string> code = document.spans;
    code.insert(code.end(), document.blocks.begin(), document.blocks.end());
    for (const std::string& text : code) {
      for (const std::string& target : matches(text, "(?:^|\n|; )make ([a-z]+[a-z-]*)(?=\\s|$)")) {
        EXPECT_TRUE(has(makefile, "\n" + target + ":")) << document.name << ": make " << target;
      }
    }
    for (const std::string& span : document.spans) {
      // Without those that stand for any: x.cpp.
      const std::regex is_path("(src|tools|tests|include|examples|docs|models|cli|benchmarks)/[\\w/.]*");
      if (!std::regex_match(span, is_path) || has(span, "/x.")) continue;
      ++files;
      EXPECT_TRUE(fs::exists(source_root() / span)) << document.name << ": " << span;
    }
    for (const std::string& link : matches(document.plain, "\\]\\(([^)#:]+)(?:#[^)]*)?\\)")) {
      EXPECT_TRUE(fs::exists(path.parent_path() / link)) << document.name << ": " << link;
    }
  }
  EXPECT_GT(files, 30);
}

TEST_F(Documents, ReferToEveryPublicHeader) {
  const std::string reference = read_file(source_root() / "docs/reference/api.md");
  for (const auto& entry : fs::recursive_directory_iterator(source_root() / "include")) {
    if (entry.path().extension() != ".h") continue;
    const std::string header = fs::relative(entry.path(), source_root()).string();
    EXPECT_TRUE(has(reference, "](../../" + header + ")")) << header;
  }
}

TEST_F(Documents, CountTheOpsThatThereAre) {
  std::size_t count = 0;
  for (const OpDef* op : all_ops()) {  // other tests register some
    count += !op->name.starts_with("test_") && !op->name.starts_with("my_");
  }
  EXPECT_GT(count, 150u);
  for (const fs::path& path : documents()) {
    for (const std::string& number : matches(read_file(path), "(\\d+) ops\\b")) {
      if (path.filename() == "profiling.md" || path.filename() == "cli.md") continue;  // of a group
      EXPECT_EQ(number, std::to_string(count)) << path;
    }
  }
}

TEST_F(Documents, AreAsShortAsTheyPromise) {
  const auto lines = [](const char* name) {
    const std::string text = read_file(source_root() / name);
    return std::count(text.begin(), text.end(), '\n');
  };
  EXPECT_LE(lines("README.md"), 130);
  EXPECT_LE(lines("docs/roadmap.md"), 50);
}

// A page beside the repository's, for tools/check_docs.py, and the messages about it.
class DocumentNumbers : public Cli {
 protected:
  Ran check(const std::string& page) {
    if (std::system("command -v python3 >/dev/null") != 0) return {-1, "", ""};
    write("page.md", page);
    return shell("python3 " + (source_root() / "tools/check_docs.py").string() + " " + path("page.md"));
  }
};

TEST_F(DocumentNumbers, ThatTheCitedResultHasAreFound) {
  const std::string cited = " (`lerp/3`, [h200.json](benchmarks/results/h200.json)).\n";
  for (const char* right : {"It takes 6.71 us", "It takes 6.7 us, the other 6.58 us"}) {
    const Ran ran = check(right + cited);
    if (ran.code == -1) GTEST_SKIP() << "NOT CHECKED: there is no python3";
    EXPECT_EQ(ran.code, 0) << right << "\n" << ran.out << ran.err;
  }
  const Ran computed = check("It is 2% behind <!-- computed: 6.71 / 6.58 - 1 = 2% -->" + cited);
  EXPECT_EQ(computed.code, 0) << computed.out << computed.err;
  EXPECT_EQ(check("A limit of 2 GB. <!-- not measured: a limit that the code sets -->\n").code, 0);
}

TEST_F(DocumentNumbers, ThatNoResultHasAreErrors) {
  const std::string cited = " (`lerp/3`, [h200.json](benchmarks/results/h200.json)).\n";
  const std::map<std::string, std::string> wrong{
      {"It takes 5.71 us" + cited, "5.71 us"},
      {"It takes 6.71 us.\n", "no result is cited"},
      {"It takes 6.71 us (`lerp/99`, [h200.json](benchmarks/results/h200.json)).\n", "lerp/99"},
      {"It takes 6.71 us ([h200.json](benchmarks/results/h200.json)).\n", "name the case"},
      {"It takes 6.71 us (`lerp/3`, [nothing](benchmarks/results/nothing.json)).\n", "nothing.json"},
      {"It is 30% behind <!-- computed: 6.71 / 6.58 - 1 = 30% -->" + cited, "computed"},
      {"It is 2% behind <!-- computed: 5.71 / 5.6 - 1 = 2% -->" + cited, "5.71"},
      {"| case | us |\n|---|---|\n| `lerp/3` | **5.71** |\n\n", "5.71"},
      {"See [this](nowhere.md).\n", "nowhere.md"}};
  for (const auto& [page, part] : wrong) {
    const Ran ran = check(page);
    if (ran.code == -1) GTEST_SKIP() << "NOT CHECKED: there is no python3";
    EXPECT_EQ(ran.code, 1) << page;
    EXPECT_TRUE(has(ran.out, part)) << page << ran.out << ran.err;
  }
}

}  // namespace
}  // namespace paoding::cli_run
