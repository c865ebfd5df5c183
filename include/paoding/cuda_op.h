// SPDX-License-Identifier: Apache-2.0
// Kernels of a user's own on a GPU: CUDA source for an op that was registered with register_op(). The op is best a
// composed one: its composition defines the result, runs where there is no such GPU, and is the reference that tests
// compare the kernel with; the kernel runs in its place where it accepts the call. The gradient is the op's, and may
// call other ops with kernels of their own. Such a kernel is planned, captured and profiled like any other. See
// examples/11_own_cuda_kernel.cpp and docs/design/adding_an_op.md.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "paoding/op.h"

namespace paoding {

/// CUDA C++ source with its file and line, so that NVRTC's messages name that file and its lines.
struct CudaText {
  /// Takes a raw string: CudaText(__FILE__, __LINE__, R"( .. )").
  CudaText(std::string in_file, int on_line, std::string written)
      : file(std::move(in_file)), line(on_line), text(std::move(written)) {}
  /// Error (file) when it cannot be read.
  static CudaText from_file(const std::string& path);

  std::string file;
  int line;  // of the file, on which the source begins
  std::string text;
};

/// One application of the op. Operands are dense.
struct CudaCall {
  std::vector<Type> inputs, outputs;
  const Attrs& attrs;
};

/// The launch that runs one call.
struct CudaLaunch {
  /// The work of every thread, a call of a function of the source: "rotate(x, angle, out, size)". In it operands are
  /// pointers with the names of the op's inputs, and `out`, or `out0`, `out1` ..; of f16, bf16 and bool to F16, BF16
  /// and Bool, else to double, float, long long, int, unsigned char. `size.NAME` is one of `sizes`, of type Index,
  /// which is int, or long long where an operand or a size has 2^31 or more.
  std::string call;
  std::vector<std::pair<std::string, std::int64_t>> sizes = {};
  std::int64_t ctas = 0;          // blockIdx.x is below; 0: there is nothing to do
  int threads = 256;              // of a CTA; kThreads in the source
  std::int64_t shared_bytes = 0;  // PD_DYNAMIC_SHARED(float, name) in the source is a pointer to them
};

/// A kernel's CUDA source has functions, with PD_DEVICE in front of each, or templates; `load_one<false>(pointer)` is
/// an element in the type of its arithmetic, float for F16 and BF16 (Compute<T>), and `store_one(pointer, value)`
/// rounds one and writes it. It must give the same bits in every run: no atomics on floats. That the source depends on
/// types and attributes but not on shapes lets other shapes of a model compile nothing.
struct CudaKernel {
  std::string name;  // in plans and refusals
  CudaText text;
  std::function<CudaLaunch(const CudaCall&)> launch;
  std::function<std::string(const CudaCall&)> refusal = {};  // why it cannot do the call; empty when it can
};

/// Appends to the kernels of the op for NVIDIA GPUs; does nothing in a build without CUDA. Error (argument) when there
/// is no such op, or one that kernels do not run, or something of the kernel is missing. Mistakes in the source are
/// found when a program is compiled: Error (device) with NVRTC's message.
void register_cuda_kernel(const std::string& op, CudaKernel kernel);

}  // namespace paoding
