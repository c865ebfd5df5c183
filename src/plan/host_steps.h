// SPDX-License-Identifier: Apache-2.0
// Steps of a program for a GPU that run on the CPU (class OnCpu). Neighbours make a stretch, which is a small plan for
// the CPU of its own: what it reads of the device is copied in front of it, what others read of it behind it.
#pragma once

#include <memory>
#include <vector>

#include "plan/plan.h"

namespace paoding {

/// Whether the step, at the top of a plan, runs on the CPU although the plan is for a GPU.
bool runs_on_host(const Target& target, const Step& step);

/// Brings steps that run on the CPU together, as far as what they read and write allows. Error (unsupported) when there
/// is one inside a loop or branch that runs on the GPU.
void order_host_steps(const Target& target, int slots, std::vector<Step>* steps);

struct HostStretch {
  std::size_t first = 0, end = 0;  // of Plan::steps
  Plan plan;                       // for the CPU, with the same slots, those that it needs not being empty
  std::vector<int> inputs;         // slots that it reads and has not written
  std::vector<int> outputs;        // slots that it writes and others read
};

/// In their order.
std::vector<std::unique_ptr<HostStretch>> host_stretches(const Plan& plan);

/// The plan gets a note for each, with the copies around it.
void note_host_stretches(Plan* plan);

/// The slot as a whole.
Operand whole_slot(const Plan& plan, int slot);

}  // namespace paoding
