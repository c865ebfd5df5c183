// SPDX-License-Identifier: Apache-2.0
// The chart of a training: well-formed for any names, small for any number of points, and with every value in its
// place.
#include "cli/loss_curve.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>

namespace paoding::cli {
namespace {

// The first fault of the XML: tags that do not close each other, attributes without quotes, bare & or <.
std::string fault_of(const std::string& xml) {
  std::vector<std::string> open;
  for (std::size_t at = 0; at < xml.size();) {
    if (xml[at] == '&') {
      const std::size_t end = xml.find(';', at);
      if (end == xml.npos || end - at > 6) return "a bare &";
    }
    if (xml[at] == '>') return "a bare >";
    if (xml[at] != '<') {
      ++at;
      continue;
    }
    const std::size_t end = xml.find('>', at);
    if (end == xml.npos) return "a tag without an end";
    const std::string tag = xml.substr(at + 1, end - at - 1);
    at = end + 1;
    if (tag.find('<') != tag.npos) return "a < in " + tag;
    const std::string name = tag.substr(0, tag.find_first_of(" /", 1));
    if (std::count(tag.begin(), tag.end(), '"') % 2 != 0) return "quotes of " + tag;
    for (std::size_t equals = tag.find('='); equals != tag.npos;) {
      if (tag[equals + 1] != '"') return "an attribute of " + tag;
      const std::size_t close = tag.find('"', equals + 2);
      if (close == tag.npos) return "an attribute of " + tag;
      equals = tag.find('=', close);
    }
    if (tag[0] == '/') {
      if (open.empty() || "/" + open.back() != tag) return "closing " + tag;
      open.pop_back();
    } else if (tag.back() != '/') {
      open.push_back(name);
    }
  }
  return open.empty() ? "" : "open " + open.back();
}

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

void expect_sound(const std::string& svg) {
  EXPECT_EQ(fault_of(svg), "") << svg;
  EXPECT_LT(svg.size(), 60'000u);
  EXPECT_TRUE(svg.starts_with("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 760 "));
  for (const char* word : {"nan\"", "inf\"", "nan ", "inf ", "href", "url("}) {
    EXPECT_EQ(svg.find(word), svg.npos) << word << "\n" << svg;
  }
}

LossCurve curve_of(int points) {
  LossCurve curve{"g2p: 3000 steps", {}, {}, "phoneme error rate"};
  for (int i = 0; i < points; ++i) {
    curve.losses.emplace_back(10 * i, 4 * std::exp(-0.01 * i) + 0.05 + 0.02 * std::sin(i * 12.9898));
    if (i % 50 == 49) curve.scores.emplace_back(10 * i, 0.9 * std::exp(-0.02 * i) + 0.07);
  }
  return curve;
}

TEST(LossCurve, DrawsTheLossAsItIsAndSmoothedAndTheScoreBelow) {
  const std::string svg = to_svg(curve_of(300));
  expect_sound(svg);
  EXPECT_EQ(count(svg, "<path class=\"raw\""), 1u);
  EXPECT_EQ(count(svg, "<path class=\"loss\""), 1u);
  EXPECT_EQ(count(svg, "<path class=\"score\""), 1u);
  EXPECT_EQ(count(svg, "<circle class=\"scoredot\""), 6u);
  EXPECT_NE(svg.find("phoneme error rate on held-out data, 0.07228 at last"), svg.npos) << svg;
  EXPECT_NE(svg.find("prefers-color-scheme: dark"), svg.npos);
}

TEST(LossCurve, StaysSmallForAnyNumberOfPoints) {
  LossCurve curve = curve_of(200'000);
  expect_sound(to_svg(curve));
  // An outlier stays visible.
  curve.losses[100'001].second = 40;
  const std::string svg = to_svg(curve);
  expect_sound(svg);
  EXPECT_NE(svg.find(" 76.0 L"), svg.npos);  // the top of the panel, less the inset
}

TEST(LossCurve, TakesALogarithmicAxisForAWideRangeOnly) {
  LossCurve curve{"", {{0, 100}, {10, 10}, {20, 1}}, {}, ""};
  EXPECT_NE(to_svg(curve).find("(logarithmic)"), std::string::npos);
  EXPECT_NE(to_svg(curve).find("M74.0 76.0 L400.0 176.0 L726.0 276.0"), std::string::npos) << to_svg(curve);
  for (const double least : {50.0, 0.0, -1.0}) {
    curve.losses[2].second = least;
    EXPECT_EQ(to_svg(curve).find("(logarithmic)"), std::string::npos) << least;
    expect_sound(to_svg(curve));
  }
}

TEST(LossCurve, LeavesOutWhatIsNotFinite) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  const LossCurve curve{"", {{0, 3}, {1, nan}, {2, inf}, {3, -inf}, {nan, 1}, {4, 2}}, {{0, nan}, {4, 1}}, "BLEU"};
  const std::string svg = to_svg(curve);
  expect_sound(svg);
  EXPECT_NE(svg.find("d=\"M74.0 76.0 L726.0 276.0\""), svg.npos) << svg;
  EXPECT_EQ(count(svg, "<circle class=\"scoredot\""), 1u);
}

TEST(LossCurve, OfOnePointOrNoneIsAPictureToo) {
  LossCurve curve;
  expect_sound(to_svg(curve));
  EXPECT_NE(to_svg(curve).find("no points"), std::string::npos);
  EXPECT_EQ(to_svg(curve).find("held-out"), std::string::npos);
  curve.losses = {{0, 0}};
  curve.scores = {{0, -3}};
  expect_sound(to_svg(curve));
  EXPECT_EQ(count(to_svg(curve), "<circle"), 2u);
  curve.losses = {{100, 1e-30}, {200, 1e30}};
  curve.scores = {{100, 1}, {200, 1}};
  expect_sound(to_svg(curve));
  EXPECT_NE(to_svg(curve).find("score on held-out data"), std::string::npos);
}

TEST(LossCurve, KeepsItsTextFromBeingMarkup) {
  const std::string svg = to_svg({"<a & \"b\">\n\x01", {{0, 1}}, {{0, 1}}, "a<b>&c"});
  expect_sound(svg);
  EXPECT_NE(svg.find("&lt;a &amp; &quot;b&quot;&gt;??"), svg.npos);
}

}  // namespace
}  // namespace paoding::cli
