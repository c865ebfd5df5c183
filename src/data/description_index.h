// SPDX-License-Identifier: Apache-2.0
// Debian's Translation indexes: paragraphs of fields, an empty line between them. Package, Description-md5 (of the
// English description, the key in every language), and Description-<language>: a short description, then lines of the
// long one, each after a blank. " ." is an empty line; a line after two blanks stands as it is: lists, mostly.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "paoding/data/corpora.h"

namespace paoding::data {

/// A package's description. Views are into the text that was parsed.
struct Description {
  std::string_view package, md5, brief;
  std::vector<std::string_view> lines;  // of the long one, without the blank that begins each
};

/// The descriptions of an index, in its order. Error (file) with `name` and the line when it is none.
std::vector<Description> parse_descriptions(std::string_view text, std::string_view name);

/// A long description as the pieces of text that a translation keeps in order: paragraphs and items of lists (without
/// their marks), lines joined.
std::vector<std::string> paragraphs_of(const Description& description);

/// The sentences of a paragraph: each ends at '.', '!' or '?' where a blank follows and then no small letter.
std::vector<std::string> sentences_of(std::string_view paragraph);

/// The pairs that read_translations returns for two indexes.
std::vector<SentencePair> pairs_of(const std::vector<Description>& source, const std::vector<Description>& target);

}  // namespace paoding::data
