// SPDX-License-Identifier: Apache-2.0
// Processes that run one program together: which rank a process is, and how the ranks find and reach each other.
// Whoever starts the processes gives ranks, torchrun, mpirun and srun among them; `paoding train --ranks` does it
// itself. Threads may call all of it.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "paoding/communicator.h"

namespace paoding {

/// A process's place among those of its job.
struct RankPlace {
  int rank = 0, size = 1;
  int local_rank = 0;  // among those of this machine: the number of its GPU
  /// Where the ranks find each other: "file:/folder", a new folder that all see, or "tcp:host:port", where rank 0
  /// listens.
  std::string store;
  std::string told_by;  // for messages: "torchrun (RANK, WORLD_SIZE, LOCAL_RANK)"
};

/// The place that the environment names, in the words of paoding's own launcher and torchrun (RANK, WORLD_SIZE,
/// LOCAL_RANK, MASTER_ADDR, MASTER_PORT), srun (SLURM_PROCID, SLURM_STEP_NUM_TASKS ..), Open MPI
/// (OMPI_COMM_WORLD_RANK ..) and MPICH (PMI_RANK ..); nothing when it names none. PAODING_STORE says where rank 0 is
/// where the launcher does not. Error (argument) when a value is no number or out of range, when two launchers
/// contradict each other, or when nothing tells where rank 0 is.
std::optional<RankPlace> rank_of_environment();

/// A few small values that ranks leave for each other. Threads may share one.
class RankStore {
 public:
  virtual ~RankStore() = default;
  /// Leaves a value, of at most 1 MiB, in place of the one that the key had. Error (device) when the store is gone.
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// The value, when it has been set. Error (device) when it is not set in time.
  virtual std::string get(const std::string& key, std::chrono::milliseconds timeout) = 0;
  /// The address by which others reach this machine.
  virtual std::string local_address() const = 0;
};

/// Opens the place's store. Error (argument) for a text that names none, (device) when it is not there in time.
std::shared_ptr<RankStore> open_rank_store(const RankPlace& place, std::chrono::milliseconds timeout);

struct ConnectOptions {
  std::chrono::milliseconds connect_timeout = std::chrono::seconds(60);  // until all ranks are there
  std::chrono::milliseconds timeout = std::chrono::minutes(30);          // of a collective, until the last rank comes
  std::shared_ptr<RankStore> store = {};                                 // one that is open; else it is opened
};

/// The communicator of the ranks, on the memory of `device`: Gloo on the CPU, NCCL on a GPU. All ranks call it, with
/// different local GPUs. Error (unsupported) when the library is not there, saying which; (device) when a rank does not
/// come in time, naming it, or the library fails.
std::shared_ptr<Communicator> connect_ranks(const RankPlace& place, const Device& device,
                                            const ConnectOptions& options = {});

/// All ranks leave `text` under `name` and compare; Error (argument) that names the first rank whose text differs and
/// shows both. For settings on which ranks have to agree.
void require_equal_on_ranks(RankStore& store, const RankPlace& place, const std::string& name, const std::string& text,
                            std::chrono::milliseconds timeout);

/// "" when connect_ranks() can do the device's kind here, else the library that is missing.
std::string missing_for_ranks(DeviceKind kind);

}  // namespace paoding
