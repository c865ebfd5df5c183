// SPDX-License-Identifier: Apache-2.0
// Random graphs of everything there is: elementwise ops, sums, views, products, casts, selects, scans (also nested),
// several fetches and gradients. The same seed gives the same graph. Magnitudes stay around 1, and nothing that jumps
// is computed from rounded values, so that results can be compared tightly.
#pragma once

#include <numeric>
#include <optional>

#include "tests/support/program_check.h"

namespace paoding::testing_program {

class RandomGraph {
 public:
  /// With `statements`, gradients are not added to the graph but written there as graph text that follows it. Values
  /// that are not f64 are `narrow`. With `Choices::some` there are branches and loops without a length among the ops,
  /// decided by fed values, and no gradients.
  enum class Choices : std::uint8_t { none, some };
  RandomGraph(Graph& graph, unsigned seed, std::string* statements = nullptr, DType narrow = f32,
              Choices choices = Choices::none)
      : random_(seed), narrow_(narrow), has_choices_(choices == Choices::some) {
    const DType dtype = below(3) == 0 ? f64 : narrow_;
    const std::int64_t a = 1 + below(4), b = 1 + below(5), c = 1 + below(3);
    Pool pool;
    const Shape shapes[] = {{a, b}, {b}, {}, {c, a, b}, {1, b}, {a, 1}, {b, a}, {below(8) == 0 ? 0 : c + 1, b}};
    for (const Shape& shape : shapes) {
      if (pool.size() > 2 && below(4) == 0) continue;
      const std::string name = "x" + std::to_string(pool.size());
      const DType mine = below(10) == 0 ? (dtype == f64 ? narrow_ : f64) : dtype;
      pool.push_back({graph.input(name, mine, shape), 1.3, true});
    }
    inputs_ = pool.size();
    const int ops = 5 + static_cast<int>(below(36));
    for (int i = 0; i < ops; ++i) grow(&pool, &graph, 0);
    fetch(graph, pool, statements);
  }

 private:
  struct Item {
    Value value;
    double bound;   // of the magnitude
    bool is_exact;  // holds fed elements, moved but not computed
  };
  using Pool = std::vector<Item>;
  static constexpr std::int64_t kMostElements = 300;
  static constexpr int kMostAxes = 5;  // stacks of two loops have two more, and a sum of them one more; 8 are allowed

  std::int64_t below(std::int64_t bound) { return static_cast<std::int64_t>(random_() % static_cast<unsigned>(bound)); }
  bool chance(int percent) { return below(100) < percent; }
  const Item& pick(const Pool& pool) {
    // The latest values are picked more often, so that chains grow long.
    const auto size = static_cast<std::int64_t>(pool.size());
    const std::int64_t recent = std::min<std::int64_t>(size, 6);
    return pool[static_cast<std::size_t>(chance(50) ? size - 1 - below(recent) : below(size))];
  }
  Item pick_float(const Pool& pool) {
    const Item item = pick(pool);
    return is_float(item.value.dtype()) ? item : pool[0];
  }

  void add(Pool* pool, Item item) {
    if (item.bound > 3) {
      item.value = chance(50) ? tanh(item.value) : item.value * (1 / item.bound);
      item.bound = 1;
      item.is_exact = false;
    }
    pool->push_back(std::move(item));
  }

  void grow(Pool* pool, const Graph* here, int depth) {
    const Item item = pick_float(*pool);
    if (has_choices_ && depth < 2 && chance(12))
      return chance(50) ? branched(pool, here, depth) : looped(pool, here, depth);
    const std::int64_t kind = below(100);
    if (kind < 18) return add(pool, unary(item));
    if (kind < 40) return add(pool, binary(item, pick_float(*pool)));
    if (kind < 48) return add(pool, summed(item));
    if (kind < 70) return add(pool, moved(item, *pool));
    if (kind < 80) return add(pool, product(item, *pool));
    if (kind < 84) return add(pool, converted(item));
    if (kind < 89) return add(pool, chosen(item, *pool));
    if (kind < 93) return add(pool, many(item, *pool));
    if (depth < 2) return scanned(pool, here, depth);
    return add(pool, unary(item));
  }

  Item unary(const Item& x) {
    const Value& v = x.value;
    switch (below(15)) {
      case 9: return {gelu(v, chance(50) ? "none" : "tanh"), x.bound, false};
      case 10: return {silu(v), x.bound, false};
      case 11: return {softplus(v), x.bound + 0.7, false};
      case 12: return {chance(50) ? sin(v) : cos(v), 1, false};
      case 13: return {chance(50) ? erf(v) : mish(v), std::max(1.0, x.bound), false};
      case 14: return {square(v), x.bound * x.bound, false};
      case 0: return {tanh(v), 1, false};
      case 1: return {sigmoid(v), 1, false};
      case 2: return {exp(tanh(v)), 2.8, false};
      case 3: return {-v, x.bound, x.is_exact};
      case 4: return {v * 0.5, x.bound / 2, x.is_exact};
      case 5: return {log(v * v + 1.0), x.bound, false};
      case 6: return {sqrt(v * v + 0.5), x.bound + 1, false};
      case 7: return {rsqrt(v * v + 1.0), 1, false};
      default: return {1.0 - v, x.bound + 1, false};
    }
  }

  Item binary(const Item& x, const Item& y) {
    Shape joint;
    if (!broadcast(x.value.shape(), y.value.shape(), &joint) || joint.elements() > kMostElements) return unary(x);
    const Value &a = x.value, &b = y.value;
    switch (below(6)) {
      case 0: return {a + b, x.bound + y.bound, false};
      case 1: return {a - b, x.bound + y.bound, false};
      case 2: return {a * b, x.bound * y.bound, false};
      case 3: return {a / (b * b + 1.0), x.bound, false};
      case 4: return {lerp(a, b, sigmoid(a)), x.bound + y.bound, false};
      // The gradients of minimum and maximum jump where the operands are equal.
      default:
        return x.is_exact && y.is_exact ? Item{maximum(a, b), std::max(x.bound, y.bound), true}
                                        : Item{tanh(a) * b, y.bound, false};
    }
  }

  Item summed(const Item& x) {
    const Shape& shape = x.value.shape();
    Ints axes;
    for (int axis = 0; axis < shape.rank(); ++axis) {
      if (chance(40)) axes.push_back(chance(30) ? axis - shape.rank() : axis);
    }
    const bool keeps = chance(50);
    const Value& v = x.value;
    const auto count = [&](const Value& result) {
      const std::int64_t left = std::max<std::int64_t>(result.shape().elements(), 1);
      return static_cast<double>(shape.elements() / left);
    };
    // Most reductions of nothing are infinite.
    const std::int64_t way = shape.elements() == 0 ? 0 : below(12);
    switch (way) {
      case 0:
      case 1:
      case 2:
      case 3: {
        const Value total = sum(v, axes, keeps);
        return {total, std::max(1.0, x.bound * count(total)), false};
      }
      case 4: return {mean(v, axes, keeps), x.bound, false};
      case 5: return {var(v, axes, keeps), x.bound * x.bound, false};
      case 6: {
        const Value most = logsumexp(v, axes, keeps);
        return {most, x.bound + std::log(count(most)), false};
      }
      case 7: return {prod(tanh(v), axes, keeps), 1, false};
      // The gradients of max and min, and where they are, jump where the operands are equal.
      case 8:
      case 9:
        if (!x.is_exact) return along_rows(x);
        return {way == 8 ? max(v, axes, keeps) : min(v, axes, keeps), x.bound, true};
      case 10: {
        if (!x.is_exact || shape.rank() == 0) return along_rows(x);
        const int axis = static_cast<int>(below(shape.rank()));
        const Value where = chance(50) ? argmax(v, axis, keeps) : argmin(v, axis, keeps);
        return {cast(where, v.dtype()) * (1.0 / static_cast<double>(shape[axis])), 1, false};
      }
      default: return along_rows(x);
    }
  }

  // Reductions that are read at every element again.
  Item along_rows(const Item& x) {
    const Value& v = x.value;
    const int rank = v.shape().rank();
    const Ints axes = rank == 0 ? Ints{} : chance(80) ? Ints{rank - 1} : Ints{below(rank)};
    if (rank > 0 && chance(40)) return along_axis(x, static_cast<int>(axes[0]));
    if (chance(50)) {
      const Value e = exp(v - stop_gradient(max(v, axes, true)));
      return {chance(50) ? e / sum(e, axes, true) : v - logsumexp(v, axes, true), x.bound + 6, false};
    }
    const Value d = v - mean(v, axes, true);
    return {d * rsqrt(var(v, axes, true) + 0.5), 2 * x.bound, false};
  }

  // Ops with a name of their own for such.
  Item along_axis(const Item& x, int axis) {
    const Value& v = x.value;
    switch (below(8)) {
      case 0:
      case 1: return {softmax(v, axis), 1, false};
      case 2:
      case 3: return {log_softmax(v, axis), 2 * x.bound + 6, false};
      case 4:
      case 5: return {layer_norm(v, {}, {}, Ints{axis}, 0.5), 2 * x.bound, false};
      case 6: return {cumsum(v, axis, false, chance(50)), x.bound * static_cast<double>(v.shape()[axis] + 1), false};
      // Equal elements keep their order in both, but computed values may be equal here and not there.
      default:
        return x.is_exact ? Item{sort(v, axis, chance(50)).values, x.bound, true} : Item{softmax(v, axis), 1, false};
    }
  }

  // Views and copies of parts: nothing is computed.
  Item moved(const Item& x, const Pool& pool) {
    const Value& v = x.value;
    const int rank = v.shape().rank();
    if (rank == 0) return {expand(v, {1 + below(3)}), x.bound, x.is_exact};
    const int axis = static_cast<int>(below(rank));
    const std::int64_t extent = v.shape()[axis];
    switch (below(12)) {
      case 0: {
        const std::int64_t start = below(extent + 1), end = start + below(extent - start + 1);
        return {slice(v, axis, start, start == end && chance(80) ? extent : end), x.bound, x.is_exact};
      }
      case 1: {
        const std::int64_t cut = below(extent + 1);
        return {concat(std::array{slice(v, axis, cut, extent), slice(v, axis, 0, cut)}, axis), x.bound, x.is_exact};
      }
      case 2: {
        if (v.shape().elements() * 2 > kMostElements) return unary(x);
        const Item other = pick_float(pool);
        const bool fits = other.value.shape().rank() == rank && other.value.dtype() == v.dtype() &&
                          other.value.shape().with_dim(axis, 0) == v.shape().with_dim(axis, 0);
        const Value second = fits ? other.value : chance(50) ? tanh(v) : v;
        return {concat(std::array{v, second, slice(v, axis, 0, extent / 2)}, axis),
                std::max({x.bound, other.bound, 1.0}), false};
      }
      case 3: {
        if (v.shape().elements() > kMostElements / 4) return unary(x);
        Ints before(static_cast<std::size_t>(rank)), after = before;
        for (auto* list : {&before, &after}) {
          for (auto& amount : *list) amount = chance(30) ? below(3) : 0;
        }
        return {pad(v, before, after), x.bound, x.is_exact};
      }
      case 4: return {reshape(v, reshaped(v.shape())), x.bound, x.is_exact};
      case 5: {
        if (rank >= kMostAxes || v.shape().elements() > kMostElements / 4) return unary(x);
        return {expand(v, v.shape().with_inserted(0, 1 + below(3))), x.bound, x.is_exact};
      }
      case 6: {
        Ints permutation(static_cast<std::size_t>(rank));
        std::iota(permutation.begin(), permutation.end(), 0);
        std::shuffle(permutation.begin(), permutation.end(), random_);
        return {transpose(v, permutation), x.bound, x.is_exact};
      }
      case 7: return {flip(v, chance(50) ? Ints{} : Ints{axis}), x.bound, x.is_exact};
      case 8: {
        if (extent == 0) return {flip(v), x.bound, x.is_exact};
        const std::int64_t step = (1 + below(3)) * (chance(30) ? -1 : 1), first = below(extent);
        return {slice(v, axis, first, step > 0 ? extent : -1, step), x.bound, x.is_exact};
      }
      case 9: {
        if (v.shape().elements() * 3 > kMostElements) return unary(x);
        Ints none(static_cast<std::size_t>(rank)), between = none;
        between[static_cast<std::size_t>(axis)] = 1 + below(2);
        return {pad(v, none, none, chance(50) ? 0 : 0.5, between), std::max(x.bound, 0.5), x.is_exact};
      }
      case 10: {
        if (extent == 0) return unary(x);
        Dense ids(static_cast<std::size_t>(below(5)));
        for (double& id : ids) id = static_cast<double>(below(extent));
        if (v.shape().elements() / extent * static_cast<std::int64_t>(ids.size()) > kMostElements) return unary(x);
        const Value indices = constant(v.graph(), Shape{static_cast<std::int64_t>(ids.size())}, ids, i64);
        return {gather(v, indices, axis), x.bound, x.is_exact};
      }
      default: {
        // Expanded along an extent of 1, or in the middle.
        if (rank >= kMostAxes || v.shape().elements() > kMostElements / 4) return unary(x);
        const Shape one = v.shape().with_inserted(axis, 1);
        return {expand(reshape(v, one), one.with_dim(axis, 1 + below(3))), x.bound, x.is_exact};
      }
    }
  }

  Shape reshaped(const Shape& shape) {
    if (chance(40)) return Shape{shape.elements()};
    if (chance(40) && shape.rank() >= 2) {
      Ints merged(shape.begin(), shape.end());
      const auto at = static_cast<std::ptrdiff_t>(below(shape.rank() - 1));
      merged[static_cast<std::size_t>(at)] *= merged[static_cast<std::size_t>(at) + 1];
      merged.erase(merged.begin() + at + 1);
      return Shape{std::span<const std::int64_t>(merged)};
    }
    for (int axis = 0; axis < shape.rank() && shape.rank() < kMostAxes; ++axis) {
      if (shape[axis] % 2 == 0 && shape[axis] > 0) return shape.with_dim(axis, shape[axis] / 2).with_inserted(axis, 2);
    }
    return shape.rank() < kMostAxes ? shape.with_inserted(static_cast<int>(below(shape.rank() + 1)), 1) : shape;
  }

  Item product(const Item& x, const Pool& pool) {
    const Value& v = x.value;
    if (v.shape().rank() < 2 || v.shape().elements() > kMostElements / 2) return unary(x);
    const std::int64_t columns = v.shape()[v.shape().rank() - 1], rows = v.shape()[v.shape().rank() - 2];
    for (int tries = 0; tries < 4; ++tries) {
      const Item other = pick_float(pool);
      const Value& w = other.value;
      const int rank = w.shape().rank();
      if (rank < 2 || w.dtype() != v.dtype() || w.shape().elements() > kMostElements / 2) continue;
      Shape joint;
      const auto leading = [](const Value& m) {
        return Shape{m.shape().dims().first(static_cast<std::size_t>(m.shape().rank() - 2))};
      };
      if (!broadcast(leading(v), leading(w), &joint) || joint.elements() > 8) continue;
      const std::int64_t r = w.shape()[rank - 2], c = w.shape()[rank - 1];
      for (const bool ta : {false, true}) {
        const std::int64_t inner = ta ? rows : columns;
        const double bound = x.bound * other.bound * static_cast<double>(std::max<std::int64_t>(inner, 1));
        if (inner == r) return {matmul(v, w, ta, false), bound, false};
        if (inner == c) return {matmul(v, w, ta, true), bound, false};
      }
    }
    const bool first = chance(50);
    if (std::max(rows, columns) > 12) return unary(x);
    return {matmul(v, v, first, !first),
            x.bound * x.bound * static_cast<double>(std::max<std::int64_t>(1, first ? rows : columns)), false};
  }

  Item converted(const Item& x) {
    const DType other = x.value.dtype() == f64 ? narrow_ : f64;
    return {chance(50) ? cast(x.value, other) : cast(cast(x.value, other), x.value.dtype()), x.bound, false};
  }

  Item chosen(const Item& x, const Pool& pool) {
    const Item y = pick_float(pool);
    for (int tries = 0; tries < 8; ++tries) {
      const Item condition = pick_float(pool);
      Shape joint, all;
      if (!condition.is_exact || !broadcast(x.value.shape(), y.value.shape(), &joint) ||
          !broadcast(joint, condition.value.shape(), &all) || all.elements() > kMostElements) {
        continue;
      }
      const Value zero = full(condition.value.graph(), {}, 0.25, condition.value.dtype());
      return {select(less(condition.value, zero), x.value, y.value), std::max(x.bound, y.bound), false};
    }
    return unary(x);
  }

  Item many(const Item& x, const Pool& pool) {
    Values terms{x.value};
    double bound = x.bound;
    Shape joint = x.value.shape();
    for (int tries = 0; tries < 5; ++tries) {
      const Item other = pick_float(pool);
      Shape more;
      if (!broadcast(joint, other.value.shape(), &more) || more.elements() > kMostElements) continue;
      joint = more;
      bound += other.bound;
      terms.push_back(other.value);
    }
    return {add_n(terms), bound, false};
  }

  // A scan over values that have a leading axis; its body may use anything outside.
  void scanned(Pool* pool, const Graph* here, int depth) {
    Values sequences, carries;
    const std::int64_t wanted = 1 + below(3);
    for (int tries = 0; tries < 12 && static_cast<std::int64_t>(sequences.size()) < wanted; ++tries) {
      const Item item = pick_float(*pool);
      if (item.value.shape().rank() == 0 || item.value.shape()[0] > 6) continue;
      if (!sequences.empty() && item.value.shape()[0] != sequences[0].shape()[0]) continue;
      sequences.push_back(item.value);
    }
    if (sequences.empty()) return;
    for (std::int64_t i = 1 + below(3); i > 0; --i) {
      const Value start = pick_float(*pool).value;
      if (start.shape().elements() > 60) continue;
      carries.push_back(chance(15) ? full(start.graph(), start.shape(), 0.25, start.dtype()) : start);
    }
    // A scan belongs to the innermost graph of its carries and sequences, and its body sees no more than that one.
    const auto is_here = [&](const Value& value) { return &value.graph() == here; };
    if (std::none_of(carries.begin(), carries.end(), is_here) &&
        std::none_of(sequences.begin(), sequences.end(), is_here)) {
      return;
    }
    const StepResult made = scan(
        carries, sequences,
        [&](const Values& carry, const Values& element) {
          Pool inside;
          for (const Value& value : carry) inside.push_back({value, 3, false});
          for (const Value& value : element) inside.push_back({value, 3, false});
          const std::size_t own = inside.size();
          for (std::int64_t i = below(4); i > 0; --i) inside.push_back({pick_float(*pool).value, 3, false});
          if (chance(50)) std::rotate(inside.begin(), inside.begin() + static_cast<std::ptrdiff_t>(own), inside.end());
          for (std::int64_t i = 2 + below(9); i > 0; --i) grow(&inside, &element[0].graph(), depth + 1);
          StepResult result;
          for (const Value& value : carry) result.carries.push_back(next_of(value, inside));
          for (std::int64_t i = below(4); i > 0; --i) result.outputs.push_back(pick(inside).value);
          if (result.outputs.empty() && result.carries.empty()) result.outputs.push_back(inside.back().value);
          if (chance(25) && !carry.empty()) result.outputs.push_back(chance(50) ? carry[0] : result.carries[0]);
          return result;
        },
        chance(50));
    for (const auto* list : {&made.carries, &made.outputs}) {
      for (const Value& value : *list) {
        if (value.shape().elements() > 4 * kMostElements || value.shape().rank() > kMostAxes) continue;
        pool->push_back({value, 3, false});
      }
    }
  }

  // Whether a fed value is small: no other decides, since others may be rounded otherwise elsewhere.
  std::optional<Value> decision(const Pool& pool, const Graph* here) {
    for (int tries = 0; tries < 8; ++tries) {
      const Item item = pick_float(pool);
      if (!item.is_exact || item.value.shape().elements() == 0 || &item.value.graph() != here) continue;
      const Value first = slice(reshape(item.value, {item.value.shape().elements()}), 0, 0, 1);
      return less(reshape(first, Shape{}), full(item.value.graph(), {}, 0.25, item.value.dtype()));
    }
    return std::nullopt;
  }

  // One of two ways to the next value of something; both may use all that is there.
  void branched(Pool* pool, const Graph* here, int depth) {
    const Value like = pick_float(*pool).value;
    const auto is_small = decision(*pool, here);
    if (!is_small || &like.graph() != here || like.shape().elements() > kMostElements) return;
    const auto way = [&] {
      Pool inside = *pool;
      for (std::int64_t i = 1 + below(5); i > 0; --i) grow(&inside, nullptr, depth + 1);
      return next_of(like, inside);
    };
    pool->push_back({cond(
                         *is_small, [&] { return way(); }, [&] { return way(); }),
                     3, false});
  }

  // A loop of one to three turns, or of none.
  void looped(Pool* pool, const Graph* here, int depth) {
    const Value start = pick_float(*pool).value;
    const auto is_small = decision(*pool, here);
    if (!is_small || &start.graph() != here || start.shape().elements() > 60) return;
    const auto number = [&](double value) { return full(start.graph(), {}, value, i32); };
    const Value turns =
        select(*is_small, number(static_cast<double>(below(3))), number(1 + static_cast<double>(below(3))));
    const Values made = while_loop(
        {start, number(0)}, [&](const Values& carry) { return less(carry[1], turns); },
        [&](const Values& carry) {
          Pool inside{{carry[0], 3, false}};
          for (std::int64_t i = below(4); i > 0; --i) inside.push_back({pick_float(*pool).value, 3, false});
          for (std::int64_t i = 1 + below(6); i > 0; --i) grow(&inside, &carry[0].graph(), depth + 1);
          return Values{next_of(carry[0], inside), carry[1] + 1};
        });
    pool->push_back({made[0], 3, false});
  }

  // The next value of a carry: something of its type that depends on the step's values.
  Value next_of(const Value& carry, const Pool& inside) {
    if (chance(10)) return carry;
    for (int tries = 0; tries < 6; ++tries) {
      const Value candidate = pick(inside).value;
      if (candidate.type() == carry.type()) {
        const int way = static_cast<int>(below(4));
        if (way == 0 && chance(50)) return candidate;
        return way == 1 ? tanh(candidate + carry) : way == 2 ? 0.5 * carry + 0.25 * tanh(candidate) : tanh(candidate);
      }
    }
    Shape joint;
    const Item item = pick_float(inside);
    if (broadcast(item.value.shape(), carry.shape(), &joint) && joint == carry.shape()) {
      return cast(tanh(item.value * carry), carry.dtype());
    }
    return chance(50) ? tanh(carry) : carry + cast(tanh(sum(item.value)), carry.dtype()) * 0.1;
  }

  void fetch(Graph& graph, const Pool& pool, std::string* statements) {
    Values fetched{pool.back().value};
    for (std::int64_t i = below(4); i > 0; --i) fetched.push_back(pick(pool).value);
    if (chance(10)) fetched.push_back(pool[0].value);
    for (std::size_t i = 0; i < fetched.size(); ++i) graph.fetch("y" + std::to_string(i), fetched[i]);
    if (has_choices_ || chance(15)) return;
    // A loss of some of them that weighs every element alike but for its sign and size.
    Values terms;
    for (std::size_t i = 0; i < fetched.size(); ++i) {
      if (!is_float(fetched[i].dtype()) || (i > 0 && chance(40))) continue;
      const Value term = chance(50) ? fetched[i] * fetched[i] : tanh(fetched[i]);
      terms.push_back(sum(cast(term, pool[0].value.dtype())));
    }
    if (terms.empty()) return;
    const Value loss = add_n(terms) * 0.1;
    graph.fetch("loss", loss);
    Values wanted;
    for (std::size_t i = 0; i < inputs_; ++i) {
      if (chance(60)) wanted.push_back(pool[i].value);
    }
    if (chance(20)) {
      const Value inner = pick_float(pool).value;
      if (is_float(inner.dtype())) wanted.push_back(inner);
    }
    if (wanted.empty()) return;
    if (statements != nullptr) return write_gradients(graph, wanted, statements);
    const Values made = gradients(std::array{loss}, wanted);
    for (std::size_t i = 0; i < made.size(); ++i) graph.fetch("d" + std::to_string(i), made[i]);
    if (!chance(10)) return;
    const Values second = gradients(std::array{sum(made[0] * made[0])}, std::array{pool[0].value});
    graph.fetch("dd", second[0]);
  }

  // Unused nodes go, so that the text is short; their numbers are known only then.
  void write_gradients(Graph& graph, const Values& wanted, std::string* text) {
    const bool has_second = chance(10);
    for (std::size_t i = 0; i < wanted.size(); ++i) graph.fetch("w" + std::to_string(i), wanted[i]);
    graph.compact();
    const auto name = [&](const std::string& fetch) {
      const auto is_it = [&](const Graph::Fetch& each) { return each.name == fetch; };
      const Ref ref = std::find_if(graph.fetches().begin(), graph.fetches().end(), is_it)->ref;
      const Node& node = graph.node(ref.node);
      if (!node.name.empty()) return node.name.str();
      const std::string id = "%" + std::to_string(ref.node);
      return node.types.size() == 1 ? id : id + "." + std::to_string(ref.output);
    };
    std::string left, right, fetches;
    for (std::size_t i = 0; i < wanted.size(); ++i) {
      const std::string mine = "d" + std::to_string(i), comma = i == 0 ? "" : ", ";
      left += comma + mine, right += comma + name("w" + std::to_string(i));
      fetches += "fetch " + mine + "\n";
    }
    *text = left + " = gradients(" + name("loss") + ") by (" + right + ")\n" + fetches;
    if (has_second) *text += "squares = mul(d0, d0)\nnorm = sum(squares)\ndd = gradients(norm) by (x0)\nfetch dd\n";
  }

  std::mt19937 random_;
  DType narrow_;
  bool has_choices_;
  std::size_t inputs_ = 0;
};

}  // namespace paoding::testing_program
