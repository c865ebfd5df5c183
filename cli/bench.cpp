// SPDX-License-Identifier: Apache-2.0
// paoding bench: the parent of the benchmark commands; each is a file of its own.
#include <CLI/CLI.hpp>

#include "command.h"

namespace paoding::cli {

void add_bench(CLI::App& app, Commands* commands) {
  CLI::App* sub = app.add_subcommand(
      "bench",
      "Measure the engine on a known piece of work\n\n"
      "Every benchmark checks its results against float64 once per case before it times them, prints the median with "
      "min\n"
      "and max, and says in its heading what was timed. A wrong result is marked WRONG and gives exit code 1.");
  sub->require_subcommand(1);
  add_bench_conv_net(*sub, commands);
  add_bench_kernels(*sub, commands);
  add_bench_lerp_grad(*sub, commands);
  add_bench_lstm_steps(*sub, commands);
  add_bench_seq2seq(*sub, commands);
  sub->footer(
      "Examples:\n"
      "  paoding bench lerp_grad --case 1 --quick\n"
      "  paoding bench lstm_steps --batch 1 --device cpu");
}

}  // namespace paoding::cli
