// SPDX-License-Identifier: Apache-2.0
// A user's CUDA source as a kernel like those of paoding's own: prelude, sizes, the source at its place in the user's
// file, and a kernel that calls it.
#include <algorithm>

#include "base/check.h"
#include "base/one_line.h"
#include "gpu/codegen/text_kernel.h"
#include "ops/user_kernel.h"

namespace paoding {
namespace {

using gpu::input_parameter, gpu::needs_wide_index, gpu::output_parameter;

CudaCall call_of(const KernelCall& call) {
  CudaCall made{{}, {}, call.attrs};
  for (const Layout& layout : call.inputs) made.inputs.push_back(layout.type);
  for (const Layout& layout : call.outputs) made.outputs.push_back(layout.type);
  return made;
}

std::string refusal_of(const CudaKernel& kernel, const KernelCall& call) {
  const auto is_dense = [](const Layout& layout) { return layout.is_dense(); };
  if (!std::all_of(call.inputs.begin(), call.inputs.end(), is_dense)) return "an input is not dense";
  if (!std::all_of(call.outputs.begin(), call.outputs.end(), is_dense)) return "a result is not dense";
  return kernel.refusal ? kernel.refusal(call_of(call)) : "";
}

// `#line`, so that NVRTC speaks of the user's file.
std::string at_line(int line, const std::string& file) {
  std::string quoted;
  for (const char c : file) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return fmt::format("#line {} \"{}\"\n", line, quoted);
}

bool is_word(const std::string& name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return !name.empty() && is_letter(name[0]) &&
         std::all_of(name.begin(), name.end(), [&](char c) { return is_letter(c) || is_digit(c); });
}

gpu::TextPlan plan_of(const CudaKernel& kernel, const KernelCall& call) {
  const CudaLaunch launch = kernel.launch(call_of(call));
  const auto wrong = [&](const std::string& what) {
    fail(ErrorKind::argument, "{}: kernel '{}': {}", call.op->name, kernel.name, what);
  };
  constexpr int kMostThreads = 1024;
  constexpr std::int64_t kSharedForAll = 48 << 10;  // of which no chip needs to be asked
  if (launch.ctas < 0) wrong(fmt::format("its launch has {} CTAs", launch.ctas));
  if (launch.threads < 1 || launch.threads > kMostThreads) {
    wrong(fmt::format("its launch has {} threads, needs 1 to {}", launch.threads, kMostThreads));
  }
  if (launch.shared_bytes < 0 || launch.shared_bytes > kSharedForAll) {
    wrong(
        fmt::format("its launch has {} bytes of shared memory, can have 0 to {}", launch.shared_bytes, kSharedForAll));
  }
  if (launch.call.empty()) wrong("its launch has no call");
  gpu::TextParts parts;
  parts.name = call.op->name + "_" + kernel.name;
  std::replace_if(
      parts.name.begin(), parts.name.end(), [](char c) { return !is_word(std::string("_") + c); }, '_');
  parts.threads = launch.threads;
  parts.ctas = launch.ctas;
  for (const auto* layouts : {&call.inputs, &call.outputs}) {
    for (const Layout& layout : *layouts) parts.is_wide |= needs_wide_index(layout.type.shape.elements());
  }
  for (const auto& [name, value] : launch.sizes) parts.is_wide |= needs_wide_index(value) || needs_wide_index(-value);
  for (const auto& [name, value] : launch.sizes) {
    if (!is_word(name)) wrong(fmt::format("a size is named '{}', which is no word", one_line(name)));
    parts.sizes.number(name, value);
  }
  if (launch.sizes.empty()) parts.sizes.number("none", 0);  // a struct has members
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    parts.operands.push_back(input_parameter(call.inputs[i].type.dtype, call.op->inputs[i]));
  }
  for (std::size_t i = 0; i < call.outputs.size(); ++i) {
    const std::string name = call.outputs.size() == 1 ? "out" : fmt::format("out{}", i);
    parts.operands.push_back(output_parameter(call.outputs[i].type.dtype, name));
  }
  parts.functions = at_line(kernel.text.line, kernel.text.file) + kernel.text.text + "\n" +
                    at_line(1, fmt::format("call of kernel {}", kernel.name));
  parts.call = launch.call;
  gpu::TextPlan made;
  made.launches.push_back(make_text_kernel(parts));
  made.launches.back().shared_bytes = static_cast<unsigned>(launch.shared_bytes);
  made.launches.back().is_alone = true;  // the source may ask for gridDim
  return made;
}

}  // namespace

void add_user_kernel(const OpDef& op, CudaKernel kernel) {
  const auto shared = std::make_shared<const CudaKernel>(std::move(kernel));
  gpu::register_text_kernel(
      op.name, shared->name, [shared](const KernelCall& call) { return refusal_of(*shared, call); },
      [shared](const KernelCall& call) { return plan_of(*shared, call); });
}

}  // namespace paoding
