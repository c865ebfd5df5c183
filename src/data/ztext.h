// SPDX-License-Identifier: Apache-2.0
// SWORD's zText modules (CrossWire Bible Society): each testament is three files. .bzs: 12 bytes per block: where in
// .bzz its zlib stream begins, that stream's bytes, the bytes it unpacks to. .bzv: 10 bytes per entry: block, where in
// the unpacked block it begins (32 bits each), its bytes (16 bits). All little-endian. Entries: one of the module, one
// of the testament, then every book: one of its own, and every chapter: one of its own, then its verses.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace paoding::data {

/// The bytes of the three files.
struct ZTextTestament {
  std::string_view blocks, verses, text;  // .bzs, .bzv, .bzz
};

/// The verses of a testament in OSIS markup: entries that open no book and no chapter. Error (file) with `name` in it
/// when the files do not fit together.
std::vector<std::string> ztext_verses(const ZTextTestament& testament, std::string_view name);

/// The text of an OSIS element: without markup, notes and headings (those of psalms are part of the text and stay),
/// blanks joined. Error (file) with `name` in it where the markup is broken.
std::string without_markup(std::string_view osis, std::string_view name);

}  // namespace paoding::data
