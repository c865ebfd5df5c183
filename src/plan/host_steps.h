// SPDX-License-Identifier: Apache-2.0
// Steps of a program for a GPU that run on the CPU (class OnCpu). Neighbours make a segment, which is a small plan for
// the CPU of its own: its inputs are copied from the device in front of it, its results that others read are copied
// back after it.
#pragma once

#include <memory>
#include <vector>

#include "plan/plan.h"

namespace paoding {

/// Whether the step runs on the CPU although the plan is for a GPU.
bool runs_on_host(const Target& target, const Step& step);
/// Whether it does, or a step in it.
bool holds_host_steps(const Target& target, const Step& step);

/// Brings steps that run on the CPU together, as far as their operands allow; those of a loop or branch stay where they
/// are.
void order_host_steps(const Target& target, int slots, std::vector<Step>* steps);

/// The part of a program's slot that a segment touches in one turn of the loops around it.
struct HostWindow {
  int slot = -1;           // of the program
  std::int64_t lead = 0;   // bytes of the segment's own slot in front of it, which keep it aligned
  std::int64_t bytes = 0;  // of the window
  bool is_input = false;   // read before all of it is written
  bool is_output = false;  // written, and read by others or in a later turn
  bool is_fed = false;     // an input of the program as a whole
};

struct HostSegment {
  const std::vector<Step>* list = nullptr;  // that it is in: the plan's, or that of a loop or branch
  std::size_t first = 0, end = 0;           // of the list
  Plan plan;                                // for the CPU; its slots are the windows
  std::vector<HostWindow> windows;          // per slot of `plan`
};

/// In their order.
std::vector<std::unique_ptr<HostSegment>> host_segments(const Plan& plan);

/// The plan gets a note for each, with the copies around it.
void note_host_segments(Plan* plan);

}  // namespace paoding
