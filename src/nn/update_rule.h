// SPDX-License-Identifier: Apache-2.0
// What one optimizer does to one parameter, with what all its parameters share computed once.
#pragma once

#include <span>
#include <vector>

#include "paoding/optimizer.h"

namespace paoding {

/// Error (argument) when a number of it is out of range.
void check(const Optimizer& optimizer);

class UpdateRule {
 public:
  /// `step` counts the updates made before this one.
  UpdateRule(const Optimizer& optimizer, const Value& step);

  struct Updated {
    Value value;
    Values states;
  };

  /// Prefixes of the names of the states that a parameter needs.
  std::vector<const char*> states() const;
  Updated update(const Value& value, const Value& gradient, const Values& states) const;
  const Value& learning_rate() const { return rate_; }

 private:
  Updated update_adam(const Value& value, const Value& gradient, const Values& states, const AdamW& adam,
                      bool is_decoupled) const;
  Updated update_sgd(const Value& value, const Value& gradient, const Values& states, const Sgd& sgd) const;

  Optimizer optimizer_;
  Value rate_;                    // f64
  Value step_size_, root_scale_;  // of Adam, f64: rate / (1 - beta1^t), 1 / sqrt(1 - beta2^t)
};

}  // namespace paoding
