// SPDX-License-Identifier: Apache-2.0
#include "graph_file.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "base/check.h"
#include "base/one_line.h"
#include "command.h"
#include "paoding/graph_text.h"

namespace paoding::cli {
namespace {

constexpr std::size_t kMostGraphBytes = std::size_t{1} << 28;

Sizes::Entry parse_size(const std::string& text) {
  const std::size_t equals = std::min(text.find('='), text.size());
  Sizes::Entry entry{text.substr(0, equals), 0};
  const char* const end = text.data() + text.size();
  const char* const begin = std::min(text.data() + equals + 1, end);
  const auto read = std::from_chars(begin, end, entry.size);
  if (equals > 0 && read.ec == std::errc() && read.ptr == end) return entry;
  throw CLI::ValidationError("--extents",
                             fmt::format("'{}' is no NAME=SIZE with a whole number, as in time=100", one_line(text)));
}

bool has_all(const Extents& extents, const std::vector<Sizes::Entry>& sizes) {
  return std::ranges::all_of(extents.specs(), [&](const ExtentSpec& spec) {
    return std::ranges::find(sizes, spec.name, &Sizes::Entry::name) != sizes.end();
  });
}

}  // namespace

void ExtentFlags::add_to(CLI::App& sub) {
  sub.add_option_function<std::vector<std::string>>(
         "--extents",
         [this](const std::vector<std::string>& texts) {
           for (const std::string& text : texts) sizes.push_back(parse_size(text));
         },
         "Sizes of the extents that the text declares, split by commas: batch=32,time=100")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAME=SIZE");
}

std::unique_ptr<Graph> load_graph(const std::string& path, const ExtentFlags& extents,
                                  const std::function<std::map<std::string, Type>()>& fed) {
  const std::string text = read_text(path, kMostGraphBytes);
  const auto named = [&](const Error& error) {
    constexpr std::string_view kPlace = "<graph text>";
    const std::string message = error.what(), name = path == "-" ? "<stdin>" : path;
    return Error(error.kind(),
                 message.starts_with(kPlace) ? name + message.substr(kPlace.size()) : name + ": " + message);
  };
  try {
    const GraphText family(text);
    if (family.extents().empty() && extents.sizes.empty()) return parse_graph(text);
    const bool is_told = has_all(family.extents(), extents.sizes);
    const auto types = !is_told && fed ? fed() : std::map<std::string, Type>();
    return family.at(family.sizes_of(types, Sizes(extents.sizes)));
  } catch (const Error& error) {
    throw named(error);
  }
}

}  // namespace paoding::cli
