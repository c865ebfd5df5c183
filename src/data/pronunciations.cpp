// SPDX-License-Identifier: Apache-2.0
#include "data/pronunciations.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>

#include "base/check.h"
#include "data/whole_file.h"
#include "paoding/cancellation.h"
#include "text/lexer.h"

namespace paoding::data {
namespace {

using Way = std::vector<std::string>;

/// Words in the order in which they first came, each way to say one there once.
class Dictionary {
 public:
  void add(std::string_view word, Way way) {
    const auto [at, is_new] = numbers_.emplace(word, words_.size());
    if (is_new) words_.push_back({std::string(word), {}});
    std::vector<Way>& ways = words_[at->second].ways;
    if (is_known(at->second, ways, way)) return;
    ways.push_back(std::move(way));
  }
  std::vector<Pronunciations> take() { return std::move(words_); }

 private:
  // Words have a few ways; of one that has many they are kept in order.
  bool is_known(std::size_t word, const std::vector<Way>& ways, const Way& way) {
    constexpr std::size_t kFew = 16;
    if (ways.size() < kFew) return std::find(ways.begin(), ways.end(), way) != ways.end();
    std::set<Way>& known = ways_of_[word];
    if (known.empty()) known.insert(ways.begin(), ways.end());
    return !known.insert(way).second;
  }

  std::vector<Pronunciations> words_;
  std::unordered_map<std::string, std::size_t> numbers_;
  std::map<std::size_t, std::set<Way>> ways_of_;  // of words with many
};

template <class... Args>
[[noreturn]] void fail_line(std::string_view name, std::size_t line, fmt::format_string<Args...> format,
                            Args&&... args) {
  fail(ErrorKind::file, "{}:{}: {}", name, line, fmt::format(format, std::forward<Args>(args)...));
}

bool is_whitespace(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r' || c == '\f' || c == '\v'; }
bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }

/// Takes the first run of characters that are not blank; "" at the end.
std::string_view take_field(std::string_view& text) {
  while (!text.empty() && is_whitespace(text.front())) text.remove_prefix(1);
  std::size_t size = 0;
  while (size < text.size() && !is_whitespace(text[size])) ++size;
  const std::string_view field = text.substr(0, size);
  text.remove_prefix(size);
  return field;
}

/// "word(2)", the second way to say it, without its number.
std::string_view without_way_number(std::string_view word) {
  if (!word.ends_with(')')) return word;
  std::size_t at = word.size() - 1;
  while (at > 0 && word[at - 1] >= '0' && word[at - 1] <= '9') --at;
  const bool is_number = at >= 2 && at < word.size() - 1 && word[at - 1] == '(';
  return is_number ? word.substr(0, at - 1) : word;
}

void parse_cmu(std::string_view text, std::string_view name, Dictionary& words) {
  for (std::size_t line_number = 1; !text.empty(); ++line_number) {
    std::string_view line = take_line(text);
    if (line.starts_with(";;;")) continue;
    for (const char c : line) {
      if (is_control(c) && c != '\t') {
        fail_line(name, line_number, "there is a control character, this is no dictionary: {}", quote(shortened(line)));
      }
    }
    const std::string_view whole = line;
    const std::string_view word = without_way_number(take_field(line));
    if (word.empty()) continue;
    Way way;
    for (std::string_view phoneme = take_field(line); !phoneme.empty(); phoneme = take_field(line)) {
      if (phoneme.starts_with('#')) break;  // a remark, as newer editions have them
      way.emplace_back(phoneme);
    }
    if (way.empty()) {
      fail_line(name, line_number, "{} has a word but no phonemes, must be like \"word W ER D\"",
                quote(shortened(whole)));
    }
    words.add(word, std::move(way));
  }
}

/// Festival's entries: ("word" part-of-speech (((phoneme ...) stress) ...)); ";" begins a remark.
class FestivalReader {
 public:
  FestivalReader(std::string_view text, std::string_view name) : text_(text), name_(name) {}

  void read(Dictionary& words) {
    skip_blanks();
    if (at_ < text_.size() && text_[at_] != '(') atom();  // MNCL, which says that the entries are sorted
    for (skip_blanks(); at_ < text_.size(); skip_blanks()) {
      CancelScope::poll();
      entry(words);
    }
  }

 private:
  void entry(Dictionary& words) {
    const std::size_t line = line_;
    expect('(');
    const std::string word = string();
    atom();  // part of speech
    Way way;
    expect('(');
    while (!takes(')')) {
      expect('(');
      expect('(');
      while (!takes(')')) way.push_back(atom());
      atom();  // stress
      expect(')');
    }
    expect(')');
    if (word.empty()) fail_line(name_, line, "the word is empty");
    if (way.empty()) fail_line(name_, line, "the word {} has no phonemes", quote(shortened(word)));
    words.add(word, std::move(way));
  }

  void skip_blanks() {
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == ';') {
        while (at_ < text_.size() && text_[at_] != '\n') ++at_;
        if (at_ == text_.size()) return;
      }
      if (!is_whitespace(text_[at_])) return;
      if (text_[at_] == '\n') ++line_;
    }
  }
  [[noreturn]] void fail_at(const char* wanted) {
    const std::string_view rest = text_.substr(at_, 40);
    fail_line(name_, line_, "{} where {} must be, as in (\"word\" nil (((w er d) 1)))",
              at_ == text_.size() ? "the end of the text" : quote(shortened(rest.substr(0, rest.find('\n')))), wanted);
  }
  bool takes(char mark) {
    skip_blanks();
    if (at_ == text_.size() || text_[at_] != mark) return false;
    ++at_;
    return true;
  }
  void expect(char mark) {
    if (!takes(mark)) fail_at(mark == '(' ? "'('" : "')'");
  }
  std::string atom() {
    skip_blanks();
    const std::size_t begin = at_;
    while (at_ < text_.size() && !is_whitespace(text_[at_]) && !is_control(text_[at_]) &&
           std::string_view("()\";").find(text_[at_]) == std::string_view::npos) {
      ++at_;
    }
    if (at_ == begin) fail_at("a name");
    return std::string(text_.substr(begin, at_ - begin));
  }
  std::string string() {
    if (!takes('"')) fail_at("a word in quotes");
    const std::size_t begin = at_;
    while (at_ < text_.size() && text_[at_] != '"' && text_[at_] != '\n') ++at_;
    if (at_ == text_.size() || text_[at_] != '"') fail_at("a quote to end the word");
    return std::string(text_.substr(begin, at_++ - begin));
  }

  std::string_view text_, name_;
  std::size_t at_ = 0, line_ = 1;
};

/// CMU's words begin with "(" only in names of marks, "(PAREN", never with a quote after it.
bool is_festival(std::string_view text) {
  while (!text.empty()) {
    std::string_view line = take_line(text);
    const std::string_view field = take_field(line);
    if (field.empty() || field.starts_with(';')) continue;
    return field == "MNCL" || field.starts_with("(\"");
  }
  return false;
}

}  // namespace

std::vector<Pronunciations> parse_pronunciations(std::string_view text, std::string_view name) {
  check_utf8(text, name);
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  Dictionary words;
  if (is_festival(text)) {
    FestivalReader(text, name).read(words);
  } else {
    parse_cmu(text, name, words);
  }
  std::vector<Pronunciations> result = words.take();
  if (result.empty()) {
    fail(ErrorKind::file, "{}: there is no word in it, must be a pronouncing dictionary", name);
  }
  return result;
}

std::vector<Pronunciations> read_pronunciations(const std::filesystem::path& path) {
  return parse_pronunciations(read_whole(path), path.string());
}

}  // namespace paoding::data
