// SPDX-License-Identifier: Apache-2.0
#include "data/description_index.h"

#include <algorithm>
#include <cstddef>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "base/check.h"
#include "data/whole_file.h"
#include "paoding/cancellation.h"
#include "text/lexer.h"

namespace paoding::data {
namespace {

constexpr std::size_t kMostWords = 100;  // of a pair's longer side: more is a list that was not told apart

bool is_ascii_digit(char c) { return c >= '0' && c <= '9'; }
bool is_small_letter(char c) { return c >= 'a' && c <= 'z'; }
bool is_letter(char c) {
  // Every byte of a character outside ASCII counts: most are letters.
  return is_small_letter(c) || (c >= 'A' && c <= 'Z') || static_cast<unsigned char>(c) >= 0x80;
}
bool is_space_or_tab(char c) { return c == ' ' || c == '\t'; }

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && is_space_or_tab(text.front())) text.remove_prefix(1);
  while (!text.empty() && is_space_or_tab(text.back())) text.remove_suffix(1);
  return text;
}

/// Appends the words of `line`, one blank between them.
void add_words(std::string& text, std::string_view line) {
  bool is_apart = !text.empty();
  for (const char c : trimmed(line)) {
    if (is_space_or_tab(c)) {
      is_apart = true;
      continue;
    }
    if (is_apart) text += ' ';
    is_apart = false;
    text += c;
  }
}

/// Bytes of the mark that begins an item of a list, with the blanks after it: "* ", "- ", "2) "; 0 when there is none.
std::size_t list_mark_bytes(std::string_view text) {
  std::size_t size = 0;
  if (text.starts_with("\u2022")) {
    size = 3;
  } else if (!text.empty() && std::string_view("*-+o").find(text[0]) != std::string_view::npos) {
    size = 1;
  } else {
    while (size < text.size() && size < 2 && is_ascii_digit(text[size])) ++size;
    if (size == 0 || size == text.size() || (text[size] != '.' && text[size] != ')')) return 0;
    ++size;
  }
  const std::size_t mark = size;
  while (size < text.size() && is_space_or_tab(text[size])) ++size;
  return size > mark && size < text.size() ? size : 0;
}

std::size_t words_in(std::string_view text) {
  return text.empty() ? 0 : 1 + static_cast<std::size_t>(std::count(text.begin(), text.end(), ' '));
}

/// Nonsense is left out: nothing to say, too much, or so much more on one side that it is no translation.
bool is_pair(const SentencePair& pair) {
  const auto [shorter, longer] = std::minmax({pair.source.size(), pair.target.size()});
  return pair.source != pair.target && std::any_of(pair.source.begin(), pair.source.end(), is_letter) &&
         std::any_of(pair.target.begin(), pair.target.end(), is_letter) && words_in(pair.source) <= kMostWords &&
         words_in(pair.target) <= kMostWords && longer <= 3 * shorter + 20;
}

class Pairs {
 public:
  void add(std::string source, std::string target) {
    SentencePair pair{std::move(source), std::move(target)};
    if (is_pair(pair) && known_.insert(pair.source + '\n' + pair.target).second) pairs_.push_back(std::move(pair));
  }
  std::vector<SentencePair> take() { return std::move(pairs_); }

 private:
  std::vector<SentencePair> pairs_;
  std::unordered_set<std::string> known_;
};

/// Sentence by sentence where both have as many, else as they are.
void add_paragraph(Pairs& pairs, const std::string& source, const std::string& target) {
  std::vector<std::string> from = sentences_of(source), to = sentences_of(target);
  if (from.size() != to.size()) {
    pairs.add(source, target);
    return;
  }
  for (std::size_t i = 0; i < from.size(); ++i) pairs.add(std::move(from[i]), std::move(to[i]));
}

std::string key_of(const Description& description) {
  return std::string(description.package) + '\n' + std::string(description.md5);
}

void check_is_plain(std::string_view text, std::string_view name) {
  for (const std::string_view begin : {"\xfd"
                                       "7zXZ",
                                       "\x04\x22\x4d\x18", "\x28\xb5\x2f\xfd", "BZh"}) {
    if (text.starts_with(begin)) {
      fail(ErrorKind::file, "{}: is packed; unpack it with: /usr/lib/apt/apt-helper cat-file FILE > NEW", name);
    }
  }
}

}  // namespace

std::vector<Description> parse_descriptions(std::string_view text, std::string_view name) {
  check_is_plain(text, name);
  check_utf8(text, name);
  std::vector<Description> result;
  Description now;
  bool has_brief = false;  // so that the lines that follow are of the description, not of another field
  bool is_in_description = false;
  std::size_t line_number = 0, begin = 1;
  const auto end_paragraph = [&] {
    if (now.package.empty() && now.md5.empty() && !has_brief) return;
    if (now.package.empty() || now.md5.empty() || !has_brief) {
      fail(ErrorKind::file, "{}:{}: a description without {}, this is no Translation index of Debian's", name, begin,
           now.package.empty() ? "Package"
           : now.md5.empty()   ? "Description-md5"
                               : "Description-<language>");
    }
    result.push_back(std::exchange(now, {}));
    has_brief = false;
  };
  while (!text.empty()) {
    const std::string_view line = take_line(text);
    ++line_number;
    if (line.empty()) {
      end_paragraph();
      is_in_description = false;
      begin = line_number + 1;
    } else if (line.front() == ' ') {
      if (is_in_description) now.lines.push_back(line.substr(1));
    } else {
      const std::size_t colon = line.find(':');
      if (colon == std::string_view::npos || colon == 0) {
        fail(ErrorKind::file, "{}:{}: no field \"Name: value\" but {}, this is no Translation index of Debian's", name,
             line_number, quote(shortened(line)));
      }
      const std::string_view field = line.substr(0, colon), value = trimmed(line.substr(colon + 1));
      is_in_description = field.starts_with("Description-") && field != "Description-md5";
      if (field == "Package") now.package = value;
      if (field == "Description-md5") now.md5 = value;
      if (is_in_description) now.brief = value, now.lines.clear(), has_brief = true;
    }
  }
  end_paragraph();
  if (result.empty()) fail(ErrorKind::file, "{}: there is no description in it", name);
  return result;
}

std::vector<std::string> paragraphs_of(const Description& description) {
  std::vector<std::string> result;
  bool is_open = false;    // the last paragraph goes on
  bool is_item = false;    // it is an item of a list,
  bool is_inside = false;  // which is set in
  for (const std::string_view line : description.lines) {
    const std::string_view text = trimmed(line);
    if (text.empty() || text == ".") {
      is_open = false;
      continue;
    }
    const bool is_set_in = is_space_or_tab(line.front());
    const std::size_t mark = list_mark_bytes(text);
    if (mark > 0) {
      is_open = false;
    } else if (is_set_in != is_inside && !(is_item && is_set_in)) {
      is_open = false;  // from text to lines that stand as they are, or back
    } else if (is_set_in && !is_item) {
      is_open = false;  // such lines are not joined
    }
    if (!is_open) {
      result.emplace_back();
      is_item = mark > 0;
      is_inside = is_set_in;
      is_open = true;
    }
    add_words(result.back(), text.substr(mark));
  }
  return result;
}

std::vector<std::string> sentences_of(std::string_view paragraph) {
  std::vector<std::string> result;
  while (!paragraph.empty()) {
    std::size_t end = 0;
    for (; end < paragraph.size(); ++end) {
      const char c = paragraph[end];
      const bool is_end = (c == '.' || c == '!' || c == '?') && end + 2 < paragraph.size() &&
                          paragraph[end + 1] == ' ' && !is_small_letter(paragraph[end + 2]);
      if (is_end) break;
    }
    end = std::min(end + 1, paragraph.size());
    result.emplace_back(paragraph.substr(0, end));
    paragraph = trimmed(paragraph.substr(end));
  }
  return result;
}

std::vector<SentencePair> pairs_of(const std::vector<Description>& source, const std::vector<Description>& target) {
  std::unordered_map<std::string, const Description*> translated;
  for (const Description& description : target) translated.emplace(key_of(description), &description);
  Pairs pairs;
  for (const Description& description : source) {
    CancelScope::poll();
    const auto at = translated.find(key_of(description));
    if (at == translated.end()) continue;
    const auto brief = [](const Description& of) {
      std::string text;
      add_words(text, of.brief);
      return text;
    };
    pairs.add(brief(description), brief(*at->second));
    const std::vector<std::string> from = paragraphs_of(description), to = paragraphs_of(*at->second);
    if (from.size() != to.size()) continue;  // which belongs to which is not known
    for (std::size_t i = 0; i < from.size(); ++i) add_paragraph(pairs, from[i], to[i]);
  }
  return pairs.take();
}

std::vector<SentencePair> read_translations(const TranslationFiles& files) {
  const auto text_of = [](const std::filesystem::path& path) { return gunzipped(read_whole(path), path.string()); };
  const std::string source = text_of(files.source), target = text_of(files.target);
  std::vector<SentencePair> pairs =
      pairs_of(parse_descriptions(source, files.source.string()), parse_descriptions(target, files.target.string()));
  if (pairs.empty()) {
    fail(ErrorKind::file, "{}: no description is translated in {}", files.source.string(), files.target.string());
  }
  return pairs;
}

}  // namespace paoding::data
