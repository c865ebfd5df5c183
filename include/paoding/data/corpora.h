// SPDX-License-Identifier: Apache-2.0
// Readers of what Debian's packages ship: pronunciations, images, translations, a book. Every file is checked; nothing
// in it is trusted. `paoding train` uses them, and tools/fetch_data.sh gets the files.
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
std::filesystem::path find_kjv(const std::filesystem::path& folder);

/// A word and the ways to say it: of each, the phonemes.
struct Pronunciations {
  std::string word;
  std::vector<std::vector<std::string>> ways;
};
/// A pronouncing dictionary, CMU's text format ("word AH B", another way as "word(2) ..."; ";;;" begins a comment) or
/// Festival's (("word" nil (((b ah) 1)))): which one is seen from the text. In the order of first appearance. Error
/// (file) with the line when it is neither, is not UTF-8, or has no word.
std::vector<Pronunciations> read_pronunciations(const std::filesystem::path& path);

/// Images [N, H, W] of bytes and a label of each [N], bytes too.
struct ImageSet {
  Tensor images, labels;
};
/// A pair of IDX files (LeCun's format for MNIST), gzipped or not. Error (file) when one is truncated, of another kind,
/// or they do not have equally many.
ImageSet read_images(const std::filesystem::path& images, const std::filesystem::path& labels);
/// The images alone [N, H, W]: an IDX file, gzipped or not, or one picture as a binary PGM (P5, 8 bits; [1, H, W]).
/// "-" is standard input. Errors as read_images.
Tensor read_image_file(const std::filesystem::path& path);

struct SentencePair {
  std::string source, target;
};
/// The descriptions that Debian's Translation indexes (plain, .gz or .lz4 is not supported: fetch_data.sh unpacks) have
/// in both languages, one pair per short description and per paragraph of as many sentences on both sides, in the order
/// of the source file; pairs that are equal in both languages are left out, and each pair is there once.
/// Error (file) when a file is no index or is not UTF-8.
std::vector<SentencePair> read_translations(const TranslationFiles& files);

/// The verses of the King James Version in the book's order, as a SWORD module (zText) of `folder` has them, without
/// its markup. Error (file) when the module is damaged or of another kind.
std::vector<std::string> read_kjv(const std::filesystem::path& folder);

}  // namespace paoding::data
