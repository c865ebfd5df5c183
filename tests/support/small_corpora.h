// SPDX-License-Identifier: Apache-2.0
// Data sets that a test writes, in the formats and under the names of the real ones: small, and the same every time.
#pragma once

#include <string>
#include <vector>

#include "tests/support/temporary_folder.h"

namespace paoding::small_corpora {

/// g2p: a word of 1 to 12 of the letters a .. h and more, most of them said in one way, some in two.
struct Word {
  std::string spelling;
  std::vector<std::string> ways;  // phonemes, with blanks between them
};
std::vector<Word> words(int count);
void write_g2p(const TemporaryFolder& folder, const std::vector<Word>& words);

/// fashion: pictures whose class can be seen from where they are bright.
void write_fashion(const TemporaryFolder& folder, int train, int test);

/// translate: English and Italian by word.
void write_translate(const TemporaryFolder& folder, int count);

/// kjv: as many verses as there have to be, of few words each but for one.
void write_kjv(const TemporaryFolder& folder);
std::string verse(int number);
constexpr int kLongVerse = 31;  // more than 100 words; the others have at most 18

/// All of them, written once in a process.
const TemporaryFolder& all();

}  // namespace paoding::small_corpora
