// SPDX-License-Identifier: Apache-2.0
// Section R, serving: a step or a chunk of every one of many sequences in a call, fed and fetched, their states kept.
#include "paoding/streaming.h"

#include "cli/bench/case.h"
#include "cli/numbers.h"
#include "paoding/nn.h"

namespace paoding::cli::bench {
namespace {

struct Service {
  std::int64_t steps, sequences, hidden;
};

Samples time_calls(const Service& s, DType dtype, const Setting& setting) {
  const Type state{dtype, {s.hidden}};
  Streaming streaming({.capacity = s.sequences, .input = state, .states = {state, state}, .compile = setting.compile},
                      [&](Graph& graph, const Value& xs, const Value& lengths, const Values& states) {
                        const nn::Lstm lstm(graph, "lstm", s.hidden, s.hidden, {.dtype = dtype});
                        const RecurrentResult made =
                            lstm(xs, {.lengths = lengths, .initial_h = {states[0]}, .initial_c = {states[1]}});
                        return step({made.last_h[0], made.last_c[0]}, {made.outputs});
                      });
  for (std::int64_t i = 0; i < s.sequences; ++i) streaming.join();
  const Tensor xs = random_tensor({dtype, {s.steps, s.sequences, s.hidden}}, 1, "xs");
  const std::vector<std::int32_t> lengths(static_cast<std::size_t>(s.sequences), static_cast<std::int32_t>(s.steps));
  Effort effort = setting.effort;
  effort.most *= 10, effort.least *= 5;  // for the slowest of a hundred
  return time_work(
      [&] {
        streaming.run(xs, lengths);
        streaming.output(0);
      },
      1, effort);
}

Case streaming_case(const Service& s, DType dtype) {
  Case c;
  c.section = 'R';
  c.kind = "streaming";
  c.dtype = dtype;
  c.name = fmt::format("lstm/streaming/t{}_b{}_h{}_{}", s.steps, s.sequences, s.hidden, type_text(c));
  c.what = fmt::format("{} of {} sequences, H {}, fed and fetched",
                       s.steps == 1 ? "a step" : fmt::format("{} steps", s.steps), s.sequences, s.hidden);
  c.sizes = "{}";
  c.is_served = true;
  c.measure = [=](const Setting& setting) { return time_calls(s, dtype, setting); };
  return c;
}

}  // namespace

Cases streaming_cases() {
  Cases cases;
  for (const Service& s : {Service{1, 1, 512}, Service{1, 32, 512}, Service{16, 32, 512}}) {
    for (const DType dtype : {DType::f32, DType::bf16}) cases.push_back(streaming_case(s, dtype));
  }
  return cases;
}

}  // namespace paoding::cli::bench
