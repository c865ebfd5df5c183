// SPDX-License-Identifier: Apache-2.0
// The profiler: `with pd.Profiler() as seen:`, ranges, and the report.
#include "paoding/profile.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <memory>

#include "bindings.h"
#include "interrupts.h"

namespace paoding::python {
namespace {

using namespace nb::literals;

struct ProfilerHandle {
  State state;
  Detail detail;
  std::unique_ptr<Profiler> profiler = nullptr;
};
struct RangeHandle {
  std::string name;
  std::unique_ptr<ProfileRange> range = nullptr;
};

std::string report_of(ProfilerHandle& self, const std::string& sort, const std::string& path,
                      const std::string& nesting, int width, bool rates, bool kernels, const std::string& format) {
  if (!self.profiler) throw Error(ErrorKind::argument, "report: nothing was recorded\nhint: `with profiler:`");
  const ReportLayout layout{.nesting = parse_nesting(nesting),
                            .width = width,
                            .rates = rates,
                            .kernels = kernels,
                            .format = parse_format(format)};
  return run_freely([&] { return self.profiler->stop(parse_sort(sort), path, layout); });
}

}  // namespace

void bind_profile(nb::module_& module) {
  nb::class_<ProfilerHandle>(module, "Profiler", "Records what runs within `with profiler:`, in every thread.")
      .def(
          "__init__",
          [](ProfilerHandle* self, const std::string& state, const std::string& detail) {
            new (self) ProfilerHandle{parse_state(state), parse_detail(detail)};
          },
          "state"_a = "all", "detail"_a = "op")
      .def(
          "__enter__",
          [](nb::handle self) {
            auto& mine = nb::cast<ProfilerHandle&>(self);
            mine.profiler = std::make_unique<Profiler>(mine.state, mine.detail);
            return nb::borrow(self);
          },
          nb::sig("def __enter__(self) -> Profiler"))
      .def(
          "__exit__", [](ProfilerHandle& self, const nb::args&) { run_freely([&] { self.profiler->end(); }); },
          nb::sig("def __exit__(self, *exception: object) -> None"))
      .def("report", &report_of, "sort"_a = "total", "path"_a = "", "nesting"_a = "op", "width"_a = 0,
           "rates"_a = false, "kernels"_a = false, "format"_a = "text",
           "What was recorded, as text, JSON or CSV, with `kernels` under every op those that it ran as; `path` also "
           "gets the timeline (.json, .json.gz, .pftrace) or the "
           "recording (.paoding).");
  nb::class_<RangeHandle>(module, "ProfileRange",
                          "`with pd.ProfileRange(name):` names a stretch of the program in reports.")
      .def(
          "__init__", [](RangeHandle* self, const std::string& name) { new (self) RangeHandle{name}; }, "name"_a)
      .def("__enter__", [](RangeHandle& self) { self.range = std::make_unique<ProfileRange>(self.name); })
      .def(
          "__exit__", [](RangeHandle& self, const nb::args&) { self.range = nullptr; },
          nb::sig("def __exit__(self, *exception: object) -> None"));
}

}  // namespace paoding::python
