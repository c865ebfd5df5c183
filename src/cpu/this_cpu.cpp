// SPDX-License-Identifier: Apache-2.0
#include "cpu/this_cpu.h"

#include <unistd.h>

#include "cpu/parallel.h"
#include "hwy/targets.h"
#if defined(__x86_64__)
#include <xbyak/xbyak_util.h>
#endif

namespace paoding {

Target this_cpu() {
  Target target;
  target.name = "cpu";
  const auto supported = hwy::SupportedTargets();
  target.isa = (supported & HWY_AVX3) != 0   ? VectorIsa::avx512
               : (supported & HWY_AVX2) != 0 ? VectorIsa::avx2
               : (supported & HWY_NEON) != 0 ? VectorIsa::neon
                                             : VectorIsa::scalar;
#if defined(__x86_64__)
  using Xbyak::util::Cpu;
  const Cpu cpu;
  target.has_bf16 = cpu.has(Cpu::tAVX512_BF16);
  target.has_amx = cpu.has(Cpu::tAMX_TILE) && cpu.has(Cpu::tAMX_BF16);
#endif
  target.threads = max_threads();
  target.memory_bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  target.last_cache_bytes = std::max<std::int64_t>(0, sysconf(_SC_LEVEL3_CACHE_SIZE));
  return target;
}

}  // namespace paoding
