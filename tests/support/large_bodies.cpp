// SPDX-License-Identifier: Apache-2.0
// Large programs with bodies: scans, branches, loops, checkpoints; and with many or deep scopes.
#include <array>

#include "paoding/nn.h"
#include "paoding/paoding.h"
#include "tests/support/large_graphs.h"

namespace paoding::testing_program {
namespace {

// ---- bodies ----

void carries(Graph& g, std::int64_t n) {
  Values initial;
  for (std::int64_t i = 0; i < n / 4; ++i) initial.push_back(input(g, {4}, numbered("x", i)));
  const Value xs = input(g, {3, 4}, "xs");
  const StepResult made = scan(initial, {xs}, [](const Values& carry, const Values& element) {
    Values next;
    for (const Value& each : carry) next.push_back(tanh(each + element[0]));
    return step(next, next);
  });
  for (std::size_t i = 0; i < made.outputs.size(); ++i)
    g.fetch(numbered("y", static_cast<std::int64_t>(i)), made.outputs[i]);
}

void carry_chain(Graph& g, std::int64_t n) {  // each becomes the one before it; only the last is fetched
  Values initial;
  for (std::int64_t i = 0; i < n / 3; ++i) initial.push_back(input(g, {4}, numbered("x", i)));
  const Value xs = input(g, {3, 4}, "xs");
  const StepResult made = scan(initial, {xs}, [](const Values& carry, const Values& element) {
    Values next(carry.begin() + 1, carry.end());
    next.push_back(carry[0] + element[0]);
    return step(next, {});
  });
  g.fetch("y", made.carries.back());
}

void carries_gradient(Graph& g, std::int64_t n) {
  Values initial;
  for (std::int64_t i = 0; i < n / 24; ++i) initial.push_back(input(g, {4}, numbered("x", i)));
  const Value xs = input(g, {3, 4}, "xs");
  const StepResult made = scan(initial, {xs}, [](const Values& carry, const Values& element) {
    Values next;
    for (const Value& each : carry) next.push_back(tanh(each * element[0]));
    return step(next, {});
  });
  Values terms;
  for (const Value& each : made.carries) terms.push_back(sum(each));
  const Values d = gradients(std::array{add_n(terms)}, initial);
  for (std::size_t i = 0; i < d.size(); ++i) g.fetch(numbered("d", static_cast<std::int64_t>(i)), d[i]);
}

void large_body(Graph& g, std::int64_t n) {
  const Value xs = input(g, {3, 4, 4}, "xs"), w = input(g, {4, 4}, "w"), start = input(g, {4, 4}, "h");
  const StepResult made = scan({start}, {xs}, [&](const Values& carry, const Values& element) {
    Value h = carry[0];
    for (std::int64_t i = 0; i < n / 12; ++i) h = tanh(matmul(h, w) + element[0]);
    return step({h}, {h});
  });
  g.fetch("dw", gradients(sum(made.outputs[0]), {w})[0]);
}

void hoisted(Graph& g, std::int64_t n) {  // every product of the body leaves it, with weights of its own
  const Value xs = input(g, {3, 4, 4}, "xs"), start = input(g, {4, 4}, "h");
  Values weights;
  for (std::int64_t i = 0; i < n / 4; ++i) weights.push_back(input(g, {4, 4}, numbered("w", i)));
  const StepResult made = scan({start}, {xs}, [&](const Values& carry, const Values& element) {
    Value h = carry[0];
    for (const Value& w : weights) h = tanh(h + matmul(element[0], w));
    return step({h}, {h});
  });
  g.fetch("y", made.outputs[0]);
}

void sunk(Graph& g, std::int64_t n) {  // every product of the body moves after it
  const Value xs = input(g, {3, 4, 4}, "xs"), start = input(g, {4, 4}, "h"), w = input(g, {4, 4}, "w");
  const StepResult made = scan({start}, {xs}, [&](const Values& carry, const Values& element) {
    Values outputs;
    for (std::int64_t i = 0; i < n / 4; ++i) outputs.push_back(matmul(tanh(carry[0] * static_cast<double>(i + 2)), w));
    return step({tanh(carry[0] + element[0])}, outputs);
  });
  for (std::size_t i = 0; i < made.outputs.size(); ++i)
    g.fetch(numbered("y", static_cast<std::int64_t>(i)), made.outputs[i]);
}

void split_products_in_body(Graph& g, std::int64_t n) {  // one concatenation of many pieces, multiplied many times
  const std::int64_t count = n / 8;
  const Value xs = input(g, {3, 2, 4}, "xs"), start = input(g, {2, 4}, "h");
  Values pieces_given, weights;
  for (std::int64_t i = 0; i < count; ++i) {
    pieces_given.push_back(input(g, {2, 1}, numbered("p", i)));
    weights.push_back(input(g, {count + 8, 4}, numbered("w", i)));
  }
  const StepResult made = scan({start}, {xs}, [&](const Values& carry, const Values& element) {
    Values all = pieces_given;
    all.push_back(element[0]);
    all.push_back(carry[0]);
    const Value whole = concat(all, 1);
    Value h = carry[0];
    for (const Value& w : weights) h = h + matmul(whole, w);
    return step({h}, {});
  });
  g.fetch("y", made.carries[0]);
}

void scans(Graph& g, std::int64_t n) {  // one after the other
  const Value xs = input(g, {3, 4}, "xs"), w = input(g, {4, 4}, "w");
  Value h = input(g, {2, 4});
  for (std::int64_t i = 0; i < n / 8; ++i) {
    h = scan({h}, {xs}, [&](const Values& carry, const Values& element) {
          return step({tanh(matmul(carry[0], w) + element[0])}, {});
        }).carries[0];
  }
  g.fetch("y", h);
}

void hoisting_scans(Graph& g, std::int64_t n) {
  Value xs = input(g, {3, 2, 4}, "xs");
  const Value w = input(g, {4, 4}, "w"), h = input(g, {2, 4});
  for (std::int64_t i = 0; i < n / 12; ++i) {
    xs = scan({h}, {xs}, [&](const Values& carry, const Values& element) {
           const Value next = tanh(matmul(carry[0], w) + matmul(element[0], w));
           return step({next}, {next});
         }).outputs[0];
  }
  g.fetch("dw", gradients(sum(xs), {w})[0]);
}

void scans_in_a_scan(Graph& g, std::int64_t n) {
  const Value xs = input(g, {3, 4}, "xs"), start = input(g, {4}, "h");
  const StepResult made = scan({start}, {xs}, [&](const Values& carry, const Values& element) {
    Value h = carry[0];
    for (std::int64_t i = 0; i < n / 8; ++i) {
      h = scan({h}, {xs}, [&](const Values& inner, const Values& each) {
            return step({tanh(inner[0] + each[0] + element[0])}, {});
          }).carries[0];
    }
    return step({h}, {});
  });
  g.fetch("y", made.carries[0]);
}

void wide_scan_in_a_scan(Graph& g, std::int64_t n) {
  Values initial;
  for (std::int64_t i = 0; i < n / 6; ++i) initial.push_back(input(g, {4}, numbered("x", i)));
  const Value xs = input(g, {3, 4}, "xs");
  const StepResult made = scan(initial, {xs}, [&](const Values& carry, const Values& element) {
    const StepResult inner = scan(carry, {xs}, [&](const Values& deep, const Values& each) {
      Values next(deep.begin() + 1, deep.end());
      next.push_back(deep[0] + each[0] + element[0]);
      return step(next, {});
    });
    return step(inner.carries, {});
  });
  g.fetch("y", made.carries.back());
}

void branches(Graph& g, std::int64_t n) {
  const Value p = g.input("p", boolean, {});
  Value x = input(g);
  for (std::int64_t i = 0; i < n / 8; ++i) {
    x = cond(
        p, [&] { return tanh(x); }, [&] { return x * 2.0; });
  }
  g.fetch("y", x);
}

void branches_gradient(Graph& g, std::int64_t n) {
  const Value p = g.input("p", boolean, {}), first = input(g);
  Value x = first;
  for (std::int64_t i = 0; i < n / 30; ++i) {
    x = cond(
        p, [&] { return tanh(x); }, [&] { return x * 2.0; });
  }
  g.fetch("dx", gradients(sum(x), {first})[0]);
}

void branches_apart(Graph& g, std::int64_t n) {
  const Value x = input(g);
  for (std::int64_t i = 0; i < n / 10; ++i) {
    const Value p = g.input(numbered("p", i), boolean, {});
    g.fetch(numbered("y", i), cond(
                                  p, [&] { return tanh(x); }, [&] { return x * static_cast<double>(i + 2); }));
  }
}

void alternatives(Graph& g, std::int64_t n) {
  const Value index = g.input("index", i32, {}), x = input(g);
  std::vector<std::function<Values()>> list;
  for (std::int64_t i = 0; i < n / 4; ++i) list.push_back([&x, i] { return Values{x * static_cast<double>(i + 2)}; });
  g.fetch("y", switch_case(index, list)[0]);
}

void variants(Graph& g, std::int64_t n) {
  const Value index = g.input("index", i32, {}), x = input(g);
  std::vector<std::function<Values()>> list;
  for (std::int64_t i = 0; i < n / 4; ++i) list.push_back([&x, i] { return Values{x * static_cast<double>(i + 2)}; });
  g.fetch("y", switch_variant(index, list));
}

void loops(Graph& g, std::int64_t n) {
  const Value limit = g.input("limit", f32, {});
  Value x = input(g);
  for (std::int64_t i = 0; i < n / 10; ++i) {
    x = while_loop(
        {x}, [&](const Values& v) { return less(sum(v[0]), limit); },
        [&](const Values& v) { return Values{v[0] + 1}; })[0];
  }
  g.fetch("y", x);
}

void loop_values(Graph& g, std::int64_t n) {
  const Value limit = g.input("limit", f32, {});
  Values initial;
  for (std::int64_t i = 0; i < n / 4; ++i) initial.push_back(input(g, {4}, numbered("x", i)));
  const Values made = while_loop(
      initial, [&](const Values& v) { return less(sum(v[0]), limit); },
      [&](const Values& v) {
        Values next;
        for (const Value& each : v) next.push_back(each + 1);
        return next;
      });
  fetch_together(g, made);
}

void checkpoints(Graph& g, std::int64_t n) {
  const Value first = input(g);
  Value x = first;
  for (std::int64_t i = 0; i < n / 16; ++i) {
    x = checkpoint([](const Values& v) { return Values{tanh(tanh(v[0]))}; }, {x})[0];
  }
  g.fetch("dx", gradients(sum(x), {first})[0]);
}

// ---- scopes ----

void many_scopes(Graph& g, std::int64_t n) {
  Value x = input(g);
  for (std::int64_t i = 0; i < n / 4; ++i) {
    const Scope outer(g, numbered("block", i)), inner(g, "inner");
    x = matmul(tanh(x), x + 1);
  }
  g.fetch("y", x);
}

void deep_scopes(Graph& g, std::int64_t n) {  // 200 levels down
  Value x = input(g);
  const Name kept = g.scope;
  std::string path = "part";
  for (int level = 0; level < 200; ++level) path += "/part" + std::to_string(level);
  g.scope = path;
  for (std::int64_t i = 0; i < n / 2; ++i) x = matmul(tanh(x), x);
  g.scope = kept;
  g.fetch("y", x);
}

}  // namespace

std::vector<LargeGraph> graphs_of_large_bodies() {
  return {
      {"carries", carries},
      {"carry_chain", carry_chain},
      {"carries_gradient", carries_gradient},
      {"large_body", large_body},
      {"hoisted", hoisted},
      {"sunk", sunk},
      {"split_products_in_body", split_products_in_body},
      {"scans", scans},
      {"hoisting_scans", hoisting_scans},
      {"scans_in_a_scan", scans_in_a_scan},
      {"wide_scan_in_a_scan", wide_scan_in_a_scan},
      {"branches", branches},
      {"branches_gradient", branches_gradient},
      {"branches_apart", branches_apart},
      {"alternatives", alternatives},
      {"variants", variants},
      {"loops", loops},
      {"loop_values", loop_values},
      {"checkpoints", checkpoints},
      {"many_scopes", many_scopes},
      {"deep_scopes", deep_scopes},
  };
}

}  // namespace paoding::testing_program
