// SPDX-License-Identifier: Apache-2.0
// Task: a model, its training data and its scores, as `paoding train` and `paoding predict` need it.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "models/option.h"
#include "paoding/data/content_hash.h"
#include "paoding/graph.h"
#include "paoding/program.h"
#include "paoding/programs.h"

namespace paoding::models {

/// Examples to learn from; to see while training how good it is and which checkpoint is the best; for the end.
enum class Part { train, validation, test };

/// The input of one step.
struct Batch {
  std::int64_t bucket = 0;
  std::vector<Tensor> feeds;  // in the order in which Task::loss() declares its inputs
  double weight = 0;          // of its mean loss among other batches': the count that was averaged over
  std::int64_t items = 0;     // the unit of speed
};

/// Settings of a training for any model; a task changes the defaults.
struct TrainingSettings {
  std::int64_t epochs = 10;
  std::int64_t batch_size = 64;
  double learning_rate = 1e-3;
  double last_learning_rate = 0;  // at the end, half a cosine from the first
  std::int64_t warmup = 0;        // updates over which the rate rises from 0
  double clip_norm = 5;           // of gradients; 0 is no limit
  double weight_decay = 0;
  std::int64_t seed = 7;
  std::int64_t steps = 0;        // updates in all; 0: as many as the epochs have
  std::int64_t validate = 2000;  // examples of the validation part after each epoch; 0: all
  std::string dtype = "f32";     // of products: CompileOptions::precision
  Options options();
};

/// A number that says how good a model is.
struct Score {
  std::string name;       // "phoneme error rate"
  double value = 0;       // lower is better where checkpoints are compared by it
  bool is_share = false;  // 0.08 reads 8.00%
};
std::string text_of(const Score& score);
/// Error (argument) that names the value when a model computed a non-finite number, which has no use.
void check_number(double number, std::string_view name);

/// A prediction for one input; lists of them have the best first.
struct Prediction {
  std::string text;
  double log_probability = 0;
};
using Predictions = std::vector<Prediction>;

/// Where a model's parameters are and how its programs are compiled.
struct Trained {
  const Parameters* parameters = nullptr;
  CompileOptions compile = {};
  std::function<void()> before_run = {};  // called before each run of a program; an error from it ends the work
  /// The graph of that name in a model file, in place of one that the model's code builds.
  std::function<std::unique_ptr<Graph>(const std::string& name)> stored = {};

  /// `build`, or where graphs are stored, those of `entry` by graph_name().
  Programs::Build graphs_of(std::string_view entry, Programs::Build build) const;
};

/// The graphs of a model file by graph_name().
using Graphs = std::map<std::string, std::unique_ptr<Graph>>;

struct SearchOptions {
  std::int64_t beam = 1;
  std::int64_t best = 1;  // predictions per input
  /// Few inputs of many lengths run together, which is faster; their sums may round otherwise than those of inputs of
  /// one length.
  bool packs = false;
  /// Above 0: predictions are drawn by softmax(logits / temperature), one per input, rather than searched for; where
  /// Task::draws(). Equal seeds give equal texts.
  double temperature = 0;
  std::uint64_t seed = 0;
};

/// A model with parameters: its scores and its predictions. Keeps its programs; lives as long as the task and the
/// parameters do.
class Predictor {
 public:
  virtual ~Predictor() = default;
  /// Scores on a part: checkpoints are compared by the first one. At most `limit` examples (0: all).
  virtual std::vector<Score> evaluate(Part part, const SearchOptions& search, std::int64_t limit) = 0;
  /// Some examples of the test part with the model's predictions, for people to read.
  virtual std::string show(const SearchOptions& search, std::int64_t count) = 0;
  /// A text that the model makes from nothing, shown while it is trained; "": it makes none. Equal seeds
  /// and parameters give equal texts.
  virtual std::string sample(std::uint64_t) { return {}; }
  /// Predictions for each line of text, or for the bytes of each image (Task::input_bytes()); or for the content of a
  /// file, where Task::predicts_lines() is false. Error (file, argument) when an input is none that the model knows.
  virtual std::vector<Predictions> predict(std::span<const std::string> lines, const SearchOptions& search);
  virtual std::vector<Predictions> predict_file(const std::string& path, const SearchOptions& search);
  /// The parts of a line that the model cannot use, in words: letters that it never saw, texts that are too long. "":
  /// none.
  virtual std::string remark(const std::string&) const { return {}; }
  /// Every graph that predicting with so many hypotheses needs.
  virtual Graphs graphs(const SearchOptions& search) const = 0;
  /// Compiles all of them now rather than when they are needed.
  virtual void prepare(const SearchOptions& search) = 0;
};

class Task {
 public:
  virtual ~Task() = default;
  virtual std::string_view name() const = 0;     // "g2p"
  virtual std::string_view summary() const = 0;  // one line
  virtual std::string_view item() const = 0;     // "words": the unit of speed
  /// The options of the model and its data; they point into this object.
  virtual Options options() = 0;
  TrainingSettings settings;

  // ---- data ----
  /// Reads and splits the examples. Error (file) when something is missing or damaged.
  virtual void read(const std::filesystem::path& folder) = 0;
  /// A hash of all that read() read, before options leave some of it out: the same for the same data, however it was
  /// packed.
  const data::ContentHash& content() const { return content_; }
  /// Vocabularies and the like, by file name: they are kept with a checkpoint, and make a model without its data.
  /// set_files: Error (file) when they differ from those of files().
  virtual std::map<std::string, std::string> files() const { return {}; }
  virtual void set_files(const std::map<std::string, std::string>&) {}
  /// How many examples a part has, in words: "4000 words".
  virtual std::string amount(Part part) const;
  /// The bucket of each example.
  virtual std::vector<std::int64_t> buckets(Part part) const = 0;
  /// The extents in which the graphs of loss() differ, and their sizes in the graph of a bucket. One graph for all:
  /// none.
  virtual Extents extents() const { return {}; }
  virtual Extents::Key sizes(std::int64_t) const { return {}; }
  /// The bucket of these sizes.
  virtual std::int64_t bucket_of(const Extents::Key&) const { return 0; }
  /// A bucket that loss() takes, also without data.
  virtual std::int64_t any_bucket() const { return 0; }
  /// Feeds for `rows` rows, the rest of which, beyond the examples, counts for nothing.
  virtual Batch batch(Part part, std::span<const std::int64_t> examples, std::int64_t bucket,
                      std::int64_t rows) const = 0;

  // ---- the model ----
  /// The mean loss of a batch of a bucket; declares the inputs, and every parameter.
  virtual Value loss(Graph& graph, std::int64_t bucket, std::int64_t rows, bool is_training) const = 0;
  virtual std::unique_ptr<Predictor> predictor(const Trained& trained) const = 0;
  /// Whether it predicts from lines of text, rather than from files.
  virtual bool predicts_lines() const { return true; }
  /// Whether it can draw predictions (SearchOptions::temperature).
  virtual bool draws() const { return false; }
  /// Where it does not predict from lines: how many bytes an image has, as Predictor::predict() takes it.
  virtual std::int64_t input_bytes() const { return 0; }
  /// How many predictions of an input there may be, of a search with so many hypotheses.
  virtual std::int64_t most_predictions(std::int64_t beam) const { return beam; }

 protected:
  data::ContentHash content_;  // read() makes it
};

/// A new task; Error (argument) that lists the tasks when the name is none.
std::unique_ptr<Task> make_task(std::string_view name);
std::vector<std::string> task_names();

/// The mean loss over a part, without dropout; keeps its programs.
class MeanLoss {
 public:
  MeanLoss(const Task& task, const Trained& trained, std::int64_t rows);
  /// At most `limit` examples (0: all).
  double operator()(Part part, std::int64_t limit = 0);

 private:
  const Task& task_;
  std::int64_t rows_;
  std::function<void()> before_run_;
  Programs programs_;
};

}  // namespace paoding::models
