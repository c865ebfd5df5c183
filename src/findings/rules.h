// SPDX-License-Identifier: Apache-2.0
// The rules: each looks for one kind of finding, in a file of its own (rules/).
#pragma once

#include <span>

#include "findings/candidate.h"

namespace paoding::findings {

void find_late_data(const Steps& steps, Candidates* out);
void find_late_launches(const Steps& steps, Candidates* out);
void find_sync_in_step(const Steps& steps, Candidates* out);
void find_pageable_copies(const Steps& steps, Candidates* out);
void find_exposed_copies(const Steps& steps, Candidates* out);
void find_allocation_in_step(const Steps& steps, Candidates* out);
void find_late_compile(const Steps& steps, Candidates* out);
void find_rare_slow_steps(const Steps& steps, Candidates* out);
void find_rebuilt_graph(const Steps& steps, Candidates* out);
/// Those about the work of GPUs (kernel_rules.h).
void find_in_kernels(const Steps& steps, Candidates* out);

/// All of them.
std::span<const Rule> rules();

}  // namespace paoding::findings
