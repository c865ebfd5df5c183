// SPDX-License-Identifier: Apache-2.0
// Registering kernels of a user's own.
#include "ops/user_kernel.h"

#include <fstream>
#include <sstream>

#include "base/check.h"
#include "base/one_line.h"

namespace paoding {

CudaText CudaText::from_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (!file || !(text << file.rdbuf())) fail(ErrorKind::file, "{}: CUDA source cannot be read from it", one_line(path));
  return {path, 1, text.str()};
}

void register_cuda_kernel(const std::string& op, CudaKernel kernel) {
  const OpDef* def = find_op(op);
  const auto wrong = [&](const std::string& what) {
    fail(ErrorKind::argument, "register_cuda_kernel: {}: {}", one_line(op), what);
  };
  if (def == nullptr) wrong("there is no op of this name; call register_op() first");
  if (!def->is_run_by_kernel() || def->is_expanded_at_once()) {
    wrong("no kernel can run it: it is to be a kernel op, or a composed op with a gradient rule");
  }
  if (def->is_variadic()) wrong("it takes any number of inputs, which have no names in CUDA source");
  if (kernel.name.empty()) wrong("the kernel has no name");
  if (kernel.text.text.empty()) wrong("the kernel has no text");
  if (!kernel.launch) wrong("the kernel says nothing of its launch");
#if PAODING_WITH_CUDA
  add_user_kernel(*def, std::move(kernel));
#endif
}

}  // namespace paoding
