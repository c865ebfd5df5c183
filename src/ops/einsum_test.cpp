// SPDX-License-Identifier: Apache-2.0
// einsum against loops over all its letters, and the ops that it is made of.
#include "paoding/ops/einsum.h"

#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

// The sum over all values of all letters, written out. `extents` by letter.
Dense sums(const std::string& formula, const std::vector<Dense>& operands,
           const std::map<char, std::int64_t>& extents) {
  std::vector<std::string> terms(1);
  const std::size_t arrow = formula.find("->");
  for (const char c : formula.substr(0, arrow)) {
    if (c == ',')
      terms.emplace_back();
    else
      terms.back() += c;
  }
  const std::string result = formula.substr(arrow + 2);
  const auto size = [&](const std::string& letters) {
    std::int64_t count = 1;
    for (const char c : letters) count *= extents.at(c);
    return count;
  };
  std::string all;
  for (const auto& [letter, extent] : extents) all += letter;
  Dense made(static_cast<std::size_t>(size(result)), 0.0);
  for (std::int64_t at = 0; at < size(all); ++at) {
    std::map<char, std::int64_t> index;
    std::int64_t rest = at;
    for (const char c : all) index[c] = rest % extents.at(c), rest /= extents.at(c);
    const auto place = [&](const std::string& letters) {
      std::int64_t offset = 0;
      for (const char c : letters) offset = offset * extents.at(c) + index.at(c);
      return static_cast<std::size_t>(offset);
    };
    double product = 1;
    for (std::size_t i = 0; i < terms.size(); ++i) product *= operands[i][place(terms[i])];
    made[place(result)] += product;
  }
  return made;
}

TEST(Einsum, SumsWhatItsFormulaSays) {
  const std::map<char, std::int64_t> extents{{'a', 2}, {'b', 3}, {'c', 4}, {'d', 2}, {'e', 3}};
  for (const std::string formula :
       {"ab,bc->ac", "ba,bc->ca", "abc,abd->acd", "abc,dbc->bad", "aab->ba", "aba->b", "aa->", "a,b,c->cab", "abc->b",
        "ab,bc,cd,de->ea", "abcd,bdae->ce", "ab,ab->", "abc,c->ab", "abe,eab->", "abc,ad,be->cde", "abb,b->a"}) {
    SCOPED_TRACE(formula);
    Graph g;
    Values operands;
    std::map<char, std::int64_t> used;
    for (std::size_t at = 0; at < formula.find("->");) {
      std::string letters;
      for (; formula[at] != ',' && formula[at] != '-'; ++at) letters += formula[at];
      if (formula[at] == ',') ++at;
      Ints dims;
      for (const char c : letters) dims.push_back(extents.at(c)), used[c] = extents.at(c);
      operands.push_back(
          g.input("in" + std::to_string(operands.size()), f64, Shape{std::span<const std::int64_t>(dims)}));
    }
    g.fetch("y", einsum(formula, operands));
    const Feeds feeds = make_feeds(g, 3);
    std::vector<Dense> values;
    for (const auto& [name, dense] : feeds) values.push_back(dense);
    Program program(g);
    expect_close("y", program.run(to_tensors(g, feeds)).at("y").to_doubles(), sums(formula, values, used), 1e-13);
  }
}

TEST(Einsum, BroadcastsWhatHasNoLetter) {
  Graph g;
  const Value a = g.input("a", f64, {5, 1, 2, 3}), b = g.input("b", f64, {4, 3, 2});
  const Value y = einsum("...ij,...jk->...ki", {a, b}), implied = einsum("...ij,...jk", {a, b});
  EXPECT_EQ(y.shape(), (Shape{5, 4, 2, 2}));
  EXPECT_EQ(implied.shape(), (Shape{5, 4, 2, 2}));
  g.fetch("y", y);
  g.fetch("expected", swap_axes(matmul(a, b), -1, -2));
  Program program(g);
  const Tensors got = program.run(to_tensors(g, make_feeds(g, 4)));
  expect_close("y", got.at("y").to_doubles(), got.at("expected").to_doubles(), 1e-14);
}

TEST(Einsum, IsOneProductOfMatricesWithoutACopy) {
  for (const std::string formula : {"ij,jk->ik", "ji,jk->ik", "ij,kj->ik", "bij,bjk->bik", "bij,bkj->bik"}) {
    SCOPED_TRACE(formula);
    Graph g;
    const bool has_batch = formula[0] == 'b';
    const Shape shape = has_batch ? Shape{2, 16, 16} : Shape{16, 16};
    g.fetch("y", einsum(formula, {g.input("a", f32, shape), g.input("b", f32, shape)}));
    EXPECT_EQ(Program(g).report().launches, 1);
  }
}

TEST(Einsum, MultipliesInTheOrderThatTakesTheFewestMultiplications) {
  Graph g;
  const Value a = g.input("a", f32, {64, 64}), b = g.input("b", f32, {64, 64}), x = g.input("x", f32, {64, 1});
  g.fetch("y", einsum("ij,jk,kl->il", {a, b, x}));
  int products = 0;
  for (NodeId id = 0; id < g.size(); ++id) {
    if (g.node(id).op->name != "matmul") continue;
    EXPECT_EQ(g.node(id).types[0].shape, (Shape{64, 1}));
    ++products;
  }
  EXPECT_EQ(products, 2);
}

}  // namespace
}  // namespace paoding::testing_program
