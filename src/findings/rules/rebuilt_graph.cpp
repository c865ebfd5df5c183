// SPDX-License-Identifier: Apache-2.0
#include "findings/rules.h"

namespace paoding::findings {

void find_rebuilt_graph(const Steps&, Candidates*) {}

}  // namespace paoding::findings
