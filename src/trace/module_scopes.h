// SPDX-License-Identifier: Apache-2.0
// Which module of PyTorch's (torch.nn.Module) a thread was in at a moment, by the frames of a Kineto trace; of backward
// ops the module of the op whose gradient they are.
#pragma once

#include <unordered_map>
#include <vector>

#include "trace/json_build.h"

namespace paoding::trace {

class ModuleScopes {
 public:
  /// Empty where the trace has no frames of modules.
  void find(const JsonEvents& events, JsonNames& names, TraceSink& sink);
  /// At a place of JsonNames: "ResNet_0/Conv2d_3", of a gradient "ResNet_0/Conv2d_3 (backward)"; 0: in none.
  profile::StringId at(std::uint32_t place, std::int64_t ns) const;

 private:
  struct Stretch {
    std::int64_t start, end;
    profile::StringId scope;  // its own
  };
  struct Change {
    std::int64_t ns;
    profile::StringId scope;  // from then on
  };
  static std::vector<Change> changes_of(std::vector<Stretch>& stretches, bool as_paths, TraceSink& sink);

  std::vector<std::vector<Change>> by_place_;
};

}  // namespace paoding::trace
