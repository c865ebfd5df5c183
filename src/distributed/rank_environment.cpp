// SPDX-License-Identifier: Apache-2.0
// Which rank a process is, from the variables that launchers leave.
#include <unistd.h>

#include <charconv>
#include <vector>

#include "base/check.h"
#include "base/env.h"
#include "base/one_line.h"
#include "paoding/distributed.h"

namespace paoding {
namespace {

constexpr int kMostRanks = 1 << 20;
constexpr int kFirstPort = 20000, kPorts = 20000;  // of Slurm's jobs

// The names under which a launcher leaves ranks. Slurm's variables of the job are there in a plain shell of it as well;
// those of the step are srun's alone.
struct Launcher {
  const char *name, *rank, *size, *local_rank;
};
constexpr Launcher kLaunchers[] = {
    {"torchrun", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
    {"Open MPI", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"MPICH", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
};

int number_in(const char* variable, int least, int most) {
  const std::string text = env_text(variable);
  int number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < least || number > most) {
    fail(ErrorKind::argument, "ranks: {} is '{}', needs to be a whole number from {} to {}", variable, one_line(text),
         least, most);
  }
  return number;
}

std::optional<RankPlace> place_of(const Launcher& launcher) {
  if (env_text(launcher.rank).empty() || env_text(launcher.size).empty()) return std::nullopt;
  RankPlace place;
  place.size = number_in(launcher.size, 1, kMostRanks);
  place.rank = number_in(launcher.rank, 0, place.size - 1);
  place.local_rank = place.rank;
  if (!env_text(launcher.local_rank).empty()) place.local_rank = number_in(launcher.local_rank, 0, place.size - 1);
  place.told_by = fmt::format("{} ({}={}, {}={})", launcher.name, launcher.rank, place.rank, launcher.size, place.size);
  return place;
}

// "node7" of "node[7-9,12]" and of "node7,node8".
std::string first_node(const std::string& list) {
  const std::size_t bracket = list.find('['), comma = list.find(',');
  if (bracket == std::string::npos || comma < bracket) return list.substr(0, comma);
  const std::size_t end = list.find_first_of("-,]", bracket);
  return list.substr(0, bracket) + list.substr(bracket + 1, end - bracket - 1);
}

// Rank 0 of torchrun's jobs listens on the port after that of torchrun's own store.
std::string store_of_environment() {
  if (const std::string given = env_text("PAODING_STORE"); !given.empty()) return given;
  if (const std::string host = env_text("MASTER_ADDR"); !host.empty() && !env_text("MASTER_PORT").empty()) {
    const int port = number_in("MASTER_PORT", 1, 65535);
    return fmt::format("tcp:{}:{}", host, port < 65535 ? port + 1 : port - 1);
  }
  const std::string nodes = env_text("SLURM_STEP_NODELIST");
  if (!nodes.empty() && !env_text("SLURM_JOB_ID").empty()) {
    const int job = number_in("SLURM_JOB_ID", 0, 1 << 30), step = number_in("SLURM_STEP_ID", 0, 1 << 30);
    return fmt::format("tcp:{}:{}", first_node(nodes), kFirstPort + (job + 17 * (step % 1000)) % kPorts);
  }
  // A name that the processes of one mpirun share, where all are on this machine.
  const std::string of_job = env_text("PMIX_NAMESPACE");
  if (!of_job.empty() && env_text("OMPI_COMM_WORLD_LOCAL_SIZE") == env_text("OMPI_COMM_WORLD_SIZE")) {
    return fmt::format("file:/tmp/paoding-ranks-{}-{:016x}", getuid(), std::hash<std::string>()(of_job));
  }
  return "";
}

}  // namespace

std::optional<RankPlace> rank_of_environment() {
  std::vector<RankPlace> places;
  for (const Launcher& launcher : kLaunchers) {
    if (auto place = place_of(launcher)) places.push_back(*std::move(place));
  }
  if (places.empty()) return std::nullopt;
  for (const RankPlace& other : places) {
    if (other.rank == places[0].rank && other.size == places[0].size) continue;
    fail(ErrorKind::argument,
         "ranks: {} and {} contradict each other\nhint: unset the variables of the one that did not start this process",
         places[0].told_by, other.told_by);
  }
  RankPlace place = places[0];
  if (place.size == 1) return place;
  place.store = store_of_environment();
  if (place.store.empty()) {
    fail(ErrorKind::argument,
         "ranks: {} says that this is rank {} of {}, and nothing says where rank 0 is\nhint: "
         "PAODING_STORE=tcp:host:port "
         "on all ranks, with a free port of rank 0's machine",
         place.told_by, place.rank, place.size);
  }
  return place;
}

}  // namespace paoding
