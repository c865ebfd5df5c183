// SPDX-License-Identifier: Apache-2.0
// The part of NCCL's C interface that is used: numbers and functions, the same in every version 2. Its own header comes
// with the library alone (nccl_test.cpp compares them where the header is there).
#pragma once

#include <cuda.h>

#include <cstddef>

namespace paoding::gpu {

namespace nccl {

using Communicator = struct ncclComm*;
using Result = int;
inline constexpr Result kSuccess = 0, kInProgress = 7;
inline constexpr int kLeastVersion = 21800;  // 2.18, whose collectives can be captured and aborted

struct UniqueId {
  char bytes[128];
};

enum DataType : int { kUint8 = 1, kInt32 = 2, kInt64 = 4, kFloat16 = 6, kFloat32 = 7, kFloat64 = 8, kBfloat16 = 9 };
enum Operation : int { kSum = 0, kMax = 2, kMin = 3 };

}  // namespace nccl

#define PD_NCCL_FUNCTIONS(X)                                                                                      \
  X(ncclGetVersion, nccl::Result, (int*))                                                                         \
  X(ncclGetUniqueId, nccl::Result, (nccl::UniqueId*))                                                             \
  X(ncclCommInitRank, nccl::Result, (nccl::Communicator*, int, nccl::UniqueId, int))                              \
  X(ncclCommDestroy, nccl::Result, (nccl::Communicator))                                                          \
  X(ncclCommAbort, nccl::Result, (nccl::Communicator))                                                            \
  X(ncclCommGetAsyncError, nccl::Result, (nccl::Communicator, nccl::Result*))                                     \
  X(ncclGetErrorString, const char*, (nccl::Result))                                                              \
  X(ncclGetLastError, const char*, (nccl::Communicator))                                                          \
  X(ncclAllReduce, nccl::Result,                                                                                  \
    (const void*, void*, std::size_t, nccl::DataType, nccl::Operation, nccl::Communicator, CUstream))             \
  X(ncclReduceScatter, nccl::Result,                                                                              \
    (const void*, void*, std::size_t, nccl::DataType, nccl::Operation, nccl::Communicator, CUstream))             \
  X(ncclAllGather, nccl::Result, (const void*, void*, std::size_t, nccl::DataType, nccl::Communicator, CUstream)) \
  X(ncclBroadcast, nccl::Result, (const void*, void*, std::size_t, nccl::DataType, int, nccl::Communicator, CUstream))

}  // namespace paoding::gpu
