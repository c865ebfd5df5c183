// SPDX-License-Identifier: Apache-2.0
// The part of cuDNN's C interface that is used: numbers and functions. Its own headers come with the library alone, and
// within a major version they keep their numbers (cudnn_test.cpp compares them where the headers are there).
#pragma once

#include <cuda.h>

#include <cstddef>
#include <cstdint>

namespace paoding::gpu {

namespace cudnn {

using Handle = struct cudnnContext*;
using Descriptor = void*;
using Status = int;
inline constexpr Status kSuccess = 0;

enum DataType : int { kFloat = 0, kHalf = 2, kBfloat16 = 9 };
enum ConvolutionMode : int { kCrossCorrelation = 1 };
enum HeuristicMode : int { kHeuristicFallback = 2, kHeuristicA = 3 };

enum DescriptorType : int {
  kConvolution = 1,
  kEngine = 2,
  kEngineConfig = 3,
  kEngineHeuristic = 4,
  kExecutionPlan = 5,
  kKnobChoice = 7,
  kOperationForward = 10,
  kOperationBackwardFilter = 11,
  kOperationBackwardData = 12,
  kOperationGraph = 15,
  kVariantPack = 16,
  kTensor = 17,
};

enum AttributeType : int {
  kTypeHandle = 0,
  kTypeDataType = 1,
  kTypeBoolean = 2,
  kTypeInt64 = 3,
  kTypeFloat = 4,
  kTypeVoidPtr = 6,
  kTypeConvolutionMode = 7,
  kTypeHeuristicMode = 8,
  kTypeKnobType = 9,
  kTypeNumericalNote = 11,
  kTypeDescriptor = 15,
};

enum Attribute : int {
  kConvolutionCompType = 100,
  kConvolutionMode = 101,
  kConvolutionDilations = 102,
  kConvolutionStrides = 103,
  kConvolutionPostPaddings = 104,
  kConvolutionPrePaddings = 105,
  kConvolutionSpatialDims = 106,
  kHeuristicMode = 200,
  kHeuristicOperationGraph = 201,
  kHeuristicResults = 202,
  kEngineConfigEngine = 300,
  kEngineConfigKnobChoices = 302,
  kPlanHandle = 400,
  kPlanEngineConfig = 401,
  kPlanWorkspaceSize = 402,
  kKnobChoiceType = 600,
  kKnobChoiceValue = 601,
  kForwardAlpha = 700,  // those of an operation: alpha, beta, convolution, and three tensors
  kBackwardDataAlpha = 706,
  kBackwardFilterAlpha = 712,
  kGraphHandle = 800,
  kGraphOperations = 801,
  kTensorAlignment = 900,
  kTensorDataType = 901,
  kTensorDimensions = 902,
  kTensorStrides = 903,
  kTensorUniqueId = 906,
  kPackUniqueIds = 1000,
  kPackDataPointers = 1001,
  kPackWorkspace = 1003,
  kEngineGlobalIndex = 1301,
  kEngineNumericalNote = 1303,
};

enum NumericalNote : int {
  kNoteTensorCore = 0,
  kNoteDownConvertInputs = 1,
  kNoteReducedPrecisionReduction = 2,
  kNoteFft = 3,
  kNoteNondeterministic = 4,
  kNoteWinograd = 5,
  kNoteCount = 10,
};
inline constexpr int kKnobTypes = 64;  // more than there are

}  // namespace cudnn

#define PD_CUDNN_FUNCTIONS(X)                                                                        \
  X(cudnnGetVersion, std::size_t, ())                                                                \
  X(cudnnGetErrorString, const char*, (cudnn::Status))                                               \
  X(cudnnGetLastErrorString, void, (char*, std::size_t))                                             \
  X(cudnnCreate, cudnn::Status, (cudnn::Handle*))                                                    \
  X(cudnnSetStream, cudnn::Status, (cudnn::Handle, CUstream))                                        \
  X(cudnnBackendCreateDescriptor, cudnn::Status, (cudnn::DescriptorType, cudnn::Descriptor*))        \
  X(cudnnBackendDestroyDescriptor, cudnn::Status, (cudnn::Descriptor))                               \
  X(cudnnBackendFinalize, cudnn::Status, (cudnn::Descriptor))                                        \
  X(cudnnBackendSetAttribute, cudnn::Status,                                                         \
    (cudnn::Descriptor, cudnn::Attribute, cudnn::AttributeType, std::int64_t, const void*))          \
  X(cudnnBackendGetAttribute, cudnn::Status,                                                         \
    (cudnn::Descriptor, cudnn::Attribute, cudnn::AttributeType, std::int64_t, std::int64_t*, void*)) \
  X(cudnnBackendExecute, cudnn::Status, (cudnn::Handle, cudnn::Descriptor, cudnn::Descriptor))

}  // namespace paoding::gpu
