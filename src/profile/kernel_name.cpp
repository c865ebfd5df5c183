// SPDX-License-Identifier: Apache-2.0
#include "profile/kernel_name.h"

#include <cxxabi.h>

#include <algorithm>
#include <cctype>
#include <cstdlib>

namespace paoding::profile {

namespace {

bool is_letter(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

std::string demangled(std::string_view name) {
  if (!is_mangled(name)) return std::string(name);
  int status = 0;
  char* const text = abi::__cxa_demangle(std::string(name).c_str(), nullptr, nullptr, &status);
  std::string made = status == 0 && text != nullptr ? text : std::string(name);
  std::free(text);
  return made;
}

// Words of a template that do not tell kernels apart.
bool is_filling(std::string_view word) {
  static constexpr std::string_view kWords[] = {"at",
                                                "native",
                                                "c10",
                                                "std",
                                                "cuda",
                                                "detail",
                                                "internal",
                                                "anonymous",
                                                "namespace",
                                                "array",
                                                "char",
                                                "short",
                                                "int",
                                                "long",
                                                "float",
                                                "double",
                                                "bool",
                                                "unsigned",
                                                "signed",
                                                "void",
                                                "const",
                                                "true",
                                                "false",
                                                "Half",
                                                "BFloat16",
                                                "half",
                                                "__half",
                                                "complex",
                                                "operator",
                                                "lambda",
                                                "Tensor",
                                                "Iterator",
                                                "ul",
                                                "uint",
                                                "cutlass",
                                                "cute",
                                                "tuple",
                                                "C",
                                                "TensorIteratorBase",
                                                "TensorIterator",
                                                "OffsetCalculator",
                                                "TensorListMetadata",
                                                "BinaryFunctor",
                                                "AUnaryFunctor",
                                                "BUnaryFunctor",
                                                "ReduceOp",
                                                "TrivialOffsetCalculator",
                                                "nv_bfloat16",
                                                "__nv_bfloat16",
                                                "binary_internal",
                                                "int32_t",
                                                "int64_t",
                                                "uint32_t",
                                                "uint64_t",
                                                "size_t",
                                                "enable_if"};
  const auto is_digit = [](char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; };
  if (is_digit(word.front()) || word.size() < 3) return true;
  if (word.starts_with("gpu_kernel_impl") || word.find("elementwise_kernel") != word.npos) return true;
  if (std::ranges::find(kWords, word) != std::end(kWords)) return true;
  while (is_digit(word.back())) word.remove_suffix(1);  // float2
  return std::ranges::find(kWords, word) != std::end(kWords);
}

// The first word of a template's arguments that tells something.
std::string_view telling_word(std::string_view arguments) {
  for (std::size_t i = 0; i < arguments.size();) {
    std::size_t end = i;
    while (end < arguments.size() && is_letter(arguments[end])) ++end;
    if (end > i && !is_filling(arguments.substr(i, end - i))) return arguments.substr(i, end - i);
    i = std::max(end, i + 1);
  }
  return {};
}

// Behind the bracket that closes the one at `open`; the end where none does.
std::size_t behind(std::string_view text, std::size_t open) {
  int depth = 0;
  for (std::size_t i = open; i < text.size(); ++i) {
    if (text[i] == '<' || text[i] == '(') ++depth;
    if ((text[i] == '>' || text[i] == ')') && --depth == 0) return i + 1;
  }
  return text.size();
}

}  // namespace

std::string short_kernel_name(std::string_view name) {
  const std::string whole = demangled(name);
  std::string_view text = whole;
  if (text.starts_with("void ")) text.remove_prefix(5);
  // The last part behind "::", before its arguments; "(anonymous namespace)::" and templates in front are skipped.
  std::size_t begin = 0, at = 0;
  while (at < text.size()) {
    if (text[at] == '<' || text[at] == '(') {
      const std::size_t end = behind(text, at);
      if (!text.substr(end).starts_with("::")) break;
      at = begin = end + 2;
    } else if (text.substr(at).starts_with("::")) {
      at = begin = at + 2;
    } else if (!is_letter(text[at])) {
      return whole;  // it is no function of C++
    } else {
      ++at;
    }
  }
  const std::string_view function = text.substr(begin, at - begin);
  if (function.empty()) return whole;
  std::string made(function);
  if (at < text.size() && text[at] == '<') {
    const std::string_view word = telling_word(text.substr(at, behind(text, at) - at));
    if (!word.empty()) made += "<" + std::string(word) + ">";
  }
  return made;
}

}  // namespace paoding::profile
