// SPDX-License-Identifier: Apache-2.0
// Pools by vectors of channels, for every instruction set of this CPU and every dtype, beside loops over elements: for
// numbers of channels that are no whole vectors, windows side by side and over each other, ties and NaN.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <random>

#include "cpu/tile_stored.h"
#include "ops/pool/pool_shape.h"
#include "paoding/op.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

struct SimdCase {
  std::int64_t images, channels, height, width;
  Ints kernel, stride, padding, dilation;
};

const std::vector<SimdCase>& simd_cases() {
  static const std::vector<SimdCase> all = {
      {2, 16, 6, 8, {2, 2}, {2, 2}, {0, 0, 0, 0}, {1, 1}}, {3, 21, 7, 9, {2, 3}, {2, 3}, {0, 0, 0, 0}, {1, 1}},
      {2, 1, 5, 5, {3, 3}, {1, 2}, {1, 1, 1, 1}, {1, 1}},  {1, 39, 9, 8, {3, 2}, {2, 1}, {1, 0, 0, 1}, {2, 3}},
      {2, 4, 6, 6, {2, 2}, {3, 3}, {0, 0, 0, 0}, {1, 1}},
  };
  return all;
}

Layout channels_innermost(DType dtype, const Shape& shape) {
  Layout layout = Layout::dense({dtype, shape});
  layout.strides[1] = 1, layout.strides[3] = shape[1], layout.strides[2] = shape[1] * shape[3];
  return layout;
}

// Images as they lie: [image, row, column, channel], computed in f32 and rounded where they are stored.
template <DType dtype>
struct Images {
  using Element = typename Stored<dtype>::Type;

  explicit Images(const Shape& shape)
      : channels(shape[1]), height(shape[2]), width(shape[3]), elements(static_cast<std::size_t>(shape.elements())) {}
  std::size_t at(std::int64_t n, std::int64_t h, std::int64_t w, std::int64_t c) const {
    return static_cast<std::size_t>(((n * height + h) * width + w) * channels + c);
  }
  float operator()(std::size_t i) const { return Stored<dtype>::load(elements[i]); }
  void set(std::size_t i, float value) { elements[i] = Stored<dtype>::store(value); }
  // Few values, so that many are equal; zeros and NaN are among them.
  void fill(std::mt19937& random, bool has_nan) {
    std::uniform_int_distribution<int> any(-4, has_nan ? 5 : 4);
    for (Element& element : elements) {
      const int value = any(random);
      element = Stored<dtype>::store(value == 5 ? NAN : 0.3f * static_cast<float>(value));
    }
  }

  std::int64_t channels, height, width;
  std::vector<Element> elements;
};

template <DType dtype>
class PoolCheck {
 public:
  PoolCheck(const SimdCase& c, bool counts_padding)
      : case_(c),
        counts_padding_(counts_padding),
        windows_{c.images, c.channels, outputs(0, c.height), outputs(1, c.width)},
        image_({c.images, c.channels, c.height, c.width}) {}

  void max_pool(std::mt19937& random) {
    Images<dtype> x(image_), y(windows_), wanted(windows_), dx(image_), wanted_dx(image_), dy(windows_);
    std::vector<std::uint8_t> index(y.elements.size()), wanted_index(index);
    x.fill(random, true), dy.fill(random, false);
    std::vector<float> sums(dx.elements.size());
    for_each_window(y, [&](std::size_t to, std::int64_t n, std::int64_t oh, std::int64_t ow, std::int64_t ch) {
      float best = 0;
      std::size_t from = 0;
      bool is_first = true;
      for_each_tap(x, n, oh, ow, ch, [&](std::size_t at, std::int64_t tap) {
        const float value = x(at);
        if (!is_first && !(value > best) && !(std::isnan(value) && !std::isnan(best))) return;
        best = value, wanted_index[to] = static_cast<std::uint8_t>(tap), from = at, is_first = false;
      });
      wanted.set(to, best), sums[from] += dy(to);
    });
    for (std::size_t i = 0; i < sums.size(); ++i) wanted_dx.set(i, sums[i]);
    const Layout index_layout = channels_innermost(DType::u8, windows_);
    run("max_pool2d", {layout(image_)}, {layout(windows_), index_layout},
        {x.elements.data(), y.elements.data(), index.data()});
    run("max_pool2d_grad", {layout(windows_), index_layout}, {layout(image_)},
        {dy.elements.data(), index.data(), dx.elements.data()});
    EXPECT_EQ(index, wanted_index);
    expect_same(y, wanted), expect_same(dx, wanted_dx);
  }

  void avg_pool(std::mt19937& random) {
    Images<dtype> x(image_), y(windows_), wanted(windows_), dx(image_), wanted_dx(image_), dy(windows_);
    x.fill(random, false), dy.fill(random, false);
    std::vector<float> sums(dx.elements.size());
    for_each_window(y, [&](std::size_t to, std::int64_t n, std::int64_t oh, std::int64_t ow, std::int64_t ch) {
      float sum = 0;
      std::int64_t count = 0;
      for_each_tap(x, n, oh, ow, ch, [&](std::size_t at, std::int64_t) { sum += x(at), ++count; });
      const float share = 1.0f / static_cast<float>(counts_padding_ ? case_.kernel[0] * case_.kernel[1] : count);
      wanted.set(to, sum * share);
      for_each_tap(x, n, oh, ow, ch, [&](std::size_t at, std::int64_t) { sums[at] += dy(to) * share; });
    });
    for (std::size_t i = 0; i < sums.size(); ++i) wanted_dx.set(i, sums[i]);
    run("avg_pool2d", {layout(image_)}, {layout(windows_)}, {x.elements.data(), y.elements.data()});
    run("avg_pool2d_grad", {layout(windows_)}, {layout(image_)}, {dy.elements.data(), dx.elements.data()});
    expect_near(y, wanted), expect_near(dx, wanted_dx);
  }

 private:
  std::int64_t outputs(std::size_t axis, std::int64_t size) const {
    const std::int64_t padded = size + case_.padding[axis] + case_.padding[axis + 2];
    return (padded - case_.dilation[axis] * (case_.kernel[axis] - 1) - 1) / case_.stride[axis] + 1;
  }
  Layout layout(const Shape& shape) const { return channels_innermost(dtype, shape); }

  template <class Use>
  static void for_each_window(const Images<dtype>& y, const Use& use) {
    for (std::size_t i = 0; i < y.elements.size(); ++i) {
      const auto at = static_cast<std::int64_t>(i);
      const std::int64_t pixel = at / y.channels, row = pixel / y.width;
      use(i, row / y.height, row % y.height, pixel % y.width, at % y.channels);
    }
  }
  template <class Use>
  void for_each_tap(const Images<dtype>& x, std::int64_t n, std::int64_t oh, std::int64_t ow, std::int64_t channel,
                    const Use& use) const {
    for (std::int64_t tap = 0; tap < case_.kernel[0] * case_.kernel[1]; ++tap) {
      const std::int64_t row = tap / case_.kernel[1], column = tap % case_.kernel[1];
      const std::int64_t h = oh * case_.stride[0] - case_.padding[0] + row * case_.dilation[0];
      const std::int64_t w = ow * case_.stride[1] - case_.padding[1] + column * case_.dilation[1];
      if (h >= 0 && h < x.height && w >= 0 && w < x.width) use(x.at(n, h, w, channel), tap);
    }
  }

  void run(const char* op, std::vector<Layout> inputs, std::vector<Layout> outputs, std::vector<void*> operands) {
    KernelCall call;
    call.op = find_op(op);
    call.attrs = {{"kernel", case_.kernel},
                  {"stride", case_.stride},
                  {"padding", case_.padding},
                  {"dilation", case_.dilation},
                  {"count_padding", counts_padding_}};
    call.inputs = std::move(inputs), call.outputs = std::move(outputs);
    ASSERT_EQ(simd_pool_refusal(call), "");
    prepare_simd_pool(call, Device::cpu())->run({operands.data(), nullptr, nullptr});
  }

  // NaN is NaN whatever its bits are.
  static void expect_same(const Images<dtype>& got, const Images<dtype>& wanted) {
    for (std::size_t i = 0; i < wanted.elements.size(); ++i) {
      if (std::isnan(wanted(i)) && std::isnan(got(i))) continue;
      ASSERT_EQ(got(i), wanted(i)) << i;
    }
  }
  // Where a CPU multiplies and adds at once a result may be rounded the other way.
  static void expect_near(const Images<dtype>& got, const Images<dtype>& wanted) {
    const float within = dtype == DType::f32 ? 1e-6f : dtype == DType::f16 ? 1e-3f : 8e-3f;
    for (std::size_t i = 0; i < wanted.elements.size(); ++i) {
      ASSERT_NEAR(got(i), wanted(i), within * (std::abs(wanted(i)) + (dtype == DType::f32 ? 1.0f : 0.01f))) << i;
    }
  }

  const SimdCase& case_;
  bool counts_padding_;
  Shape windows_, image_;
};

template <DType dtype>
void expect_right() {
  std::mt19937 random(7);
  for (const SimdCase& c : simd_cases()) {
    SCOPED_TRACE(
        fmt::format("{} channels, kernel {} x {}, {}", c.channels, c.kernel[0], c.kernel[1], to_string(dtype)));
    for (const bool counts_padding : {false, true}) {
      PoolCheck<dtype> check(c, counts_padding);
      check.max_pool(random), check.avg_pool(random);
    }
  }
}

TEST(SimdPools, AreThoseOfLoopsForEveryInstructionSet) {
  for (const std::int64_t target : {std::int64_t{HWY_AVX3}, std::int64_t{HWY_AVX2}, std::int64_t{0}}) {
    hwy::SetSupportedTargetsForTest(0);
    if (target != 0 && (hwy::SupportedTargets() & target) == 0) continue;
    hwy::GetChosenTarget().Update(target);  // 0: without vectors
    SCOPED_TRACE(target);
    expect_right<DType::f32>(), expect_right<DType::bf16>(), expect_right<DType::f16>();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

TEST(SimdPools, DeclineWhatTheyHaveNoCodeFor) {
  KernelCall call;
  call.op = find_op("avg_pool2d");
  call.inputs = {channels_innermost(f64, {1, 3, 4, 4})}, call.outputs = {channels_innermost(f64, {1, 3, 2, 2})};
  EXPECT_NE(simd_pool_refusal(call).find("f64"), std::string::npos);
  call.inputs = {Layout::dense({bf16, {1, 3, 4, 4}})}, call.outputs = {channels_innermost(bf16, {1, 3, 2, 2})};
  EXPECT_NE(simd_pool_refusal(call).find("channels"), std::string::npos);
}

}  // namespace
}  // namespace paoding
