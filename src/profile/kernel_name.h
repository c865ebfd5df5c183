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

/// Whether the symbol is mangled as compilers of C++ do it.
inline bool is_mangled(std::string_view symbol) { return symbol.starts_with("_Z"); }

/// Whether it is the name of a C++ kernel, whole, which short_kernel_name() makes shorter.
inline bool is_kernel_of_cpp(std::string_view name) { return is_mangled(name) || name.starts_with("void "); }

}  // namespace paoding::profile
