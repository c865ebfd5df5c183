// SPDX-License-Identifier: Apache-2.0
#include "gpu/driver/proof.h"

namespace paoding::gpu {

Proof proof_of(int major, int minor) {
  const int capability = 10 * major + minor;
  if (capability < 75) return Proof::refused;  // the oldest that NVRTC 13 makes code for
  switch (capability) {
    case 90: return Proof::run;
    case 75:  // tests/targets_gpu_test.cpp compiles for these
    case 80:
    case 89:
    case 100: return Proof::compiled;
    default: return Proof::untested;
  }
}

std::string_view proof_text(Proof proof) {
  switch (proof) {
    case Proof::run: return "run: tests and benchmarks ran on such a GPU";
    case Proof::compiled: return "compiled and emulated only: no program has run on such a GPU";
    case Proof::untested: return "untested: nothing was compiled for such a GPU in the tests";
    case Proof::refused: return "refused: compute capability 7.5 or later is needed";
  }
  return "";
}

}  // namespace paoding::gpu
