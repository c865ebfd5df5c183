// SPDX-License-Identifier: Apache-2.0
// Compares cuDNN's numbers with its own headers, if they are there, and checks the message if the library is missing.
#include "gpu/libraries/cudnn.h"

#include <gtest/gtest.h>

#if __has_include(<cudnn_graph.h>)
#include <cudnn_graph.h>
#endif

namespace paoding::gpu {
namespace {

TEST(Cudnn, NumbersAreThoseOfItsHeaders) {
#if __has_include(<cudnn_graph.h>)
#define PD_SAME(ours, theirs) EXPECT_EQ(static_cast<int>(cudnn::ours), static_cast<int>(theirs)) << #theirs
  PD_SAME(kSuccess, CUDNN_STATUS_SUCCESS);
  PD_SAME(kFloat, CUDNN_DATA_FLOAT);
  PD_SAME(kHalf, CUDNN_DATA_HALF);
  PD_SAME(kBfloat16, CUDNN_DATA_BFLOAT16);
  PD_SAME(kCrossCorrelation, CUDNN_CROSS_CORRELATION);
  PD_SAME(kHeuristicFallback, CUDNN_HEUR_MODE_FALLBACK);
  PD_SAME(kHeuristicA, CUDNN_HEUR_MODE_A);
  PD_SAME(kConvolution, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
  PD_SAME(kEngine, CUDNN_BACKEND_ENGINE_DESCRIPTOR);
  PD_SAME(kEngineConfig, CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
  PD_SAME(kEngineHeuristic, CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
  PD_SAME(kExecutionPlan, CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
  PD_SAME(kKnobChoice, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR);
  PD_SAME(kOperationForward, CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR);
  PD_SAME(kOperationBackwardFilter, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR);
  PD_SAME(kOperationBackwardData, CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR);
  PD_SAME(kOperationGraph, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
  PD_SAME(kVariantPack, CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
  PD_SAME(kTensor, CUDNN_BACKEND_TENSOR_DESCRIPTOR);
  PD_SAME(kTypeHandle, CUDNN_TYPE_HANDLE);
  PD_SAME(kTypeDataType, CUDNN_TYPE_DATA_TYPE);
  PD_SAME(kTypeBoolean, CUDNN_TYPE_BOOLEAN);
  PD_SAME(kTypeInt64, CUDNN_TYPE_INT64);
  PD_SAME(kTypeFloat, CUDNN_TYPE_FLOAT);
  PD_SAME(kTypeVoidPtr, CUDNN_TYPE_VOID_PTR);
  PD_SAME(kTypeConvolutionMode, CUDNN_TYPE_CONVOLUTION_MODE);
  PD_SAME(kTypeHeuristicMode, CUDNN_TYPE_HEUR_MODE);
  PD_SAME(kTypeKnobType, CUDNN_TYPE_KNOB_TYPE);
  PD_SAME(kTypeNumericalNote, CUDNN_TYPE_NUMERICAL_NOTE);
  PD_SAME(kTypeDescriptor, CUDNN_TYPE_BACKEND_DESCRIPTOR);
  PD_SAME(kConvolutionCompType, CUDNN_ATTR_CONVOLUTION_COMP_TYPE);
  PD_SAME(kConvolutionMode, CUDNN_ATTR_CONVOLUTION_CONV_MODE);
  PD_SAME(kConvolutionDilations, CUDNN_ATTR_CONVOLUTION_DILATIONS);
  PD_SAME(kConvolutionStrides, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES);
  PD_SAME(kConvolutionPostPaddings, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS);
  PD_SAME(kConvolutionPrePaddings, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS);
  PD_SAME(kConvolutionSpatialDims, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS);
  PD_SAME(kHeuristicMode, CUDNN_ATTR_ENGINEHEUR_MODE);
  PD_SAME(kHeuristicOperationGraph, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH);
  PD_SAME(kHeuristicResults, CUDNN_ATTR_ENGINEHEUR_RESULTS);
  PD_SAME(kEngineConfigEngine, CUDNN_ATTR_ENGINECFG_ENGINE);
  PD_SAME(kEngineConfigKnobChoices, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
  PD_SAME(kPlanEngineConfig, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG);
  PD_SAME(kPlanWorkspaceSize, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE);
  PD_SAME(kKnobChoiceType, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE);
  PD_SAME(kKnobChoiceValue, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE);
  // An operation's attributes follow its alpha in one order: beta, convolution, w, x, y.
  PD_SAME(kForwardAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA);
  PD_SAME(kForwardAlpha + 1, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA);
  PD_SAME(kForwardAlpha + 2, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC);
  PD_SAME(kForwardAlpha + 3, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W);
  PD_SAME(kForwardAlpha + 4, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X);
  PD_SAME(kForwardAlpha + 5, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y);
  PD_SAME(kBackwardDataAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA);
  PD_SAME(kBackwardDataAlpha + 3, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W);
  PD_SAME(kBackwardDataAlpha + 4, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX);
  PD_SAME(kBackwardDataAlpha + 5, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY);
  PD_SAME(kBackwardFilterAlpha, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA);
  PD_SAME(kBackwardFilterAlpha + 3, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW);
  PD_SAME(kBackwardFilterAlpha + 4, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X);
  PD_SAME(kBackwardFilterAlpha + 5, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY);
  PD_SAME(kGraphOperations, CUDNN_ATTR_OPERATIONGRAPH_OPS);
  PD_SAME(kTensorAlignment, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT);
  PD_SAME(kTensorDataType, CUDNN_ATTR_TENSOR_DATA_TYPE);
  PD_SAME(kTensorDimensions, CUDNN_ATTR_TENSOR_DIMENSIONS);
  PD_SAME(kTensorStrides, CUDNN_ATTR_TENSOR_STRIDES);
  PD_SAME(kTensorUniqueId, CUDNN_ATTR_TENSOR_UNIQUE_ID);
  PD_SAME(kPackUniqueIds, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
  PD_SAME(kPackDataPointers, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS);
  PD_SAME(kPackWorkspace, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
  PD_SAME(kEngineGlobalIndex, CUDNN_ATTR_ENGINE_GLOBAL_INDEX);
  PD_SAME(kEngineNumericalNote, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE);
  PD_SAME(kNoteTensorCore, CUDNN_NUMERICAL_NOTE_TENSOR_CORE);
  PD_SAME(kNoteDownConvertInputs, CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS);
  PD_SAME(kNoteReducedPrecisionReduction, CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION);
  PD_SAME(kNoteFft, CUDNN_NUMERICAL_NOTE_FFT);
  PD_SAME(kNoteNondeterministic, CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC);
  PD_SAME(kNoteWinograd, CUDNN_NUMERICAL_NOTE_WINOGRAD);
  PD_SAME(kNoteWinograd + 3, CUDNN_NUMERICAL_NOTE_WINOGRAD_TILE_13x13);
  EXPECT_GE(static_cast<int>(cudnn::kNoteCount), static_cast<int>(CUDNN_NUMERICAL_NOTE_TYPE_COUNT));
  EXPECT_GE(cudnn::kKnobTypes, static_cast<int>(CUDNN_KNOB_TYPE_COUNTS));
#undef PD_SAME
#else
  GTEST_SKIP() << "NOT CHECKED: cuDNN's headers are not here";
#endif
}

TEST(Cudnn, IsThereOrSaysWhyNot) {
  EXPECT_EQ(cudnn_functions() == nullptr, !cudnn_problem().empty());
  if (cudnn_functions() != nullptr) {
    EXPECT_GE(cudnn_functions()->cudnnGetVersion(), 90000u);
  }
}

TEST(Cudnn, ASpecSaysAllOfItself) {
  ConvolutionSpec spec;
  spec.result = ConvolutionSpec::Result::w;
  spec.x = {DType::bf16, {2, 16, 8, 9}, {1152, 1, 144, 16}, 16};
  spec.w = {DType::f32, {24, 16, 3, 3}, {144, 1, 48, 16}, 16};
  spec.y = {DType::bf16, {2, 24, 8, 9}, {1728, 1, 216, 24}, 8};
  spec.before = {1, 0};
  EXPECT_EQ(to_string(spec),
            "convolution for w: x bf16[2,16,8,9] by 1152,1,144,16 at 16, w f32[24,16,3,3] by 144,1,48,16 at 16, y "
            "bf16[2,24,8,9] by 1728,1,216,24 at 8, stride 1,1, dilation 1,1, padding 1,0 and 0,0");
}

}  // namespace
}  // namespace paoding::gpu
