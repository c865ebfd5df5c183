// SPDX-License-Identifier: Apache-2.0
// How far programs for a kind of GPU have been proved. docs/limits.md has the same as a table, and a test compares
// them.
#pragma once

#include <string_view>

namespace paoding::gpu {

enum class Proof {
  run,       // the GPU tests and the benchmarks ran on such a GPU
  compiled,  // every kernel of a training step compiles for it in the tests; programs run in the emulation only
  untested,  // the compiler has code for it, and nobody has looked
  refused,   // the compiler has none: GpuDevice::get() is an error
};

/// The proof for a compute capability, such as 9, 0 of an H200.
Proof proof_of(int major, int minor);
/// The words of `paoding doctor` for it.
std::string_view proof_text(Proof proof);

}  // namespace paoding::gpu
