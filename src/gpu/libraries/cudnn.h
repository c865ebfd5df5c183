// SPDX-License-Identifier: Apache-2.0
// Convolutions by cuDNN's graph API, loaded at run time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "gpu/driver/driver.h"
#include "gpu/driver/library.h"
#include "gpu/libraries/cudnn_interface.h"
#include "paoding/types.h"

namespace paoding::gpu {

#define PD_CUDNN_MEMBER(name, result, parameters) result(*name) parameters = nullptr;
struct Cudnn {
  PD_CUDNN_FUNCTIONS(PD_CUDNN_MEMBER)
};
#undef PD_CUDNN_MEMBER

/// cuDNN's functions; nullptr when the library is missing. Loaded once, from any thread.
const Cudnn* cudnn_functions();
/// Why cudnn_functions() is nullptr, in words; empty when it is not.
const std::string& cudnn_problem();
/// The library search behind cudnn_functions(), for `doctor`.
const Library& cudnn_library();

/// One of a convolution's three tensors, as [n, channels, h, w].
struct ConvolutionTensor {
  DType dtype = DType::f32;
  std::array<std::int64_t, 4> extents{}, strides{};
  std::int64_t alignment = 16;  // bytes that its address is a multiple of

  friend bool operator==(const ConvolutionTensor&, const ConvolutionTensor&) = default;
};

/// A convolution y = x * w, or one of its gradients. Groups follow from the channels of x and w.
struct ConvolutionSpec {
  enum class Result : std::uint8_t { y, x, w } result = Result::y;
  ConvolutionTensor x, w, y;
  std::array<std::int64_t, 2> strides{1, 1}, dilations{1, 1}, before{}, after{};
  bool allow_tf32 = false;  // of f32: products may round their operands

  friend bool operator==(const ConvolutionSpec&, const ConvolutionSpec&) = default;
};

/// Every field, for errors, notes and keys.
std::string to_string(const ConvolutionSpec& spec);

/// A convolution as cuDNN's graph, and the engines that its heuristics name for it: best first, each once. Those whose
/// sums change from run to run, or are made with less than f32, are left out.
class ConvolutionEngines {
 public:
  /// Error (device) without cuDNN; (unsupported) when it does not take the spec.
  ConvolutionEngines(const GpuDevice& device, const ConvolutionSpec& spec);
  ~ConvolutionEngines();
  ConvolutionEngines(ConvolutionEngines&&) noexcept;

  /// An engine's number and knobs: "34 k2=1 k24=5". Names the same with every handle of one version of cuDNN.
  const std::vector<std::string>& names() const;

 private:
  friend class Convolution;
  struct Found;
  std::shared_ptr<Found> found_;
};

/// A prepared convolution on one GPU. run() decides nothing.
class Convolution {
 public:
  /// Uses the first of the engines, or the one with that name, that works within the limit. Error (unsupported) when
  /// none does.
  Convolution(const ConvolutionEngines& engines, std::size_t workspace_limit_bytes, const std::string& name = "");
  ~Convolution();
  Convolution(Convolution&&) noexcept;

  const std::string& engine() const;
  /// Bytes that run() needs at a 256-byte aligned `workspace`; at most the limit given.
  std::size_t workspace_bytes() const;
  /// Starts it on `stream`: reads two of the three and writes the other.
  void run(CUstream stream, const void* x, const void* w, const void* y, void* workspace) const;

 private:
  struct Plan;
  std::unique_ptr<Plan> plan_;
};

}  // namespace paoding::gpu
