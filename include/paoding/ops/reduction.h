// SPDX-License-Identifier: Apache-2.0
// Reductions over axes.
#pragma once

#include <span>

#include "paoding/graph.h"

namespace paoding {

/// Sum over `axes` (negative counts from the end; empty means all); with `keepdims` they stay as extent 1. Numbers.
Value sum(const Value& a, std::span<const std::int64_t> axes = {}, bool keepdims = false);

}  // namespace paoding
