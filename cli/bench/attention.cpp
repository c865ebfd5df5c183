// SPDX-License-Identifier: Apache-2.0
// Section T, second part: attention alone, forward, backward with the forward pass's logarithms given, and both.
#include <array>
#include <cmath>

#include "cli/bench/case.h"
#include "cli/numbers.h"
#include "io/json_text.h"
#include "paoding/autodiff.h"
#include "paoding/ops.h"

namespace paoding::cli::bench {
namespace {

enum class AttentionPass { forward, backward, both };

struct AttentionSize {
  std::int64_t batch, heads, rows, width;
  bool causal;
};

void build(Graph& graph, const AttentionSize& s, AttentionPass pass, DType dtype, const std::string& suffix) {
  const Shape shape{s.batch, s.heads, s.rows, s.width};
  const Value q = graph.input("q" + suffix, dtype, shape), k = graph.input("k" + suffix, dtype, shape);
  const Value v = graph.input("v" + suffix, dtype, shape);
  AttentionOptions options;
  options.causal = s.causal;
  const Value result = scaled_dot_product_attention(q, k, v, options);
  if (pass != AttentionPass::backward) graph.fetch("result" + suffix, result);
  if (pass == AttentionPass::forward) return;
  const Value seed = graph.input("dresult" + suffix, dtype, shape);
  const Values grads = gradients(std::array{result}, std::array{q, k, v}, std::array{seed});
  const char* names[] = {"dq", "dk", "dv"};
  for (std::size_t i = 0; i < grads.size(); ++i) graph.fetch(names[i] + suffix, grads[i]);
  if (pass == AttentionPass::both) return;
  const NodeId node = result.ref().node;
  for (const auto& [output, name] : {std::pair{0, "out"}, std::pair{1, "logs"}}) {
    const Type type = graph.type({node, output});
    graph.replace({node, output}, graph.input(name + suffix, type.dtype, type.shape).ref());
  }
}

// Two products of each pair of a query and a key, five backward; of causal attention half of the pairs.
Need need_of(const AttentionSize& s, AttentionPass pass) {
  const auto rows = static_cast<double>(s.batch * s.heads * s.rows), width = static_cast<double>(s.width);
  const double product = 2 * rows * static_cast<double>(s.rows) * width * (s.causal ? 0.5 : 1);
  const double bytes = 2 * rows * width, logs = 4 * rows;
  const Need forward{.read = 3 * bytes, .written = bytes + logs, .flops = 2 * product};
  const Need backward{.read = 5 * bytes + logs, .written = 3 * bytes, .flops = 5 * product};
  if (pass == AttentionPass::forward) return forward;
  if (pass == AttentionPass::backward) return backward;
  return {.read = forward.read + backward.read,
          .written = forward.written + backward.written,
          .flops = forward.flops + backward.flops};
}

Case attention_case(const AttentionSize& s, AttentionPass pass, double goal_us) {
  const char* const names[] = {"forward", "backward", "both"};
  const char* const name = names[static_cast<int>(pass)];
  Case c;
  c.section = 'T';
  c.kind = fmt::format("attention_{}", name);
  c.dtype = DType::bf16;
  c.name =
      fmt::format("attention/{}_b{}_h{}_t{}_w{}{}", name, s.batch, s.heads, s.rows, s.width, s.causal ? "_causal" : "");
  c.what =
      fmt::format("B {}, {} heads, T {}, width {}{}{}", s.batch, s.heads, s.rows, s.width, s.causal ? ", causal" : "",
                  pass == AttentionPass::both       ? ", forward and all gradients"
                  : pass == AttentionPass::backward ? ", gradients, logarithms of sums given"
                                                    : "");
  c.sizes = JsonObject()
                .add("batch", s.batch)
                .add("heads", s.heads)
                .add("rows", s.rows)
                .add("width", s.width)
                .add("causal", s.causal)
                .text();
  c.need = need_of(s, pass);
  c.goal.hot = goal_us;
  c.on_cpu = false;
  c.rotates = false;
  c.tolerance = 2e-2;
  c.build = [s, pass](Graph& graph, DType type, const std::string& suffix) { build(graph, s, pass, type, suffix); };
  AttentionSize small = s;
  small.batch = 1, small.heads = 2;
  c.checked_as = "batch 1, 2 heads";
  c.build_small = [small, pass](Graph& graph, DType type, const std::string& suffix) {
    build(graph, small, pass, type, suffix);
  };
  c.feed = [s](const std::string& input, const Type& type) {
    if (input != "logs") return random_tensor(type, 1, input);
    // About as they are: those of scores that differ little.
    const auto count = static_cast<std::size_t>(type.shape.elements());
    std::vector<double> logs(count, 0.5 + std::log(static_cast<double>(s.rows)));
    for (std::size_t i = 0; s.causal && i < count; ++i) {
      logs[i] = 0.5 + std::log(static_cast<double>(i % static_cast<std::size_t>(s.rows) + 1));
    }
    return Tensor::from(type.dtype, type.shape, logs);
  };
  return c;
}

}  // namespace

Cases attention_cases() {
  const AttentionSize gpt2{8, 12, 1024, 64, true}, wide{4, 16, 4096, 128, true}, shorter{128, 8, 50, 64, false};
  return {attention_case(gpt2, AttentionPass::forward, 43),    attention_case(gpt2, AttentionPass::backward, 115),
          attention_case(wide, AttentionPass::forward, 628),   attention_case(wide, AttentionPass::backward, 1601),
          attention_case(shorter, AttentionPass::forward, 15), attention_case(shorter, AttentionPass::both, 45)};
}

}  // namespace paoding::cli::bench
