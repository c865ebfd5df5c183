// SPDX-License-Identifier: Apache-2.0
#include "tests/support/large_graphs.h"

#include <algorithm>
#include <array>

#include "paoding/nn.h"
#include "paoding/op.h"
#include "paoding/paoding.h"

namespace paoding::testing_program {
namespace {

using Ints = std::vector<std::int64_t>;

// ---- chains ----

void products(Graph& g, std::int64_t n) {
  Value x = input(g);
  const Value w = input(g, {4, 4}, "w");
  for (std::int64_t i = 0; i < n; ++i) x = matmul(x, w);
  g.fetch("y", x);
}

void elementwise(Graph& g, std::int64_t n) {
  Value x = input(g);
  const Value first = x;
  for (std::int64_t i = 0; i < n; ++i) x = i % 3 == 0 ? tanh(x) : i % 3 == 1 ? x + first : x * first;
  g.fetch("y", x);
}

void elementwise_gradient(Graph& g, std::int64_t n) {
  const Value first = input(g);
  Value x = first;
  for (std::int64_t i = 0; i < n / 4; ++i) x = tanh(x);
  g.fetch("dx", gradients(sum(x), {first})[0]);
}

void deep_network(Graph& g, std::int64_t n) {
  Value x = input(g);
  for (std::int64_t i = 0; i < n / 16; ++i) x = tanh(nn::Linear(g, numbered("layer", i), 4, 4)(x));
  minimize(sum(x), Sgd{.learning_rate = 0.1});
}

void residual_network(Graph& g, std::int64_t n) {
  Value x = input(g);
  for (std::int64_t i = 0; i < n / 24; ++i) {
    x = x +
        matmul(relu(matmul(x, g.parameter(numbered("a", i), f32, {4, 4}))), g.parameter(numbered("b", i), f32, {4, 4}));
  }
  minimize(sum(x), Adam{});
}

void skipping(Graph& g, std::int64_t n) {  // the first value is read last
  Values all{input(g)};
  const Value w = input(g, {4, 4}, "w");
  for (std::int64_t i = 0; i < n / 3; ++i) all.push_back(matmul(all.back(), w));
  Value x = all.back();
  for (std::size_t i = all.size(); i-- > 0;) x = matmul(x, w) + all[i];
  g.fetch("y", x);
}

void identities(Graph& g, std::int64_t n) {
  Value x = input(g);
  for (std::int64_t i = 0; i < n; ++i) x = i % 2 == 0 ? -x : x * 1;
  g.fetch("y", x);
}

void views(Graph& g, std::int64_t n) {
  Value x = input(g, {4, 6});
  for (std::int64_t i = 0; i < n / 2; ++i) {
    x = reshape(x, i % 2 == 0 ? Shape{6, 4} : Shape{4, 6});
    if (i % 3 == 0) x = reshape(transpose(x, Ints{1, 0}), x.shape());
  }
  g.fetch("y", x);
}

void viewed_ones(Graph& g, std::int64_t n) {
  const Value x = input(g);
  Value one = full(g, {4, 4}, 1);
  Values made;
  for (std::int64_t i = 0; i < n / 3; ++i) {
    one = reshape(one, i % 2 == 0 ? Shape{2, 8} : Shape{4, 4});
    made.push_back(reshape(x, one.shape()) * one);
  }
  for (Value& each : made) each = reshape(each, {4, 4});
  fetch_together(g, std::move(made));
}

void casts(Graph& g, std::int64_t n) {
  Value x = input(g);
  for (std::int64_t i = 0; i < n; ++i) x = cast(x, std::array{f16, f32, bf16, f64}[static_cast<std::size_t>(i % 4)]);
  g.fetch("y", x);
}

void shrinking(Graph& g, std::int64_t n) {
  Value x = input(g, {n});
  for (std::int64_t i = 0; i < n / 2; ++i) x = tanh(slice(x, 0, 1, x.shape()[0]));
  g.fetch("y", x);
}

void softmaxes(Graph& g, std::int64_t n) {
  Value x = input(g, {8, 32});
  for (std::int64_t i = 0; i < n / 6; ++i) x = softmax(x);
  g.fetch("y", x);
}

void composed(Graph& g, std::int64_t n) {
  Value x = input(g, {4, 16});
  const Value gain = input(g, {16}, "gain"), bias = input(g, {16}, "bias");
  for (std::int64_t i = 0; i < n / 20; ++i) x = gelu(layer_norm(x, gain, bias));
  g.fetch("y", x);
}

void half_products(Graph& g, std::int64_t n) {
  Value x = cast(input(g), f16);
  const Value w = cast(input(g, {4, 4}, "w"), f16);
  for (std::int64_t i = 0; i < n / 2; ++i) x = tanh(matmul(x, w));
  g.fetch("y", cast(x, f32));
}

void convolutions(Graph& g, std::int64_t n) {
  Value x = g.input("x", f32, {1, 4, 6, 6});
  const Value w = g.input("w", f32, {4, 4, 3, 3}), b = g.input("b", f32, {4});
  for (std::int64_t i = 0; i < n / 4; ++i) x = relu(conv2d(x, w, b, {.padding = {1, 1, 1, 1}}));
  g.fetch("y", x);
}

void recurrent_cells(Graph& g, std::int64_t n) {  // unrolled by hand
  const Value x = input(g, {2, 3}), w = input(g, {3, 16}, "w"), u = input(g, {4, 16}, "u"), b = input(g, {16}, "b");
  Value h = input(g, {2, 4}, "h"), c = input(g, {2, 4}, "c");
  for (std::int64_t i = 0; i < n / 40; ++i) {
    const auto [next_h, next_c] = lstm_cell(x, h, c, w, u, b);
    h = next_h, c = next_c;
  }
  g.fetch("dw", gradients(sum(h), {w})[0]);
}

// ---- many of one kind ----

// Its rows; one unstack gives 2^16 at most.
Values rows_of(const Value& x) {
  constexpr std::int64_t kMost = 1 << 16;
  Values rows;
  for (std::int64_t first = 0; first < x.shape()[0]; first += kMost) {
    const Values some = unstack(slice(x, 0, first, std::min(first + kMost, x.shape()[0])));
    rows.insert(rows.end(), some.begin(), some.end());
  }
  return rows;
}

void one_sum(Graph& g, std::int64_t n) { g.fetch("y", add_n(rows_of(input(g, {n, 4})))); }

void one_sum_of_kept(Graph& g, std::int64_t n) {  // none of its addends can become part of its kernel
  const Value x = input(g), w = input(g, {4, 4}, "w");
  Values parts;
  for (std::int64_t i = 0; i < n / 2; ++i) parts.push_back(matmul(x * static_cast<double>(i + 2), w));
  g.fetch("y", add_n(parts));
}

void sum_of_scalars(Graph& g, std::int64_t n) { g.fetch("y", add_n(rows_of(input(g, {n})))); }

void assigns(Graph& g, std::int64_t n) {
  for (std::int64_t i = 0; i < n / 3; ++i) {
    const Value p = g.parameter(numbered("p", i), f32, {4});
    g.assign(p, p * 0.5);
  }
}

void rotating_assigns(Graph& g, std::int64_t n) {  // each takes the next one's value
  Values all;
  for (std::int64_t i = 0; i < n / 2; ++i) all.push_back(g.parameter(numbered("p", i), f32, {4}));
  for (std::size_t i = 0; i < all.size(); ++i) g.assign(all[i], all[(i + 1) % all.size()]);
}

void read_assigns(Graph& g, std::int64_t n) {  // the old values are read after the new ones
  Values old;
  for (std::int64_t i = 0; i < n / 4; ++i) {
    const Value p = g.parameter(numbered("p", i), f32, {4, 4});
    g.assign(p, matmul(p, p));
    old.push_back(p);
  }
  fetch_together(g, std::move(old));
}

void fetches(Graph& g, std::int64_t n) {
  const Value x = input(g);
  for (std::int64_t i = 0; i < n; ++i) g.fetch(numbered("y", i), x * static_cast<double>(i + 2));
}

void inputs(Graph& g, std::int64_t n) {
  Values all;
  for (std::int64_t i = 0; i < n / 2; ++i) all.push_back(g.input(numbered("x", i), f32, {4}));
  fetch_together(g, std::move(all));
}

void parameters(Graph& g, std::int64_t n) {
  Values all;
  for (std::int64_t i = 0; i < n / 2; ++i) all.push_back(g.parameter(numbered("p", i), f32, {4}));
  fetch_together(g, std::move(all));
}

void prints(Graph& g, std::int64_t n) {
  Value x = input(g);
  for (std::int64_t i = 0; i < n / 2; ++i) x = print(tanh(x), numbered("turn ", i));
  g.fetch("y", x);
}

void duplicates(Graph& g, std::int64_t n) {
  const Value x = input(g);
  Values all;
  for (std::int64_t i = 0; i < n / 2; ++i) all.push_back(tanh(x));
  fetch_together(g, std::move(all));
}

void numbers(Graph& g, std::int64_t n) {  // each with an attribute of its own
  const Value x = input(g);
  Values all;
  for (std::int64_t i = 0; i < n / 2; ++i)
    all.push_back(clamp(x, static_cast<double>(i), 2.0 * static_cast<double>(n)));
  fetch_together(g, std::move(all));
}

void constants(Graph& g, std::int64_t n) {
  Values all;
  for (std::int64_t i = 0; i < n / 2; ++i) {
    all.push_back(constant(g, {2}, std::vector<double>{static_cast<double>(i), 1}));
  }
  fetch_together(g, std::move(all));
}

void random_numbers(Graph& g, std::int64_t n) {
  Value x = input(g, {4, 4});
  for (std::int64_t i = 0; i < n / 8; ++i) x = dropout(x, 0.5);
  g.fetch("y", x);
}

void gathers(Graph& g, std::int64_t n) {
  Value x = input(g, {8, 4});
  const Value index = g.input("index", i32, {8});
  for (std::int64_t i = 0; i < n; ++i) x = gather(x, index, 0);
  g.fetch("y", x);
}

void sizes(Graph& g, std::int64_t n) {  // all alive at once, of many sizes
  const Value x = input(g, {1, 1});
  Values all;
  for (std::int64_t i = 0; i < n / 5; ++i) {
    all.push_back(matmul(x, g.input(numbered("w", i), f32, {1, 64 * (1 + i * 7919 % 1000)})));
  }
  Value total = sum(all[0]);
  for (std::size_t i = 1; i < all.size(); ++i) total = total + matmul(x, reshape(sum(all[all.size() - i]), {1, 1}));
  g.fetch("y", total);
}

// ---- one value, many readers ----

void readers(Graph& g, std::int64_t n) {
  const Value x = tanh(input(g));
  Values all;
  for (std::int64_t i = 0; i < n / 2; ++i) all.push_back(x * static_cast<double>(i + 2));
  fetch_together(g, std::move(all));
}

void fetched_readers(Graph& g, std::int64_t n) {
  const Value x = tanh(input(g));
  for (std::int64_t i = 0; i < n; ++i) g.fetch(numbered("y", i), sum(x + static_cast<double>(i)));
}

void product_readers(Graph& g, std::int64_t n) {  // a cycle wherever reader and value would be one kernel
  const Value x = tanh(input(g)), w = input(g, {4, 4}, "w");
  Values all;
  for (std::int64_t i = 0; i < n / 4; ++i) all.push_back(x * matmul(x, w * static_cast<double>(i)));
  fetch_together(g, std::move(all));
}

void pieces(Graph& g, std::int64_t n) {
  const Value x = input(g, {n, 4});
  Values parts;
  for (const Value& part : rows_of(x)) parts.push_back(tanh(part));
  g.fetch("y", stack(parts));
}

void pieces_of_pieces(Graph& g, std::int64_t n) {  // slices of a concatenation
  Values parts;
  for (std::int64_t i = 0; i < n / 4; ++i) parts.push_back(input(g, {2, 4}, numbered("x", i)));
  const Value whole = concat(parts, 0);
  Values made;
  for (std::int64_t i = 0; i < n / 4; ++i) made.push_back(tanh(slice(whole, 0, i, i + 2)));
  g.fetch("y", concat(made, 0));
}

void exact_pieces(Graph& g, std::int64_t n) {
  Values parts;
  for (std::int64_t i = 0; i < n / 4; ++i) parts.push_back(tanh(input(g, {2, 4}, numbered("x", i))));
  const Value whole = concat(parts, 0);
  Values made;
  for (std::int64_t i = 0; i < n / 4; ++i) made.push_back(slice(whole, 0, 2 * i, 2 * i + 2) * static_cast<double>(i));
  fetch_together(g, std::move(made));
}

void sliced_chain(Graph& g, std::int64_t n) {  // as long as it is cut into pieces
  const std::int64_t side = static_cast<std::int64_t>(n / 4);
  Value x = input(g, {side});
  for (std::int64_t i = 0; i < side; ++i) x = tanh(x);
  Values parts;
  for (std::int64_t i = 0; i < side; ++i) parts.push_back(slice(x, 0, i, i + 1) * static_cast<double>(i));
  fetch_together(g, std::move(parts));
}

void windows(Graph& g, std::int64_t n) {
  const Value x = input(g, {n});
  Values parts;
  for (std::int64_t i = 0; i < n / 6; ++i) parts.push_back(tanh(slice(x, 0, i, i + 8)) * static_cast<double>(i));
  g.fetch("dx", gradients(sum(add_n(parts)), {x})[0]);
}

void suffixes(Graph& g, std::int64_t n) {
  const Value x = input(g, {n});
  Values parts;
  for (std::int64_t i = 0; i < n / 8; ++i) parts.push_back(sum(square(slice(x, 0, i, n))));
  g.fetch("dx", gradients(add_n(parts), {x})[0]);
}

void pads(Graph& g, std::int64_t n) {
  const Value x = input(g, {4});
  Values parts;
  for (std::int64_t i = 0; i < n / 4; ++i) parts.push_back(pad(x * static_cast<double>(i), Ints{i}, Ints{n - i}));
  g.fetch("y", add_n(parts));
}

void many_gradients(Graph& g, std::int64_t n) {  // one after the other, each of a small part
  const Value x = input(g);
  for (std::int64_t i = 0; i < n / 8; ++i) {
    const Value p = x * static_cast<double>(i + 2);
    g.fetch(numbered("d", i), gradients(sum(tanh(p)), {p})[0]);
  }
}

// One op, whose formula is as long.
void long_formula(Graph& g, std::int64_t n) {
  static const OpDef& op = register_op({.name = "long_formula",
                                        .summary = "steps of s a + 1.5",
                                        .kind = OpKind::formula,
                                        .inputs = {"a"},
                                        .attrs = {{.name = "steps", .example = std::int64_t{1}}},
                                        .formula = [](std::span<const Scalar> in, const Attrs& attrs) {
                                          Scalar s = in[0];
                                          for (std::int64_t i = 0; i < attrs.get_int("steps"); ++i) {
                                            s = s * in[0] + 1.5;
                                          }
                                          return s;
                                        }});
  g.fetch("y", call(op, std::array{input(g)}, {{"steps", n}}).front());
}

}  // namespace

std::vector<LargeGraph> large_graphs() {
  std::vector<LargeGraph> all = {
      {"products", products},
      {"elementwise", elementwise},
      {"elementwise_gradient", elementwise_gradient},
      {"deep_network", deep_network},
      {"residual_network", residual_network},
      {"skipping", skipping},
      {"identities", identities},
      {"views", views},
      {"viewed_ones", viewed_ones},
      {"casts", casts},
      {"shrinking", shrinking},
      {"softmaxes", softmaxes},
      {"composed", composed},
      {"half_products", half_products},
      {"convolutions", convolutions},
      {"recurrent_cells", recurrent_cells},
      {"one_sum", one_sum},
      {"one_sum_of_kept", one_sum_of_kept},
      {"sum_of_scalars", sum_of_scalars},
      {"assigns", assigns},
      {"rotating_assigns", rotating_assigns},
      {"read_assigns", read_assigns},
      {"fetches", fetches},
      {"inputs", inputs},
      {"parameters", parameters},
      {"prints", prints},
      {"duplicates", duplicates},
      {"numbers", numbers},
      {"constants", constants},
      {"random_numbers", random_numbers},
      {"gathers", gathers},
      {"sizes", sizes},
      {"readers", readers},
      {"fetched_readers", fetched_readers},
      {"product_readers", product_readers},
      {"pieces", pieces},
      {"pieces_of_pieces", pieces_of_pieces},
      {"exact_pieces", exact_pieces},
      {"sliced_chain", sliced_chain},
      {"windows", windows},
      {"suffixes", suffixes},
      {"pads", pads},
      {"many_gradients", many_gradients},
      {"long_formula", long_formula},
  };
  const std::vector<LargeGraph> bodies = graphs_of_large_bodies();
  all.insert(all.end(), bodies.begin(), bodies.end());
  return all;
}

}  // namespace paoding::testing_program
