// SPDX-License-Identifier: Apache-2.0
#include "base/env.h"

#include <cstdlib>

namespace paoding {

std::span<const EnvVariable> env_variables() {
  static constexpr EnvVariable kTable[] = {
      {"PAODING_EXPLAIN", "1: the command line prints what every pass did and why kernels declined", "off", true},
      {"PAODING_COMPILE",
       "switches of every program over those of its own: pass=NAME, no_pass=NAME, tf32=1, tune=1, precision=bf16, "
       "execution=captured, with ; between them (paoding verify sets it)",
       "none", true},
      {"PAODING_RUN",
       "switches of how every program is fed and read: read_ahead=N, fetch_later=1, pinned_feeds=1, "
       "double_buffered_feeds=1, overlapped_collectives=1, with ; between them (paoding verify sets it)",
       "none", true},
      {"PAODING_STEPWISE", "1: `paoding run` launches and checks step by step (the debug execution)", "off", true},
      {"PAODING_VERIFY", "1: the graph is checked after every pass, not only after the last", "off", true},
      {"PAODING_CUDA_PATH", "folders (from / on, split at ':') searched first for NVIDIA's libraries", "none", true},
      {"PAODING_CACHE_DIR", "where compiled GPU kernels, and what --tune found, are kept; empty: nowhere",
       "~/.cache/paoding", true},
      {"PAODING_FUSE_TILES", "0: CPU groups run instruction by instruction, without machine code of their own", "1",
       true},
      {"PAODING_CPU_ISA", "avx2 or sse: the CPU's code uses no newer instructions than that", "all that the CPU has",
       true},
      {"PAODING_PROFILE", "set by `paoding profile` for the command that it runs: what is recorded, and where to",
       "off", true},
      {"PAODING_CUPTI", "1: recordings see GPUs by CUPTI, which slows them down, not by stamps that kernels leave",
       "off", true},
      {"PAODING_CTA_GROUP",
       "recurrences only by CTA groups whose description has these words (split by ;), where there are any",
       "what takes least", true},
      {"PAODING_PHASES", "1: kernels that do all steps of a loop say in reports where their time goes", "off", true},
      {"PAODING_ALLOW_RNN", "0: recurrent layers of torch.nn end graphs of torch.compile(backend='paoding')", "1",
       true},
      {"PAODING_DATA_DIR", "where `paoding fetch` puts data sets, and training looks for them", "data", true},
      {"PAODING_STORE", "where ranks find each other: tcp:host:port of rank 0, or file:/folder that all see",
       "where the launcher says", true},
      {"RANK", "with WORLD_SIZE: which of several ranks a process is, as torchrun sets it, with MASTER_ADDR", "none",
       false},
      {"SLURM_PROCID", "the same, with SLURM_STEP_NUM_TASKS, as srun sets it", "none", false},
      {"OMPI_COMM_WORLD_RANK", "the same, as Open MPI's mpirun sets it", "none", false},
      {"PMI_RANK", "the same, with PMI_SIZE, as MPICH's mpirun sets it", "none", false},
      {"NCCL_NVLS_ENABLE", "1: NCCL may use NVLink's multicast, whose sums differ from run to run", "0", false},
      {"OMP_NUM_THREADS", "threads of the CPU kernels", "the cores that affinity and control groups allow", false},
      {"OMP_WAIT_POLICY", "passive: waiting threads sleep; better when the cores are shared", "active", false},
      {"GOMP_SPINCOUNT", "how often waiting threads look before they sleep; about 2000 suits busy machines too",
       "2000; the OpenMP library's where it was loaded before", false},
      {"CUDA_HOME", "a CUDA toolkit to search, after the loader's own places", "/usr/local/cuda*", false},
      {"CUDA_PATH", "the same", "none", false},
      {"CUDA_INJECTION64_PATH", "another tool that CUDA loads; named where CUPTI refuses because of it", "none", false},
      {"VIRTUAL_ENV", "a Python environment whose NVIDIA packages are searched", "none", false},
      {"NO_COLOR", "not empty: titles of reports do not stand out on a terminal", "none", false},
      {"XDG_CACHE_HOME", "the parent of the kernel cache, when PAODING_CACHE_DIR is not set", "~/.cache", false},
  };
  return kTable;
}

std::optional<std::string> env_value(const char* name) {
  const char* value = std::getenv(name);
  if (value == nullptr) return std::nullopt;
  return std::string(value);
}

std::string env_text(const char* name) { return env_value(name).value_or(""); }

bool env_flag(const char* name) {
  const std::string value = env_text(name);
  return !value.empty() && value != "0" && value != "false" && value != "no" && value != "off";
}

}  // namespace paoding
