// SPDX-License-Identifier: Apache-2.0
// Readers of data that Debian's packages ship: pronunciations, images, translations, a book. Every file is checked;
// nothing in it is trusted. `paoding train` uses them, and `paoding fetch` gets the files.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "paoding/tensor.h"

namespace paoding::data {

/// A file of a data set, looked for in `folder` and, where its package may be installed, in the system's own places.
/// Error (file) when it is nowhere or cannot be read: says where was looked, which Debian package has it, and the
/// command that fetches it.
std::filesystem::path find_pronunciations(const std::filesystem::path& folder);
struct ImageFiles {
  std::filesystem::path train_images, train_labels, test_images, test_labels;
};
ImageFiles find_fashion(const std::filesystem::path& folder);
struct TranslationFiles {
  std::filesystem::path source, target;
};
/// Debian's package descriptions in two languages, "en" and "it" for one.
TranslationFiles find_translations(const std::filesystem::path& folder, std::string_view source,
                                   std::string_view target);
/// The folder that has mods.d/ and modules/.
std::filesystem::path find_kjv(const std::filesystem::path& folder);

/// A word and the ways to say it: of each, the phonemes.
struct Pronunciations {
  std::string word;
  std::vector<std::vector<std::string>> ways;
};
/// A pronouncing dictionary, CMU's text format ("word AH B", another way as "word(2) ..."; ";;;" begins a comment) or
/// Festival's (("word" nil (((b ah) 1)))): which one is seen from the text. Phonemes are as the file
/// writes them, Festival's stress left out. In the order of first appearance, each way to say a word once. Error
/// (file) with the line when it is neither, is not UTF-8, or has no word.
std::vector<Pronunciations> read_pronunciations(const std::filesystem::path& path);

/// Images [N, H, W] of bytes and a label of each [N], bytes too.
struct ImageSet {
  Tensor images, labels;
};
/// A pair of IDX files (LeCun's format for MNIST), gzipped or not. Error (file) when one is truncated, of another kind,
/// or they do not have equally many.
ImageSet read_images(const std::filesystem::path& images, const std::filesystem::path& labels);
/// The images alone [N, H, W]: an IDX file, or one picture as a binary PGM (P5, 8 bits, its largest value made 255;
/// [1, H, W]), gzipped or not; from a pipe too. "-" is standard input. Errors as read_images.
Tensor read_image_file(const std::filesystem::path& path);

struct SentencePair {
  std::string source, target;
};
/// The descriptions that Debian's Translation indexes (plain or gzipped) have in both languages, matched by package and
/// checksum: the short ones, and of the long ones with as many paragraphs and list items on both sides, each of these;
/// sentence by sentence where it has as many on both sides. In the order of the source file, each pair once. Left out:
/// pairs that are equal in both languages, have no letter or more than 100 words, or are three times as long on one
/// side (and 20 bytes). Error (file) when a file is no index, is not UTF-8 or is packed otherwise, or nothing is
/// translated.
std::vector<SentencePair> read_translations(const TranslationFiles& files);

/// The 31,102 verses of the King James Version in the book's order, as the SWORD module (zText) of `folder`, which
/// find_kjv() gives, has them: without markup and notes, the psalms' own headings in their first verses. Error (file)
/// when the module is damaged or of another kind.
std::vector<std::string> read_kjv(const std::filesystem::path& folder);

}  // namespace paoding::data
