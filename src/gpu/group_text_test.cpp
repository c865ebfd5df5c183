// SPDX-License-Identifier: Apache-2.0
// Generated group kernels: the text compiles by NVRTC, and, run thread by thread on the CPU, gives what the reference
// gives, for random groups with poisoned outputs, in any order of CTAs, twice on one workspace.
#include "gpu/group_text.h"

#include <dlfcn.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <numeric>
#include <random>

#include "base/half.h"
#include "gpu/group_cases.h"
#include "tests/source_root.h"

namespace paoding::gpu {
namespace {

namespace fs = std::filesystem;

// ---- Elements as stored ----

void put(DType dtype, char* at, double value) {
  auto write = [&](auto typed) { std::memcpy(at, &typed, sizeof(typed)); };
  switch (dtype) {
    case DType::f64: write(value); break;
    case DType::f32: write(static_cast<float>(value)); break;
    case DType::f16: write(float_to_f16(static_cast<float>(value))); break;
    case DType::bf16: write(float_to_bf16(static_cast<float>(value))); break;
    case DType::i64: write(static_cast<std::int64_t>(value)); break;
    case DType::i32: write(static_cast<std::int32_t>(value)); break;
    case DType::u8: write(static_cast<std::uint8_t>(value)); break;
    case DType::boolean: write(static_cast<std::uint8_t>(value != 0)); break;
  }
}

double get(DType dtype, const char* at) {
  auto read = [&](auto typed) {
    std::memcpy(&typed, at, sizeof(typed));
    return typed;
  };
  switch (dtype) {
    case DType::f64: return read(double{});
    case DType::f32: return read(float{});
    case DType::f16: return f16_to_float(read(std::uint16_t{}));
    case DType::bf16: return bf16_to_float(read(std::uint16_t{}));
    case DType::i64: return static_cast<double>(read(std::int64_t{}));
    case DType::i32: return read(std::int32_t{});
    case DType::u8: return read(std::uint8_t{});
    case DType::boolean: return read(std::uint8_t{}) != 0;
  }
  return 0;
}

/// A value's largest relative error for being stored as dtype.
double rounding(DType dtype) {
  return dtype == f16 ? 0x1p-11 : dtype == bf16 ? 0x1p-8 : dtype == f32 ? 0x1p-23 : dtype == f64 ? 0x1p-52 : 0;
}

// ---- Cases ----

struct Case {
  std::string name;
  Group group;                 // canonical
  std::vector<int> alignment;  // of each operand's start, in bytes
  ChipFacts chip;
  GroupKernelPlan plan;
};

Case make_case(std::string name, const Group& group, std::vector<int> alignment = {}, ChipFacts chip = {}) {
  Case made{std::move(name), canonical(group), std::move(alignment), chip, {}};
  if (made.alignment.empty()) made.alignment.assign(group.operands(), 256);
  made.plan = plan_group(made.group, made.alignment, chip);
  return made;
}

std::vector<Case> make_cases() {
  std::vector<Case> cases;
  auto add = [&](Case made) { cases.push_back(std::move(made)); };
  ChipFacts small;  // few SMs, so that small groups split as large ones do on a large chip
  small.sm_count = 4;
  add(make_case("lerp_grad same shape", lerp_grad({16, 1030}, f32, {0, 0}, 0, 0)));
  add(make_case("lerp_grad f64", lerp_grad({16, 515}, f64, {0, 0}, 0, 0)));
  add(make_case("lerp_grad dx reduced", lerp_grad({4, 3, 24, 24}, f32, {0, 0, 0, 0}, 0b1110, 0)));
  add(make_case("lerp_grad three ways", lerp_grad({16, 3, 44, 44}, f32, {0, 44, 0, 1}, 0b1110, 0), {}, small));
  add(make_case("lerp_grad dx only", lerp_grad({16, 3, 44, 44}, f32, {0, 44, 0, 1}, 0b1110, -1), {}, small));
  add(make_case("lerp_grad four axes", lerp_grad({4, 6, 24, 128}, f32, {0, 24 * 128, 128, 1}, 0b1010, 0b0100), {},
                small));
  ChipFacts one;
  one.sm_count = 1;  // takes the block and the chunk axis
  add(make_case("lerp_grad blocked", lerp_grad({8, 16, 136, 128}, f32, {0, 136 * 128, 128, 1}, 0b1010, 0b0100), {},
                one));
  add(make_case("row blocked", lerp_grad({8, 8, 129, 128}, bf16, {0, 129 * 128, 128, 1}, 0b1010, 0), {}, one));
  for (const DType dtype : {f32, bf16}) {
    add(make_case("sum over rows", sums({640, 200}, dtype, {0b01}), {}, small));
    add(make_case("sum over rows, narrow", sums({2000, 12}, dtype, {0b01}), {}, small));
    add(make_case("conv bias", sums({60, 4, 14, 14}, dtype, {0b1101}), {}, small));
    add(make_case("conv bias 7x7", sums({60, 6, 7, 7}, dtype, {0b1101}), {}, small));
    add(make_case("rows and columns", sums({70, 260}, dtype, {0b01, 0b10, 0b00, 0b11}), {}, small));
    add(make_case("long rows", sums({3, 9000}, dtype, {0b10}), {}, small));
    add(make_case("short rows", sums({300, 10}, dtype, {0b10}), {}, small));
    add(make_case("everything", sums({20011}, dtype, {0b1}), {}, small));
    add(make_case("spread", sums({5, 37, 100}, dtype, {0b001, 0b010}), {}, small));
  }
  add(make_case("gates 1", lstm_gates(1, 512)));
  add(make_case("gates 32", lstm_gates(32, 512)));
  add(make_case("one element", sums({}, f32, {0})));
  add(make_case("one element of extents 1", sums({1, 1}, f32, {0b11})));
  add(make_case("empty sum", sums({3, 0}, f32, {0b10, 0b01})));
  add(make_case("misaligned", lerp_grad({64, 128}, f32, {0, 1}, 0, 0b01), {256, 4, 4, 8}));
  add(make_case("half misaligned", lerp_grad({64, 128}, bf16, {0, 1}, 0, 0b01), {2, 16, 256, 2}));
  {
    Group casts;  // bytes, bools and integers
    casts.extents = {50, 77};
    casts.loads = {{u8, {77, 1}}, {boolean, {0, 1}}, {i64, {1, 50}}};
    const Scalar a = make_input(&casts.expr, 0, i32), b = make_input(&casts.expr, 1, boolean);
    const Scalar c = make_input(&casts.expr, 2, i64);
    const Scalar chosen = select(b, a, a + a);
    casts.outputs = {sum_output(casts, i32, chosen, 0b01),
                     sum_output(casts, boolean, a < chosen, 0),
                     sum_output(casts, f16, convert(chosen, f32) * 0.5, 0),
                     sum_output(casts, i64, c, 0b10),
                     sum_output(casts, u8, maximum(a, chosen), 0),
                     sum_output(casts, bf16, convert(c, bf16), 0)};
    add(make_case("casts", casts));
  }
  std::mt19937 rng(20);
  for (int i = 0; i < 200; ++i) {
    const Group group = random_group(rng);
    ChipFacts chip;
    chip.sm_count = i % 3 == 0 ? 1 : i % 3 == 1 ? 4 : 132;
    std::vector<int> alignment;
    for (std::size_t k = 0; k < group.operands(); ++k) alignment.push_back(rng() % 4 ? 256 : 8);
    add(make_case("random " + std::to_string(i), group, alignment, chip));
  }
  // Every fifth with 64-bit offsets, as a group too large to run here would have.
  const std::size_t count = cases.size();
  for (std::size_t i = 0; i < count; i += 5) {
    Case wide = cases[i];
    const std::string narrow = "using Index = int;", entry = wide.plan.entry;
    if (wide.plan.grid[0] == 0) continue;
    wide.name += ", 64-bit offsets";
    wide.plan.source.replace(wide.plan.source.find(narrow), narrow.size(), "using Index = long long;");
    wide.plan.entry += "_wide";
    wide.plan.source.replace(wide.plan.source.find(entry), entry.size(), wide.plan.entry);
    add(std::move(wide));
  }
  return cases;
}

const std::vector<Case>& cases() {
  static const auto* made = new std::vector<Case>(make_cases());
  return *made;
}

// ---- Running on the CPU ----

using Launch = int (*)(void** arguments, unsigned grid, unsigned block, const unsigned* order);

/// All kernels as shared libraries, compiled in a few runs of g++ at once.
class EmulatedKernels {
 public:
  EmulatedKernels() {
    std::string name = (fs::temp_directory_path() / "paoding_emulation_XXXXXX").string();
    folder_ = mkdtemp(name.data());
    std::map<std::string, const GroupKernelPlan*> kernels;
    for (const Case& c : cases()) {
      if (c.plan.grid[0] > 0) kernels[c.plan.entry] = &c.plan;
    }
    constexpr std::size_t kFiles = 2;
    std::vector<std::ofstream> files;
    for (std::size_t f = 0; f < kFiles; ++f) {
      files.emplace_back(folder_ / ("kernels" + std::to_string(f) + ".cpp"));
      files.back() << "#include \"cuda_emulation.h\"\n#pragma GCC diagnostic ignored \"-Wunknown-pragmas\"\n";
    }
    std::size_t next = 0;
    for (const auto& [entry, plan] : kernels) {
      files[next++ % kFiles] << "namespace in_" << entry << " {\n"
                             << plan->source << "}\nextern \"C\" int run_" << entry
                             << "(void** a, unsigned g, unsigned b, const unsigned* o) { return emulation::launch(in_"
                             << entry << "::" << entry << ", a, g, b, o); }\n";
    }
    files.clear();
    std::string command = "cd " + folder_.string() + "; ";
    for (std::size_t f = 0; f < kFiles; ++f) {
      command += "(g++ -std=c++20 -O1 -w -fPIC -shared -I" + source_root().string() + "/src -I" +
                 source_root().string() + "/tests/cuda_emulation kernels" + std::to_string(f) + ".cpp -o kernels" +
                 std::to_string(f) + ".so > log" + std::to_string(f) + " 2>&1) & ";
    }
    if (std::system((command + "wait").c_str()) != 0) return;
    for (std::size_t f = 0; f < kFiles; ++f) {
      const std::string file = (folder_ / ("kernels" + std::to_string(f) + ".so")).string();
      libraries_.push_back(dlopen(file.c_str(), RTLD_NOW | RTLD_LOCAL));
    }
  }
  ~EmulatedKernels() {
    if (getenv("PAODING_KEEP_KERNELS") != nullptr) return;
    std::error_code ignored;
    fs::remove_all(folder_, ignored);
  }
  Launch find(const std::string& entry) const {
    for (void* library : libraries_) {
      if (library == nullptr) continue;
      if (void* found = dlsym(library, ("run_" + entry).c_str())) return reinterpret_cast<Launch>(found);
    }
    return nullptr;
  }
  std::string log() const {
    std::ifstream file(folder_ / "log0");
    std::string text{std::istreambuf_iterator<char>(file), {}};
    return text.substr(0, 3000);
  }

 private:
  fs::path folder_;
  std::vector<void*> libraries_;
};

const EmulatedKernels& kernels() {
  static const EmulatedKernels made;
  return made;
}

/// One operand: as stored (with the start at the promised alignment and no better), and as doubles.
struct Operand {
  DType dtype;
  std::vector<char> bytes;
  char* start = nullptr;
  std::vector<double> values;
};

Operand make_operand(const Group& group, std::size_t i, int alignment, std::mt19937& rng) {
  const bool is_load = i < group.loads.size();
  Operand operand;
  operand.dtype = is_load ? group.loads[i].dtype : group.outputs[i - group.loads.size()].dtype;
  std::int64_t last = 0;
  for (std::size_t a = 0; a < group.extents.size(); ++a) {
    last += operand_strides(group, i)[a] * std::max<std::int64_t>(group.extents[a] - 1, 0);
  }
  const auto count = static_cast<std::size_t>(last + 1);
  const auto size = static_cast<std::size_t>(size_bytes(operand.dtype));
  operand.bytes.assign(count * size + 512, 0x7f);
  operand.start = operand.bytes.data();
  while (reinterpret_cast<std::uintptr_t>(operand.start) % 256 != 0) ++operand.start;
  if (alignment < 256) operand.start += alignment;
  const bool is_read = is_load || group.outputs[i - group.loads.size()].accumulate;
  operand.values.resize(count);
  for (std::size_t k = 0; k < count; ++k) {
    const double value =
        is_float(operand.dtype) ? std::uniform_real_distribution<double>(-1, 1)(rng) : double(rng() % 4);
    if (is_read) put(operand.dtype, operand.start + k * size, value);  // else what is there is the poison
    operand.values[k] = get(operand.dtype, operand.start + k * size);
  }
  return operand;
}

/// The largest sum of |terms| an element of the output may have, for the error bound: its terms times their size.
double tolerance(const Group& group, const GroupOutput& output, double value) {
  double terms = 1;
  for (std::size_t a = 0; a < group.extents.size(); ++a) {
    if ((output.reduce_mask >> a) & 1u) terms *= double(group.extents[a]);
  }
  const DType compute = group.expr.dtype_of(output.value);
  const double step = compute == f64 ? 0x1p-50 : is_float(compute) ? 0x1p-21 : 0;
  return rounding(output.dtype) * std::fabs(value) + step * (std::fabs(value) + 4 * std::sqrt(terms) + 4);
}

void check(const Case& c, unsigned seed) {
  SCOPED_TRACE(c.name + "\n" + to_string(c.group) + c.plan.why);
  std::mt19937 rng(seed);
  std::vector<Operand> operands;
  for (std::size_t i = 0; i < c.group.operands(); ++i)
    operands.push_back(make_operand(c.group, i, c.alignment[i], rng));
  std::vector<std::vector<double>> expected;
  for (const Operand& operand : operands) expected.push_back(operand.values);
  std::vector<double*> pointers;
  for (auto& values : expected) pointers.push_back(values.data());

  std::vector<char> workspace(static_cast<std::size_t>(c.plan.workspace_bytes) + 256, 0x7f);
  std::vector<unsigned> tickets(static_cast<std::size_t>(c.plan.ticket_count) + 1, 0);
  char* workspace_at = workspace.data();
  while (reinterpret_cast<std::uintptr_t>(workspace_at) % 256 != 0) ++workspace_at;
  unsigned* tickets_at = tickets.data();
  std::vector<void*> arguments;
  for (Operand& operand : operands) arguments.push_back(&operand.start);
  arguments.push_back(&workspace_at);
  arguments.push_back(&tickets_at);
  std::vector<std::uint64_t> sizes = c.plan.sizes;
  arguments.push_back(sizes.data());
  std::vector<unsigned> order(c.plan.grid[0]);
  std::iota(order.begin(), order.end(), 0u);

  const Launch launch = c.plan.grid[0] ? kernels().find(c.plan.entry) : nullptr;
  if (c.plan.grid[0]) {
    ASSERT_NE(launch, nullptr) << kernels().log();
  }
  for (int round = 0; round < 2; ++round) {  // the second finds what the first left behind
    std::shuffle(order.begin(), order.end(), rng);
    if (launch) {
      ASSERT_EQ(launch(arguments.data(), c.plan.grid[0], c.plan.block, order.data()), 0) << "deadlock";
    }
    run_reference(c.group, pointers);
    for (const unsigned ticket : tickets) ASSERT_EQ(ticket, 0u);
    for (std::size_t i = c.group.loads.size(); i < operands.size(); ++i) {
      const GroupOutput& output = c.group.outputs[i - c.group.loads.size()];
      const auto size = static_cast<std::size_t>(size_bytes(output.dtype));
      for (std::size_t k = 0; k < expected[i].size(); ++k) {
        const double got = get(output.dtype, operands[i].start + k * size);
        double want = expected[i][k];
        if (!is_float(output.dtype)) {  // the reference does not wrap
          std::vector<char> bytes(8);
          put(output.dtype, bytes.data(), want);
          want = get(output.dtype, bytes.data());
        }
        if (std::isnan(want) && std::isnan(got)) continue;  // poison between elements
        ASSERT_NEAR(got, want, std::isfinite(want) ? tolerance(c.group, output, want) : 0.0)
            << "output " << i - c.group.loads.size() << " element " << k << " in round " << round;
        expected[i][k] = got;
      }
    }
  }
}

TEST(GroupText, GivesWhatTheReferenceGives) {
  unsigned seed = 1;
  int failures = 0;
  for (const Case& c : cases()) {
    check(c, seed++);
    if (HasFailure() && ++failures >= 3) break;
  }
}

TEST(GroupText, DependsOnTheShapeClassOnly) {
  auto source = [](const Group& group) { return make_case("", group).plan.source; };
  EXPECT_EQ(source(lerp_grad({16, 102400}, f32, {0, 0}, 0, 0)), source(lerp_grad({32, 204800}, f32, {0, 0}, 0, 0)));
  EXPECT_EQ(source(sums({6400, 2048}, f32, {1})), source(sums({12800, 2048}, f32, {1})));
  EXPECT_NE(source(sums({6400, 2048}, f32, {1})), source(sums({6400, 2048}, bf16, {1})));
}

// The cases above are of use only while they take every road.
TEST(GroupText, CasesTakeEverySchedule) {
  std::map<std::string, int> seen;
  for (const Case& c : cases()) {
    if (c.group.points() == 0 || c.group.rank() == 0) continue;
    const GroupSchedule s = schedule_group(c.group, c.alignment, c.chip);
    const char* form = s.form == LoopForm::tile ? "tile " : "sweep ";
    const char* kinds[] = {"store", "column", "row", "total", "spread"};
    for (const SinkKind sink : s.sinks) ++seen[form + std::string(kinds[static_cast<int>(sink)])];
    seen["block"] += s.block > 1;
    seen["chunk"] += s.chunk > 1;
    seen["block and chunk"] += s.block > 1 && s.chunk > 1;
    seen["ragged"] += s.is_ragged;
    seen["partial sums"] += c.plan.ticket_count > 0;
    seen["several serial axes"] += s.serial_axes.size() > 1;
    seen["several inner axes"] += s.inner_axes.size() > 1;
    seen["unrolled"] += s.unroll > 1;
    seen["not a vector"] += std::count(s.is_vector.begin(), s.is_vector.end(), false) > 0;
  }
  for (const char* road : {"tile store", "tile column", "tile row", "tile total", "tile spread", "sweep store",
                           "sweep row", "sweep total", "block", "chunk", "block and chunk", "ragged", "partial sums",
                           "several serial axes", "several inner axes", "unrolled", "not a vector"}) {
    EXPECT_GT(seen[road], 0) << road;
  }
}

TEST(GroupText, WritesNothingForEmptyOutputs) { EXPECT_EQ(make_case("", sums({0, 4}, f32, {0})).plan.grid[0], 0u); }

}  // namespace
}  // namespace paoding::gpu
