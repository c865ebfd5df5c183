// SPDX-License-Identifier: Apache-2.0
// How numbers and tables of a report look as text.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
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
/// A line of words: where it is longer than `width` characters and that is not 0, cut at blanks, what follows indented.
void append_words(std::string& out, std::string_view line, int width);
/// Left-aligned columns, each as wide as its widest cell, two spaces apart. Where lines would be longer than `width`
/// and that is not 0, the cells of the widest columns are cut.
void append_table(std::string& out, std::vector<Cells> lines, int width = 0);

}  // namespace paoding::profile
