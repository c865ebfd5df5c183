// SPDX-License-Identifier: Apache-2.0
// Two programs, A and B, beside each other: whether B is faster, and which ops make the difference.
// docs/reference/diff.md says what the numbers mean.
#pragma once

#include <string>
#include <vector>

#include "profile/align_parts.h"
#include "profile/compare_samples.h"
#include "profile/step_parts.h"

namespace paoding::profile {

/// How long something took: one number of every process, in ns.
struct MeasuredRow {
  std::string name;  // "step", "lerp_grad/1 cold wall"
  std::vector<double> a, b;
  std::vector<Measured> in_order;  // both, as they were measured; empty where that is not known
};

/// One side of a diff.
struct DiffSide {
  std::string name;  // what it was given as
  std::size_t processes = 0;
  std::vector<std::string> machines;  // that differ
  std::vector<ProcessSteps> steps;    // of recordings; may be empty
};

struct DiffInput {
  DiffSide a, b;
  std::vector<MeasuredRow> rows;
  bool is_in_turns = false;  // A and B took turns
  std::size_t looks = 1;     // that were or will be taken at the same series
  std::vector<std::string> notes;
};

struct DiffOptions {
  Rule rule = {};
  bool across_machines = false;  // a verdict is wanted though A and B ran on machines that differ
  std::size_t most_ops = 20;     // lines of the table of ops
};

struct DiffRow {
  std::string name;
  Comparison time;
  Drift drift;
  std::vector<double> a, b;  // ns, of every process
};

/// A part of a step on both sides; ns of one step.
struct DiffedPart {
  std::string scope, name;
  bool is_op = false;
  Alignment how = Alignment::same;
  std::string note;  // "from 3: mul, add, relu", "was encoder/layer1"; of another kernel too
  double a = 0, b = 0, a_calls = 0, b_calls = 0;
  bool is_certain = false;  // believed, at most one in twenty of those wrongly
  double change() const { return b - a; }
};

struct Diff {
  DiffSide a, b;
  DiffOptions options;
  std::vector<DiffRow> rows;
  Verdict verdict = Verdict::inconclusive;  // of all rows
  std::vector<DiffedPart> parts;            // the largest change first; those that nothing happened to are left out
  std::size_t parts_alike = 0;              // so many
  // What the change of the step consists of, in ns; they add up.
  double change = 0, by_ops = 0, by_others = 0, unexplained = 0;
  std::vector<std::string> notes;
};

/// Error (argument) where a side has no process, or its processes measured different rows.
Diff diff(const DiffInput& input, const DiffOptions& options = {});

/// "step" of recordings. Rows that only one side has are left out and said in a note. Error (argument) when a side has
/// none with steps.
DiffInput diff_input(DiffSide a, DiffSide b);

/// How many of the parts text and Markdown show: until the rest makes up less than a twentieth of the change, and at
/// most DiffOptions::most_ops.
std::size_t shown_parts(const Diff& diff);

// ---- as text ----

/// Four digits that count: "1.234 ms".
std::string time_with_unit(double ns);
/// For a terminal; lines of at most `width` characters, 0: any.
std::string to_text(const Diff& diff, int width = 0);
/// For a pull request.
std::string to_markdown(const Diff& diff);
/// One JSON object; times are ns.
std::string to_json(const Diff& diff);

}  // namespace paoding::profile
