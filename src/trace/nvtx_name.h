// SPDX-License-Identifier: Apache-2.0
// What the text of an NVTX range says: frameworks put more than a name into it.
#pragma once

#include <cstdint>
#include <string_view>

#include "profile/trace.h"

namespace paoding::trace {

/// Parts of the text.
struct NvtxName {
  profile::SpanKind kind = profile::SpanKind::range;  // or op, run, step
  std::string_view name = {};                         // "aten::mm"
  std::string_view instance = {};                     // "dot.42"
  std::string_view shapes = {};                       // "[[8, 16], [16, 4]]"
  std::int64_t sequence = -1;
};

/// Of PyTorch's emit_nvtx "aten::mm, seq = 7, op_id = 12, sizes = [[8, 16], [16, 4]]", of XLA's
/// "TSL:Thunk:#name=dot.42,hlo_op=dot.42#", of loops "step 12"; any other text is a range's name.
NvtxName parse_nvtx_name(std::string_view text);

}  // namespace paoding::trace
