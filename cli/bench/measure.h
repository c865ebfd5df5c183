// SPDX-License-Identifier: Apache-2.0
// Measures cases: checks the results once, then times them cold and hot, as the device works and as a caller waits.
#pragma once

#include <memory>
#include <optional>

#include "cli/bench/floor.h"

namespace paoding::cli::bench {

struct MeasureOptions {
  CompileOptions compile;
  bool is_quick = false, skips_check = false;
  std::function<void(const CompileReport&)> on_compiled;
};

/// One measurement of a case.
struct Row {
  Case work;
  bool is_cold = false, is_wall = false;
  Samples time;
  Floor floor;
  double goal_us = 0;
  int sets = 1;           // of buffers, used in turn
  bool is_swept = false;  // the caches were swept before every run
  double launches = 0;    // of one piece of work
  double compile_ms = 0;
  std::int64_t arena_bytes = 0;
  std::optional<double> error;  // absent: not compared
  bool is_right = true;
  std::string waits_for;  // not empty: there is nothing to measure yet
};

/// A case compiled, fed and compared with float64, ready to be timed any number of times.
class PreparedCase {
 public:
  /// A case that the device does not support yet is no error: its rows say so.
  PreparedCase(const Case& work, const MeasureOptions& options, const MachineFacts& machine, Floors* floors);
  const Case& work() const { return work_; }
  std::vector<Row> time();
  /// The program of the work as it stands by itself; null where there is none.
  Program* program() { return single_ ? &single_->program : rotating_ ? &rotating_->program : nullptr; }

 private:
  // A program with the store of its parameters.
  struct Loaded {
    Loaded(const Case& work, int sets, const CompileOptions& options, const Feeds& feeds);
    std::unique_ptr<Graph> graph;
    Parameters parameters;
    Program program;
  };
  CompileOptions for_sets(const Feeds& feeds) const;
  void check(const Feeds& feeds);
  Row row(bool is_cold, bool is_wall, const Samples& time, int sets);
  void make_sweep(std::int64_t bytes);

  Case work_;
  MeasureOptions options_;
  const MachineFacts& machine_;
  Floors* floors_;
  Effort effort_;
  Row known_;  // fields that all rows of the case share
  int sets_ = 1;
  bool single_is_cold_ = false;  // one set is larger than three caches
  std::unique_ptr<Loaded> single_, rotating_, repeated_;
  std::unique_ptr<Program> sweep_;  // reads more than three caches hold
  int repeats_ = 1;
};

}  // namespace paoding::cli::bench
