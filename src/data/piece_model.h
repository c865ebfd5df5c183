// SPDX-License-Identifier: Apache-2.0
// A serialized SentencePiece model, looked at before the library reads it: the library trusts parts of it.
#pragma once

#include <string_view>

namespace paoding::data {

/// Error (file) with `name` unless `serialized` is a unigram model without a table of character replacements (the
/// library would follow the table's offsets wherever they lead), whose pieces are text with finite scores.
void check_piece_model(std::string_view serialized, std::string_view name);

}  // namespace paoding::data
