// SPDX-License-Identifier: Apache-2.0
// A model that can be served: its graphs, weights, vocabulary and options in one file, and the thing that runs it for
// many threads at once.
//
//   const pd::Model model = pd::Model::load("g2p.pd", pd::Device::best());
//   auto results = model.run("search", {{"source", letters}, {"lengths", lengths}});
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "paoding/extents.h"
#include "paoding/graph.h"
#include "paoding/program.h"
#include "paoding/tensor.h"

namespace paoding {

/// The content of a model file. On disk it is a safetensors file: the parameters are its tensors by their names,
/// `files` are tensors "file:<name>" of bytes, and everything else is text in its metadata, sealed with a CRC-32 of all
/// of it.
struct ModelFile {
  std::string model = {};                           // who prepares its inputs and reads its results: "g2p"
  std::map<std::string, std::string> options = {};  // of that model, as text
  std::map<std::string, std::string> notes = {};    // where it comes from; free text
  std::map<std::string, std::string> files = {};    // vocabularies, by file name; any bytes
  /// The extent along which inputs and results have rows that know nothing of each other; "": none is known. Of graph
  /// texts the extent of that name, of a graph "entry[batch=8]" the size in its name. Where it is there, run() takes
  /// any number of rows, and `paoding serve` answers requests together.
  std::string batch = {};
  /// In text form, by "entry", or "entry[shape]" where an entry point has graphs for several shapes of its inputs. A
  /// text may declare extents (paoding/graph_text.h): it is of graphs of every bucket.
  std::map<std::string, std::string> graphs = {};
  std::map<std::string, Tensor> parameters = {};
};

/// "search[12,64]": the graph of an entry point for a shape. Where an entry point has several such graphs, every extent
/// in which their inputs differ is one of the name's numbers.
std::string graph_name(std::string_view entry, const std::vector<std::int64_t>& shape);
/// "classify[batch=8,time=16]": the same with the extents' names.
std::string graph_name(std::string_view entry, const Sizes& sizes);

/// An input or a result of an entry point, by its name.
struct ModelTensor {
  std::string name;
  DType dtype = f32;
  std::vector<std::int64_t> shape = {};  // -1: differs from graph to graph
  int batch_axis = -1;                   // of ModelFile::batch; -1: it has none
};
struct ModelSignature {
  std::vector<ModelTensor> inputs, results;  // in the order in which a graph declares and fetches them
  /// Whether the entry point takes any number of rows: its graphs have the extent ModelFile::batch.
  bool has_batch = false;
};

/// Adds to `options` the checksums that `files` have now ("crc32:letters.txt"). Weights know nothing of the vocabulary
/// they were trained with: a Model of a sealed file whose files are others is an Error, not one that gives other
/// answers.
void seal_files(ModelFile* model);

/// The file appears whole or not at all. Error (file) when it cannot be written or a text is not UTF-8, (argument) when
/// there is no graph, one that Model would refuse (a text that parse_graph() does not take, no fetch, a parameter
/// without its value) or that drops values as in training: a file's runs would do it by one mask for ever; or when a
/// parameter's name begins with "file:"; or when no graph has the extent `batch`, or in one that has it a result has no
/// axis of its size, or more than one that may be it.
void save_model(const std::filesystem::path& path, const ModelFile& model);
/// Error (file) when the file cannot be read, is truncated, damaged, none of a model, or of a later version; nothing in
/// it is trusted.
ModelFile load_model_file(const std::filesystem::path& path);
/// The same from memory; `name` stands for the file in errors.
ModelFile parse_model_file(std::span<const std::byte> bytes, std::string_view name);

struct ModelOptions {
  CompileOptions compile = {};  // device, precision ..; parameters are never assigned
  int executors = 2;            // calls that run at the same time; each has memory for values of its own
};

/// The graphs of a model file, compiled for a device when they are first needed. Any thread may call it at any time:
/// there is one copy of the weights, and as many calls run at once as there are executors; others wait, as long as
/// their CancelScope lets them. Copies are the same model.
class Model {
 public:
  /// Errors: as load_model_file and Parameters; (file) a graph that is none, whose parameters are not the file's, or
  /// whose inputs are not those of its name; a non-finite weight; files that are not as seal_files() saw
  /// them; (argument) no executor.
  static Model load(const std::filesystem::path& path, const Device& device = Device::cpu());
  static Model load(const std::filesystem::path& path, const ModelOptions& options);
  explicit Model(ModelFile file, const ModelOptions& options = {}, std::string_view name = "model");

  /// Without its parameters' values, which parameters() has.
  const ModelFile& file() const;
  const Parameters& parameters() const;
  /// The entry points of the graphs, sorted.
  std::vector<std::string> entries() const;
  /// The inputs of an entry point, one map for each of its graphs, which differ in shape; of a text with extents those
  /// at the smallest sizes. Error (argument) that lists the entries when there is no such one.
  std::vector<std::map<std::string, Type>> inputs(std::string_view entry) const;
  /// The same as one. Errors: (argument) no such entry; its graphs take or give other names, dtypes or ranks, so there
  /// is no one signature.
  ModelSignature signature(std::string_view entry) const;
  /// A copy of a graph. Error (argument) with those that there are of its entry when there is none of this name, and
  /// for a text with extents.
  std::unique_ptr<Graph> graph(std::string_view name) const;

  /// Runs the graph of the entry point whose inputs have the types of the feeds, and gives all its fetches. A text with
  /// extents has one for every bucket, at the sizes that the feeds have; of its programs Programs::keeps_at_most()
  /// stay. Where the file says its batch and no graph has so many rows, the smallest that holds them runs, its other
  /// rows filled with the last one (of a text whose batch has no buckets the next power of two), or, of more rows than
  /// any has, the largest several times; results have the rows of
  /// the feeds. Errors: (argument) no such entry, other inputs than it has; (shape, dtype) no graph for these types,
  /// sizes that are no bucket; and those of compiling and running it.
  std::map<std::string, Tensor> run(std::string_view entry, const std::map<std::string, Tensor>& feeds) const;
  /// The same for a model with one entry point. Error (argument) when there are several.
  std::map<std::string, Tensor> run(const std::map<std::string, Tensor>& feeds) const;
  /// The errors that run() has before it runs anything, of feeds of these types.
  void check(std::string_view entry, const std::map<std::string, Type>& feeds) const;
  /// Compiles now, for every executor, the graphs that run() would compile at their first calls: all of them, and of a
  /// text with extents every bucket, where there are at most Programs::keeps_at_most(), else the smallest. Calls wait
  /// meanwhile.
  void prepare() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace paoding
