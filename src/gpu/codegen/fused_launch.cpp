// SPDX-License-Identifier: Apache-2.0
#include "gpu/codegen/fused_launch.h"

#include <fmt/format.h>

#include "base/check.h"
#include "gpu/kernels/kernel_prelude.h"

namespace paoding::gpu {

void FusedLaunch::name_entry(std::string_view prefix, const std::string& text) {
  launch_.entry = fmt::format("{}_{:016x}", prefix, hash_of_source(text));
  std::string source = text;
  replace_all(&source, "$entry", launch_.entry);
  launch_.source = std::move(source);
}

void replace_all(std::string* text, std::string_view what, std::string_view by) {
  for (std::size_t at = text->find(what); at != std::string::npos; at = text->find(what, at + by.size())) {
    text->replace(at, what.size(), by);
  }
}

std::string_view own_text(const TextLaunch& launch) {
  const std::string_view source = (launch.shared_source.empty() ? launch.source : launch.shared_source).text();
  const std::string_view prelude = kernel_prelude();
  return source.substr(source.find(prelude) + prelude.size());
}

std::string as_function(std::string_view own) {
  std::string text(own);
  const std::size_t head = text.find(kKernelHead), parameters = text.find('(', head + kKernelHead.size());
  PD_ASSERT(parameters != std::string::npos, "a kernel has parameters");
  text.replace(head, parameters - head, "PD_DEVICE void run");
  replace_all(&text, "const Sizes size) {", "const Sizes& size, const unsigned cta) {");
  replace_all(&text, "blockIdx.x", "cta");
  return text;
}

std::string_view any_pointer_text() {
  return "// What the parameter that it is given to points at.\nstruct AnyPointer {\n  void* at;\n"
         "  template <class T> PD_DEVICE operator T*() const { return (T*)at; }\n};\n";
}

}  // namespace paoding::gpu
