// SPDX-License-Identifier: Apache-2.0
// einsum: products of matrices where two operands share a summed axis, else elementwise products and sums.
#include "paoding/ops/einsum.h"

#include <algorithm>
#include <limits>

#include "base/check.h"
#include "base/one_line.h"
#include "ops/axes.h"
#include "ops/einsum_formula.h"
#include "ops/families.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

AxisLabels concatenated(AxisLabels first, const AxisLabels& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}
template <class Keep>
AxisLabels filtered(const AxisLabels& labels, const Keep& keep) {
  AxisLabels result;
  std::copy_if(labels.begin(), labels.end(), std::back_inserter(result), keep);
  return result;
}

// An operand, or the product of some: every label once.
struct Term {
  Value value;
  AxisLabels labels;

  int axis(AxisLabel label) const {
    return static_cast<int>(std::find(labels.begin(), labels.end(), label) - labels.begin());
  }
  std::int64_t extent(AxisLabel label) const { return value.shape()[axis(label)]; }
  std::int64_t elements(const AxisLabels& of) const {
    std::int64_t count = 1;
    for (const AxisLabel label : of) count *= extent(label);
    return count;
  }
};

Term in_order(const Term& term, const AxisLabels& labels) {
  if (labels == term.labels) return term;
  Ints permutation;
  for (const AxisLabel label : labels) permutation.push_back(term.axis(label));
  return {transpose(term.value, permutation), labels};
}

Term without(const Term& term, AxisLabel label) {
  const int axis = term.axis(label);
  Term rest{reshape(term.value, term.value.shape().with_removed(axis)), term.labels};
  rest.labels.erase(rest.labels.begin() + axis);
  return rest;
}

// Summed over the axes that are not in `keep`.
Term summed(const Term& term, const AxisLabels& keep) {
  Ints axes;
  for (std::size_t i = 0; i < term.labels.size(); ++i) {
    if (!has_label(keep, term.labels[i])) axes.push_back(static_cast<std::int64_t>(i));
  }
  if (axes.empty()) return term;
  return {sum(term.value, axes), filtered(term.labels, [&](AxisLabel label) { return has_label(keep, label); })};
}

// A label that is there twice: every (n + 1)-th element of the two axes as one is the diagonal.
Term diagonal(Term term) {
  for (std::size_t i = 0; i < term.labels.size(); ++i) {
    const auto first = term.labels.begin() + static_cast<std::ptrdiff_t>(i);
    const auto again = std::find(first + 1, term.labels.end(), *first);
    if (again == term.labels.end()) continue;
    const int other = static_cast<int>(again - term.labels.begin());
    const int rank = term.value.shape().rank();
    Ints permutation;
    for (int axis = 0; axis < rank; ++axis) {
      if (axis != static_cast<int>(i) && axis != other) permutation.push_back(axis);
    }
    permutation.insert(permutation.end(), {static_cast<std::int64_t>(i), other});
    const Value behind = transpose(term.value, permutation);
    const std::int64_t n = behind.shape()[rank - 1];
    const Value flat = flatten(behind, rank - 2, rank - 1);
    const AxisLabel label = *first;
    term.value = slice(flat, rank - 2, 0, n * n, n + 1);
    term.labels = concatenated(filtered(term.labels, [&](AxisLabel each) { return each != label; }), {label});
    i = static_cast<std::size_t>(-1);  // from the front again: the axes have moved
  }
  return term;
}

// The axes of both side by side, multiplied, and summed over those that are not kept.
Term elementwise(const Term& a, const Term& b, const AxisLabels& keep) {
  const AxisLabels all =
      concatenated(a.labels, filtered(b.labels, [&](AxisLabel label) { return !has_label(a.labels, label); }));
  if (all.size() > static_cast<std::size_t>(Shape::kMaxRank)) {
    fail(ErrorKind::shape, "a product of {} axes; at most {} are possible", all.size(), Shape::kMaxRank);
  }
  const auto aligned = [&](const Term& term) {
    const Term sorted = in_order(term, filtered(all, [&](AxisLabel label) { return has_label(term.labels, label); }));
    Ints dims;
    for (const AxisLabel label : all) dims.push_back(has_label(term.labels, label) ? term.extent(label) : 1);
    return reshape(sorted.value, dims);
  };
  return summed({aligned(a) * aligned(b), all}, keep);
}

// The product of matrices [batch, rows, shared] and [batch, shared, columns], each of which may stand the other way
// round in memory already.
Term matrices(const Term& a, const Term& b, const AxisLabels& batch, const AxisLabels& shared) {
  const auto is_free = [&](AxisLabel label) { return !has_label(batch, label) && !has_label(shared, label); };
  const AxisLabels rows = filtered(a.labels, is_free), columns = filtered(b.labels, is_free);
  const auto matrix = [&](const Term& term, const AxisLabels& first, const AxisLabels& second, bool* is_transposed) {
    *is_transposed = term.labels == concatenated(batch, concatenated(second, first));
    const AxisLabels &outer = *is_transposed ? second : first, &inner = *is_transposed ? first : second;
    const Term sorted = in_order(term, concatenated(batch, concatenated(outer, inner)));
    Ints dims{term.elements(outer), term.elements(inner)};
    if (!batch.empty()) dims = with_front(dims, term.elements(batch));
    return reshape(sorted.value, dims);
  };
  bool is_a_transposed = false, is_b_transposed = false;
  const Value left = matrix(a, rows, shared, &is_a_transposed), right = matrix(b, shared, columns, &is_b_transposed);
  const Value product = matmul(left, right, is_a_transposed, is_b_transposed);
  const AxisLabels labels = concatenated(batch, concatenated(rows, columns));
  Ints dims;
  for (const AxisLabel label : labels) dims.push_back(has_label(a.labels, label) ? a.extent(label) : b.extent(label));
  return {reshape(product, dims), labels};
}

Term product(Term a, Term b, const AxisLabels& keep) {
  // A label that broadcasts is no axis.
  for (const AxisLabel label : AxisLabels(a.labels)) {
    if (!has_label(b.labels, label) || a.extent(label) == b.extent(label)) continue;
    Term& narrow = a.extent(label) == 1 ? a : b;
    narrow = without(narrow, label);
  }
  a = summed(a, concatenated(keep, b.labels)), b = summed(b, concatenated(keep, a.labels));
  const AxisLabels common = filtered(a.labels, [&](AxisLabel label) { return has_label(b.labels, label); });
  const AxisLabels shared = filtered(common, [&](AxisLabel label) { return !has_label(keep, label); });
  const AxisLabels batch = filtered(common, [&](AxisLabel label) { return has_label(keep, label); });
  const bool is_per_row = a.labels.size() == common.size() && b.labels.size() == common.size();
  if (shared.empty() || is_per_row || !is_float(a.value.dtype())) return elementwise(a, b, keep);
  return matrices(a, b, batch, shared);
}

// How many multiplications the product of two takes.
double work_of(const Term& a, const Term& b) {
  double count = 1;
  for (const AxisLabel label : a.labels) {
    const std::int64_t other = has_label(b.labels, label) ? b.extent(label) : 1;
    count *= static_cast<double>(std::max(a.extent(label), other));
  }
  for (const AxisLabel label : b.labels) {
    if (!has_label(a.labels, label)) count *= static_cast<double>(b.extent(label));
  }
  return count;
}

void check_extents(const std::vector<Term>& terms) {
  for (const Term& a : terms) {
    for (std::size_t i = 0; i < a.labels.size(); ++i) {
      for (const Term& b : terms) {
        for (std::size_t k = 0; k < b.labels.size(); ++k) {
          const std::int64_t one = a.value.shape()[static_cast<int>(i)], two = b.value.shape()[static_cast<int>(k)];
          if (a.labels[i] != b.labels[k] || one == two) continue;
          if (a.labels[i] < 0 && (one == 1 || two == 1)) continue;
          fail(ErrorKind::shape, "'{}' is an axis of {} elements in operand {} and of {} in operand {}",
               label_text(a.labels[i]), one, &a - terms.data(), two, &b - terms.data());
        }
      }
    }
  }
}

Value composed(std::span<const Value> in, const std::string& text) {
  std::vector<int> ranks;
  DType dtype = in[0].dtype();
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (in[i].dtype() == boolean) fail(ErrorKind::dtype, "operand {} is bool; numbers are needed", i);
    ranks.push_back(in[i].shape().rank());
    dtype = promote(dtype, in[i].dtype());
  }
  const EinsumFormula formula = parse_einsum(text, ranks);
  std::vector<Term> terms;
  for (std::size_t i = 0; i < in.size(); ++i) terms.push_back({cast(in[i], dtype), formula.operands[i]});
  check_extents(terms);
  for (Term& term : terms) term = diagonal(std::move(term));
  while (terms.size() > 1) {
    std::size_t first = 0, second = 1;
    double least = std::numeric_limits<double>::infinity();
    for (std::size_t i = 0; i < terms.size(); ++i) {
      for (std::size_t k = i + 1; k < terms.size(); ++k) {
        const double work = work_of(terms[i], terms[k]);
        if (work < least) least = work, first = i, second = k;
      }
    }
    AxisLabels keep = formula.result;
    for (std::size_t i = 0; i < terms.size(); ++i) {
      if (i != first && i != second) keep = concatenated(keep, terms[i].labels);
    }
    terms[first] = product(terms[first], terms[second], keep);
    terms.erase(terms.begin() + static_cast<std::ptrdiff_t>(second));
  }
  return in_order(summed(terms[0], formula.result), formula.result).value;
}

Values compose_einsum(std::span<const Value> in, const Attrs& attrs) {
  const std::string formula = std::get<std::string>(*attrs.find("formula"));
  try {
    return {composed(in, formula)};
  } catch (const Error& error) {
    if (error.kind() == ErrorKind::cancelled) throw;
    throw Error(error.kind(), fmt::format("einsum: {}{}", error.what(), in_scope(in[0].graph().scope.str())));
  }
}

OpCase einsum_case(const char* formula, std::vector<Shape> shapes, std::vector<DType> dtypes = {},
                   std::string error = {}) {
  return {std::move(shapes), {{"formula", std::string(formula)}}, std::move(dtypes), std::move(error)};
}

}  // namespace

void register_einsum() {
  register_op({
      .name = "einsum",
      .summary = "the sum of products that the formula names: \"bij,bjk->bik\"",
      .kind = OpKind::composed,
      .inputs = {"operands..."},
      .attrs = {{.name = "formula",
                 .example = std::string(),
                 .required = true,
                 .doc = "a letter per axis, ',' between operands, '->' in front of the result"}},
      .compose = compose_einsum,
      .cases = {einsum_case("ij,jk->ik", {{3, 4}, {4, 5}}),
                einsum_case("bij,bjk->bik", {{2, 3, 4}, {2, 4, 5}}),
                einsum_case("bthe,bshe->bhts", {{2, 3, 2, 4}, {2, 5, 2, 4}}),
                einsum_case("ji,jk -> ki", {{4, 3}, {4, 5}}),
                einsum_case("bi,bi->b", {{4, 5}, {4, 5}}),
                einsum_case("i,j->ij", {{3}, {4}}),
                einsum_case("ij->", {{3, 4}}),
                einsum_case("ij->ji", {{3, 4}}),
                einsum_case("iji->ji", {{3, 4, 3}}),
                einsum_case("ii", {{4, 4}}),
                einsum_case("...ij,...jk->...ik", {{2, 1, 3, 4}, {5, 4, 2}}),
                einsum_case("ij,jk,kl->il", {{2, 3}, {3, 4}, {4, 2}}),
                einsum_case("bn,anm,bm->ba", {{2, 3}, {4, 3, 2}, {2, 2}}),
                einsum_case("ij,k->i", {{2, 3}, {4}}),
                einsum_case("ij,jk->ik", {{3, 0}, {0, 5}}),
                einsum_case("ij,jk->ik", {{3, 4}, {4, 5}}, {i32, i32}),
                einsum_case("ij,j", {{3, 4}, {4}}, {f32, i64}),
                einsum_case(",ij->ij", {{}, {3, 4}}),
                einsum_case("ij,jk->ik", {{3, 4}, {3, 5}}, {}, "'j' is an axis of 4 elements in operand 0 and of 3"),
                einsum_case("ij,jk->il", {{3, 4}, {4, 5}}, {}, "has 'l' in its result, but in no operand"),
                einsum_case("ij->ii", {{3, 4}}, {}, "has 'i' twice in its result"),
                einsum_case("ij,jk->ik", {{3, 4}}, {}, "names 2 operands, but there are 1"),
                einsum_case("ijk->i", {{3, 4}}, {}, "has 3 letters for operand 0, which has 2 axes"),
                einsum_case("i?->i", {{3, 4}}, {}, "has '?', which is no letter"),
                einsum_case("...i->i", {{3, 4}}, {}, "has '...' in an operand, but none in its result"),
                einsum_case("ij->i->j", {{3, 4}}, {}, "has more than one result"),
                einsum_case("ij->i", {{3, 4}}, {boolean}, "operand 0 is bool")},
  });
}

Value einsum(std::string_view formula, std::span<const Value> operands) {
  if (operands.empty()) fail(ErrorKind::argument, "einsum: formula '{}' has no operand", one_line(formula));
  return call(*find_op("einsum"), operands, {{"formula", std::string(formula)}})[0];
}

}  // namespace paoding
