// SPDX-License-Identifier: Apache-2.0
// paoding bench conv_net: a training step of a small convolutional network, and its forward pass.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "bench_timing.h"
#include "command.h"
#include "io/json_text.h"
#include "models/conv_net.h"
#include "numbers.h"
#include "paoding/nn.h"
#include "paoding/optimizer.h"

namespace paoding::cli {
namespace {

struct NetOptions {
  CompileFlags compile;
  std::string dtype = "f32";
  std::vector<std::int64_t> batches = {128};
  std::vector<std::int64_t> channels = {16, 32, 32};
  std::int64_t size = 28, image_channels = 1, classes = 10;
  bool quick = false, skip_check = false;
  std::string json_path;
};

struct Net {
  std::int64_t batch, image_channels, size, classes;
  std::vector<std::int64_t> channels;
  DType dtype;
};

// Blocks of 3x3 convolution, bias, ReLU and 2x2 max pool; a dense layer; the mean cross entropy with the labels.
// Training: the gradients of all weights and an update by Adam.
std::unique_ptr<Graph> build(const Net& net, bool is_training) {
  auto graph = std::make_unique<Graph>();
  const models::ConvNet model(*graph, {.image_channels = net.image_channels,
                                       .height = net.size,
                                       .width = net.size,
                                       .classes = net.classes,
                                       .channels = net.channels,
                                       .dtype = net.dtype});
  const Value logits = model(graph->input("x", net.dtype, {net.batch, net.image_channels, net.size, net.size}));
  if (!is_training) {
    graph->fetch("logits", logits);
    return graph;
  }
  const Value loss = cross_entropy(logits, graph->input("labels", i32, {net.batch}));
  graph->fetch("loss", loss);
  const Scope scope(*graph, "adam");
  minimize(loss, Adam{});
  return graph;
}

std::map<std::string, std::vector<double>> make_feeds(const Graph& graph, std::int64_t classes) {
  std::map<std::string, std::vector<double>> feeds;
  for (const std::vector<NodeId>* ids : {&graph.inputs(), &graph.parameters()}) {
    for (const NodeId id : *ids) {
      const std::string& name = graph.node(id).name.str();
      const Shape& shape = graph.node(id).types[0].shape;
      std::vector<double> values = random_tensor({f64, shape}, 1, name).to_doubles();
      if (name == "labels") {
        for (std::size_t i = 0; i < values.size(); ++i) {
          values[i] = static_cast<double>(static_cast<std::int64_t>(i) * 7 % classes);
        }
      } else if (name == "optimizer/step") {
        values = {100};  // in the midst of training: a first update follows the sign of a gradient, however small
      } else if (name.starts_with("adam/v/")) {
        for (double& value : values) value = 1e-4 * (1 + value * value);
      } else if (name != "x") {
        const double inputs =
            shape.rank() < 2 ? 100 : static_cast<double>(shape.elements() / shape[shape.rank() == 4 ? 0 : 1]);
        for (double& value : values) value /= std::sqrt(inputs);
      }
      // As f32 holds them, so that float64 starts from the same numbers.
      feeds[name] = Tensor::from(f32, shape, values).to_doubles();
    }
  }
  return feeds;
}

Program compile_and_feed(const Graph& graph, const Net& net, const CompileOptions& options, Parameters* parameters) {
  const auto feeds = make_feeds(graph, net.classes);
  for (const std::string& name : parameters->names()) {
    const Type& type = graph.node(const_cast<Graph&>(graph).find(name).ref().node).types[0];
    parameters->set(name, Tensor::from(type.dtype, type.shape, feeds.at(name)));
  }
  Program program(graph, options, parameters);
  for (const std::string& name : program.input_names()) {
    const Type& type = graph.node(const_cast<Graph&>(graph).find(name).ref().node).types[0];
    program.set_input(program.input_index(name), Tensor::from(type.dtype, type.shape, feeds.at(name)));
  }
  program.run();
  program.wait();
  return program;
}

// Of the result and, after one update, of every parameter: against the same network in f64 with every pass off, on the
// CPU: plain loops.
double error_of(const Net& net, bool is_training, Program& program, const Parameters& parameters) {
  Net exact = net;
  exact.dtype = f64;
  const std::unique_ptr<Graph> graph = build(exact, is_training);
  CompileOptions options;
  options.disabled_passes = {"fuse_convolutions", "choose_layouts", "fuse_groups"};
  Parameters expected(*graph, Device::cpu());
  Program reference = compile_and_feed(*graph, exact, options, &expected);
  double error = 0;
  for (const std::string& name : program.fetch_names()) {
    const std::vector<double> wanted = reference.fetch(reference.fetch_index(name)).to_doubles();
    error = std::max(error, max_relative_error(program.fetch(program.fetch_index(name)), wanted));
  }
  for (const std::string& name : expected.names()) {
    error = std::max(error, max_relative_error(parameters.get(name), expected.get(name).to_doubles()));
  }
  return error;
}

double allowed_error(DType dtype, bool is_tf32) {
  if (dtype == f64) return 1e-10;
  if (dtype == f32) return is_tf32 ? 2e-2 : 1e-4;
  return dtype == f16 ? 2e-2 : 1e-1;
}

struct Row {
  Net net;
  bool is_training;
  CompileReport report;
  Samples waiting, back_to_back;
  double error = 0;
  bool is_checked = false, is_right = true;
};

Row measure(const Net& net, bool is_training, const NetOptions& options, const CompileOptions& compile) {
  const std::unique_ptr<Graph> graph = build(net, is_training);
  Parameters parameters(*graph, compile.device);
  Program program = compile_and_feed(*graph, net, compile, &parameters);
  explain(options.compile, program.report());
  Row row{net, is_training, program.report(), {}, {}};
  if (!options.skip_check) {
    row.error = error_of(net, is_training, program, parameters);
    row.is_checked = true;
    row.is_right = row.error <= allowed_error(net.dtype, compile.allow_tf32 && compile.device.kind == DeviceKind::cuda);
  }
  const Effort effort = options.quick ? Effort{5, 50, 0.5} : Effort{50, 400, 3};
  row.waiting = time_waiting(program, 1, effort);
  if (compile.device.kind == DeviceKind::cuda) row.back_to_back = time_back_to_back(program, 1, effort);
  return row;
}

std::string layers_text(const Net& net) { return fmt::format("{}", fmt::join(net.channels, "-")); }

void print_row(const Row& row) {
  print("{:<9}{:>6}{:>6} {:<12} {:<5}{:>11.1f}{:>10}{:>29}{:>13}{:>11.2f}{:>10.1f}  {}{}\n",
        row.is_training ? "training" : "forward", row.net.batch, row.net.size, layers_text(row.net),
        to_string(row.net.dtype), row.report.milliseconds, row.report.launches, to_string(row.waiting),
        row.back_to_back.count == 0 ? "-" : fmt::format("{:.1f}", row.back_to_back.median),
        row.waiting.median / static_cast<double>(row.net.batch), static_cast<double>(row.report.arena_bytes) / 1e6,
        row.is_checked ? fmt::format("{:.1e}", row.error) : "-", row.is_right ? "" : "  WRONG");
}

std::string row_json(const Row& row) {
  JsonObject object;
  object.add("pass", row.is_training ? "training" : "forward").add("batch", row.net.batch).add("size", row.net.size);
  object.add("channels", layers_text(row.net)).add("dtype", to_string(row.net.dtype));
  object.add("compile_ms", row.report.milliseconds).add("launches", row.report.launches);
  object.add("arena_bytes", row.report.arena_bytes).add("samples", row.waiting.count);
  object.add("wall_us", row.waiting.median).add("wall_us_min", row.waiting.min).add("wall_us_max", row.waiting.max);
  if (row.back_to_back.count != 0) {
    object.add("us", row.back_to_back.median).add("us_min", row.back_to_back.min).add("us_max", row.back_to_back.max);
  }
  if (row.is_checked) object.add("error", row.error).add("right", row.is_right);
  return object.text();
}

int bench(const NetOptions& options) {
  const CompileOptions compile = options.compile.options();
  DType dtype = f32;
  if (!parse_dtype(options.dtype, &dtype) || !is_float(dtype)) {
    throw UsageError(fmt::format("--dtype is '{}', needs to be f32, bf16, f16 or f64", options.dtype));
  }
  if (!options.json_path.empty()) write_json(options.json_path, "{}");  // a wrong path is found before the work
  const MachineFacts machine = machine_facts(compile.device);
  print("conv_net: blocks of 3x3 convolution, bias, ReLU, 2x2 max pool, then a dense layer, on {} ({}){}{}\n",
        to_string(compile.device), machine.name, compile.allow_tf32 ? ", TF32 products" : "",
        compile.disabled_passes.empty() ? "" : fmt::format(", without {}", fmt::join(compile.disabled_passes, ", ")));
  print_text(load_warning());
  print(
      "training: cross entropy, the gradients of all weights, an update by Adam. wall: one run and its wait, median "
      "[min, max];\n"
      "streamed: runs launched back to back (GPU only); image: wall over the batch; err: largest error over the "
      "largest\n"
      "expected value of every result and updated parameter, against float64\n\n");
  print("{:<9}{:>6}{:>6} {:<12} {:<5}{:>11}{:>10}{:>29}{:>13}{:>11}{:>10}  {}\n", "pass", "batch", "size", "channels",
        "type", "compile ms", "launches", "wall us", "streamed us", "image us", "arena MB", "err");
  bool is_right = true;
  std::vector<std::string> items;
  for (const std::int64_t batch : options.batches) {
    for (const bool is_training : {false, true}) {
      show_progress(fmt::format("batch {} {}", batch, is_training ? "training" : "forward"));
      const Net net{batch, options.image_channels, options.size, options.classes, options.channels, dtype};
      const Row row = measure(net, is_training, options, compile);
      show_progress("");
      print_row(row);
      flush_output();
      items.push_back(row_json(row));
      is_right = is_right && row.is_right;
    }
  }
  if (!options.json_path.empty()) {
    JsonObject all;
    all.add("bench", "conv_net").add("device", to_string(compile.device)).add("machine", machine.name);
    all.add("tf32", compile.allow_tf32).add_json("no_pass", json_strings(compile.disabled_passes));
    write_json(options.json_path, all.add_json("rows", json_array(items)).text());
  }
  if (!is_right) print_error("paoding: conv_net: results are WRONG, see above\n");
  return is_right ? kOk : kFailed;
}

}  // namespace

void add_bench_conv_net(CLI::App& bench_app, Commands* commands) {
  auto options = std::make_shared<NetOptions>();
  CLI::App* sub = bench_app.add_subcommand(
      "conv_net",
      "A convolutional network, forward and training step\n\n"
      "By default the network of the first report: 28x28 images, blocks of 16, 32 and 32 channels, 10 classes.");
  options->compile.add_to(*sub);
  sub->add_option("--dtype", options->dtype, "f32, bf16, f16 or f64")->type_name("DTYPE")->capture_default_str();
  const auto add_size = [&](const char* name, auto& size, int most, const char* meaning) {
    return sub->add_option(name, size, meaning)
        ->check(CLI::Range(1, most).description(""))
        ->type_name("N")
        ->capture_default_str();
  };
  add_size("--batch", options->batches, 1 << 16, "Batch sizes, split by commas")
      ->delimiter(',')
      ->allow_extra_args(false);
  add_size("--channels", options->channels, 1 << 12, "Channels of every block, split by commas")
      ->delimiter(',')
      ->allow_extra_args(false);
  add_size("--size", options->size, 1 << 12, "Height and width of the images");
  add_size("--image-channels", options->image_channels, 1 << 10, "Channels of the images");
  sub->add_flag("--quick", options->quick, "Fewer samples: 5 instead of at least 50");
  sub->add_flag("--no-check", options->skip_check, "Leave out the comparison with float64");
  sub->add_option("--json", options->json_path, "Also write the rows to this file")->type_name("FILE");
  sub->footer(
      "Examples:\n"
      "  paoding bench conv_net --quick\n"
      "  paoding bench conv_net --batch 100,1000 --no-pass choose_layouts\n"
      "  paoding bench conv_net --batch 16 --size 56 --channels 64,64,64 --image-channels 64 --quick --no-check");
  commands->push_back({sub, [options] { return bench(*options); }});
}

}  // namespace paoding::cli
