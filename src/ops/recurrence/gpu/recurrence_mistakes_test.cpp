// SPDX-License-Identifier: Apache-2.0
// That the schedules of the emulation find mistakes: planted in the source of each way that CTAs exchange their
// results, a wait, a barrier, a second place or an order of stores left out, they show for some seed.
#include <gtest/gtest.h>

#include "tests/gpu/emulated_layers.h"
#include "tests/gpu/planted_mistakes.h"

namespace paoding::testing_program {
namespace {

struct Exchange {
  const char* what;
  CtaGroupCase layer;
  const char* text;  // has to occur in the kernel's source
  Target target;
  std::vector<Mistake> mistakes;
};

Target target_with(int sm_count) {
  Target target = named_target("h200");
  target.sm_count = sm_count;
  return target;
}

// Every cluster has this one.
const Mistake kWaitsOnNoMbarrier = {"while (!mbarrier_try_wait(mbarrier, round & 1)) {}", ""};

std::vector<Exchange> exchanges() {
  const Target any = named_target("h200");
  return {
      {"words within a cluster, by warps",
       {"of 4 CTAs;a CTA, whole units", {f16, false, 6, 1, 130, false, false, false, gru}},
       "",
       any,
       {kWaitsOnNoMbarrier, {"constexpr int kStates = 2;", "constexpr int kStates = 1;"}}},
      {"copies within a cluster",
       {"of 16 CTAs;whole units, copied", {f32, true, 4, 6, 250, false, false, false}},
       "",
       target_with(16),
       {{"else barrier_wait(2, kFinishers);", "else {}"},
        {"if constexpr (kGroupCtas > 1) cluster_leave();", ""},
        {"constexpr int kStates = 2;", "constexpr int kStates = 1;"}}},
      {"parts of gradients within a cluster",
       {"", {bf16, false, 6, 20, 100}},
       "",
       any,
       {kWaitsOnNoMbarrier, {"come + step % 2 * (kGroupCtas * kPartWords)", "come"}}},
      {"chunks with units of their own",
       {"of 8 CTAs;units per warpgroup", {bf16, false, 4, 26, 256, true, true, false}},
       "kUnitsPerWarpgroup = true",
       target_with(9),
       {{"wait_on_mbarrier(&mbarriers[2 + step % 2], (step - 1) / 2);", ""},
        {"else if constexpr (kUnitsPerWarpgroup) barrier_wait(3 + thread / kTogether, kTogether);", ""},
        {"constexpr int kStates = 2;", "constexpr int kStates = 1;"}}},
      {"gradients by batch_tiles",
       {"of 16 CTAs", {f16, false, 4, 10, 256}},
       "",
       target_with(19),
       {kWaitsOnNoMbarrier,
        {"      __syncwarp();\n      if (lane < kCtas", "      if (lane < kCtas"},
        {"if constexpr (kGivesByWarps) __syncthreads();", ""},
        {"PD_DEVICE void end(int) const { synchronize_cta_group(); }", "PD_DEVICE void end(int) const {}"}}},
      {"states through memory",
       {"9 rows;through memory", {f16, false, 22, 9, 200, false, false, false}},
       "kLlProtocol = false",
       small_gpu(),
       {{"return piece.x != 0 && piece.y != 0 && piece.z != 0 && piece.w != 0;", "return piece.x != 0;"},
        {"step % (kPlaces / 2) == 0) fence_stores();", "false) {}"},
        {"is_tidier() && step > kUntilHad) {", "is_tidier() && step > 9) {"},
        {"kPlaces = kLlProtocol ? 2 : 8;", "kPlaces = 2;"}}},
      {"a state that partial-sum peers share out",
       {"4 units a CTA, through memory, 4 partial-sum peers", {f32, true, 24, 9, 60, false, false, false}},
       "kSingleBuffered = true",
       target_with(16),
       {{"while (!ask()) {}", "ask();"},
        {"kUntilHad = kSharesState ? 2 : 1;", "kUntilHad = 1;"},
        {"uint4* const of_step = places + step % 2 * kPlacePieces;", "uint4* const of_step = places;"},
        {"if constexpr (kSharesState) __syncthreads();", ""}}},
      {"LL words through memory",
       {"SIMT FMA, whole units, through memory", {f32, false, 6, 2, 60, false, false, false}},
       "",
       any,
       {{"const unsigned all = piece.x & piece.y & piece.z & piece.w, any = piece.x | piece.y | piece.z | piece.w;",
         "const unsigned all = piece.x, any = piece.x;"},
        {"kPlaces = kLlProtocol ? 2 : 8;", "kPlaces = 1;"},
        {"while (!have_come()) {}", "have_come();"}}},
      {"parts of gradients through memory",
       {"", {bf16, false, 6, 3, 160, true}},
       "",
       small_gpu(),
       {{"while (!ask()) {}", "ask();"},
        {"PlaceEpochs epochs;\n  int rank;\n\n  PD_DEVICE PartExchange",
         "struct { unsigned* told; void begin() {} unsigned of(int) const { return 1; } void end(int) const {} } "
         "epochs;\n"
         "  int rank;\n\n  PD_DEVICE PartExchange"},
        {"__syncthreads();  // and nobody reads", "// nobody reads"}}},
      {"parts of gradients by partial-sum peers, rows with lengths",
       {"through memory, 2 partial-sum peers", {f32, true, 5, 9, 30, true, false, true, rnn}},
       "kCtaGroups = 1",
       target_with(4),
       {{"while (!ask()) {}", "ask();"}}},
      {"gradients in full f32",
       {"of 6 CTAs;a CTA, SIMT FMA", {f32, false, 6, 2, 70}},
       "",
       target_with(6),
       {{"while (!have_come(asked_now, epoch)) ask(asked_now, from, first, epoch);", ""},
        {"const int parts = kept_known(step % 2 * (kPartWords * 4));", "const int parts = 0;"},
        {"unsigned* const to = given[i] + step % 2 * (kPlacePieces * 4);", "unsigned* const to = given[i];"}}},
      {"weights out of memory",
       {"SIMT FMA, whole units;weights out of memory, 2 ahead", {f32, false, 3, 1, 300, false, false, false}},
       "",
       target_with(6),
       {{"copies_wait<kAhead - 1>();", "copies_wait<kAhead>();"}, {"ask((chunk + kAhead) % kChunks);", ""}}},
      {"input copied ahead",
       {"of 8 CTAs;units per warpgroup", {f32, true, 4, 17, 256, false, false, false, lstm, true}},
       "kCopiesAhead = true",
       target_with(9),
       {{"if constexpr (kCopiesAhead) copies_wait<0>();", ""}}},
  };
}

// Covers the exchanges whose names have the words of PAODING_LAYERS, if that is set.
TEST(RecurrenceMistakes, AreFoundBySomeSchedule) {
  const char* const words = std::getenv("PAODING_LAYERS");
  PlantedMistakes mistakes;
  for (const Exchange& exchange : exchanges()) {
    if (words != nullptr && !has_words(exchange.what, words)) continue;
    const LayerCase& c = exchange.layer.second;
    const Plan plan = plan_by_cta_group(exchange.layer, exchange.target);
    EXPECT_TRUE(has_kernel(plan, exchange.layer.first, exchange.text)) << exchange.what << ": another cta_group";
    const auto graph = graph_of(c);
    const std::array<Tensors, 2> feeds = {to_tensors(*graph, feeds_of(c, *graph)),
                                          to_tensors(*graph, feeds_of(c, *graph, 6))};
    mistakes.plant(exchange.what, plan, feeds, exchange.mistakes);
  }
  mistakes.expect_found();
}

// A CTA's plain reads of others' stores, sums of several CTA groups above all, are after a synchronization that orders
// the two; of mistakes in that, which no schedule shows as plain stores are never late in the emulation, every run says
// so.
TEST(RecurrenceMistakes, InTheOrderOfPlainAccessesAreFound) {
  const CtaGroupCase by_cta_groups = {"2 CTA groups", {bf16, false, 3, 3, 40, true}};
  std::vector<EmulatedLayer<LayerCase>> all;
  all.push_back(emulated_layer(by_cta_groups, target_with(8)));
  for (const Exchange& exchange : exchanges()) {
    const Plan plan = plan_by_cta_group(exchange.layer, exchange.target);
    const bool is_in_memory = has_kernel(plan, "through memory", "");  // clusters' exchanges are in memory of their own
    if (is_in_memory) all.push_back(emulated_layer(exchange.layer, exchange.target));
  }
  expect_right_under_schedules(all, 1, true);
  const Plan plan = plan_by_cta_group(by_cta_groups, target_with(8));
  const auto graph = graph_of(by_cta_groups.second);
  const std::array<Tensors, 2> feeds = {to_tensors(*graph, feeds_of(by_cta_groups.second, *graph)),
                                        to_tensors(*graph, feeds_of(by_cta_groups.second, *graph, 6))};
  PlantedMistakes mistakes;
  mistakes.plant("sums of several CTA groups", plan, feeds,
                 {{"add_release(arrived, 1)", "emulation::add_relaxed(arrived, 1)"},
                  {"if (is_last) fence_stores();", ""},
                  {"    __syncthreads();\n    unsigned* const arrived", "    unsigned* const arrived"}});
  mistakes.expect_found(true);
}

}  // namespace
}  // namespace paoding::testing_program
