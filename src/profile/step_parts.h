// SPDX-License-Identifier: Apache-2.0
// What a step of a loop consists of: parts with a name that add up to it, to the nanosecond. At every moment a GPU's
// kernel is what the step is at, the one that began first; else a copy; else what the thread of the loop was at.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profile/trace.h"

namespace paoding::profile {

/// A part of a step: all that is done for ops of one name, scope and size, or one use of time that is no op's.
struct StepPart {
  std::string scope;                 // "encoder/layer1"
  std::string name;                  // of the op or fused group; "(your code)"
  std::string shape;                 // where the trace says it
  std::int64_t bytes = 0;            // of one call; 0: not known
  double flops = 0;                  // the same
  std::vector<std::string> members;  // ops that it does: of a group several
  std::vector<std::string> kernels;  // that it ran as
  bool is_op = false;
  double calls = 0, ns = 0;  // of one step
};

/// How long the steps of one process took, and what they consist of.
struct ProcessSteps {
  std::string name;              // of the process: its file
  bool has_steps = false;        // false: the whole window is the one step
  std::vector<std::int64_t> ns;  // of every step in order, without those of warming up
  std::size_t warm_up = 0;       // steps in front of those
  std::int64_t median_ns = 0;    // 0: there is no step
  std::vector<StepPart> parts;   // of the steps in the middle by length, averaged; in order of appearance
  std::int64_t wall_ns = 0;      // when the process was recorded, since 1970; 0: not known
  std::string machine, target;   // host, GPUs; "" where that is not known
  std::uint64_t lost = 0;        // records that are missing
};

/// Of a finished trace. One without a run is one step as long as its window.
ProcessSteps steps_of_process(const Trace& trace, std::string name);

/// How many steps in front take longer than the later half does, by its spread.
std::size_t warm_up_steps(const std::vector<std::int64_t>& ns);

}  // namespace paoding::profile
