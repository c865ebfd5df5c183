// SPDX-License-Identifier: Apache-2.0
// Checkpoints: the state of training, saved so that training goes on with the same bits, or that others predict with
// it.
//
// A run's folder has one folder per checkpoint, "step-00001200", with parameters.safetensors (every tensor of the
// store: parameters, the optimizer's state, random counters), manifest.json (below) and the model's own files. A folder
// gets its name when everything in it is whole and on disk, so one that has it is complete, whatever happened since.
// manifest.json holds the size and checksum of every other file and a checksum of itself; all of them are checked when
// the checkpoint is loaded.
#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "paoding/program.h"
#include "paoding/tensor.h"

namespace paoding {

namespace files {
class Lock;  // src/io/files.h
}

/// The content of a checkpoint besides its tensors. Texts are UTF-8, whole numbers are not negative.
struct Manifest {
  std::string model = {};                           // "g2p"
  std::map<std::string, std::string> options = {};  // of the model and the training, by name, as text
  std::int64_t step = 0;                            // updates made
  std::int64_t epoch = 0, batch = 0;                // where in the data to go on: batches of this epoch done
  /// On held-out data, lower is better; NaN when it was not evaluated.
  double score = std::numeric_limits<double>::quiet_NaN();
  std::string score_name = {};                    // "phoneme error rate"
  std::map<std::string, std::string> notes = {};  // whatever else: free text
  /// The loss as it was logged: steps and values, for the curve.
  std::vector<std::pair<std::int64_t, double>> losses = {};
  /// The scores of the checkpoints before, and its own, the same way.
  std::vector<std::pair<std::int64_t, double>> scores = {};
};

struct Checkpoint {
  Manifest manifest = {};
  std::map<std::string, Tensor> tensors = {};
  /// The model's own, by file name: vocabularies. Any bytes; names are plain (no slash, no dot first, UTF-8).
  std::map<std::string, std::string> files = {};
};

/// Where a run's checkpoints are, and which of them are kept. While it lives no other may train into the folder, in
/// this process or another; loading needs none of these and is possible at any time. One thread uses it at a time.
class CheckpointFolder {
 public:
  /// Makes the folder when it is not there. Error (file) when it cannot be made or written to, or another
  /// CheckpointFolder has it; (argument) when keep_last is below 1.
  explicit CheckpointFolder(std::filesystem::path folder, int keep_last = 2);
  ~CheckpointFolder();
  CheckpointFolder(CheckpointFolder&&) noexcept;
  CheckpointFolder& operator=(CheckpointFolder&&) noexcept;

  const std::filesystem::path& path() const { return folder_; }
  /// Complete checkpoints, the one of the fewest steps first.
  std::vector<std::filesystem::path> checkpoints() const;
  /// The one with the most steps; empty when there is none.
  std::filesystem::path latest() const;
  /// The one with the lowest score, the latest of equal ones; the latest when none has a score; empty when there is
  /// none. Error (file) when a manifest cannot be read.
  std::filesystem::path best() const;

  /// Writes, flushes, renames; then drops the checkpoints beyond the last `keep_last` and the best, never the one just
  /// saved, and the leftovers of unfinished saves. A checkpoint of the same step is replaced. Returns its path.
  /// Error (argument) when a number, text or file name is none that a manifest can have; (file) when it cannot be
  /// written, for example on a full disk: the files that were there stay.
  std::filesystem::path save(const Checkpoint& checkpoint);

 private:
  void drop_leftovers() const;
  void drop_old(const std::filesystem::path& saved) const;
  std::filesystem::path folder_;
  int keep_last_;
  std::unique_ptr<files::Lock> lock_;
};

/// The checkpoint in `path`, or the best (the latest with `latest`) in it when it is a run's folder. Error (file) when
/// there is none, or a file is missing, truncated, malformed or differs from the manifest (size, checksum); nothing in
/// it is trusted. It may be loaded while another process trains into the run's folder.
Checkpoint load_checkpoint(const std::filesystem::path& path, bool latest = false);
/// Its manifest alone.
Manifest load_manifest(const std::filesystem::path& path, bool latest = false);

/// Every value of a store by name, between two runs. Programs that run meanwhile may have trained some and not others.
std::map<std::string, Tensor> values_of(const Parameters& parameters);
/// Those that are there for one thing: of ParameterRole::model all that a model which predicts needs.
std::map<std::string, Tensor> values_of(const Parameters& parameters, ParameterRole role);
/// Error (argument), as restore() into a store of the graph's parameters would give it: to know before memory is taken.
void check_restorable(const Graph& graph, const std::map<std::string, Tensor>& tensors, bool allow_more = false);
/// Gives every value of a store the tensor of its name. Error (argument) that lists, by name and type, which tensors
/// are missing, left over or of another type; then nothing was changed. States of random numbers ("random/..", which
/// programs add to a store) that it does not have are added. With `allow_more`, tensors that the store has no place for
/// are left out: a program that predicts needs no optimizer's state.
void restore(Parameters* parameters, const std::map<std::string, Tensor>& tensors, bool allow_more = false);

}  // namespace paoding
