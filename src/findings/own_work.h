// SPDX-License-Identifier: Apache-2.0
// The work of a step of our own programs, by the site that its spans have.
#pragma once

#include "findings/kernel_form.h"
#include "findings/kernel_kind.h"
#include "findings/op_work.h"
#include "profile/trace.h"

namespace paoding::findings {
struct KernelWork;
}

namespace paoding::findings {

/// The kind follows from the step's op, or from the ops of its group; `other` for users' ops.
KernelKind own_kind(const profile::Trace& trace, const profile::Site& site);

/// Recordings of before version 5 have no shapes: only numbers that follow from bytes and operations are known then.
OpWork own_work(const profile::Trace& trace, const profile::Site& site);

/// A cast between 4 and 2 bytes moves 6 of each element: one beside a kernel on n elements that moves 6 n bytes has as
/// many. Recordings with shapes say so themselves. The kernels are in order of start.
void find_sizes_of_casts(const profile::Trace& trace, std::vector<KernelWork>* kernels);

/// Who multiplies, by the unit that the program was made for.
Arithmetic own_arithmetic(Unit unit);

/// Whether a pass put several steps together into this one.
bool is_fused(const profile::Trace& trace, const profile::Site& site);

/// A view that was copied: others are read where they lie.
bool is_copied_view(const profile::Trace& trace, const profile::Site& site);

/// A copy of a product's factor to where zeros stand behind its rows, by the pass align_products.
bool is_alignment(const profile::Trace& trace, const profile::Site& site);

/// Whether a CPU does it as fast as memory brings its operands: nothing in it takes many instructions an element.
bool is_of_simple_operations(const profile::Trace& trace, const profile::Site& site);

}  // namespace paoding::findings
