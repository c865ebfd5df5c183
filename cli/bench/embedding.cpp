// SPDX-License-Identifier: Apache-2.0
// Section O: the gradient of an embedding's table, whose rows are summed by index.
#include <algorithm>
#include <cmath>

#include "cli/bench/case.h"
#include "cli/bench/expected.h"
#include "cli/numbers.h"
#include "io/json_text.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding::cli::bench {
namespace {

struct Size {
  const char* name;
  std::int64_t tokens, rows, width;
};

// Every second token is the padding, others come as often as words do: the r-th about 1 / r as often as the first.
Tensor tokens_of(const Type& type, std::int64_t rows) {
  const std::vector<double> uniform = random_tensor({f64, type.shape}, 1, "ids").to_doubles();
  std::vector<double> ids(uniform.size(), 0.0);
  for (std::size_t i = 0; i < ids.size(); i += 2) {
    const double share = 0.5 + 0.5 * std::erf(uniform[i] / std::sqrt(2.0));
    ids[i] = std::min(std::floor(std::pow(static_cast<double>(rows), share)), static_cast<double>(rows - 1));
  }
  return Tensor::from(type.dtype, type.shape, ids);
}

Case embedding_case(const Size& s, DType dtype) {
  Case c;
  c.section = 'O';
  c.kind = "embedding_grad";
  c.name = fmt::format("embedding_grad/{}_{}", s.name, to_string(dtype));
  c.what = fmt::format("{} tokens of {} words, width {}, half of them padding", s.tokens, s.rows, s.width);
  c.sizes = JsonObject().add("tokens", s.tokens).add("rows", s.rows).add("width", s.width).text();
  c.dtype = dtype;
  const double row_bytes = static_cast<double>(s.width * size_bytes(dtype)), tokens = static_cast<double>(s.tokens);
  c.need = {.read = tokens / 2 * row_bytes + tokens * 8, .written = static_cast<double>(s.rows) * row_bytes};
  c.build = [s](Graph& graph, DType type, const std::string& suffix) {
    const Value ids = graph.input("ids" + suffix, i64, {s.tokens});
    const Value grad = graph.input("grad" + suffix, type, {s.tokens, s.width});
    graph.fetch("dtable" + suffix,
                call("embedding_grad", {ids, grad}, {{"padding", std::int64_t{0}}, {"extent", s.rows}}));
  };
  c.feed = [s](const std::string& name, const Type& type) {
    return name == "ids" ? tokens_of(type, s.rows) : random_tensor(type, 1, name);
  };
  c.expected = [s](const Feeds& feeds) {
    const Doubles grad = feeds.at("grad").to_doubles(), ids = feeds.at("ids").to_doubles();
    Doubles sums(static_cast<std::size_t>(s.rows * s.width));
    for (std::int64_t i = 0; i < s.tokens; ++i) {
      const auto row = static_cast<std::int64_t>(ids[static_cast<std::size_t>(i)]);
      for (std::int64_t k = 0; row != 0 && k < s.width; ++k) {
        sums[static_cast<std::size_t>(row * s.width + k)] += grad[static_cast<std::size_t>(i * s.width + k)];
      }
    }
    return Expected{{"dtable", std::move(sums)}};
  };
  return c;
}

}  // namespace

Cases embedding_cases() {
  Cases cases;
  for (const Size& size : {Size{"translate", 6400, 17191, 512}, Size{"long", 131072, 32000, 512}}) {
    for (const DType dtype : {f32, DType::bf16}) cases.push_back(embedding_case(size, dtype));
  }
  return cases;
}

}  // namespace paoding::cli::bench
