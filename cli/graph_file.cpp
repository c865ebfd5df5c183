// SPDX-License-Identifier: Apache-2.0
#include "graph_file.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <filesystem>

#include "base/check.h"
#include "base/one_line.h"
#include "command.h"
#include "io/files.h"
#include "io/safetensors.h"
#include "paoding/graph_text.h"
#include "paoding/model.h"

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

// A path that is no file is no model file either: the reader of texts says why it cannot be read.
bool begins_as_model_file(const std::string& path) {
  std::error_code failed;
  if (path == "-" || !std::filesystem::is_regular_file(path, failed)) return false;
  const files::InputFile file(path);
  std::string head(std::min<std::size_t>(files::kHeadBytes, file.size_bytes()), '\0');
  file.read_at(0, head.data(), head.size());
  return safetensors::begins_file(head);
}

const std::string& graph_of(const ModelFile& model, const std::string& path, const std::string& entry) {
  if (entry.empty() && model.graphs.size() == 1) return model.graphs.begin()->second;
  const auto found = model.graphs.find(entry);
  if (found != model.graphs.end()) return found->second;
  std::vector<std::string> names;
  for (const auto& [name, text] : model.graphs) names.push_back(one_line(name));
  fail(ErrorKind::argument, "{}: {}; --entry names one of its graphs: {}", path,
       entry.empty() ? "the file has several graphs" : fmt::format("there is no graph '{}'", one_line(entry)),
       fmt::join(names, ", "));
}

}  // namespace

void GraphFlags::add_to(CLI::App& sub) {
  sub.add_option("--entry", entry, "Which graph of a model file that has several")->type_name("NAME");
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

LoadedGraph load_graph(const std::string& path, const GraphFlags& flags,
                       const std::function<std::map<std::string, Type>()>& fed) {
  LoadedGraph loaded;
  std::string text;
  if (begins_as_model_file(path)) {
    ModelFile model = load_model_file(path);
    text = graph_of(model, path, flags.entry);
    loaded.parameters = std::move(model.parameters);
  } else {
    if (!flags.entry.empty()) fail(ErrorKind::argument, "{}: --entry is for model files; this is no such file", path);
    text = read_text(path, kMostGraphBytes);
  }
  const auto named = [&](const Error& error) {
    constexpr std::string_view kPlace = "<graph text>";
    const std::string message = error.what(), name = path == "-" ? "<stdin>" : path;
    return Error(error.kind(),
                 message.starts_with(kPlace) ? name + message.substr(kPlace.size()) : name + ": " + message);
  };
  try {
    const GraphText family(text);
    if (family.extents().empty() && flags.sizes.empty()) {
      loaded.graph = parse_graph(text);
      return loaded;
    }
    const bool is_told = has_all(family.extents(), flags.sizes);
    const auto types = !is_told && fed ? fed() : std::map<std::string, Type>();
    loaded.graph = family.at(family.sizes_of(types, Sizes(flags.sizes)));
    return loaded;
  } catch (const Error& error) {
    throw named(error);
  }
}

}  // namespace paoding::cli
