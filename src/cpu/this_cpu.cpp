// SPDX-License-Identifier: Apache-2.0
#include "cpu/this_cpu.h"

#include <unistd.h>

#include <atomic>
#include <string>

#include "base/check.h"
#include "base/env.h"
#include "cpu/last_cache.h"
#include "cpu/onednn.h"
#include "cpu/parallel.h"
#include "hwy/targets.h"
#if defined(__x86_64__)
#include <sys/syscall.h>
#include <xbyak/xbyak_util.h>
#endif

namespace paoding {
namespace {

// PAODING_CPU_ISA takes instruction sets away before anybody asks for those of this CPU.
struct IsaLimit {
  IsaLimit() : name(env_text("PAODING_CPU_ISA")) {
    constexpr std::int64_t kAvx512 = HWY_AVX3 | HWY_AVX3_DL;
    if (name == "avx2") {
      hwy::DisableTargets(kAvx512);
      dnnl::set_max_cpu_isa(dnnl::cpu_isa::avx2);
    } else if (name == "sse") {
      hwy::DisableTargets(kAvx512 | HWY_AVX2);
      dnnl::set_max_cpu_isa(dnnl::cpu_isa::sse41);
    } else {
      is_known = name.empty() || name == "avx512";
    }
  }
  std::string name;
  bool is_known = true;
};
const IsaLimit isa_limit;

#if defined(__x86_64__)
// Linux gives a process the registers of AMX when it asks: they are large, and saved with every thread.
bool may_use_tiles() {
  constexpr long kRequestPermission = 0x1023, kTileData = 18;  // ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA
  static const bool may = syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
  return may;
}
#endif

}  // namespace

std::int64_t allowed_instructions() {
  // Instruction sets may have been taken away from Highway: by PAODING_CPU_ISA, and by tests, which make it choose
  // anew. It asks the CPU each time, and in a virtual machine that takes microseconds.
  static std::atomic<std::int64_t> known{0};
  if (known == 0 || !hwy::GetChosenTarget().IsInitialized()) {
    known = hwy::SupportedTargets();
    hwy::GetChosenTarget().Update(known);
  }
  return known;
}

Target this_cpu() {
  if (!isa_limit.is_known) {
    fail(ErrorKind::argument, "PAODING_CPU_ISA: must be avx512, avx2 or sse, is '{}'", isa_limit.name);
  }
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
  const bool is_wide = target.isa == VectorIsa::avx512;
  target.has_bf16 = is_wide && cpu.has(Cpu::tAVX512_BF16);
  target.has_amx = is_wide && cpu.has(Cpu::tAMX_TILE) && cpu.has(Cpu::tAMX_BF16) && may_use_tiles();
#endif
  target.threads = max_threads();
  target.memory_bytes = static_cast<std::int64_t>(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE);
  target.last_cache_bytes = last_cache_bytes();
  return target;
}

}  // namespace paoding
