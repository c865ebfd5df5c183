// SPDX-License-Identifier: Apache-2.0
#include "data/ztext.h"

#include <cstdint>
#include <optional>

#include "base/check.h"
#include "data/whole_file.h"
#include "paoding/cancellation.h"
#include "text/lexer.h"

namespace paoding::data {
namespace {

constexpr std::size_t kBlockBytes = 12, kEntryBytes = 10;
constexpr std::size_t kFirstBook = 2;               // entries 0 and 1 are the module's and the testament's
constexpr std::uint64_t kMostTextBytes = 64 << 20;  // of a testament, unpacked: many times the size of any

std::uint64_t word_at(std::string_view bytes, std::size_t at, std::size_t count) {
  std::uint64_t word = 0;
  for (std::size_t i = 0; i < count; ++i) {
    word |= std::uint64_t{static_cast<unsigned char>(bytes[at + i])} << (8 * i);
  }
  return word;
}

/// All blocks, unpacked.
std::vector<std::string> unpacked_blocks(const ZTextTestament& testament, std::string_view name) {
  std::vector<std::string> blocks;
  std::uint64_t total = 0;
  for (std::size_t at = 0; at < testament.blocks.size(); at += kBlockBytes) {
    CancelScope::poll();
    const std::uint64_t begin = word_at(testament.blocks, at, 4);
    const std::uint64_t packed = word_at(testament.blocks, at + 4, 4);
    const std::uint64_t size = word_at(testament.blocks, at + 8, 4);
    const std::string block_name = fmt::format("{}: block {}", name, blocks.size());
    if (begin > testament.text.size() || packed > testament.text.size() - begin) {
      fail(ErrorKind::file, "{} ends at byte {}, the file .bzz has {}: get the module again", block_name,
           begin + packed, testament.text.size());
    }
    total += size;
    if (total > kMostTextBytes) fail(ErrorKind::file, "{}: unpacks to more than {} bytes", name, kMostTextBytes);
    const bool is_empty = packed == 0 && size == 0;
    blocks.push_back(is_empty ? "" : inflated(testament.text.substr(begin, packed), block_name, size));
  }
  return blocks;
}

/// A tag of OSIS: <name a="b">, </name> or <name/>.
struct Tag {
  std::string_view name, attributes;
  bool is_end = false, is_empty = false;
};

bool is_name_byte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == ':';
}
bool is_xml_space(char c) { return c == ' ' || c == '\t' || c == '\n' || c == '\r'; }

/// Takes the tag that `text` begins with, which is at '<'.
Tag take_tag(std::string_view& text, std::string_view name) {
  std::size_t end = 1;
  char quote_mark = 0;  // within a value '>' is text
  for (; end < text.size() && (quote_mark != 0 || text[end] != '>'); ++end) {
    const char c = text[end];
    if (quote_mark != 0) {
      if (c == quote_mark) quote_mark = 0;
    } else if (c == '"' || c == '\'') {
      quote_mark = c;
    }
  }
  if (end == text.size()) fail(ErrorKind::file, "{}: a tag has no end: {}", name, quote(shortened(text)));
  std::string_view inside = text.substr(1, end - 1);
  text.remove_prefix(end + 1);
  Tag tag;
  if (inside.starts_with('/')) tag.is_end = true, inside.remove_prefix(1);
  if (inside.ends_with('/')) tag.is_empty = true, inside.remove_suffix(1);
  std::size_t size = 0;
  while (size < inside.size() && is_name_byte(inside[size])) ++size;
  tag.name = inside.substr(0, size);
  tag.attributes = inside.substr(size);
  if (size == 0) fail(ErrorKind::file, "{}: a tag has no name: {}", name, quote(shortened(inside)));
  return tag;
}

/// The value of an attribute; nothing when there is none.
std::optional<std::string_view> attribute(const Tag& tag, std::string_view wanted) {
  std::string_view rest = tag.attributes;
  while (true) {
    while (!rest.empty() && is_xml_space(rest.front())) rest.remove_prefix(1);
    const std::size_t equals = rest.find('=');
    if (equals == std::string_view::npos || equals + 1 >= rest.size()) return std::nullopt;
    const char mark = rest[equals + 1];
    const std::size_t end = mark == '"' || mark == '\'' ? rest.find(mark, equals + 2) : std::string_view::npos;
    if (end == std::string_view::npos) return std::nullopt;
    if (rest.substr(0, equals) == wanted) return rest.substr(equals + 2, end - equals - 2);
    rest.remove_prefix(end + 1);
  }
}

/// An entry that opens a book or a chapter is not a verse.
bool opens_a_part(std::string_view osis, std::string_view name) {
  while (true) {
    const std::size_t at = osis.find('<');
    if (at == std::string_view::npos) return false;
    osis.remove_prefix(at);
    const Tag tag = take_tag(osis, name);
    const bool is_part = tag.name == "chapter" || (tag.name == "div" && attribute(tag, "type") == "book");
    if (is_part && !tag.is_end && (attribute(tag, "sID") || !attribute(tag, "eID"))) return true;
  }
}

/// Text with blanks joined, none first or last.
class Words {
 public:
  void add(std::string_view text) {
    for (const char c : text) {
      if (is_xml_space(c)) {
        add_blank();
      } else {
        if (is_apart_ && !text_.empty()) text_ += ' ';
        is_apart_ = false;
        text_ += c;
      }
    }
  }
  void add_blank() { is_apart_ = true; }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
  bool is_apart_ = false;
};

/// Adds the character that an entity stands for: "&amp;", "&#8217;".
void add_entity(std::string_view& text, std::string_view name, Words& words) {
  const std::size_t end = text.find(';');
  const std::string_view entity = text.substr(1, end == std::string_view::npos ? 0 : end - 1);
  constexpr std::pair<std::string_view, const char*> kEntities[] = {
      {"amp", "&"}, {"lt", "<"}, {"gt", ">"}, {"quot", "\""}, {"apos", "'"}};
  for (const auto& [known, character] : kEntities) {
    if (entity != known) continue;
    words.add(character);
    text.remove_prefix(end + 1);
    return;
  }
  fail(ErrorKind::file, "{}: an entity that is not known: {}", name, quote(shortened(text)));
}

/// Bytes of a mark that is no text: a pilcrow, or USFM markup that an importer left ("\nd ", "\+nd*").
std::size_t usfm_mark_bytes(std::string_view text) {
  if (text.starts_with("\u00b6")) return 2;
  if (!text.starts_with('\\')) return 0;
  std::size_t size = 1;
  if (size < text.size() && text[size] == '+') ++size;
  while (size < text.size() && is_name_byte(text[size])) ++size;
  if (size < text.size() && (text[size] == '*' || text[size] == ' ')) ++size;
  return size;
}

/// Elements that hold no words of the text, and those that end a word.
bool is_left_out(const Tag& tag) {
  return tag.name == "note" || (tag.name == "title" && attribute(tag, "canonical") != "true");
}
bool is_apart(std::string_view name) {
  for (const std::string_view apart : {"lb", "l", "lg", "div", "p", "chapter", "milestone", "title"}) {
    if (name == apart) return true;
  }
  return false;
}

/// Takes everything up to the end of the element `opened`, which may hold others of its name.
void skip_element(std::string_view& text, const Tag& opened, std::string_view name) {
  for (int depth = 1; depth > 0;) {
    const std::size_t at = text.find('<');
    if (at == std::string_view::npos) fail(ErrorKind::file, "{}: a <{}> has no end", name, opened.name);
    text.remove_prefix(at);
    const Tag tag = take_tag(text, name);
    if (tag.name == opened.name && !tag.is_empty) depth += tag.is_end ? -1 : 1;
  }
}

}  // namespace

std::vector<std::string> ztext_verses(const ZTextTestament& testament, std::string_view name) {
  if (testament.blocks.size() % kBlockBytes != 0 || testament.verses.size() % kEntryBytes != 0) {
    fail(ErrorKind::file,
         "{}: .bzs has {} bytes and .bzv has {}, they must be multiples of {} and {}: get the module again", name,
         testament.blocks.size(), testament.verses.size(), kBlockBytes, kEntryBytes);
  }
  const std::vector<std::string> blocks = unpacked_blocks(testament, name);
  std::vector<std::string> verses;
  std::uint64_t total = 0;
  for (std::size_t i = kFirstBook; i < testament.verses.size() / kEntryBytes; ++i) {
    const std::size_t at = i * kEntryBytes;
    const std::uint64_t block = word_at(testament.verses, at, 4);
    const std::uint64_t begin = word_at(testament.verses, at + 4, 4);
    const std::uint64_t size = word_at(testament.verses, at + 8, 2);
    if (size == 0) continue;  // not in this edition
    if (block >= blocks.size() || begin > blocks[block].size() || size > blocks[block].size() - begin) {
      fail(ErrorKind::file, "{}: entry {} is bytes {} .. {} of block {}, which is not there: get the module again",
           name, i, begin, begin + size, block);
    }
    total += size;
    if (total > kMostTextBytes) fail(ErrorKind::file, "{}: verses of more than {} bytes", name, kMostTextBytes);
    const std::string_view osis = std::string_view(blocks[block]).substr(begin, size);
    if (!opens_a_part(osis, name)) verses.emplace_back(osis);
  }
  return verses;
}

std::string without_markup(std::string_view osis, std::string_view name) {
  Words words;
  while (!osis.empty()) {
    if (osis.front() == '<') {
      const Tag tag = take_tag(osis, name);
      if (is_apart(tag.name)) words.add_blank();
      if (is_left_out(tag) && !tag.is_end && !tag.is_empty) skip_element(osis, tag, name);
    } else if (osis.front() == '&') {
      add_entity(osis, name, words);
    } else if (const std::size_t size = usfm_mark_bytes(osis); size > 0) {
      osis.remove_prefix(size);
    } else {
      words.add(osis.substr(0, 1));
      osis.remove_prefix(1);
    }
  }
  return words.take();
}

}  // namespace paoding::data
