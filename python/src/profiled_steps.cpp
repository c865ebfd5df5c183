// SPDX-License-Identifier: Apache-2.0
// ProfiledSteps: some steps of a loop are recorded.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include "arrays.h"
#include "bindings.h"
#include "interrupts.h"
#include "paoding/error.h"
#include "paoding/profile.h"

namespace paoding::python {
namespace {

using namespace nb::literals;
using Window = std::pair<std::int64_t, std::int64_t>;

std::string steps_report(ProfiledSteps& self, const std::string& sort, const nb::object& path,
                         const std::string& nesting, const std::string& format) {
  if (self.profiler() == nullptr) {
    throw Error(ErrorKind::argument,
                "ProfiledSteps: none of the steps has begun\nhint: call before(step) for every step");
  }
  const ReportLayout layout{.nesting = parse_nesting(nesting), .format = parse_format(format)};
  const std::string into = path_of(path).string();
  return run_freely([&] { return self.profiler()->stop(parse_sort(sort), into, layout); });
}

}  // namespace

void bind_profiled_steps(nb::module_& module) {
  nb::class_<ProfiledSteps>(module, "StepsInWindow")
      .def(
          "__init__",
          [](ProfiledSteps* self, Window steps, const std::string& state, const std::string& detail, Window cupti) {
            new (self) ProfiledSteps({steps.first, steps.second}, parse_state(state), parse_detail(detail),
                                     {cupti.first, cupti.second});
          },
          "steps"_a, "state"_a, "detail"_a, "by_cupti"_a)
      .def(
          "before", [](ProfiledSteps& self, std::int64_t step) { run_freely([&] { self.before(step); }); }, "step"_a)
      .def_prop_ro("is_begun", [](ProfiledSteps& self) { return self.profiler() != nullptr; })
      .def("report", &steps_report, "sort"_a, "path"_a, "nesting"_a, "format"_a,
           nb::sig("def report(self, sort: str, path: str | os.PathLike[str], nesting: str, format: str) -> str"));
}

}  // namespace paoding::python
