// SPDX-License-Identifier: Apache-2.0
// Ranks: the communicator of processes that train together.
#include "paoding/distributed.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>

#include "arrays.h"
#include "bindings.h"
#include "interrupts.h"
#include "paoding/error.h"

namespace paoding::python {
namespace {

using namespace nb::literals;

std::shared_ptr<Communicator> connected(const std::string& device, std::optional<int> rank, std::optional<int> size,
                                        std::optional<int> local_rank, const std::string& store, double timeout) {
  RankPlace place;
  if (rank.has_value() != size.has_value()) {
    throw Error(ErrorKind::argument, "init: rank and size go together: both, or what the launcher says");
  }
  if (rank) {
    place.rank = *rank;
    place.size = *size;
    place.local_rank = local_rank.value_or(*rank);
    place.store = store;
  } else if (const auto found = rank_of_environment()) {
    place = *found;
    if (!store.empty()) place.store = store;
  }
  Device on = device_of(device);
  if (on.kind == DeviceKind::cuda && device == "cuda") on.index = place.local_rank;
  ConnectOptions options;
  options.connect_timeout = std::chrono::milliseconds(static_cast<std::int64_t>(timeout * 1e3));
  return run_freely([&] { return connect_ranks(place, on, options); });
}

}  // namespace

void bind_distributed(nb::module_& module) {
  nb::class_<Communicator>(module, "Communicator",
                           "The ranks of a job, on which a Program's collectives run; made by pd.distributed.init().")
      .def_prop_ro("rank", &Communicator::rank)
      .def_prop_ro("size", &Communicator::size)
      .def_prop_ro("name", &Communicator::name, "The library that it is: 'gloo', 'nccl 2.28.9'.")
      .def_prop_ro("device", [](const Communicator& self) { return to_string(self.device()); })
      .def(
          "barrier", [](Communicator& self) { run_freely([&] { self.barrier(); }); },
          "Returns when every rank has called it.")
      .def(
          "abort", [](Communicator& self, const std::string& reason) { self.abort(reason); }, "reason"_a,
          "Ends the waiting of this rank and, as far as they can be reached, of the others.");
  module.def("connect_ranks", &connected, "device"_a, "rank"_a = nb::none(), "size"_a = nb::none(),
             "local_rank"_a = nb::none(), "store"_a = "", "timeout"_a = 60.0);
}

}  // namespace paoding::python
