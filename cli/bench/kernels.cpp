// SPDX-License-Identifier: Apache-2.0
// Section O: kernels bound by memory: the optimizer, cross entropy, normalisation.
#include "cli/bench/kernels.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "cli/bench/expected.h"
#include "cli/numbers.h"
#include "io/json_text.h"
#include "paoding/autodiff.h"
#include "paoding/ops.h"
#include "paoding/optimizer.h"

namespace paoding::cli::bench {
namespace {

constexpr double kEpsilon = 1e-5;  // of layer_norm

// ---- layer_norm ----

enum class Pass { forward, backward, both };

void build_layer_norm(Graph& graph, std::int64_t rows, std::int64_t columns, Pass pass, DType dtype,
                      const std::string& suffix) {
  const Value x = graph.input("x" + suffix, dtype, {rows, columns});
  const Value gamma = graph.input("gamma" + suffix, dtype, {columns}),
              beta = graph.input("beta" + suffix, dtype, {columns});
  const Value y = layer_norm(x, gamma, beta);
  if (pass != Pass::backward) graph.fetch("y" + suffix, y);
  if (pass == Pass::forward) return;
  const Value dy = graph.input("dy" + suffix, dtype, {rows, columns});
  const Values grads = gradients(std::array{y}, std::array{x, gamma, beta}, std::array{dy});
  const char* names[] = {"dx", "dgamma", "dbeta"};
  for (std::size_t i = 0; i < grads.size(); ++i) graph.fetch(names[i] + suffix, grads[i]);
  if (pass == Pass::both) return;
  // In training the forward pass has left mean and variance behind.
  const NodeId norm = y.ref().node;
  for (const auto& [output, name] : {std::pair{1, "mean"}, std::pair{2, "variance"}}) {
    const Type type = graph.type({norm, output});
    graph.replace({norm, output}, graph.input(name + suffix, type.dtype, type.shape).ref());
  }
}

Expected expect_layer_norm(std::int64_t rows, std::int64_t columns, Pass pass, const Feeds& feeds) {
  const auto width = static_cast<std::size_t>(columns), all = static_cast<std::size_t>(rows) * width;
  const Doubles gamma = feeds.at("gamma").to_doubles(), beta = feeds.at("beta").to_doubles();
  const Tensor& x = feeds.at("x");
  const Tensor* dy = pass == Pass::forward ? nullptr : &feeds.at("dy");
  Doubles y(all), dx(all), normal(all);
  for_each_row(rows, [&](std::int64_t r) {
    const auto at = [&](const Tensor& tensor, std::size_t j) {
      return element(tensor, r * columns + static_cast<std::int64_t>(j));
    };
    double mean = 0, variance = 0;
    if (pass == Pass::backward) {
      mean = element(feeds.at("mean"), r);
      variance = element(feeds.at("variance"), r);
    } else {
      for (std::size_t j = 0; j < width; ++j) mean += at(x, j) / static_cast<double>(width);
      for (std::size_t j = 0; j < width; ++j) variance += std::pow(at(x, j) - mean, 2) / static_cast<double>(width);
    }
    const double scale = 1 / std::sqrt(variance + kEpsilon);
    const std::size_t first = static_cast<std::size_t>(r) * width;
    double sum = 0, product = 0;
    for (std::size_t j = 0; j < width; ++j) {
      const double n = normal[first + j] = (at(x, j) - mean) * scale;
      y[first + j] = n * gamma[j] + beta[j];
      if (dy == nullptr) continue;
      sum += at(*dy, j) * gamma[j] / static_cast<double>(width);
      product += at(*dy, j) * gamma[j] * n / static_cast<double>(width);
    }
    if (dy == nullptr) return;
    for (std::size_t j = 0; j < width; ++j) {
      dx[first + j] = scale * (at(*dy, j) * gamma[j] - sum - normal[first + j] * product);
    }
  });
  Expected e;
  if (pass != Pass::backward) e["y"] = std::move(y);
  if (dy == nullptr) return e;
  Doubles dgamma(width), dbeta(width);
  for_each_row(columns, [&](std::int64_t column) {
    const auto j = static_cast<std::size_t>(column);
    for (std::int64_t r = 0; r < rows; ++r) {
      const double d = element(*dy, r * columns + column);
      dbeta[j] += d;
      dgamma[j] += d * normal[static_cast<std::size_t>(r * columns) + j];
    }
  });
  e["dx"] = std::move(dx);
  e["dgamma"] = std::move(dgamma);
  e["dbeta"] = std::move(dbeta);
  return e;
}

Case layer_norm_case(Pass pass, DType dtype) {
  constexpr std::int64_t kRows = 8192, kColumns = 1024;
  const char* const names[] = {"forward", "backward", "both"};
  Case c;
  c.section = 'O';
  c.kind = fmt::format("layer_norm_{}", names[static_cast<int>(pass)]);
  c.name = fmt::format("layer_norm/{}_{}", names[static_cast<int>(pass)], to_string(dtype));
  c.what = fmt::format("[{}, {}]{}", kRows, kColumns,
                       pass == Pass::both       ? ", forward and all gradients"
                       : pass == Pass::backward ? ", gradients, statistics given"
                                                : "");
  c.sizes = JsonObject().add("rows", kRows).add("columns", kColumns).text();
  c.dtype = dtype;
  const double bytes = static_cast<double>(kRows * kColumns * size_bytes(dtype));
  c.need = pass == Pass::forward    ? Need{.read = bytes, .written = bytes}
           : pass == Pass::backward ? Need{.read = 2 * bytes, .written = bytes}
                                    // x leaves the cache between the passes: it is read twice
                                    : Need{.read = 3 * bytes, .written = 2 * bytes};
  c.build = [pass](Graph& graph, DType type, const std::string& suffix) {
    build_layer_norm(graph, kRows, kColumns, pass, type, suffix);
  };
  c.feed = [](const std::string& name, const Type& type) {
    if (name != "variance") return random_tensor(type, 1, name);
    std::vector<double> variances = random_tensor({f64, type.shape}, 1, name).to_doubles();
    for (double& variance : variances) variance = 0.5 + variance * variance;
    return Tensor::from(type.dtype, type.shape, variances);
  };
  c.expected = [pass](const Feeds& feeds) { return expect_layer_norm(kRows, kColumns, pass, feeds); };
  return c;
}

// ---- cross entropy with its gradient ----

Case cross_entropy_case(DType dtype) {
  constexpr std::int64_t kTokens = 6400, kWords = 7709;
  Case c;
  c.section = 'O';
  c.kind = "cross_entropy";
  c.name = fmt::format("cross_entropy/{}", to_string(dtype));
  c.what = fmt::format("[{}, {}], mean loss and gradient", kTokens, kWords);
  c.sizes = JsonObject().add("tokens", kTokens).add("words", kWords).text();
  c.dtype = dtype;
  const double bytes = static_cast<double>(kTokens * kWords * size_bytes(dtype));
  c.need = {.read = bytes, .written = bytes};
  c.build = [](Graph& graph, DType type, const std::string& suffix) {
    const Value logits = graph.input("logits" + suffix, type, {kTokens, kWords});
    const Value loss = cross_entropy(logits, graph.input("labels" + suffix, i64, {kTokens}));
    graph.fetch("loss" + suffix, loss);
    graph.fetch("dlogits" + suffix, gradients(loss, {logits})[0]);
  };
  c.feed = [](const std::string& name, const Type& type) {
    if (name != "labels") return random_tensor(type, 1, name);
    std::vector<double> labels(kTokens);
    for (std::size_t i = 0; i < labels.size(); ++i) labels[i] = static_cast<double>(i * 7919 % kWords);
    return Tensor::from(type.dtype, type.shape, labels);
  };
  c.expected = [](const Feeds& feeds) {
    const Tensor &logits = feeds.at("logits"), &labels = feeds.at("labels");
    Doubles losses(kTokens), gradient(kTokens * kWords);
    for_each_row(kTokens, [&](std::int64_t r) {
      double sum = 0;
      for (std::int64_t j = 0; j < kWords; ++j) sum += std::exp(element(logits, r * kWords + j));
      const auto label = static_cast<std::int64_t>(element(labels, r));
      losses[static_cast<std::size_t>(r)] = std::log(sum) - element(logits, r * kWords + label);
      for (std::int64_t j = 0; j < kWords; ++j) {
        const double share = std::exp(element(logits, r * kWords + j)) / sum;
        gradient[static_cast<std::size_t>(r * kWords + j)] = (share - (j == label ? 1 : 0)) / kTokens;
      }
    });
    double loss = 0;
    for (const double one : losses) loss += one / kTokens;
    return Expected{{"loss", {loss}}, {"dlogits", std::move(gradient)}};
  };
  return c;
}

// ---- Adam ----

struct AdamSize {
  std::int64_t tensors, elements;
};

// The gradients are fed: sum(p g) has the gradient g for p.
void build_adam(Graph& graph, const AdamSize& s, DType dtype) {
  Values terms;
  for (std::int64_t i = 0; i < s.tensors; ++i) {
    const Value p = graph.parameter(fmt::format("p{}", i), dtype, {s.elements});
    terms.push_back(sum(p * graph.input(fmt::format("g{}", i), dtype, {s.elements})));
  }
  minimize(add_n(terms), Adam{});
}

Tensor feed_adam(const std::string& name, const Type& type) {
  if (!is_float(type.dtype)) return filled_tensor(type, name == "optimizer/step" ? 100 : 0);
  Tensor values = random_tensor(type, 1, name);
  if (!name.starts_with("adam/v/")) return values;
  std::vector<double> squares = values.to_doubles();
  for (double& value : squares) value = 1e-4 + value * value;
  return Tensor::from(type.dtype, type.shape, squares);
}

// Kingma, Ba 2015, algorithm 1, in update 101.
Expected expect_adam(const AdamSize& s, const Feeds& feeds) {
  const double rate = 1e-3, beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8, t = 101;
  Expected e;
  for (std::int64_t i = 0; i < s.tensors; ++i) {
    const Tensor &g = feeds.at(fmt::format("g{}", i)), &p = feeds.at(fmt::format("p{}", i));
    const Tensor &m0 = feeds.at(fmt::format("adam/m/p{}", i)), &v0 = feeds.at(fmt::format("adam/v/p{}", i));
    Doubles updated(static_cast<std::size_t>(s.elements)), means = updated, squares = updated;
    for_each_row(s.elements, [&](std::int64_t k) {
      const auto at = static_cast<std::size_t>(k);
      const double d = element(g, k);
      const double m = means[at] = beta1 * element(m0, k) + (1 - beta1) * d;
      const double v = squares[at] = beta2 * element(v0, k) + (1 - beta2) * d * d;
      updated[at] =
          element(p, k) - rate * (m / (1 - std::pow(beta1, t))) / (std::sqrt(v / (1 - std::pow(beta2, t))) + epsilon);
    });
    e[fmt::format("p{}", i)] = std::move(updated);
    e[fmt::format("adam/m/p{}", i)] = std::move(means);
    e[fmt::format("adam/v/p{}", i)] = std::move(squares);
  }
  return e;
}

}  // namespace

Cases kernel_variants(DType dtype) {
  return {layer_norm_case(Pass::forward, dtype), layer_norm_case(Pass::backward, dtype), cross_entropy_case(dtype),
          adam_case(10, 1'000'000, dtype)};
}

Case adam_case(std::int64_t tensors, std::int64_t elements, DType dtype) {
  const AdamSize s{tensors, elements};
  Case c;
  c.section = 'O';
  c.kind = "adam";
  c.name = fmt::format("adam/{}m_{}", tensors * elements / 1'000'000, to_string(dtype));
  c.what = fmt::format("{} tensors of {}", tensors, elements);
  c.sizes = JsonObject().add("tensors", tensors).add("elements", elements).text();
  c.dtype = dtype;
  const double bytes = static_cast<double>(tensors * elements * size_bytes(dtype));
  c.need = {.read = 4 * bytes, .written = 3 * bytes, .updated = 3 * bytes};
  c.rotates = false;
  c.build = [s](Graph& graph, DType type, const std::string&) { build_adam(graph, s, type); };
  c.feed = feed_adam;
  c.expected = [s](const Feeds& feeds) { return expect_adam(s, feeds); };
  return c;
}

Cases kernel_cases() {
  Cases cases;
  Case adam = adam_case(30, 2'000'000, f32);
  adam.goal.cold = 420;
  adam.on_cpu = false;
  cases.push_back(std::move(adam));
  Case adam_on_cpu = adam_case(10, 1'000'000, f32);
  adam_on_cpu.cpu_goal = {.faster_2 = 1.3, .faster_16 = 1.3, .copies = 1.1};
  adam_on_cpu.on_gpu = false;
  cases.push_back(std::move(adam_on_cpu));
  for (const auto& [dtype, goal, both, forward] :
       {std::tuple{f32, 110.0, 46.0, 18.5}, std::tuple{bf16, 58.0, 26.0, 10.5}}) {
    Case entropy = cross_entropy_case(dtype);
    entropy.goal.cold = goal;
    cases.push_back(std::move(entropy));
    Case norm = layer_norm_case(Pass::forward, dtype);
    norm.goal.cold = forward;
    if (dtype == f32) norm.cpu_goal.copies = 1.5;
    cases.push_back(std::move(norm));
    Case norm_both = layer_norm_case(Pass::both, dtype);
    norm_both.goal.cold = both;
    norm_both.on_cpu = false;
    cases.push_back(std::move(norm_both));
  }
  Case backward = layer_norm_case(Pass::backward, f32);
  backward.cpu_goal.copies = 1.5;
  cases.push_back(std::move(backward));
  Case block;
  block.section = 'O';
  block.name = block.kind = "transformer_block/slices_and_casts_bf16";
  block.what = "case 1a: time in slice gradients and casts, which should have no kernels of their own";
  block.on_cpu = false;
  block.waits_for = "a fused attention";
  cases.push_back(std::move(block));
  return cases;
}

}  // namespace paoding::cli::bench
