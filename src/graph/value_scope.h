// SPDX-License-Identifier: Apache-2.0
// The scope that a layer, or a part of one, is applied in: reports, plans and errors name it as its parameters are
// named.
#pragma once

#include <list>
#include <span>
#include <string_view>

#include "paoding/graph.h"

namespace paoding {

/// Nodes built of `values` while it lives are in the scope `name`, in all their graphs (the step of a loop, and the
/// graph around it). Words that end the scope around it and begin the name are not repeated: the layer
/// "decoder/attention", applied in the scope "model/decoder", is in "model/decoder/attention".
class ValueScope {
 public:
  ValueScope(std::string_view name, std::span<const Value> values);
  ValueScope(std::string_view name, const Value& value) : ValueScope(name, std::span(&value, 1)) {}

 private:
  std::list<Scope> scopes_;
};

}  // namespace paoding
