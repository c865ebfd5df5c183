// SPDX-License-Identifier: Apache-2.0
// Vocabularies as files: a symbol a line.
#pragma once

#include <map>
#include <string>

#include "paoding/data/vocabulary.h"

namespace paoding::models {

/// Error (argument) when a symbol has a line end: it would be read as two.
std::string to_file(const data::Vocabulary& vocabulary);
/// Error (file) when `files` has no file of that name, or it is no vocabulary.
data::Vocabulary from_file(const std::map<std::string, std::string>& files, const std::string& name);
/// A file that may be any text; Error (file) when there is none.
const std::string& file_of(const std::map<std::string, std::string>& files, const std::string& name);

}  // namespace paoding::models
