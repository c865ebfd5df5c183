// SPDX-License-Identifier: Apache-2.0
// Passes find a formula by the primitive that it computes: one that a user has registered is found as the library's
// own.
#include <gtest/gtest.h>

#include "paoding/ops.h"
#include "passes/pass.h"
#include "tests/support/pass_check.h"
#include "tests/support/program_check.h"

namespace paoding {
namespace {

Value users(const char* name, const std::vector<Value>& inputs) {
  const auto add = [](const char* op, std::vector<std::string> names, Formula formula) {
    register_op({.name = op,
                 .summary = "a formula",
                 .kind = OpKind::formula,
                 .inputs = std::move(names),
                 .formula = std::move(formula)});
  };
  static const bool once = [&] {
    add("test_product", {"a", "b"}, formula([](Scalar a, Scalar b) { return b * a; }));
    add("test_sum", {"a", "b"}, formula([](Scalar a, Scalar b) { return a + b; }));
    add("test_opposite", {"a"}, formula([](Scalar a) { return -a; }));
    add("test_rectified", {"a"}, formula([](Scalar a) { return maximum(a, a.constant(0)); }));
    add("test_is_positive", {"a"}, formula([](Scalar a) { return a.constant(0) < a; }));
    return true;
  }();
  (void)once;
  return call(*find_op(name), inputs).front();
}

TEST(UsersFormulas, ThatGiveBackAnInputGo) {
  Graph g;
  const Value x = g.input("x", f64, {4, 3}), one = full(g, {}, 1, f64);
  const Value y = users("test_product", {one, users("test_product", {x, one})});
  g.fetch("y", users("test_opposite", {users("test_opposite", {y})}) + 1.0);
  run_and_compare(g, {fold_identities, fold_identities});
  EXPECT_EQ(count_here(g, "test_product"), 0);
  EXPECT_EQ(count_here(g, "test_opposite"), 0);
}

TEST(UsersFormulas, ASumOfProductsIsOneProductOfMatrices) {
  Graph g;
  const Value a = g.input("a", f64, {16, 8, 1}), b = g.input("b", f64, {16, 1, 8});
  g.fetch("y", sum(users("test_product", {a, b}), std::array<std::int64_t, 1>{0}));
  run_and_compare(g, {merge_products});
  EXPECT_EQ(count_here(g, "matmul"), 1);
}

TEST(UsersFormulas, BecomeAConvolutionsBiasAndActivation) {
  Graph g;
  const Value x = g.input("x", f64, {2, 3, 6, 6}), w = g.input("w", f64, {4, 3, 3, 3});
  const Value b = g.input("b", f64, {4, 1, 1});
  g.fetch("y", users("test_rectified", {users("test_sum", {conv2d(x, w), b})}));
  run_and_compare(g, {fuse_convolutions});
  EXPECT_EQ(std::get<std::string>(*only(g, "conv2d_bias").attrs.find("activation")), "relu");
  EXPECT_EQ(count_here(g, "test_sum") + count_here(g, "test_rectified"), 0);
}

// The mask of a gradient reads the ReLU's result in place of its argument, with the comparison as it is written.
TEST(UsersFormulas, TestTheResultOfAReluInPlaceOfItsArgument) {
  Graph g;
  const Value x = g.input("x", f64, {2, 3, 6, 6}), w = g.input("w", f64, {4, 3, 3, 3}),
              b = g.input("b", f64, {4, 1, 1});
  const Value dy = g.input("dy", f64, {2, 4, 4, 4}), z = conv2d(x, w) + b;
  g.fetch("y", relu(z));
  g.fetch("dz", where(users("test_is_positive", {z}), dy, 0));
  run_and_compare(g, {fuse_convolutions});
  EXPECT_EQ(count_here(g, "conv2d_bias"), 1);
  EXPECT_EQ(count_here(g, "conv2d"), 0) << "nobody needs the sum in front of the relu";
  EXPECT_EQ(count_here(g, "test_is_positive"), 1);
}

// The library's clamp is one, too, whichever limit is kept first.
TEST(UsersFormulas, LimitsAreFoundInTheFormula) {
  Graph g;
  const Value x = g.input("x", f64, {2, 3, 6, 6}), w = g.input("w", f64, {4, 3, 3, 3}),
              b = g.input("b", f64, {4, 1, 1});
  g.fetch("y", clamp(conv2d(x, w) + b, 0.0, 6.0));
  run_and_compare(g, {fuse_convolutions});
  EXPECT_EQ(std::get<std::string>(*only(g, "conv2d_bias").attrs.find("activation")), "relu6");
}

// A square is a product with the convolution's own result, which is no factor of its weights, though it has one element
// a channel where the image has one pixel.
TEST(UsersFormulas, ASquareIsNoFactorOfAConvolution) {
  Graph g;
  const Value x = g.input("x", f64, {1, 3, 3, 3}), w = g.input("w", f64, {4, 3, 3, 3});
  g.fetch("y", square(conv2d(x, w)));
  run_and_compare(g, {fold_norms});
  EXPECT_EQ(count_here(g, "square"), 1);
}

}  // namespace
}  // namespace paoding
