// SPDX-License-Identifier: Apache-2.0
// Nests of equal groups are one: programs of other sizes have most groups in common (updates of parameters, bodies of
// loops), layers of a model have too.
#pragma once

#include <memory>
#include <vector>

#include "cpu/group_kernel_nest.h"

namespace paoding {

/// build_nest(), or the nest that it made of an equal group on this machine, while something still has it.
std::shared_ptr<const Nest> shared_nest(const Group& group, int threads, Sharing sharing, const std::vector<bool>& far);

}  // namespace paoding
