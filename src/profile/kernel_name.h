// SPDX-License-Identifier: Apache-2.0
// Names of kernels as people read them.
#pragma once

#include <string>
#include <string_view>

namespace paoding::profile {

/// Without its result's type, namespaces, templates' arguments and parameters; the one argument that tells kernels of
/// one template apart stays: "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>,
/// ..>(..)" is "vectorized_elementwise_kernel<FillFunctor>". Mangled names are demangled. Others stay as they are.
std::string short_kernel_name(std::string_view name);

}  // namespace paoding::profile
