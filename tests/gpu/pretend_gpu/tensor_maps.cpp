// SPDX-License-Identifier: Apache-2.0
// The descriptions of operands for the pretended GPU's TMA: the emulation's, with the driver's refusals.
#include <cuda.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "tests/gpu/cuda_emulation/tensor_map_words.h"

#pragma GCC visibility push(default)

namespace {

using emulation::TensorMapWords;

bool is_aligned(std::uint64_t value) { return value % 16 == 0; }

// False where the chip's TMA takes no such operand.
bool describe(TensorMapWords& words, CUtensorMapDataType type, cuuint32_t rank, void* memory, const cuuint64_t* extents,
              const cuuint64_t* stride_bytes) {
  if (rank < 2 || rank > 4) return false;
  const bool is_half = type == CU_TENSOR_MAP_DATA_TYPE_FLOAT16 || type == CU_TENSOR_MAP_DATA_TYPE_BFLOAT16;
  words.base = static_cast<const char*>(memory);
  words.element_bytes = is_half ? 2 : 4;
  words.rank = static_cast<int>(rank) * (type == CU_TENSOR_MAP_DATA_TYPE_FLOAT32 ? -1 : 1);
  std::copy_n(extents, rank, words.extents);
  for (cuuint32_t i = 0; i + 1 < rank; ++i) words.strides[i] = stride_bytes[i] / words.element_bytes;
  return is_aligned(reinterpret_cast<std::uint64_t>(memory)) &&
         std::all_of(stride_bytes, stride_bytes + rank - 1, is_aligned) &&
         std::all_of(extents, extents + rank, [](cuuint64_t extent) { return extent > 0; });
}

}  // namespace

CUresult cuTensorMapEncodeTiled(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* memory,
                                const cuuint64_t* extents, const cuuint64_t* stride_bytes, const cuuint32_t* tile,
                                const cuuint32_t*, CUtensorMapInterleave, CUtensorMapSwizzle swizzle,
                                CUtensorMapL2promotion, CUtensorMapFloatOOBfill) {
  TensorMapWords words{};
  if (!describe(words, type, rank, memory, extents, stride_bytes)) return CUDA_ERROR_INVALID_VALUE;
  words.tile_rows = tile[rank - 1];
  if (rank == 4 && tile[1] > 1) {
    if (std::max(tile[1], tile[2]) > 256 || tile[3] != 1) return CUDA_ERROR_INVALID_VALUE;
    words.tile_rows = tile[1] * tile[2], words.tile_columns = tile[1];
  }
  words.is_plain = swizzle == CU_TENSOR_MAP_SWIZZLE_NONE;
  const bool is_known = words.is_plain || swizzle == CU_TENSOR_MAP_SWIZZLE_128B;
  const bool is_row = tile[0] * words.element_bytes == 128 && is_known;  // all it emulates
  if (!is_row || words.tile_rows == 0 || (words.tile_columns == 0 && words.tile_rows > 256))
    return CUDA_ERROR_INVALID_VALUE;
  std::memcpy(map, &words, sizeof(words));
  return CUDA_SUCCESS;
}

CUresult cuTensorMapEncodeIm2col(CUtensorMap* map, CUtensorMapDataType type, cuuint32_t rank, void* memory,
                                 const cuuint64_t* extents, const cuuint64_t* stride_bytes, const int* first,
                                 const int* beyond, cuuint32_t channels, cuuint32_t pixels, const cuuint32_t* steps,
                                 CUtensorMapInterleave, CUtensorMapSwizzle swizzle, CUtensorMapL2promotion,
                                 CUtensorMapFloatOOBfill) {
  TensorMapWords words{};
  if (rank != 4 || !describe(words, type, rank, memory, extents, stride_bytes)) return CUDA_ERROR_INVALID_VALUE;
  const bool is_row = channels * words.element_bytes == 128 && swizzle == CU_TENSOR_MAP_SWIZZLE_128B;
  if (!is_row || pixels == 0 || pixels > 1024) return CUDA_ERROR_INVALID_VALUE;
  words.tile_rows = pixels;
  words.has_windows = 1;
  for (int i = 0; i < 2; ++i) {
    if (std::max(std::abs(first[i]), std::abs(beyond[i])) > 128) return CUDA_ERROR_INVALID_VALUE;
    words.first[i] = first[i];
    words.step[i] = static_cast<int>(steps[1 + i]);
    words.count[i] = (static_cast<int>(extents[1 + i]) + beyond[i] - 1 - first[i]) / words.step[i] + 1;
  }
  std::memcpy(map, &words, sizeof(words));
  return CUDA_SUCCESS;
}

#pragma GCC visibility pop
