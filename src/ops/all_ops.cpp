// SPDX-License-Identifier: Apache-2.0
// The explicit list of op families.
#include "ops/families.h"

namespace paoding {

void register_built_in_ops() {
  register_elementwise_ops();
  register_constants();
  register_views();
  register_view_forms();
  register_joins();
  register_reduction_ops();
  register_index_ops();
  register_sort_ops();
  register_matmul();
  register_scan();
  register_recurrent_ops();
  register_group();
}

}  // namespace paoding
