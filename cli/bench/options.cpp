// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/options.h"

#include <algorithm>

#include "cli/bench/table.h"
#include "cli/line_reader.h"
#include "io/json_text.h"
#include "paoding/profile.h"

namespace paoding::cli::bench {
namespace {

MeasureOptions measure_options(const BenchOptions& options) {
  MeasureOptions measure;
  measure.compile = options.compile.options();
  measure.is_quick = options.is_quick;
  measure.skips_check = options.skips_check;
  measure.on_compiled = [&options](const CompileReport& report) { explain(options.compile, report); };
  return measure;
}

// The page of one of several cases has the case's name in its own.
std::string page_of(const std::string& path, std::string name, std::size_t cases) {
  if (path.empty() || cases == 1) return path;
  std::ranges::replace(name, '/', '_');
  return fmt::format("{}_{}.html", path.substr(0, path.size() - std::string_view(".html").size()), name);
}

std::string profile_of(Program& program, const ReportFlags& flags, const Device& device, const std::string& page) {
  ReportLayout layout = flags.layout;
  layout.page = page;
  Profiler profiler(ReportFlags::state_of(device), flags.level());
  for (int i = 0; i < 10; ++i) program.run();
  program.wait();
  return profiler.stop(flags.sort_by(), "", layout);
}

}  // namespace

void BenchOptions::add_to(CLI::App& sub, bool has_dtype) {
  compile.add_to(sub, has_dtype);
  sub.add_flag("--quick", is_quick, "Fewer samples: 10 instead of at least 50");
  sub.add_flag("--no-check", skips_check, "Leave out the comparison with float64");
  sub.add_flag("--report", reports, "Also print the Profiling Report of ten runs");
  report.add_to(sub);
  sub.add_option("--json", json_path, "Also write the rows to this file")->type_name("FILE");
}

void BenchOptions::check() {
  report.check(reports, "--report");
  if (!json_path.empty()) write_json(json_path, "{}");  // a wrong path is found before the work
}

int measure_cases(const Cases& cases, const BenchOptions& options) {
  const MeasureOptions measure = measure_options(options);
  const Device& device = measure.compile.device;
  const MachineFacts machine = machine_facts(device);
  Floors floors(device, machine);
  print_text(heading(device, machine));
  bool all_right = true;
  std::vector<std::string> items;
  for (const Case& work : cases) {
    show_progress(work.name);
    PreparedCase prepared(work, measure, machine, &floors);
    const std::vector<Row> rows = prepared.time();
    show_progress("");
    for (const Row& row : rows) {
      print_text(row_text(row));
      items.push_back(row_json(row));
      all_right = all_right && row.is_right;
    }
    if (options.reports && prepared.program() != nullptr) {
      const std::string page = page_of(options.report.layout.page, work.name, cases.size());
      print_text(profile_of(*prepared.program(), options.report, device, page) + "\n");
    }
    flush_output();
  }
  if (!options.json_path.empty()) write_json(options.json_path, report_json(device, machine, items));
  if (!all_right) print_error("paoding: bench: results are WRONG, see above\n");
  return all_right ? kOk : kFailed;
}

int follow_names(const Cases& cases, const BenchOptions& options) {
  const MeasureOptions measure = measure_options(options);
  const MachineFacts machine = machine_facts(measure.compile.device);
  Floors floors(measure.compile.device, machine);
  std::unique_ptr<PreparedCase> prepared;
  bool all_right = true;
  LineReader names("-");
  for (std::string name; names.next(&name);) {
    const auto found = std::find_if(cases.begin(), cases.end(), [&](const Case& work) { return work.name == name; });
    try {
      if (found == cases.end()) throw UsageError(fmt::format("there is no case '{}'", name));
      if (!prepared || prepared->work().name != name) {
        prepared = nullptr;  // its memory first
        prepared = std::make_unique<PreparedCase>(*found, measure, machine_facts(measure.compile.device), &floors);
      }
      for (const Row& row : prepared->time()) {
        print("{}\n", row_json(row));
        all_right = all_right && row.is_right;
      }
    } catch (const std::exception& error) {
      prepared = nullptr;
      print("{}\n", JsonObject().add("case", name).add_json("us", "null").add("waits_for", error.what()).text());
    }
    print_text("\n");
    flush_output();
    if (output_is_lost()) break;
  }
  return all_right ? kOk : kFailed;
}

}  // namespace paoding::cli::bench
