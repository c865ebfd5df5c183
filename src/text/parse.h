// SPDX-License-Identifier: Apache-2.0
// Graph text at sizes.
#pragma once

#include <memory>
#include <string_view>

#include "paoding/extents.h"
#include "paoding/graph.h"

namespace paoding {

/// parse_graph(), with a size for every extent that the text declares.
std::unique_ptr<Graph> parse_graph_at(std::string_view text, const Extents::Key& sizes);

}  // namespace paoding
