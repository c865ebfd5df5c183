// SPDX-License-Identifier: Apache-2.0
// The tokens that BLEU counts: those of `sacrebleu --tokenize 13a` for a sentence, as mteval-v13a.pl had them before
// it.
#pragma once

#include <string>
#include <vector>

namespace paoding::data {

/// Tokens of a sentence; none is empty.
std::vector<std::string> tokenize_13a(std::string line);

}  // namespace paoding::data
