// SPDX-License-Identifier: Apache-2.0
// How numbers and tables of a report look as text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace paoding::profile {

/// Every nanosecond of it, in milliseconds; every byte, in millions. Without zeros at the end.
std::string ms(double ns);
std::string millions(std::int64_t count);
/// "CPU", "GPU 0".
std::string place(int device, std::string_view process = "");
/// 0 of nothing.
inline double share(double part, double whole) { return whole > 0 ? part / whole : 0; }

using Cells = std::vector<std::string>;
/// How wide each column is.
std::vector<std::size_t> widths_of(const std::vector<Cells>& lines);
/// Left-aligned columns, each as wide as its widest cell, two spaces apart.
void append_table(std::string& out, const std::vector<Cells>& lines);

}  // namespace paoding::profile
