// SPDX-License-Identifier: Apache-2.0
// The course of a training as a picture: an SVG of two panels, the loss of training above, the score on held-out data
// below. It needs no font and no script, and has colours for light and for dark pages.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace paoding::cli {

struct LossCurve {
  using Points = std::vector<std::pair<double, double>>;  // step, value; in order of the steps
  std::string title;
  Points losses;
  Points scores;           // none: there is one panel
  std::string score_name;  // "phoneme error rate"
};

/// The text of the SVG, below 60 kB for any number of points. Non-finite points are left out. The loss is
/// drawn faintly as it is, and smoothed: each point of the line is the mean of a twenty-fifth of the points, around it.
/// It has a logarithmic axis where its greatest value is more than 20 times its least.
std::string to_svg(const LossCurve& curve);

}  // namespace paoding::cli
