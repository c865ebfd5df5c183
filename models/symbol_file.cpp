// SPDX-License-Identifier: Apache-2.0
#include "models/symbol_file.h"

#include <fmt/format.h>

#include "paoding/error.h"
#include "paoding/printable.h"

namespace paoding::models {

std::string to_file(const data::Vocabulary& vocabulary) {
  std::string text;
  for (const std::string& symbol : vocabulary.symbols()) {
    // from_file() would read two.
    if (symbol.find('\n') != std::string::npos) {
      throw Error(ErrorKind::argument, fmt::format("the symbol '{}' has a line end, files of symbols cannot have it",
                                                   printable(symbol, "")));
    }
    text += symbol + "\n";
  }
  return text;
}

const std::string& file_of(const std::map<std::string, std::string>& files, const std::string& name) {
  const auto found = files.find(name);
  if (found == files.end()) throw Error(ErrorKind::file, fmt::format("the checkpoint has no file '{}'", name));
  return found->second;
}

data::Vocabulary from_file(const std::map<std::string, std::string>& files, const std::string& name) {
  const std::string& text = file_of(files, name);
  std::vector<std::string> symbols;
  for (std::size_t start = 0; start < text.size();) {
    const std::size_t end = text.find('\n', start);
    if (end == std::string::npos) throw Error(ErrorKind::file, fmt::format("'{}' ends within a line", name));
    symbols.push_back(text.substr(start, end - start));
    start = end + 1;
  }
  try {
    return data::Vocabulary(std::move(symbols));
  } catch (const Error& error) {
    throw Error(ErrorKind::file, fmt::format("'{}': {}", name, error.what()));
  }
}

}  // namespace paoding::models
