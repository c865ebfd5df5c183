// SPDX-License-Identifier: Apache-2.0
// Convolutions over volumes and transposed ones against their formulas in float64, loops over every tap, and against
// finite differences.
#include "paoding/ops/convolution_nd.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

// Element at `index` of a dense value.
double& at(Dense& values, const Shape& shape, std::initializer_list<std::int64_t> index) {
  std::int64_t offset = 0;
  int axis = 0;
  for (const std::int64_t i : index) offset = offset * shape[axis++] + i;
  return values.at(static_cast<std::size_t>(offset));
}

struct VolumeCase {
  Shape x, w;
  Conv3dOptions options;
};

Dense conv3d_by_taps(const VolumeCase& c, const Shape& y, Dense x, Dense w) {
  const auto& o = c.options;
  Dense result(static_cast<std::size_t>(y.elements()));
  const std::int64_t inputs = c.w[1], outputs = c.w[0] / o.groups;
  for (std::int64_t n = 0; n < y[0]; ++n)
    for (std::int64_t p = 0; p < y[1]; ++p)
      for (std::int64_t d = 0; d < y[2]; ++d)
        for (std::int64_t i = 0; i < y[3]; ++i)
          for (std::int64_t j = 0; j < y[4]; ++j)
            for (std::int64_t q = 0; q < inputs; ++q)
              for (std::int64_t a = 0; a < c.w[2]; ++a)
                for (std::int64_t k = 0; k < c.w[3]; ++k)
                  for (std::int64_t l = 0; l < c.w[4]; ++l) {
                    const std::int64_t z = d * o.stride[0] + a * o.dilation[0] - o.padding[0];
                    const std::int64_t h = i * o.stride[1] + k * o.dilation[1] - o.padding[2];
                    const std::int64_t v = j * o.stride[2] + l * o.dilation[2] - o.padding[4];
                    if (z < 0 || z >= c.x[2] || h < 0 || h >= c.x[3] || v < 0 || v >= c.x[4]) continue;
                    at(result, y, {n, p, d, i, j}) +=
                        at(x, c.x, {n, p / outputs * inputs + q, z, h, v}) * at(w, c.w, {p, q, a, k, l});
                  }
  return result;
}

TEST(Conv3d, IsTheSumOverTheTapsOfAVolume) {
  const VolumeCase cases[] = {{{2, 3, 4, 5, 6}, {4, 3, 2, 3, 3}, {}},
                              {{1, 4, 7, 6, 5}, {6, 2, 3, 2, 3}, {{2, 1, 2}, {1, 2, 0, 1, 1, 0}, {2, 1, 1}, 2}},
                              {{2, 4, 3, 4, 4}, {4, 1, 3, 3, 3}, {{1, 1, 1}, {1, 1, 1, 1, 1, 1}, {1, 1, 1}, 4}},
                              {{1, 2, 3, 4, 4}, {3, 2, 1, 1, 1}, {{3, 1, 1}, {0, 0, 0, 0, 0, 0}, {1, 1, 1}, 1}}};
  for (const VolumeCase& c : cases) {
    SCOPED_TRACE(to_string(c.x) + " with " + to_string(c.w));
    Graph g;
    const Value x = g.input("x", f64, c.x), w = g.input("w", f64, c.w);
    const Value y = conv3d(x, w, {}, c.options);
    g.fetch("y", y);
    const Feeds feeds = make_feeds(g, 4);
    Program program(g);
    const Tensors got = program.run(to_tensors(g, feeds));
    expect_close("y", got.at("y").to_doubles(), conv3d_by_taps(c, y.shape(), feeds.at("x"), feeds.at("w")), 1e-12);
  }
}

TEST(Conv3d, HasGradientsBiasAndActivation) {
  Graph g;
  const Value x = g.input("x", f64, {1, 2, 3, 4, 4}), w = g.input("w", f64, {4, 1, 2, 2, 3}),
              b = g.input("b", f64, {4});
  const Value loss = sum(square(conv3d(x, w, b, {.stride = {1, 2, 1}, .groups = 2, .activation = Activation::tanh})));
  const Values grads = gradients(loss, {x, w, b});
  g.fetch("loss", loss);
  for (std::size_t i = 0; i < 3; ++i) g.fetch("d" + std::to_string(i), grads[i]);
  const Feeds feeds = make_feeds(g, 5);
  Program program(g);
  const Tensors got = program.run(to_tensors(g, feeds));
  const double step = 1e-6;
  const char* names[] = {"x", "w", "b"};
  for (std::size_t k = 0; k < 3; ++k) {
    const Dense gradient = got.at("d" + std::to_string(k)).to_doubles();
    for (std::size_t i = 0; i < gradient.size(); i += 2) {
      Feeds up = feeds, down = feeds;
      up[names[k]][i] += step, down[names[k]][i] -= step;
      const double difference = evaluate_graph(g, up).at("loss")[0] - evaluate_graph(g, down).at("loss")[0];
      EXPECT_NEAR(gradient[i], difference / (2 * step), 1e-6 * (1 + largest(gradient))) << names[k] << " " << i;
    }
  }
}

TEST(ConvTranspose2d, SpreadsEveryPixelOverItsWindow) {
  struct Case {
    Shape x, w;
    ConvTranspose2dOptions options;
    Shape y;
  };
  const Case cases[] = {{{2, 3, 4, 5}, {3, 4, 3, 3}, {}, {2, 4, 6, 7}},
                        {{1, 4, 3, 4}, {4, 3, 3, 2}, {{2, 3}, {1, 0, 0, 1}, {1, 2}, {1, 1}, 2}, {1, 6, 7, 12}},
                        {{1, 2, 4, 4}, {2, 1, 4, 4}, {{2, 2}, {1, 1, 1, 1}, {0, 0}, {1, 1}, 2}, {1, 2, 8, 8}},
                        // output_padding below the dilation, but not below the stride
                        {{1, 2, 3, 3}, {2, 2, 3, 3}, {{1, 1}, {0, 0, 0, 0}, {1, 1}, {2, 2}}, {1, 2, 8, 8}},
                        {{1, 2, 3, 3}, {2, 2, 3, 2}, {{1, 2}, {1, 2, 0, 1}, {3, 2}, {4, 3}}, {1, 2, 11, 9}},
                        {{1, 1, 2, 3}, {1, 2, 2, 2}, {{2, 1}, {0, 4, 1, 1}, {4, 4}, {5, 5}}, {1, 2, 8, 10}},
                        {{1, 1, 1, 2}, {1, 1, 1, 2}, {{1, 1}, {3, 0, 0, 0}, {4, 2}, {5, 3}}, {1, 1, 2, 7}}};
  for (const Case& c : cases) {
    SCOPED_TRACE(to_string(c.x) + " with " + to_string(c.w));
    const auto& o = c.options;
    Graph g;
    const std::int64_t outputs = c.w[1] * o.groups, inputs = c.x[1] / o.groups;
    const Value x = g.input("x", f64, c.x), w = g.input("w", f64, c.w), b = g.input("b", f64, {outputs});
    const Value y = conv_transpose2d(x, w, b, o);
    ASSERT_EQ(y.shape(), c.y);
    g.fetch("y", y);
    const Values slopes = gradients(sum(square(y)), {x, w});
    g.fetch("dx", slopes[0]), g.fetch("dw", slopes[1]);
    Feeds feeds = make_feeds(g, 6);
    // The same loops give y and, of sum(y^2), how it grows with x and w.
    Dense expected(static_cast<std::size_t>(c.y.elements())), dx(static_cast<std::size_t>(c.x.elements())),
        dw(static_cast<std::size_t>(c.w.elements()));
    const auto over_taps = [&](const auto& meet) {
      for (std::int64_t n = 0; n < c.x[0]; ++n)
        for (std::int64_t q = 0; q < c.x[1]; ++q)
          for (std::int64_t i = 0; i < c.x[2]; ++i)
            for (std::int64_t j = 0; j < c.x[3]; ++j)
              for (std::int64_t p = 0; p < c.w[1]; ++p)
                for (std::int64_t k = 0; k < c.w[2]; ++k)
                  for (std::int64_t l = 0; l < c.w[3]; ++l) {
                    const std::int64_t h = i * o.stride[0] + k * o.dilation[0] - o.padding[0];
                    const std::int64_t v = j * o.stride[1] + l * o.dilation[1] - o.padding[2];
                    if (h < 0 || h >= c.y[2] || v < 0 || v >= c.y[3]) continue;
                    meet({n, q / inputs * c.w[1] + p, h, v}, {n, q, i, j}, {q, p, k, l});
                  }
    };
    using Place = std::initializer_list<std::int64_t>;
    over_taps([&](Place y_at, Place x_at, Place w_at) {
      at(expected, c.y, y_at) += at(feeds["x"], c.x, x_at) * at(feeds["w"], c.w, w_at);
    });
    for (std::int64_t i = 0; i < c.y.elements(); ++i) {
      const std::int64_t channel = i / (c.y[2] * c.y[3]) % outputs;
      expected[static_cast<std::size_t>(i)] += feeds["b"][static_cast<std::size_t>(channel)];
    }
    over_taps([&](Place y_at, Place x_at, Place w_at) {
      const double slope = 2 * at(expected, c.y, y_at);
      at(dx, c.x, x_at) += slope * at(feeds["w"], c.w, w_at);
      at(dw, c.w, w_at) += slope * at(feeds["x"], c.x, x_at);
    });
    Program program(g);
    const Tensors got = program.run(to_tensors(g, feeds));
    expect_close("y", got.at("y").to_doubles(), expected, 1e-12);
    expect_close("dx", got.at("dx").to_doubles(), dx, 1e-11);
    expect_close("dw", got.at("dw").to_doubles(), dw, 1e-11);
  }
}

TEST(ConvolutionsOfOtherRanks, SayWhatTheyNeed) {
  Graph g;
  const Value volume = g.input("v", f32, {1, 2, 3, 4, 4}), window = g.input("w", f32, {2, 2, 3, 3, 3});
  const Value image = g.input("i", f32, {1, 2, 4, 4}), tap = g.input("t", f32, {2, 3, 3, 3});
  const auto has = [](const std::string& message, const char* what) {
    EXPECT_NE(message.find(what), std::string::npos) << message;
  };
  has(message_of([&] { conv3d(image, window); }), "conv3d: x has shape [1, 2, 4, 4]; its rank must be 5");
  has(message_of([&] {
        conv3d(volume, window, {}, {.dilation = {2, 1, 1}});
      }),
      "3 slices, padding included, are fewer");
  has(message_of([&] { conv3d(volume, window, {}, {.stride = {0, 1, 1}}); }), "stride is [0, 1, 1]");
  has(message_of([&] { conv3d(volume, window, {}, {.groups = 3}); }), "3 groups do not divide");
  has(message_of([&] { conv_transpose2d(volume, tap); }), "its rank must be 4");
  has(message_of([&] { conv_transpose2d(image, tap, {}, {.output_padding = {1, 0}}); }), "output_padding is 1");
  has(message_of([&] { conv_transpose2d(image, tap, {}, {.padding = {9, 9, 0, 0}}); }), "height");
  has(message_of([&] { conv_transpose2d(image, tap, {}, {.stride = {1 << 30, 1}}); }), "from 0 to");
  has(message_of([&] { conv_transpose2d(image, tap, g.input("b", f32, {2})); }), "it must be [3]");
}

}  // namespace
}  // namespace paoding::testing_program
