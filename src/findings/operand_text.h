// SPDX-License-Identifier: Apache-2.0
// Shapes and types of an op's operands as people read them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace paoding::findings {

/// The elements of a list "[a, [b, c], \"d\"]" as they stand; a list in it is one. False where the text is none.
bool split_list(std::string_view text, std::vector<std::string_view>* elements);

/// "bf16[8192,4096], f32[4096]" of Kineto's lists of shapes and types, numbers left out; of aten::copy_ "f32[64] ->
/// bf16[64]", as XLA and recordings of ours have it, whose texts stay. "" where nothing is known.
std::string operands_text(std::string_view op, std::string_view shapes, std::string_view types);

/// "f32 to bf16" of "f32[64] -> bf16[64]"; "" where it does not say both.
std::string cast_text(std::string_view operands);

}  // namespace paoding::findings
