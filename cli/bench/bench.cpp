// SPDX-License-Identifier: Apache-2.0
// paoding bench: measures the cases of the workloads, or one kind of work in sizes of one's own.
#include <fnmatch.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>

#include "cli/bench/binds.h"
#include "cli/bench/conv_net.h"
#include "cli/bench/kernels.h"
#include "cli/bench/ladder.h"
#include "cli/bench/lerp.h"
#include "cli/bench/options.h"
#include "cli/bench/ranks.h"
#include "cli/bench/recurrent.h"
#include "cli/bench/seq2seq.h"
#include "cli/bench/table.h"
#include "cli/command.h"
#include "text/suggest.h"

namespace paoding::cli {
namespace {

using namespace bench;

// ---- the cases of the workloads ----

bool is_meant(const std::string& name, const std::string& filter) {
  return name == filter || name.starts_with(filter + "/") || fnmatch(filter.c_str(), name.c_str(), 0) == 0;
}

// Those that a filter names; without one those whose rows are about this device.
Cases chosen(Cases cases, const std::vector<std::string>& filters, bool is_cpu, bool lists) {
  std::vector<std::string> names;
  for (const Case& work : cases) names.push_back(work.name);
  for (const std::string& filter : filters) {
    if (std::any_of(names.begin(), names.end(), [&](const auto& name) { return is_meant(name, filter); })) continue;
    throw UsageError(
        fmt::format("no case fits '{}'{}; `paoding bench --list` has all", filter, suggestion(filter, names)));
  }
  std::erase_if(cases, [&](const Case& work) {
    if (filters.empty()) return !lists && !(is_cpu ? work.on_cpu : work.on_gpu);
    return std::none_of(filters.begin(), filters.end(),
                        [&](const auto& filter) { return is_meant(work.name, filter); });
  });
  return cases;
}

int list(const Cases& cases, const BenchOptions& options) {
  print("  {:<40} {:<5} {:<5} {:>9} {:>9} {:>8} {:>8} {:>8}\n", "", "", "", "", "", "goal us", "", "");
  print("  {:<40} {:<5} {:<5} {:>9} {:>9} {:>8} {:>8} {:>8}  {}\n", "case", "type", "on", "MB", "GFLOP", "cold", "hot",
        "wall", "what");
  std::vector<std::string> items;
  for (const Case& work : cases) {
    print_text(case_text(work));
    items.push_back(case_json(work));
  }
  if (!options.json_path.empty()) {
    const CompileOptions compile = options.compile.options();
    write_json(options.json_path, report_json(compile.device, machine_facts(compile.device), items));
  }
  return kOk;
}

// ---- work in sizes of one's own ----

struct OwnSizes {
  std::string dtype = "f32";
  bool by_hand = false;
  int lerp_case = 0;
  bool all = false;
  std::string result;
  std::vector<std::string> kernels;
  std::int64_t steps = 64, hidden = 512;
  std::vector<std::int64_t> batches;
  ConvNetSize net;
  Seq2SeqSize seq2seq;
};

DType float_named(const std::string& name) {
  DType dtype = f32;
  if (!parse_dtype(name, &dtype) || !is_float(dtype)) {
    throw UsageError(fmt::format("--dtype is '{}', needs to be f32, bf16, f16 or f64", name));
  }
  return dtype;
}

// The case of a model in a dtype: 16 bits mean mixed precision, except where the user asks for a dtype by hand.
Case typed(const OwnSizes& sizes, const std::function<Case(DType)>& make) {
  const DType dtype = float_named(sizes.dtype);
  const bool is_mixed = !sizes.by_hand && (dtype == bf16 || dtype == f16);
  return is_mixed ? in_mixed_precision(make(f32), dtype) : make(dtype);
}

Cases lerp_of(const OwnSizes& own, bool is_cpu) {
  Cases cases = lerp_variants(own.all);
  std::erase_if(cases, [&](const Case& work) {
    const bool is_forward = work.kind == "lerp";
    const std::string rest = work.name.substr(work.name.find('/') + 1);
    const bool is_one = rest.find("/dx") != std::string::npos || rest.find("/dy") != std::string::npos;
    const std::string result = is_forward ? "forward" : !is_one ? "dx+dy" : rest.substr(rest.find("/d") + 1, 2);
    const int number = rest[0] - '0';
    if (own.lerp_case != 0 && number != own.lerp_case) return true;
    if (own.lerp_case == 0 && number == 5 && is_cpu) return true;
    return !own.result.empty() && result != own.result;
  });
  return cases;
}

using MakeCases = std::function<Cases(const OwnSizes&, const BenchOptions&)>;

// A command below bench; `sizes` adds its options.
CLI::App* add_own(CLI::App& parent, Commands* commands, const char* name, const char* about,
                  const std::shared_ptr<OwnSizes>& own, const MakeCases& make) {
  CLI::App* sub = parent.add_subcommand(name, about);
  const auto options = std::make_shared<BenchOptions>();
  options->add_to(*sub, false);
  commands->push_back({sub, [options, own, make] {
                         options->check();
                         return measure_cases(make(*own, *options), *options);
                       }});
  return sub;
}

template <class Number>
void add_size(CLI::App* sub, const char* name, Number& size, int most, const char* meaning) {
  sub->add_option(name, size, meaning)
      ->check(whole_number(1, most))
      ->type_name("N")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->capture_default_str();
}

void add_dtype(CLI::App* sub, OwnSizes& own) {
  sub->add_option("--dtype", own.dtype, "f32, bf16, f16 or f64")->type_name("DTYPE")->capture_default_str();
}

void add_model_dtype(CLI::App* sub, OwnSizes& own) {
  sub->add_option("--dtype", own.dtype, "f32 or f64, or bf16 or f16: mixed precision")
      ->type_name("DTYPE")
      ->capture_default_str();
  sub->add_flag("--by-hand", own.by_hand, "The whole model in --dtype; where it is trained, updates keep f32");
}

// A case of every batch size, without and with training.
Cases of_batches(const OwnSizes& sizes, const std::function<Case(std::int64_t batch, bool is_training)>& make) {
  Cases cases;
  for (const std::int64_t batch : sizes.batches) {
    for (const bool is_training : {false, true}) cases.push_back(make(batch, is_training));
  }
  return cases;
}

void add_lerp(CLI::App& parent, Commands* commands) {
  const auto own = std::make_shared<OwnSizes>();
  CLI::App* sub = add_own(
      parent, commands, "lerp_grad",
      "Gradients of a broadcast interpolation, in every variant\n\n"
      "out = x + w (y - x) on five shapes: both gradients, one of them, and the forward pass; w a scalar, one axis or\n"
      "full; f32, f64 and bf16. On the CPU case 5 (4.4 GB) runs only when asked for.\n"
      "  1  x, y [16,102400] f32, w [1]              2  x, y [16,204800] f64, w [1]\n"
      "  3  x [16,1,1,1], y [16,3,224,224], w [1]    4  x [16,1,1,1], y [16,3,244,244], w [3,1,244]\n"
      "  5  x [64,1,512,1], y [64,256,1,128], w [256,512,128]",
      own, [](const OwnSizes& sizes, const BenchOptions& options) {
        return lerp_of(sizes, options.compile.options().device.kind == DeviceKind::cpu);
      });
  sub->add_option("--case", own->lerp_case, "Only this case")->check(whole_number(1, 5))->type_name("1..5");
  sub->add_option("--result", own->result, "Only dx+dy, dx, dy or forward")
      ->check(CLI::IsMember({"dx+dy", "dx", "dy", "forward"}).description(""))
      ->type_name("NAME");
  sub->add_flag("--all", own->all, "Every combination of w, dtype and result");
  sub->footer(
      "Examples:\n"
      "  paoding bench lerp_grad --case 1 --quick\n"
      "  paoding bench lerp_grad --case 3 --no-pass fuse_groups --quick      what fusion is worth");
}

void add_lstm(CLI::App& parent, Commands* commands) {
  const auto own = std::make_shared<OwnSizes>();
  own->batches = {1, 32};
  CLI::App* sub = add_own(
      parent, commands, "lstm_steps",
      "An LSTM layer over time, forward and with all its gradients, in sizes of one's own", own,
      [](const OwnSizes& sizes, const BenchOptions& options) {
        return of_batches(sizes, [&](std::int64_t batch, bool is_training) {
          const RecurrentLayers layers{
              .steps = sizes.steps, .batch = batch, .hidden = sizes.hidden, .is_training = is_training};
          return typed(sizes, [&](DType dtype) { return recurrent_case(layers, dtype, options.compile.allow_tf32); });
        });
      });
  add_model_dtype(sub, *own);
  add_size(sub, "--steps", own->steps, 1 << 16, "Time steps");
  add_size(sub, "--batch", own->batches, 1 << 16, "Batch sizes, split by commas");
  add_size(sub, "--hidden", own->hidden, 1 << 14, "Width of inputs and state");
  sub->footer(
      "Examples:\n"
      "  paoding bench lstm_steps --quick\n"
      "  paoding bench lstm_steps --batch 1 --hidden 128 --device cpu --quick\n"
      "  paoding bench lstm_steps --batch 8 --quick --no-pass hoist_products,fuse_groups");
}

void add_conv_net(CLI::App& parent, Commands* commands) {
  const auto own = std::make_shared<OwnSizes>();
  own->batches = {128};
  CLI::App* sub = add_own(
      parent, commands, "conv_net", "A convolutional network, forward and training step, in sizes of one's own", own,
      [](const OwnSizes& sizes, const BenchOptions& options) {
        return of_batches(sizes, [&](std::int64_t batch, bool is_training) {
          ConvNetSize net = sizes.net;
          net.batch = batch;
          return typed(sizes,
                       [&](DType dtype) { return conv_net_case(net, is_training, dtype, options.compile.allow_tf32); });
        });
      });
  add_model_dtype(sub, *own);
  add_size(sub, "--batch", own->batches, 1 << 16, "Batch sizes, split by commas");
  add_size(sub, "--channels", own->net.channels, 1 << 12, "Channels of every block, split by commas");
  add_size(sub, "--size", own->net.size, 1 << 12, "Height and width of the images");
  add_size(sub, "--image-channels", own->net.image_channels, 1 << 10, "Channels of the images");
  sub->footer(
      "Examples:\n"
      "  paoding bench conv_net --quick\n"
      "  paoding bench conv_net --batch 100,1000 --no-pass choose_layouts\n"
      "  paoding bench conv_net --batch 16 --size 56 --channels 64,64,64 --image-channels 64 --quick --no-check");
}

void add_kernels(CLI::App& parent, Commands* commands) {
  const auto own = std::make_shared<OwnSizes>();
  CLI::App* sub =
      add_own(parent, commands, "kernels", "Work bound by memory: layer_norm forward and backward, cross entropy, Adam",
              own, [](const OwnSizes& sizes, const BenchOptions&) {
                Cases cases = kernel_variants(float_named(sizes.dtype));
                return chosen(std::move(cases), sizes.kernels, true, true);
              });
  add_dtype(sub, *own);
  sub->add_option("--case", own->kernels, "Only these: layer_norm, cross_entropy, adam")
      ->type_name("NAME")
      ->delimiter(',');
  sub->footer(
      "Examples:\n"
      "  paoding bench kernels --quick\n"
      "  paoding bench kernels --case adam --dtype bf16");
}

void add_seq2seq(CLI::App& parent, Commands* commands, const char* name, const char* about, const Seq2SeqSize& size) {
  const auto own = std::make_shared<OwnSizes>();
  own->seq2seq = size;
  CLI::App* sub =
      add_own(parent, commands, name, about, own, [name](const OwnSizes& sizes, const BenchOptions& options) {
        Seq2SeqSize size = sizes.seq2seq;
        size.scales_loss = float_named(sizes.dtype) == f16;
        return Cases{
            typed(sizes, [&](DType dtype) { return seq2seq_case(name, size, dtype, options.compile.allow_tf32); })};
      });
  add_size(sub, "--batch", own->seq2seq.batch, 1 << 16, "Rows of a batch");
  add_size(sub, "--hidden", own->seq2seq.model.hidden, 1 << 14, "Width of embeddings and states");
  add_size(sub, "--source", own->seq2seq.source_steps, 1 << 16, "Source positions");
  add_size(sub, "--target", own->seq2seq.target_steps, 1 << 16, "Target positions");
  sub->add_option("--dropout", own->seq2seq.model.dropout, "Share of what is dropped")
      ->check([](const std::string& text) {
        const double share = std::strtod(text.c_str(), nullptr);
        return share >= 0 && share < 1 ? std::string() : "is " + text + ", needs to be at least 0 and below 1";
      })
      ->type_name("NUMBER")
      ->capture_default_str();
  sub->add_flag("--lengths", own->seq2seq.has_lengths, "Sources have lengths");
  add_model_dtype(sub, *own);
  sub->footer(
      fmt::format("Examples:\n"
                  "  paoding bench {0} --quick\n"
                  "  paoding bench {0} --quick --report --nest scope      where the time goes",
                  name));
}

}  // namespace

void add_bench(CLI::App& app, Commands* commands) {
  CLI::App* sub = app.add_subcommand(
      "bench",
      "Measure the engine on known pieces of work\n\n"
      "Without a further command: the cases of the project's workloads, each beside its floor and its goal; work that\n"
      "is not written yet has a row that says what it waits for. With one: that work in sizes of one's own. Results\n"
      "are compared with float64 before anything is timed; a wrong one is marked WRONG and gives exit code 1.");
  sub->require_subcommand(0, 1);
  const auto options = std::make_shared<BenchOptions>();
  options->add_to(*sub);
  const auto filters = std::make_shared<std::vector<std::string>>();
  const auto lists = std::make_shared<bool>(false), follows = std::make_shared<bool>(false);
  sub->add_option("--filter", *filters,
                  "Only these cases, split by commas: a name, its beginning up to a '/', or a pattern with '*'")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->type_name("NAMES");
  sub->add_flag("--list", *lists, "Only list the cases");
  sub->add_flag("--follow", *follows,
                "Read names of cases from stdin and answer each with its rows as JSON lines and an empty line; the\n"
                "same name again is timed again, not prepared again");
  commands->push_back({sub, [options, filters, lists, follows] {
                         options->check();
                         const bool is_cpu = options->compile.options().device.kind == DeviceKind::cpu;
                         Cases cases = chosen(all_cases(), *filters, is_cpu, *lists || *follows);
                         if (*lists) return list(cases, *options);
                         if (*follows) return follow_names(cases, *options);
                         return measure_cases(cases, *options);
                       }});
  add_binds(*sub, commands);
  add_conv_net(*sub, commands);
  add_kernels(*sub, commands);
  add_lerp(*sub, commands);
  add_ladder(*sub, commands);
  add_lstm(*sub, commands);
  add_seq2seq(*sub, commands, "g2p", "A training step that spells, in sizes of one's own", g2p_size());
  add_seq2seq(*sub, commands, "seq2seq", "A training step that translates, in sizes of one's own", translation_size());
  add_ranks(*sub, commands);
  sub->footer(
      "Examples:\n"
      "  paoding bench --list\n"
      "  paoding bench --filter lerp_grad/1,adam/10m_f32 --quick --json numbers.json\n"
      "  paoding bench lerp_grad --case 1 --quick\n"
      "  paoding bench lstm --quick                          an LSTM in every way there is to run it\n"
      "  paoding bench lstm_steps --batch 1 --device cpu");
}

}  // namespace paoding::cli
