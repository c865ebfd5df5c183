// SPDX-License-Identifier: Apache-2.0
// The profiler: `with pd.Profiler() as seen:`, ranges, and the report.
#include "paoding/profile.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <memory>

#include "arrays.h"
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
  nb::dict arguments;
  std::unique_ptr<ProfileRange> range = nullptr;
};

void set(ProfileRange& range, const std::string& name, nb::handle value) {
  if (nb::isinstance<nb::str>(value)) {
    range.set(name, std::string_view(name_of(value, "ProfileRange: the argument '" + name + "'")));
  } else if (nb::isinstance<nb::float_>(value)) {
    range.set(name, nb::cast<double>(value));
  } else if (std::int64_t whole = 0; nb::try_cast(value, whole)) {
    range.set(name, whole);
  } else if (double real = 0; nb::try_cast(value, real)) {  // of NumPy
    range.set(name, real);
  } else {
    throw Error(ErrorKind::argument, "ProfileRange: the argument '" + name + "' is of type " + type_name_of(value) +
                                         ", needs to be an int of 64 bits, a float or a str");
  }
}

std::string report_of(ProfilerHandle& self, const std::string& sort, nb::object path, const std::string& nesting,
                      int width, bool rates, bool kernels, const std::string& format) {
  if (!self.profiler) throw Error(ErrorKind::argument, "report: nothing was recorded\nhint: `with profiler:`");
  const ReportLayout layout{.nesting = parse_nesting(nesting),
                            .width = width,
                            .rates = rates,
                            .kernels = kernels,
                            .format = parse_format(format)};
  const std::string into = path_of(path).string();
  return run_freely([&] { return self.profiler->stop(parse_sort(sort), into, layout); });
}

std::string page_of(ProfilerHandle& self, nb::object path, const std::string& sort, const std::string& nesting) {
  if (!self.profiler) throw Error(ErrorKind::argument, "html: nothing was recorded\nhint: `with profiler:`");
  const ReportLayout layout{.nesting = parse_nesting(nesting)};
  const std::string into = path_of(path).string();
  if (into.empty()) return run_freely([&] { return self.profiler->html(parse_sort(sort), layout); });
  if (!into.ends_with(".html")) {
    throw Error(ErrorKind::argument, "html: the path is '" + into + "', needs to end in .html");
  }
  run_freely([&] { return self.profiler->stop(parse_sort(sort), into, layout); });
  return "";
}

// A frame of its own: the page's style and keys are not the notebook's.
std::string notebook_html(ProfilerHandle& self) {
  if (!self.profiler) return "<p>Profiler: nothing was recorded</p>";
  std::string page = run_freely([&] { return self.profiler->html(); }), quoted;
  quoted.reserve(page.size() + page.size() / 8);
  for (const char c : page) c == '&' ? quoted += "&amp;" : c == '"' ? quoted += "&quot;" : quoted += c;
  return "<iframe title=\"Profiling Report\" sandbox=\"allow-scripts\" style=\"width:100%;height:720px;border:0\" "
         "srcdoc=\"" +
         quoted + "\"></iframe>";
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
          "__exit__",
          [](ProfilerHandle& self, const nb::args&) {
            if (!self.profiler) throw Error(ErrorKind::argument, "Profiler: __exit__ without __enter__");
            run_freely([&] { self.profiler->end(); });
          },
          nb::sig("def __exit__(self, *exception: object) -> None"))
      .def("report", &report_of, "sort"_a = "total", "path"_a = "", "nesting"_a = "op", "width"_a = 0,
           "rates"_a = false, "kernels"_a = false, "format"_a = "text",
           nb::sig(
               "def report(self, sort: str = 'total', path: str | os.PathLike[str] = '', nesting: str = 'op', width: "
               "int = 0, rates: bool = False, kernels: bool = False, format: str = 'text') -> str"),
           "What was recorded, as text, JSON or CSV, with `kernels` under every op those that it ran as; `path` also "
           "gets the timeline (.json, .json.gz, .pftrace), the "
           "recording (.paoding) or the report as a page for a browser (.html).")
      .def(
          "html", &page_of, "path"_a = "", "sort"_a = "total", "nesting"_a = "op",
          nb::sig("def html(self, path: str | os.PathLike[str] = '', sort: str = 'total', nesting: str = 'op') -> str"),
          "Writes the report with its timeline to a file (.html) for a browser; without a path returns the page.")
      .def("_repr_html_", &notebook_html, "What a notebook shows: the page, in a frame.");
  nb::class_<RangeHandle>(module, "ProfileRange",
                          "`with pd.ProfileRange(name, rows=32):` names a stretch of the program in reports and "
                          "timelines, with arguments that are ints, floats or strs.")
      .def(
          "__init__",
          [](RangeHandle* self, const std::string& name, const nb::kwargs& arguments) {
            new (self) RangeHandle{name, nb::borrow<nb::dict>(arguments)};
          },
          nb::sig("def __init__(self, name: str, /, **arguments: int | float | str) -> None"))
      .def(
          "__enter__",
          [](nb::handle self) {
            auto& mine = nb::cast<RangeHandle&>(self);
            mine.range = std::make_unique<ProfileRange>(mine.name);
            if (mine.range->is_recorded()) {
              for (const auto& [name, value] : mine.arguments) {
                set(*mine.range, name_of(name, "ProfileRange: the name of an argument"), value);
              }
            }
            return nb::borrow(self);
          },
          nb::sig("def __enter__(self) -> ProfileRange"))
      .def(
          "set",
          [](RangeHandle& self, const std::string& name, nb::handle value) {
            if (!self.range) throw Error(ErrorKind::argument, "ProfileRange.set: needs to be called within `with`");
            if (self.range->is_recorded()) set(*self.range, name, value);
          },
          "name"_a, "value"_a, nb::sig("def set(self, name: str, value: int | float | str) -> None"),
          "An argument that is known later; one of the same name is replaced.")
      .def(
          "__exit__", [](RangeHandle& self, const nb::args&) { self.range = nullptr; },
          nb::sig("def __exit__(self, *exception: object) -> None"));
}

}  // namespace paoding::python
