// SPDX-License-Identifier: Apache-2.0
#include "loss_curve.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "text/markup.h"

namespace paoding::cli {
namespace {

using Points = LossCurve::Points;

constexpr double kWidth = 760, kLeft = 64, kRight = 24, kTop = 66, kPanel = 220, kBetween = 58, kBottom = 48;
constexpr double kInset = 10;               // between the frame of a panel and its lines
constexpr double kLogFrom = 20;             // greatest over least value of a logarithmic axis
constexpr std::size_t kMostPoints = 480;    // of a line
constexpr std::size_t kSmoothed = 25;       // a mean is over the count of points divided by this
constexpr std::size_t kLeastToSmooth = 20;  // points
constexpr std::size_t kMostDots = 60;       // more scores than this are a line only

// Colours are classes, so that a dark page can have others.
constexpr const char* kStyle = R"(<style>
text { font: 12px system-ui, -apple-system, "Segoe UI", Helvetica, Arial, sans-serif; fill: #4b5563; }
.page { fill: #ffffff; } .title { font-size: 15px; font-weight: 600; fill: #111827; }
.name { font-size: 13px; fill: #111827; } .grid { stroke: #e5e7eb; } .axis { stroke: #9ca3af; fill: none; }
.loss, .raw { fill: none; stroke: #2563eb; stroke-width: 2; stroke-linejoin: round; } .raw { stroke-width: 1; opacity: 0.3; }
.score { fill: none; stroke: #c2410c; stroke-width: 2; stroke-linejoin: round; }
.lossdot { fill: #2563eb; } .scoredot { fill: #c2410c; }
@media (prefers-color-scheme: dark) {
text { fill: #9ca3af; } .page { fill: #0d1117; } .title, .name { fill: #e5e7eb; } .grid { stroke: #262c36; }
.axis { stroke: #6b7280; } .loss, .raw { stroke: #60a5fa; } .raw { opacity: 0.45; } .score { stroke: #fb923c; }
.lossdot { fill: #60a5fa; } .scoredot { fill: #fb923c; }
}
</style>
)";

Points finite(const Points& points) {
  Points kept;
  for (const auto& point : points) {
    if (std::isfinite(point.first) && std::isfinite(point.second)) kept.push_back(point);
  }
  return kept;
}

// Keeps the least and the greatest point of each interval, in order, so that outliers stay visible.
Points thinned(const Points& points) {
  if (points.size() <= kMostPoints) return points;
  Points kept;
  const std::size_t stretches = kMostPoints / 2;
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  for (std::size_t i = 0; i < stretches; ++i) {
    const auto begin = points.begin() + static_cast<std::ptrdiff_t>(i * points.size() / stretches);
    const auto end = points.begin() + static_cast<std::ptrdiff_t>((i + 1) * points.size() / stretches);
    const auto [least, greatest] = std::minmax_element(begin, end, less);
    kept.push_back(*std::min(least, greatest));
    if (least != greatest) kept.push_back(*std::max(least, greatest));
  }
  return kept;
}

Points smoothed(const Points& points) {
  const std::size_t half = points.size() / kSmoothed / 2 + 1;
  std::vector<double> sums{0};
  for (const auto& point : points) sums.push_back(sums.back() + point.second);
  Points means;
  for (std::size_t i = 0; i < points.size(); ++i) {
    // At its steep start the line takes as much from both sides, so that it does not bend.
    const std::size_t begin = i - std::min(half, i), end = std::min(i + std::min(half, i), points.size() - 1) + 1;
    means.emplace_back(points[i].first, (sums[end] - sums[begin]) / static_cast<double>(end - begin));
  }
  return means;
}

// 1, 2 or 5 times a power of ten, about a `count`-th of the range.
double tick_distance(double range, double count) {
  const double raw = range / count, power = std::pow(10, std::floor(std::log10(raw)));
  return power * (raw <= power ? 1 : raw <= 2 * power ? 2 : raw <= 5 * power ? 5 : 10);
}

// 15000 as 15k, 2000000 as 2M; the labels of an axis have the unit of its greatest.
std::string number_text(double value, double greatest) {
  if (value == 0) return "0";
  const double size = std::abs(greatest);
  if (size >= 1e9 || size < 1e-3) return fmt::format("{:.3g}", value);
  if (size >= 1e6) return fmt::format("{:g}M", value / 1e6);
  if (size >= 1e4) return fmt::format("{:g}k", value / 1e3);
  return fmt::format("{:.5g}", value);
}

// From values to places on the page.
class Axis {
 public:
  // Takes in [low, high]; `at_low` and `at_high` are their places.
  Axis(double low, double high, double at_low, double at_high, bool is_log)
      : is_log_(is_log), at_low_(at_low), at_high_(at_high) {
    if (!(low < high)) {  // one value
      const double room = low == 0 ? 1 : std::abs(low) * 0.1;
      low -= room, high += room;
    }
    low_ = low, high_ = high;
  }
  double place(double value) const {
    const double part = (scaled(value) - scaled(low_)) / (scaled(high_) - scaled(low_));
    return at_low_ + std::clamp(part, 0.0, 1.0) * (at_high_ - at_low_);
  }
  double greatest() const { return std::max(std::abs(low_), std::abs(high_)); }
  std::vector<double> ticks(double count) const {
    std::vector<double> ticks;
    if (is_log_) {
      const double decades = std::log10(high_ / low_);
      for (double power = std::pow(10, std::floor(std::log10(low_))); power <= high_; power *= 10) {
        for (const double digit : {1.0, 2.0, 5.0}) {
          if (digit != 1 && decades > 3) continue;
          if (power * digit >= low_ && power * digit <= high_) ticks.push_back(power * digit);
        }
      }
      return ticks;
    }
    const double distance = tick_distance(high_ - low_, count);
    for (double n = std::ceil(low_ / distance); n * distance <= high_ && ticks.size() < 32; ++n) {
      ticks.push_back(n * distance);
    }
    return ticks;
  }

 private:
  double scaled(double value) const { return is_log_ ? std::log(std::max(value, low_)) : value; }

  bool is_log_;
  double low_ = 0, high_ = 1, at_low_, at_high_;
};

std::string path_of(const Points& points, const Axis& x, const Axis& y, const char* style) {
  std::string path = fmt::format("<path class=\"{}\" d=\"", style);
  for (std::size_t i = 0; i < points.size(); ++i) {
    path += fmt::format("{}{:.1f} {:.1f}", i == 0 ? "M" : " L", x.place(points[i].first), y.place(points[i].second));
  }
  return path + "\"/>\n";
}

std::string dot(const std::pair<double, double>& point, const Axis& x, const Axis& y, const char* style) {
  return fmt::format("<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.5\"/>\n", style, x.place(point.first),
                     y.place(point.second));
}

std::string text_at(double x, double y, const char* anchor, const char* style, const std::string& text) {
  return fmt::format("<text class=\"{}\" x=\"{:.1f}\" y=\"{:.1f}\" text-anchor=\"{}\">{}</text>\n", style, x, y, anchor,
                     markup_text(text));
}

std::pair<double, double> range_of(const Points& points) {
  const auto less = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto [least, greatest] = std::minmax_element(points.begin(), points.end(), less);
  return {least->second, greatest->second};
}

// One panel: frame, grid, axis labels, its title with the last value, and a legend of `lines`.
class Panel {
 public:
  Panel(double top, const std::string& name, const Points& points, double last_step, bool may_be_log)
      : top_(top),
        points_(points),
        x_(0, last_step, kLeft + kInset, kWidth - kRight - kInset, false),
        y_(make_y(may_be_log)) {
    name_ = name;
    if (!points.empty()) name_ += fmt::format(", {:.4g} at last", points.back().second);
    if (is_log_) name_ += " (logarithmic)";
  }

  std::string frame() const {
    const double bottom = top_ + kPanel, right = kWidth - kRight;
    std::string out;
    for (const double tick : y_.ticks(5)) {
      const double at = y_.place(tick);
      out += fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f} H{:.1f}\"/>\n", kLeft, at, right);
      out += text_at(kLeft - 8, at + 4, "end", "tick", number_text(tick, is_log_ ? tick : y_.greatest()));
    }
    for (const double tick : x_.ticks(7)) {
      out += text_at(x_.place(tick), bottom + 17, "middle", "tick", number_text(tick, x_.greatest()));
      out += fmt::format("<path class=\"axis\" d=\"M{:.1f} {:.1f} v4\"/>\n", x_.place(tick), bottom);
    }
    out += fmt::format("<path class=\"axis\" d=\"M{:.1f} {:.1f} V{:.1f} H{:.1f}\"/>\n", kLeft, top_, bottom, right);
    out += text_at(kLeft, top_ - 9, "start", "name", name_);
    if (points_.empty()) out += text_at((kLeft + right) / 2, top_ + kPanel / 2, "middle", "tick", "no points");
    return out;
  }
  std::string line(const Points& points, const char* style) const { return path_of(points, x_, y_, style); }
  std::string dots(const Points& points, const char* style) const {
    std::string out;
    for (const auto& point : points) out += dot(point, x_, y_, style);
    return out;
  }

 private:
  Axis make_y(bool may_be_log) {
    const auto [low, high] = points_.empty() ? std::pair{0.0, 1.0} : range_of(points_);
    is_log_ = may_be_log && low > 0 && high / low > kLogFrom;
    return {low, high, top_ + kPanel - kInset, top_ + kInset, is_log_};
  }

  double top_;
  const Points& points_;
  std::string name_;
  bool is_log_ = false;
  Axis x_, y_;
};

}  // namespace

std::string to_svg(const LossCurve& curve) {
  const Points losses = finite(curve.losses), scores = finite(curve.scores);
  double last_step = 0;
  for (const Points* points : {&losses, &scores}) {
    for (const auto& point : *points) last_step = std::max(last_step, point.first);
  }
  if (last_step == 0) last_step = 1;

  std::string body;
  const Panel above(kTop, "training loss", losses, last_step, true);
  body += above.frame();
  if (losses.size() >= kLeastToSmooth) {
    body += above.line(thinned(losses), "raw") + above.line(thinned(smoothed(losses)), "loss");
  } else if (losses.size() > 1) {
    body += above.line(losses, "loss");
  } else {
    body += above.dots(losses, "lossdot");
  }
  double bottom = kTop + kPanel;
  if (!curve.scores.empty()) {
    const std::string name = curve.score_name.empty() ? "score" : curve.score_name;
    const Panel below(bottom + kBetween, name + " on held-out data", scores, last_step, false);
    body += below.frame();
    if (scores.size() > 1) body += below.line(thinned(scores), "score");
    if (scores.size() <= kMostDots) body += below.dots(scores, "scoredot");
    bottom += kBetween + kPanel;
  }
  body += text_at((kLeft + kWidth - kRight) / 2, bottom + 36, "middle", "tick", "step");
  const double height = bottom + kBottom;
  return fmt::format(
             "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {0} {1}\" width=\"{0}\" height=\"{1}\" "
             "role=\"img\">\n<title>{2}</title>\n",
             kWidth, height, markup_text(curve.title)) +
         kStyle + fmt::format("<rect class=\"page\" width=\"{}\" height=\"{}\"/>\n", kWidth, height) +
         text_at(kLeft, 28, "start", "title", curve.title) + body + "</svg>\n";
}

}  // namespace paoding::cli
