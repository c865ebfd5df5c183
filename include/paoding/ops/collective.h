// SPDX-License-Identifier: Apache-2.0
// Ops over the ranks of a communicator. Every rank runs the same graph, so that a value x is one x per rank, x_r; n is
// their number. A program with these ops needs CompileOptions::communicator. With one rank they cost nothing: passes
// remove them. Gradients are those of the sum of the ranks' losses.
//
// All take floats and integers, and may not stand in a branch or a while_loop on a GPU, whose ranks would have to
// agree.
#pragma once

#include <cstdint>
#include <string_view>

#include "paoding/graph.h"

namespace paoding {

/// y = sum over r of x_r, on every rank; also their "mean" (floats), "max" or "min". y has the type of x. The gradient
/// of a sum or mean is the same reduction of dy; that of a max or min is the sum of dy over the ranks, shared equally
/// among the elements that are it. Error (argument) for another reduction, (dtype) for bool, or a mean of integers.
/// The bits are the same on all ranks; sums are made in the dtype, on a CPU of f16 and bf16 in f32 from rank to rank.
Value all_reduce(const Value& x, std::string_view reduction = "sum");

/// x [n k, ...] gives [k, ...]: part r, along axis 0, of the reduction of all ranks' x. `ranks` is n. The gradient of a
/// sum gathers dy, of a mean as well with the factor 1 / n; that of max and min is not there: Error (unsupported).
/// Error (argument) when ranks is below 1, or, when a program is made, not the communicator's size; (shape) when x is a
/// scalar or axis 0 is no multiple of ranks.
Value reduce_scatter(const Value& x, std::int64_t ranks, std::string_view reduction = "sum");

/// x [k, ...] gives [n k, ...]: the x of all ranks along axis 0 in their order. `ranks` is n. Its gradient is
/// reduce_scatter of dy. Errors: as reduce_scatter.
Value all_gather(const Value& x, std::int64_t ranks);

/// x of rank `root`, on every rank. Its gradient is the sum of dy over the ranks on rank `root`, and 0 elsewhere. Error
/// (argument) when root is negative, or, when a program is made, no rank of the communicator.
Value broadcast(const Value& x, std::int64_t root = 0);

/// Whether this is the rank of that number: a bool scalar. Error (argument) as broadcast.
Value is_rank(Graph& graph, std::int64_t number);

}  // namespace paoding
