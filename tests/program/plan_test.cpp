// SPDX-License-Identifier: Apache-2.0
// Plans: memory shared by slots never mixes their bytes (a run is simulated launch by launch on shadow memory), and an
// LSTM with its gradients becomes the steps it should.
#include "plan/plan.h"

#include <gtest/gtest-spi.h>

#include "tests/support/op_case.h"
#include "tests/support/random_graph.h"

namespace paoding::testing_program {
namespace {

struct PlanWay {
  std::string name;
  std::vector<std::string> disabled;
  bool alias_views = true;
};

std::vector<PlanWay> plan_ways() {
  return {{"all passes", {}},
          {"no passes", pass_names(), false},
          {"unfused", {"fuse_groups"}},
          {"copied views", {}, false}};
}

Plan plan_of(const Graph& graph, const PlanWay& way, const Target& target = {}) {
  const auto copy = graph.clone();
  PassOptions options;
  options.disabled = way.disabled;
  options.target = std::make_shared<const Target>(target);
  run_passes(*copy, options);
  PlanOptions plan_options;
  plan_options.target = options.target;
  plan_options.alias_views = way.alias_views;
  return make_plan(*copy, plan_options);
}

// Calls visit(byte offset) for every element of a value that starts at `start`.
template <class Visit>
void for_each_element(const Layout& layout, std::int64_t start, const Visit& visit) {
  const Shape& shape = layout.type.shape;
  const std::int64_t size = size_bytes(layout.type.dtype), elements = shape.elements();
  for (std::int64_t i = 0; i < elements; ++i) {
    std::int64_t rest = i, at = start;
    for (int axis = shape.rank() - 1; axis >= 0; --axis) {
      at += rest % shape[axis] * layout.strides[static_cast<std::size_t>(axis)] * size;
      rest /= shape[axis];
    }
    visit(at);
  }
}

// Runs a plan on two shadow memories: one where every slot has memory of its own, one where they share the arena as
// placed. Each byte holds a tag of the launch and operand that wrote it. Both must always read the same.
class ShadowRun {
 public:
  explicit ShadowRun(const Plan& plan) : plan_(plan), arena_(static_cast<std::size_t>(plan.arena_bytes), kNothing) {
    for (const Slot& slot : plan.slots) {
      const bool is_given = slot.kind != SlotKind::arena;
      own_.emplace_back(static_cast<std::size_t>(slot.bytes), is_given ? kGiven : kNothing);
    }
  }

  void run() {
    for (const Launch& launch : unroll(plan_)) {
      if (launch.kind == Launch::Kind::jump) continue;  // every branch runs here, one after the other
      ++launch_;
      const Step& step = *launch.step;
      where_ =
          step.label.op + " at position " + std::to_string(step.position) + ", turn " + std::to_string(launch.instance);
      for (std::size_t k = 0; k < step.reads; ++k) read(step.operands[k].layout, launch.addresses[k]);
      check_overlap(launch);
      for (std::size_t k = step.reads; k < step.operands.size(); ++k) {
        write(step.operands[k].layout, launch.addresses[k], launch_ * 64 + static_cast<std::int64_t>(k) + 1);
      }
      if (testing::Test::HasFailure()) return;
    }
    for (const Plan::Fetch& fetch : plan_.fetches) {
      where_ = "fetch " + fetch.name;
      EXPECT_TRUE(fetch.operand.layout.is_dense()) << where_;
      read(fetch.operand.layout, {fetch.operand.slot, fetch.operand.offset});
    }
  }

 private:
  static constexpr std::int64_t kNothing = -1, kGiven = 0;
  using Address = std::pair<int, std::int64_t>;

  const Slot& slot(int index) const { return plan_.slots[static_cast<std::size_t>(index)]; }
  bool in_slot(const Address& address, std::int64_t at, std::int64_t size) {
    if (at >= 0 && at + size <= slot(address.first).bytes) return true;
    ADD_FAILURE() << where_ << ": byte " << at << " of slot " << address.first << ", which has "
                  << slot(address.first).bytes;
    return false;
  }

  void read(const Layout& layout, const Address& address) {
    const std::int64_t size = size_bytes(layout.type.dtype);
    bool is_wrong = false;
    for_each_element(layout, address.second, [&](std::int64_t at) {
      if (is_wrong || !in_slot(address, at, size)) return;
      for (std::int64_t byte = at; byte < at + size && !is_wrong; ++byte) {
        const std::int64_t mine = own_[static_cast<std::size_t>(address.first)][static_cast<std::size_t>(byte)];
        is_wrong = mine == kNothing;
        EXPECT_FALSE(is_wrong) << where_ << " reads byte " << byte << " of slot " << address.first
                               << ", which nobody wrote";
        if (is_wrong || slot(address.first).kind != SlotKind::arena) continue;
        const std::int64_t shared = arena_[static_cast<std::size_t>(slot(address.first).offset + byte)];
        is_wrong = shared != mine;
        EXPECT_FALSE(is_wrong) << where_ << " reads byte " << byte << " of slot " << address.first << ", which launch "
                               << shared / 64 << " wrote, not launch " << mine / 64;
      }
    });
  }

  void write(const Layout& layout, const Address& address, std::int64_t tag) {
    const std::int64_t size = size_bytes(layout.type.dtype);
    EXPECT_NE(slot(address.first).kind, SlotKind::parameter) << where_ << " writes a parameter";
    EXPECT_NE(slot(address.first).kind, SlotKind::input) << where_ << " writes an input";
    for_each_element(layout, address.second, [&](std::int64_t at) {
      if (!in_slot(address, at, size)) return;
      for (std::int64_t byte = at; byte < at + size; ++byte) {
        own_[static_cast<std::size_t>(address.first)][static_cast<std::size_t>(byte)] = tag;
        if (slot(address.first).kind == SlotKind::arena) {
          arena_[static_cast<std::size_t>(slot(address.first).offset + byte)] = tag;
        }
      }
    });
  }

  // Whether the step reads each element of the input before it writes that of the result, and in the same thread.
  static bool may_be_in_place(const Step& step, std::size_t result, std::size_t input) {
    if (step.kind == Step::Kind::group) return step.group.outputs[result].combine == Combine::none;
    if (step.kind != Step::Kind::kernel) return false;
    const auto& pairs = step.kernel->in_place;
    return std::ranges::find(pairs, std::pair{result, input}) != pairs.end();
  }

  // Within a launch nothing is ordered: an element that it writes it may read only at the same point, and write only
  // once.
  void check_overlap(const Launch& launch) {
    const Step& step = *launch.step;
    std::map<std::int64_t, std::size_t> written;  // arena byte, operand
    const auto memory = [&](std::size_t k, std::int64_t at) { return slot(launch.addresses[k].first).offset + at; };
    for (std::size_t k = step.reads; k < step.operands.size(); ++k) {
      if (slot(launch.addresses[k].first).kind != SlotKind::arena) continue;
      for_each_element(step.operands[k].layout, launch.addresses[k].second, [&](std::int64_t at) {
        EXPECT_TRUE(written.try_emplace(memory(k, at), k).second) << where_ << " writes one element twice";
      });
    }
    for (std::size_t k = 0; k < step.reads; ++k) {
      if (slot(launch.addresses[k].first).kind != SlotKind::arena) continue;
      const Layout& layout = step.operands[k].layout;
      bool is_wrong = false;
      for_each_element(layout, launch.addresses[k].second, [&](std::int64_t at) {
        const auto it = written.find(memory(k, at));
        if (it == written.end() || is_wrong) return;
        const Layout& other = step.operands[it->second].layout;
        const bool is_same_place = launch.addresses[k] == launch.addresses[it->second] && other.type == layout.type &&
                                   other.strides == layout.strides;
        const bool is_in_place = is_same_place && may_be_in_place(step, it->second - step.reads, k);
        is_wrong = !is_in_place;
        EXPECT_TRUE(is_in_place) << where_ << " reads operand " << k << " where it writes operand " << it->second;
      });
    }
  }

  const Plan& plan_;
  std::vector<std::vector<std::int64_t>> own_;
  std::vector<std::int64_t> arena_;
  std::int64_t launch_ = 0;
  std::string where_;
};

// From the plan's own lifetimes: slots alive at one position lie apart, and within the arena.
void check_slots(const Plan& plan) {
  for (std::size_t a = 0; a < plan.slots.size(); ++a) {
    const Slot& x = plan.slots[a];
    if (x.kind != SlotKind::arena || x.last < x.first) continue;
    EXPECT_EQ(x.offset % 256, 0);
    EXPECT_LE(x.offset + x.bytes, plan.arena_bytes);
    for (std::size_t b = a + 1; b < plan.slots.size(); ++b) {
      const Slot& y = plan.slots[b];
      if (y.kind != SlotKind::arena || y.last < y.first || !alive_together(x, y)) continue;
      EXPECT_TRUE(x.offset + x.bytes <= y.offset || y.offset + y.bytes <= x.offset)
          << "slots " << a << " and " << b << " overlap";
    }
  }
  EXPECT_LE(plan.peak_live_bytes, plan.arena_bytes);
}

void check_plans(const Graph& graph, const std::string& what) {
  for (const PlanWay& way : plan_ways()) {
    SCOPED_TRACE(what + ", " + way.name);
    const Plan plan = plan_of(graph, way);
    check_slots(plan);
    ShadowRun(plan).run();
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << to_text(graph) << to_string(plan);
      return;
    }
  }
}

// Checks the graph's results in every way of planning it.
void check_results(const Graph& graph, double tolerance) {
  const Feeds feeds = make_feeds(graph, 1);
  for (const PlanWay& way : plan_ways()) {
    CompileOptions options;
    options.disabled_passes = way.disabled;
    const Tensors got = Program(graph, options).run(to_tensors(graph, feeds));
    for (const auto& [name, values] : evaluate_graph(graph, feeds)) {
      expect_close(name + ", " + way.name, got.at(name).to_doubles(), values, tolerance);
    }
  }
}

TEST(PlanMemory, IsReadAsWrittenInEveryCaseOfEveryOp) {
  for (const SweepCase& c : sweep_cases(f32)) {
    if (!c.shape.error.empty()) continue;
    const CaseGraph made(c, Around::elementwise, true);
    check_plans(made.graph, c.op->name + " " + c.name);
    if (testing::Test::HasFailure()) return;
  }
}

TEST(PlanMemory, IsReadAsWrittenInLstms) {
  for (const LstmSize& size :
       {LstmSize{}, LstmSize{.reverse = true}, LstmSize{.steps = 1}, LstmSize{.steps = 2}, LstmSize{.steps = 0},
        LstmSize{.has_gradients = false}, LstmSize{.steps = 33, .batch = 1}}) {
    Graph graph;
    build_lstm(graph, size);
    check_plans(graph, "LSTM of " + std::to_string(size.steps) + " steps" + (size.reverse ? ", reverse" : ""));
  }
}

// An LSTM as one op writes its gates over its input's product, and their gradients over them.
TEST(PlanMemory, IsReadAsWrittenWhereResultsAliasInputs) {
  for (const std::int64_t batch : {1, 6}) {
    Graph g;
    const std::int64_t T = 4, H = 8;
    const Value x = g.input("x", f32, {T, batch, 3}), w = g.input("w", f32, {3, 4 * H}),
                u = g.input("u", f32, {H, 4 * H});
    const Value h0 = g.input("h0", f32, {batch, H}), c0 = g.input("c0", f32, {batch, H});
    const LstmRecurrence made = lstm_recurrence(matmul(x, w), u, h0, c0);
    const Values grads = gradients(std::array{sum(made.states * made.states)}, std::array{x, w, u, h0, c0});
    for (std::size_t i = 0; i < grads.size(); ++i) g.fetch("d" + std::to_string(i), grads[i]);
    const Plan plan = plan_of(g, {"all passes", {}});
    EXPECT_TRUE(std::ranges::any_of(plan.slots, &Slot::is_aliased)) << to_string(plan);
    check_plans(g, "an LSTM as one op");
  }
}

TEST(PlanMemory, IsReadAsWrittenInNestedLoops) {
  Graph g;
  const Value h0 = g.input("h0", f32, {2, 3}), xs = g.input("xs", f32, {4, 2, 3}), ys = g.input("ys", f32, {3, 2, 3}),
              w = g.input("w", f32, {3, 3});
  const StepResult made = scan({h0}, {xs}, [&](const Values& carry, const Values& x) {
    const StepResult inner = scan(
        {carry[0]}, {ys},
        [&](const Values& state, const Values& y) {
          const Value s = tanh(matmul(state[0] * y[0], w) + x[0]);
          return step({s}, {s, state[0]});
        },
        true);
    return step({inner.carries[0]}, {sum(inner.outputs[0], Ints{0}), inner.outputs[1]});
  });
  g.fetch("h", made.carries[0]);
  g.fetch("y", made.outputs[1]);
  const Values d = gradients(sum(made.outputs[0] * made.outputs[0]), {h0, xs, ys, w});
  for (std::size_t i = 0; i < d.size(); ++i) g.fetch("d" + std::to_string(i), d[i]);
  check_plans(g, "scan in scan");
}

// A carry that keeps a part of itself in place: the part must still move to the entry of the next step.
void build_register(Graph& g, bool keeps_front) {
  const Value h0 = g.input("h0", f32, {4}), xs = g.input("xs", f32, {5, 2});
  const StepResult made = scan({h0}, {xs}, [&](const Values& carry, const Values& x) {
    const Value kept = keeps_front ? slice(carry[0], 0, 0, 2) : slice(carry[0], 0, 2, 4);
    return step({keeps_front ? concat(std::array{kept, x[0] * 2.0}, 0) : concat(std::array{x[0], kept}, 0)}, {});
  });
  g.fetch("h", made.carries[0]);  // nothing is stacked, so the carry alternates between two entries
}

TEST(PlanMemory, IsReadAsWrittenWhereACarryKeepsAPartOfItself) {
  for (const bool keeps_front : {true, false}) {
    Graph g;
    build_register(g, keeps_front);
    check_plans(g, keeps_front ? "keeps its front" : "keeps its back");
    check_results(g, 1e-6);
  }
}

// Carries that a step concatenates with each other or with its results; `stacked` are outputs by number.
struct CarriedConcatenations {
  const char* name;
  std::vector<int> stacked;
  int axis = 1;
};

void build_concatenated(Graph& g, const CarriedConcatenations& concatenated, bool is_reverse) {
  const Shape shape{3, 4};
  const Value a0 = g.input("a0", f32, shape), b0 = g.input("b0", f32, shape), xs = g.input("xs", f32, {5, 3, 4});
  const StepResult made = scan(
      {a0, b0}, {xs},
      [&](const Values& carry, const Values& x) {
        const Value fresh = tanh(x[0] * carry[0]);
        const Value concatenation = concat(std::array{fresh, carry[1], carry[0]}, concatenated.axis);
        const Value again = concat(std::array{carry[1], x[0]}, concatenated.axis);
        const Value all = tanh(concatenation), some = tanh(again);
        const auto part = [&](const Value& of, std::int64_t i) {
          const std::int64_t extent = shape[concatenated.axis];
          return slice(of, concatenated.axis, i * extent, (i + 1) * extent);
        };
        const Value a = part(all, 0) + part(some, 1) * part(all, 1), b = part(all, 2) * part(some, 0);
        const Values outputs{a, carry[0], b, carry[1], fresh, concatenation, all};
        Values chosen;
        for (const int i : concatenated.stacked) chosen.push_back(outputs[static_cast<std::size_t>(i)]);
        return step({a, b}, chosen);
      },
      is_reverse);
  for (std::size_t i = 0; i < 2; ++i) g.fetch("last" + std::to_string(i), made.carries[i]);
  for (std::size_t i = 0; i < made.outputs.size(); ++i) g.fetch("out" + std::to_string(i), made.outputs[i] * 2.0);
}

TEST(PlanMemory, IsReadAsWrittenWhereCarriesLiveInAConcatenation) {
  const std::vector<CarriedConcatenations> cases = {{"nothing", {}},
                                                    {"after", {0}},
                                                    {"before", {1}},
                                                    {"both", {0, 1}},
                                                    {"another", {2, 3}},
                                                    {"fresh", {4}},
                                                    {"the concatenation", {5}},
                                                    {"much", {0, 3, 4}},
                                                    {"all", {0, 1, 2, 3, 4, 5, 6}},
                                                    {"twice", {1, 1, 5, 5}},
                                                    {"rows", {0, 3, 5}, 0},
                                                    {"rows alone", {}, 0}};
  for (const CarriedConcatenations& concatenated : cases) {
    for (const bool is_reverse : {false, true}) {
      SCOPED_TRACE(std::string(concatenated.name) + (is_reverse ? ", reverse" : ""));
      Graph g;
      build_concatenated(g, concatenated, is_reverse);
      check_plans(g, concatenated.name);
      check_results(g, 1e-5);
    }
  }
}

TEST(PlanMemory, StepsDoNotCopyCarriesIntoTheConcatenationTheyLiveIn) {
  for (const bool is_reverse : {false, true}) {
    Graph g;
    const Value a0 = g.input("a0", f32, {3, 4}), b0 = g.input("b0", f32, {3, 4}), xs = g.input("xs", f32, {5, 3, 4});
    const StepResult made = scan(
        {a0, b0}, {xs},
        [&](const Values& carry, const Values& x) {
          const Value all = exp(concat(std::array{tanh(x[0]), carry[1], carry[0]}, 1));
          const Value a = sum(reshape(all, Ints{3, 3, 4}), Ints{1});
          return step({a, a * carry[0]}, {a, carry[1]});
        },
        is_reverse);
    for (std::size_t i = 0; i < 2; ++i) g.fetch("all" + std::to_string(i), made.outputs[i]);
    const auto copies_in_steps = [](const Plan& plan) {
      return std::count_if(plan.notes.begin(), plan.notes.end(),
                           [](const std::string& note) { return has(note, "in every step"); });
    };
    EXPECT_EQ(copies_in_steps(make_plan(g, {})), 0) << to_string(make_plan(g, {}));
    PlanOptions copied;
    copied.alias_views = false;
    EXPECT_GT(copies_in_steps(make_plan(g, copied)), 0) << "they are no longer noted";
  }
}

TEST(PlanMemory, IsReadAsWrittenInRandomGraphs) {
  for (unsigned seed = 0; seed < 150 && !testing::Test::HasFailure(); ++seed) {
    Graph graph;
    RandomGraph(graph, seed);
    check_plans(graph, "seed " + std::to_string(seed));
  }
}

// A check that never fails proves nothing: a plan whose slots are pushed together must be caught.
TEST(PlanMemory, CheckFindsSlotsThatOverlap) {
  Graph graph;
  build_lstm(graph, {});
  Plan plan = plan_of(graph, {"all passes", {}});
  int moved = 0;
  for (Slot& slot : plan.slots) {
    if (slot.kind == SlotKind::arena && slot.offset != 0) slot.offset = 0, ++moved;
  }
  ASSERT_GT(moved, 2);
  testing::TestPartResultArray failures;
  {
    testing::ScopedFakeTestPartResultReporter reporter(
        testing::ScopedFakeTestPartResultReporter::INTERCEPT_ONLY_CURRENT_THREAD, &failures);
    ShadowRun(plan).run();
  }
  EXPECT_GT(failures.size(), 0);
}

// ---- the plan of an LSTM ----

struct StepCount {
  std::vector<const Step*> before, loops, between, behind;  // around the forward and the backward loop
};

StepCount divide(const Plan& plan) {
  StepCount count;
  for (const Step& step : plan.steps) {
    if (step.kind == Step::Kind::loop) {
      count.loops.push_back(&step);
    } else {
      (count.loops.empty() ? count.before : count.loops.size() == 1 ? count.between : count.behind).push_back(&step);
    }
  }
  return count;
}

bool is_copy(const Step& step) {
  if (step.kind != Step::Kind::group || step.reads == 0) return false;
  for (const GroupOutput& output : step.group.outputs) {
    if (step.group.expr[output.value].prim != Prim::input || output.combine != Combine::none) return false;
  }
  return true;
}

bool has_sum(const Step& step) {
  for (const GroupOutput& output : step.group.outputs) {
    if (output.combine != Combine::none) return true;
  }
  return false;
}

int products_of(const std::vector<const Step*>& steps, const Shape& result) {
  int count = 0;
  for (const Step* step : steps) {
    count += step->kind == Step::Kind::kernel && step->operands.back().layout.type.shape == result;
  }
  return count;
}

void check_lstm_plan(const Target& target, bool reverse) {
  const std::int64_t T = 7, B = 4, I = 6, H = 8;
  Graph graph;
  build_lstm(graph, {.steps = T, .batch = B, .inputs = I, .hidden = H, .reverse = reverse});
  const Plan plan = plan_of(graph, {"all passes", {}}, target);
  SCOPED_TRACE(to_string(plan));
  const StepCount count = divide(plan);
  ASSERT_EQ(count.loops.size(), 2u);
  // x w for all steps at once.
  EXPECT_EQ(products_of(count.before, {T * B, 4 * H}), 1);
  // One product for each of dw and du, over time and batch at once; dx likewise; db is one sum.
  std::vector<const Step*> behind = count.between;
  behind.insert(behind.end(), count.behind.begin(), count.behind.end());
  EXPECT_EQ(products_of(behind, {I, 4 * H}), 1);
  EXPECT_EQ(products_of(behind, {H, 4 * H}), 1);
  EXPECT_EQ(products_of(behind, {T * B, I}), 1);
  int products = 0, sums = 0;
  for (const Step* step : behind) {
    products += step->kind == Step::Kind::kernel;
    sums += has_sum(*step);
  }
  EXPECT_EQ(products, 3);
  EXPECT_EQ(sums, 1);
  for (const Step* loop : count.loops) {
    EXPECT_EQ(loop->length, T);
    EXPECT_EQ(loop->body.size(), 2u) << "a product and a group per step";
    for (const Step& step : loop->body) {
      EXPECT_FALSE(is_copy(step)) << step.label.op;
      EXPECT_FALSE(step.kind == Step::Kind::group && step.reads == 0) << "a fill in the loop";
      EXPECT_FALSE(has_sum(step)) << step.label.op;
    }
  }
  // Everything that is launched: the loops, the products and the sum, and a few copies of fetches and feeds.
  const auto outside = count.before.size() + behind.size();
  EXPECT_LE(outside, 1u + 4u + 8u);
  EXPECT_EQ(unroll(plan).size(), outside + 4u * static_cast<std::size_t>(T));
}

TEST(LstmPlan, HasOneLargeProductPerWeightAndTwoLaunchesPerStep) {
  for (const bool reverse : {false, true}) check_lstm_plan({}, reverse);
}

#if PAODING_WITH_CUDA
TEST(LstmPlan, IsTheSameOnAGpu) {
  for (const bool reverse : {false, true}) check_lstm_plan(named_target("h200"), reverse);
}
#endif

TEST(LstmPlan, KeepsTheArenaNearTheLeastThereCouldBe) {
  Graph graph;
  build_lstm(graph, {.steps = 64, .batch = 32, .inputs = 512, .hidden = 512});
  const Plan plan = plan_of(graph, {"all passes", {}});
  EXPECT_LE(static_cast<double>(plan.arena_bytes), 1.1 * static_cast<double>(plan.peak_live_bytes));
  std::printf("LSTM T64 B32 H512: arena %.1f MB, peak %.1f MB\n", static_cast<double>(plan.arena_bytes) / 1e6,
              static_cast<double>(plan.peak_live_bytes) / 1e6);
}

}  // namespace
}  // namespace paoding::testing_program
