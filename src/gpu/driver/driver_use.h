// SPDX-License-Identifier: Apache-2.0
// Whether the CUDA driver was asked for. Tests find by it which of them want a GPU (tests/support/wants_gpu.cpp).
#pragma once

namespace paoding::gpu {

/// True when driver() was called since the last call of this function, on any thread.
bool take_driver_use() noexcept;

}  // namespace paoding::gpu
