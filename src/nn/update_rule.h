// SPDX-License-Identifier: Apache-2.0
// One optimizer's update of one parameter; values that all its parameters share are computed once.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "paoding/optimizer.h"

namespace paoding {

/// Error (argument) when a number of it is out of range.
void check(const Optimizer& optimizer);

/// A value that an optimizer keeps for a parameter, "<prefix><parameter>".
struct UpdateState {
  const char* prefix;
  Shape shape;
};

/// A parameter before or after an update, in the dtype that it is computed in.
struct Updated {
  Value value;
  Values states;
};

class UpdateRule {
 public:
  /// `step` counts the updates made before this one, i64; the learning rate is multiplied by `rate_factor`.
  static std::unique_ptr<UpdateRule> make(const Optimizer& optimizer, const Value& step, double rate_factor);
  virtual ~UpdateRule() = default;
  virtual std::vector<UpdateState> states(const Shape& parameter) const = 0;
  virtual Updated update(const Updated& old, const Value& gradient) const = 0;
  /// f64.
  virtual const Value& learning_rate() const = 0;
};

}  // namespace paoding
