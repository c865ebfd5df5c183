// SPDX-License-Identifier: Apache-2.0
#include "report_flags.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include "command.h"
#include "paoding/error.h"
#include "profile/page.h"
#include "profile/save.h"

namespace paoding::cli {

int width_of_terminal() {
  winsize size{};
  return isatty(STDOUT_FILENO) == 1 && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 ? size.ws_col : 0;
}

void ReportFlags::add_to(CLI::App& sub) {
  options_ = {
      sub.add_option("--sort", sort, "Rows of the report by none, calls, total, max, min or average")
          ->type_name("KEY")
          ->capture_default_str(),
      sub.add_option("--detail", detail, "How far ops are taken apart: op, phases or instances")
          ->type_name("LEVEL")
          ->capture_default_str(),
      sub.add_option("--nest", nest, "Rows of the report under the op that ran them, or under their scope: op or scope")
          ->type_name("BY")
          ->capture_default_str(),
      sub.add_option("--width", layout.width, "Names of the report's rows are cut to so many characters; 0 never")
          ->check(whole_number(0, 1 << 20))
          ->type_name("N")
          ->capture_default_str(),
      sub.add_flag("--rates", layout.rates, "Columns for the bytes and operations a second of every row"),
      sub.add_flag("--self", layout.self, "A column for what of a row's time is in none of the rows below it"),
      sub.add_flag("--kernels", layout.kernels, "Rows under every op for the kernels that it ran as"),
      sub.add_option("--format", format, "The report as text, json or csv")->type_name("FORMAT")->capture_default_str(),
      sub.add_option("--html", layout.page, "Also write the report with its timeline as a page for a browser (.html)")
          ->type_name("FILE"),
      sub.add_flag_callback(
          "--no-findings", [this] { layout.findings = false; },
          "Leave out where steps lose time, how much a change would save, and the change to make"),
      sub.add_flag("--share-groups", layout.share_groups, "Time of a fused group goes to its ops, by their bytes"),
  };
}

void ReportFlags::check(bool is_asked_for, const char* asked_by) {
  try {
    parse_sort(sort);
    parse_detail(detail);
    layout.nesting = parse_nesting(nest);
    layout.format = parse_format(format);
  } catch (const Error& error) {
    throw UsageError(error.what());
  }
  layout.line_width = width_of_terminal();
  for (const CLI::Option* option : options_) {
    if (is_asked_for || option->count() == 0) continue;
    throw UsageError(
        fmt::format("{} says how a report looks, but none is asked for: {} does", option->get_name(), asked_by));
  }
  if (layout.page.empty()) return;
  if (!profile::is_page(layout.page)) {
    throw UsageError(fmt::format("--html is '{}', needs to end in .html", layout.page));
  }
  check_folder_of(layout.page);
  profile::check_saveable(layout.page);
}

}  // namespace paoding::cli
