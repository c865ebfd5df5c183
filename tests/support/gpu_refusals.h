// SPDX-License-Identifier: Apache-2.0
// Ops that a program for a GPU cannot have yet: tests skip them there, by name. Nothing else may be refused, so an op
// that loses its kernel fails, and so does a name that is left here once its op has one
// (GpuKernels.AreMissingForListedOps).
#pragma once

#include <set>
#include <string>

#include "paoding/error.h"

namespace paoding::testing_program {

/// Kernel ops without an implementation for a GPU.
inline const std::set<std::string>& ops_without_gpu_kernel() {
  static const auto* ops = new std::set<std::string>{};
  return *ops;
}

/// The op that an error of compiling names, as all of them do: "conv2d: no kernel for ..".
inline std::string refused_op(const Error& error) {
  const std::string text = error.what();
  return text.substr(0, text.find(':'));
}

/// Whether compiling for a GPU failed for an op that is known to have no kernel there, and for nothing else.
inline bool is_known_gpu_refusal(const Error& error) {
  if (error.kind() != ErrorKind::unsupported) return false;
  return ops_without_gpu_kernel().contains(refused_op(error));
}

}  // namespace paoding::testing_program
