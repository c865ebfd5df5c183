// SPDX-License-Identifier: Apache-2.0
// paoding bench lerp_grad: the gradients of out = x + w (y - x) on five shapes, each optional, and the forward pass.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "bench_timing.h"
#include "command.h"
#include "cpu/parallel.h"
#include "io/json_text.h"
#include "numbers.h"
#include "paoding/autodiff.h"
#include "paoding/ops.h"

namespace paoding::cli {
namespace {

struct LerpOptions {
  CompileFlags compile;
  bool quick = false, all = false;
  int chosen = 0;      // 0: all cases
  std::string result;  // empty: all
  std::string json_path;
};

// ---- what is measured ----

struct Case {
  int number;
  Shape x, y, w, out;
  DType dtype;
};

std::vector<Case> cases() {
  return {
      {1, {16, 102400}, {16, 102400}, {1}, {16, 102400}, f32},
      {2, {16, 204800}, {16, 204800}, {1}, {16, 204800}, f64},
      {3, {16, 1, 1, 1}, {16, 3, 224, 224}, {1}, {16, 3, 224, 224}, f32},
      {4, {16, 1, 1, 1}, {16, 3, 244, 244}, {3, 1, 244}, {16, 3, 244, 244}, f32},
      {5, {64, 1, 512, 1}, {64, 256, 1, 128}, {256, 512, 128}, {64, 256, 512, 128}, f32},
  };
}

enum class Variant { both, dx, dy, forward };
constexpr const char* kVariantNames[] = {"dx+dy", "dx", "dy", "forward"};

struct Row {
  Case work;
  Variant variant;
  DType dtype;
  Shape w;

  bool wants_dx() const { return variant == Variant::both || variant == Variant::dx; }
  bool wants_dy() const { return variant == Variant::both || variant == Variant::dy; }
  bool is_backward() const { return variant != Variant::forward; }

  // Each input that matters read once, each output written once.
  std::int64_t read_bytes() const {
    std::int64_t elements = w.elements() + work.out.elements() * (is_backward() ? 1 : 0);
    if (!is_backward()) elements += work.x.elements() + work.y.elements();
    return elements * size_bytes(dtype);
  }
  std::int64_t written_bytes() const {
    std::int64_t elements = is_backward() ? 0 : work.out.elements();
    if (wants_dx()) elements += work.x.elements();
    if (wants_dy()) elements += work.y.elements();
    return elements * size_bytes(dtype);
  }
  std::int64_t bytes() const { return read_bytes() + written_bytes(); }
  // Buffers of one set, those included that a gradient does not read.
  std::int64_t memory_bytes() const {
    const std::int64_t elements = work.x.elements() + work.y.elements() + w.elements() + work.out.elements();
    return elements * size_bytes(dtype) + written_bytes();
  }
};

// A case with its own w and dtype in every variant; other kinds of w and other dtypes with both gradients. `all`: every
// combination. The largest case comes with its own w and dtype only.
std::vector<Row> rows_of(const Case& work, bool all) {
  std::vector<Shape> weights = {work.w};
  std::vector<DType> dtypes = {work.dtype};
  const bool is_large = work.out.elements() > (1 << 28);
  if (!is_large) {
    for (const Shape& w : {Shape{1}, Shape{work.out[work.out.rank() - 1]}, work.out}) {
      if (std::find(weights.begin(), weights.end(), w) == weights.end()) weights.push_back(w);
    }
    for (const DType dtype : {f32, f64, bf16}) {
      if (dtype != work.dtype) dtypes.push_back(dtype);
    }
  }
  std::vector<Row> rows;
  for (const DType dtype : dtypes) {
    for (const Shape& w : weights) {
      const int own = (dtype == work.dtype ? 1 : 0) + (w == work.w ? 1 : 0);
      for (const Variant variant : {Variant::both, Variant::dx, Variant::dy, Variant::forward}) {
        if (all || own == 2 || (own == 1 && variant == Variant::both)) rows.push_back({work, variant, dtype, w});
      }
    }
  }
  return rows;
}

// ---- the expected values ----

// Strides of a dense value of `shape` along the axes of `out`, 0 where it is broadcast; both padded to four axes.
using Four = std::array<std::int64_t, 4>;
Four extents(const Shape& shape) {
  Four four{1, 1, 1, 1};
  for (int i = 0; i < shape.rank(); ++i) four[static_cast<std::size_t>(4 - shape.rank() + i)] = shape[i];
  return four;
}
Four strides(const Shape& shape) {
  const Four size = extents(shape);
  Four four{};
  std::int64_t stride = 1;
  for (std::size_t i = 4; i-- > 0;) {
    four[i] = size[i] == 1 ? 0 : stride;
    stride *= size[i];
  }
  return four;
}

// For every element of a value of shape `to`: the sum over the axes that `out` has and it has not of
// term(index of out, index of w), in double.
template <class Term>
std::vector<double> sum_to(const Shape& to, const Shape& out, const Shape& w, Term term) {
  std::vector<double> sums(static_cast<std::size_t>(to.elements()));
  struct State {
    std::vector<double>& sums;
    const Four size, kept, out_strides, w_strides;
    Term& term;
    int threads;
  } state{sums, extents(out), extents(to), strides(out), strides(w), term, max_threads()};
  parallel(
      state.threads,
      [](int thread, void* pointer) {
        State& s = *static_cast<State*>(pointer);
        const auto count = static_cast<std::int64_t>(s.sums.size());
        const std::int64_t end = count * (thread + 1) / s.threads;
        for (std::int64_t i = count * thread / s.threads; i < end; ++i) {
          Four first{}, last{};
          std::int64_t rest = i;
          for (std::size_t axis = 4; axis-- > 0;) {
            const bool is_summed = s.kept[axis] == 1;
            first[axis] = is_summed ? 0 : rest % s.kept[axis];
            last[axis] = is_summed ? s.size[axis] : first[axis] + 1;
            rest /= s.kept[axis];
          }
          double sum = 0;
          for (std::int64_t a = first[0]; a < last[0]; ++a)
            for (std::int64_t b = first[1]; b < last[1]; ++b)
              for (std::int64_t c = first[2]; c < last[2]; ++c)
                for (std::int64_t d = first[3]; d < last[3]; ++d) {
                  const Four at{a, b, c, d};
                  std::int64_t in_out = 0, in_w = 0;
                  for (std::size_t axis = 0; axis < 4; ++axis) {
                    in_out += at[axis] * s.out_strides[axis];
                    in_w += at[axis] * s.w_strides[axis];
                  }
                  sum += s.term(in_out, in_w);
                }
          s.sums[static_cast<std::size_t>(i)] = sum;
        }
      },
      &state);
  return sums;
}

// ---- one row ----

struct Inputs {
  Tensor x, y, w, dout;
};

double error_of(const Row& row, const Inputs& in, Program& program, int set) {
  const auto fetched = [&](const char* name) {
    return program.fetch(program.fetch_index(fmt::format("{}{}", name, set)));
  };
  double error = 0;
  if (!row.is_backward()) {
    const Four xs = strides(row.work.x), ys = strides(row.work.y), size = extents(row.work.out);
    const auto expected = sum_to(row.work.out, row.work.out, row.w, [&](std::int64_t i, std::int64_t in_w) {
      std::int64_t rest = i, in_x = 0, in_y = 0;
      for (std::size_t axis = 4; axis-- > 0;) {
        in_x += rest % size[axis] * xs[axis];
        in_y += rest % size[axis] * ys[axis];
        rest /= size[axis];
      }
      return element(in.x, in_x) + element(in.w, in_w) * (element(in.y, in_y) - element(in.x, in_x));
    });
    return max_relative_error(fetched("out"), expected);
  }
  if (row.wants_dx()) {
    error =
        max_relative_error(fetched("dx"), sum_to(row.work.x, row.work.out, row.w, [&](std::int64_t i, std::int64_t k) {
                             return (1 - element(in.w, k)) * element(in.dout, i);
                           }));
  }
  if (row.wants_dy()) {
    error = std::max(error, max_relative_error(fetched("dy"), sum_to(row.work.y, row.work.out, row.w,
                                                                     [&](std::int64_t i, std::int64_t k) {
                                                                       return element(in.w, k) * element(in.dout, i);
                                                                     })));
  }
  return error;
}

// `sets` independent copies of the work, each with buffers of its own: one run of the program does all of them, one
// after the other.
std::unique_ptr<Graph> build(const Row& row, int sets) {
  auto graph = std::make_unique<Graph>();
  for (int i = 0; i < sets; ++i) {
    const auto named = [&](const char* name) { return fmt::format("{}{}", name, i); };
    const Value x = graph->input(named("x"), row.dtype, row.work.x);
    const Value y = graph->input(named("y"), row.dtype, row.work.y);
    const Value w = graph->input(named("w"), row.dtype, row.w);
    const Value out = lerp(x, y, w);
    if (!row.is_backward()) {
      graph->fetch(named("out"), out);
      continue;
    }
    const Value dout = graph->input(named("dout"), row.dtype, row.work.out);
    Values wanted;
    if (row.wants_dx()) wanted.push_back(x);
    if (row.wants_dy()) wanted.push_back(y);
    const Values outputs = {out}, seeds = {dout};
    const Values gradients_of = gradients(outputs, wanted, seeds);
    if (row.wants_dx()) graph->fetch(named("dx"), gradients_of.front());
    if (row.wants_dy()) graph->fetch(named("dy"), gradients_of.back());
  }
  return graph;
}

Program compiled(const Row& row, int sets, const CompileOptions& options, const Inputs& in) {
  Program program(*build(row, sets), options);
  for (int i = 0; i < sets; ++i) {
    const auto set = [&](const char* name, const Tensor& tensor) {
      program.set_input(program.input_index(fmt::format("{}{}", name, i)), tensor);
    };
    set("x", in.x);
    set("y", in.y);
    set("w", in.w);
    if (row.is_backward()) set("dout", in.dout);
  }
  return program;
}

// Results of a first run with NaN for input: an element that the second run leaves out stays NaN and is found.
void poison(const Row& row, Program& program, const Inputs& in) {
  const Tensor& tensor = row.is_backward() ? in.dout : in.w;
  const int index = program.input_index(row.is_backward() ? "dout0" : "w0");
  program.set_input(index, filled_tensor(tensor.type(), std::nan("")));
  program.run();
  program.wait();
  program.set_input(index, tensor);
}

bool same_results(Program& program, int set) {
  for (const std::string& name : program.fetch_names()) {
    if (!name.ends_with("0") || std::isdigit(static_cast<unsigned char>(name[name.size() - 2])) != 0) continue;
    const Tensor a = program.fetch(program.fetch_index(name));
    const Tensor b = program.fetch(program.fetch_index(fmt::format("{}{}", name.substr(0, name.size() - 1), set)));
    if (std::memcmp(a.bytes(), b.bytes(), static_cast<std::size_t>(a.size_bytes())) != 0) return false;
  }
  return true;
}

struct Measured {
  Samples time;         // of one copy of the work
  Samples waiting;      // run and wait, hot only
  double floor_us = 0;  // 0: unknown
  double kernels = 0;   // launches per copy
  double error = 0;
  bool is_right = true;
  int sets = 1;
};

// Rates of an H200, TB/s: reading only, mixed, and from its L2.
double gpu_floor_us(const Row& row, const MachineFacts& machine, bool is_cold) {
  if (machine.name.find("H200") == std::string::npos) return 0;
  const double share_written = static_cast<double>(row.written_bytes()) / static_cast<double>(row.bytes());
  double rate = share_written < 0.1 ? 4.6e6 : 4.3e6;
  if (!is_cold && row.bytes() < 40'000'000) rate = 8.5e6;
  return static_cast<double>(row.bytes()) / rate;
}

constexpr int kHotRepeats = 20;

Measured measure(const Row& row, int sets, const LerpOptions& options, const CompileOptions& compile,
                 const MachineFacts& machine) {
  Effort effort = options.quick ? Effort::quick() : Effort{};
  if (row.bytes() > (std::int64_t{1} << 30)) effort.least = options.quick ? 3 : 10;
  const Inputs in = {random_tensor({row.dtype, row.work.x}, 1, "x"), random_tensor({row.dtype, row.work.y}, 1, "y"),
                     random_tensor({row.dtype, row.w}, 1, "w"),
                     row.is_backward() ? random_tensor({row.dtype, row.work.out}, 1, "dout") : Tensor()};
  Program program = compiled(row, sets, compile, in);
  explain(options.compile, program.report());
  poison(row, program, in);
  program.run();
  program.wait();

  Measured measured;
  measured.sets = sets;
  measured.error = error_of(row, in, program, 0);
  measured.is_right = measured.error <= tolerance(row.dtype) && (sets == 1 || same_results(program, sets - 1));
  measured.kernels = static_cast<double>(program.report().launches) / sets;
  if (compile.device.kind == DeviceKind::cpu) {
    measured.time = time_waiting(program, sets, effort);
    measured.floor_us = time_copy(row.bytes(), sets, effort).median;
  } else {
    // One set: the plan many times in one graph, or the time between graph launches would be measured too.
    CompileOptions repeated = compile;
    if (sets == 1 && row.bytes() < (std::int64_t{1} << 30)) repeated.repeats = kHotRepeats;
    Program timed = compiled(row, sets, repeated, in);
    measured.time = time_back_to_back(timed, sets * repeated.repeats, effort);
    measured.floor_us = gpu_floor_us(row, machine, sets > 1 || row.bytes() > machine.cache_bytes);
  }
  if (sets == 1) measured.waiting = time_waiting(program, 1, effort);
  return measured;
}

// ---- all rows ----

std::string row_json(const Row& row, const char* state, const Measured& measured) {
  JsonObject object;
  object.add("case", row.work.number).add("variant", kVariantNames[static_cast<int>(row.variant)]);
  object.add("dtype", to_string(row.dtype)).add("x", to_string(row.work.x)).add("y", to_string(row.work.y));
  object.add("w", to_string(row.w)).add("state", state).add("sets", measured.sets);
  object.add("us", measured.time.median).add("us_min", measured.time.min).add("us_max", measured.time.max);
  object.add("samples", measured.time.count);
  if (measured.waiting.count != 0) {
    object.add("wall_us", measured.waiting.median).add("wall_us_min", measured.waiting.min);
    object.add("wall_us_max", measured.waiting.max);
  }
  object.add("bytes", row.bytes()).add("gb_per_s", static_cast<double>(row.bytes()) / measured.time.median / 1e3);
  if (measured.floor_us > 0) object.add("floor_us", measured.floor_us);
  object.add("kernels", measured.kernels).add("error", measured.error).add("right", measured.is_right);
  return object.text();
}

void print_row(const Row& row, const char* state, const Measured& measured) {
  const double bytes = static_cast<double>(row.bytes());
  print("{}  {:<8}{:<5}{:<20}{:<5}{:>27}{:>9}{:>9.1f}{:>8.0f}{:>9}{:>7}{:>5.4g}  {:.1e}{}\n", row.work.number,
        kVariantNames[static_cast<int>(row.variant)], to_string(row.dtype), to_string(row.w), state,
        to_string(measured.time), measured.waiting.count == 0 ? "" : fmt::format("{:.1f}", measured.waiting.median),
        bytes / 1e6, bytes / measured.time.median / 1e3,
        measured.floor_us > 0 ? fmt::format("{:.1f}", measured.floor_us) : "-",
        measured.floor_us > 0 ? fmt::format("{:.0f}%", 100 * measured.floor_us / measured.time.median) : "-",
        measured.kernels, measured.error, measured.is_right ? "" : "  WRONG");
}

// Sets whose buffers exceed three times the cache; fewer when memory does not allow them, 0 when not even one fits.
int cold_sets(const Row& row, const Device& device, const MachineFacts& machine) {
  constexpr std::int64_t kLeast = 180'000'000;
  const std::int64_t room = machine.free_bytes / (device.kind == DeviceKind::cpu ? 3 : 2);
  const std::int64_t wanted = std::max<std::int64_t>(3 * machine.cache_bytes, kLeast) / row.bytes() + 1;
  return static_cast<int>(std::min<std::int64_t>({wanted, room / row.memory_bytes(), 4096}));
}

void print_heading(const Device& device, const MachineFacts& machine) {
  print("lerp_grad: gradients of out = x + w (y - x), on {} ({})\n", to_string(device), machine.name);
  print(
      "cold  a run works on several sets of buffers in turn, together more than 3 x {:.0f} MB of cache (less when "
      "memory is\n"
      "      short: see sets in --json); the time is a run's divided by the sets\n",
      static_cast<double>(std::max<std::int64_t>(machine.cache_bytes, 60'000'000)) / 1e6);
  if (device.kind == DeviceKind::cpu) {
    print("hot   one set; floor: a memcpy of the same bytes by the same threads, in the same state, measured here\n");
  } else {
    print(
        "hot   one set, the kernel 20 times in one graph; graphs launched back to back and waited for once, as for "
        "cold;\n"
        "      floor: bytes over 4.6 (reading), 4.3 (mixed), 8.5 (in L2) TB/s, known for the H200 only\n");
  }
  print_text(load_warning());
  print(
      "us is wall time, median [min, max]; wall: one run and its wait; err: largest error over the largest expected "
      "value\n\n");
  print("#  {:<8}{:<5}{:<20}{:<5}{:>27}{:>9}{:>9}{:>8}{:>9}{:>7}{:>5}  {}\n", "result", "type", "w", "", "us",
        "wall us", "MB", "GB/s", "floor us", "of it", "krn", "err");
}

int bench(const LerpOptions& options) {
  const CompileOptions compile = options.compile.options();
  if (!options.json_path.empty()) write_json(options.json_path, "[]");  // a wrong path is found before the work
  const MachineFacts machine = machine_facts(compile.device);
  print_heading(compile.device, machine);
  bool is_right = true;
  std::vector<std::string> items;
  for (const Case& work : cases()) {
    if (options.chosen != 0 && options.chosen != work.number) continue;
    for (const Row& row : rows_of(work, options.all)) {
      if (!options.result.empty() && options.result != kVariantNames[static_cast<int>(row.variant)]) continue;
      const bool is_large = row.bytes() > (std::int64_t{1} << 30);
      const bool is_left_out = is_large && options.chosen == 0 && compile.device.kind == DeviceKind::cpu;
      const int sets = cold_sets(row, compile.device, machine);
      if (is_left_out || sets < 1) {
        print("{}  {:<8} left out: {:.1f} GB of memory{}\n", work.number, kVariantNames[static_cast<int>(row.variant)],
              static_cast<double>(row.memory_bytes()) / 1e9,
              is_left_out ? "; --case 5 runs it" : ", too little is free");
        continue;
      }
      const auto measure_and_print = [&](const char* state, int count) {
        show_progress(fmt::format("case {} {} {}", work.number, kVariantNames[static_cast<int>(row.variant)], state));
        const Measured measured = measure(row, count, options, compile, machine);
        show_progress("");
        print_row(row, state, measured);
        flush_output();
        items.push_back(row_json(row, state, measured));
        is_right = is_right && measured.is_right;
      };
      measure_and_print("cold", sets);
      if (row.bytes() < 50'000'000) measure_and_print("hot", 1);
    }
  }
  if (!options.json_path.empty()) {
    JsonObject all;
    all.add("bench", "lerp_grad").add("device", to_string(compile.device)).add("machine", machine.name);
    write_json(options.json_path, all.add_json("rows", json_array(items)).text());
  }
  if (!is_right) print_error("paoding: lerp_grad: results are WRONG, see above\n");
  return is_right ? kOk : kFailed;
}

}  // namespace

void add_bench_lerp_grad(CLI::App& bench_app, Commands* commands) {
  auto options = std::make_shared<LerpOptions>();
  CLI::App* sub = bench_app.add_subcommand(
      "lerp_grad",
      "Gradients of a broadcast interpolation, against the floor\n\n"
      "out = x + w (y - x) on five shapes: both gradients, one of them, and the forward pass; w a scalar, one axis or\n"
      "full; f32, f64 and bf16. Cold (rotating among buffers larger than the cache) and, below 50 MB, hot. On the CPU\n"
      "case 5 (4.4 GB) runs only when asked for.\n"
      "  1  x, y [16,102400] f32, w [1]              2  x, y [16,204800] f64, w [1]\n"
      "  3  x [16,1,1,1], y [16,3,224,224], w [1]    4  x [16,1,1,1], y [16,3,244,244], w [3,1,244]\n"
      "  5  x [64,1,512,1], y [64,256,1,128], w [256,512,128]");
  options->compile.add_to(*sub);
  sub->add_option("--case", options->chosen, "Only this case")
      ->check(CLI::Range(1, 5).description(""))
      ->type_name("1..5");
  sub->add_option("--result", options->result, "Only dx+dy, dx, dy or forward")
      ->check(CLI::IsMember({"dx+dy", "dx", "dy", "forward"}).description(""))
      ->type_name("NAME");
  sub->add_flag("--quick", options->quick, "Fewer samples: 10 instead of at least 50");
  sub->add_flag("--all", options->all, "Every combination of w, dtype and result");
  sub->add_option("--json", options->json_path, "Also write the rows to this file")->type_name("FILE");
  sub->footer(
      "Examples:\n"
      "  paoding bench lerp_grad --case 1 --quick\n"
      "  paoding bench lerp_grad --device cuda --json lerp_grad.json\n"
      "  paoding bench lerp_grad --case 3 --no-pass fuse_groups --quick      what fusion is worth");
  commands->push_back({sub, [options] { return bench(*options); }});
}

}  // namespace paoding::cli
