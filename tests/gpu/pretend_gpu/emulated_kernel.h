// SPDX-License-Identifier: Apache-2.0
// The frame that a kernel of the pretended GPU is compiled with: the emulation, and how the driver calls it.
#pragma once

#include <cstddef>

#include "tests/gpu/cuda_emulation/square_products.h"
#include "tests/gpu/cuda_emulation/tensor_cores.h"
#include "tests/gpu/cuda_emulation/warp_products.h"

namespace emulation {

template <class... P>
int argument_sizes(void (*)(P...), unsigned* sizes) {
  const unsigned all[] = {static_cast<unsigned>(sizeof(P))...};
  for (std::size_t i = 0; i < sizeof...(P); ++i) sizes[i] = all[i];
  return static_cast<int>(sizeof...(P));
}

}  // namespace emulation

#define PD_EMULATED_KERNEL(name)                                                                         \
  extern "C" int run_##name(void** a, unsigned g, unsigned b, const unsigned* order) {                   \
    return emulation::launch(name, a, g, b, order);                                                      \
  }                                                                                                      \
  extern "C" int together_##name(void** a, unsigned g, unsigned b, unsigned cluster, std::size_t shared, \
                                 unsigned seed) {                                                        \
    return emulation::launch_together(name, a, g, b, cluster, shared, seed);                             \
  }                                                                                                      \
  extern "C" int sizes_##name(unsigned* sizes) { return emulation::argument_sizes(name, sizes); }
