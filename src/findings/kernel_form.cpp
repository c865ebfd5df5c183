// SPDX-License-Identifier: Apache-2.0
#include "findings/kernel_form.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <string>

#include "findings/kernel_kind.h"

namespace paoding::findings {
namespace {

bool says(std::string_view text, std::string_view word) { return text.find(word) != text.npos; }

bool is_instruction_of_tensor_cores(std::string_view small) {
  for (const std::string_view word :
       {"nvjet",    "warpgroupsize", "tensorop",    "tensor16x8", "tensor8x8", "wmma",  "gemm_fusion_dot",
        "attn_fwd", "attn_bwd",      "_matmul_ogs", "884",        "1688",      "16816", "161616",
        "16832",    "_mi16x16",      "_mi32x32",    "_mi4x4",     "gtcx",      "mfma",  "wgmma",
        "mma_",     "_mma",          "tcgen05"}) {
    if (says(small, word)) return true;
  }
  return false;
}

bool is_of_ordinary_lanes(std::string_view small) {
  for (const std::string_view word :
       {"_simt_", "ffma", "gemv", "gemmk1", "gemmsn_", "implicit_convolve_", "explicit_convolve_", "grad_alg0_engine",
        "dgrad_engine", "wgrad_alg1_engine", "gcgemm", "winograd_nonfused", "naive_conv"}) {
    if (says(small, word)) return true;
  }
  // Those of cuBLAS and cuDNN from before CUTLASS: "volta_sgemm_128x64_nt", "ampere_scudnn_128x64_relu".
  if (is_instruction_of_tensor_cores(small)) return false;
  for (const std::string_view word : {"_sgemm", "_scudnn", "_dgemm", "_hgemm", "_cgemm", "_zgemm"}) {
    if (says(small, word)) return true;
  }
  return says(small, " sgemm_") || says(small, " dgemm_") || says(small, "fft2d");
}

Unit unit_of_name(std::string_view small, bool by_tensor_cores) {
  for (const std::string_view word : {"e4m3", "e5m2", "fp8", "_i8", "int8", "s8s8", "imma", "f8b8", "mxfp4"}) {
    if (says(small, word)) return Unit::none;
  }
  if (says(small, "tf32") || says(small, "tfloat32")) return Unit::tf32;
  for (const std::string_view word : {"bf16", "f16f16", "bfloat16", "_f16_", "fp16", "c10::half", "__half", "h884",
                                      "h1688", "h16816", "s884", "s16816", "s161616", "hgemm", "hcudnn"}) {
    if (says(small, word)) return Unit::half;
  }
  if (small.starts_with("nvjet_")) {
    std::string_view types = small.substr(6);
    if (types.starts_with("sm")) types.remove_prefix(std::min(types.find('_') + 1, types.size()));
    const char first = types.empty() ? ' ' : types.front();  // the type of the factors
    if (first == 'h' || first == 't') return Unit::half;
    if (first == 's') return Unit::tf32;
    return Unit::none;
  }
  if (const std::size_t at = small.find("cijk_"); at != small.npos) {
    // "cijk_alik_bljk_bbs_bh_..": types of factors, of results and of sums.
    const std::size_t types = at + 15;
    if (types >= small.size()) return Unit::none;
    switch (small[types]) {
      case 'b':
      case 'h': return Unit::half;
      case 's': return Unit::f32;
      case 'd': return Unit::f64;
      default: return Unit::none;
    }
  }
  if (says(small, "s1688")) return Unit::tf32;
  if (says(small, "d884") || says(small, "dgemm") || says(small, "double") || says(small, "f64f64")) return Unit::f64;
  if (by_tensor_cores) return Unit::none;
  if (says(small, "float") || says(small, "sgemm") || says(small, "scudnn") || says(small, "f32f32") ||
      says(small, "gcgemm")) {
    return Unit::f32;
  }
  return Unit::none;
}

}  // namespace

Arithmetic arithmetic_of(std::string_view kernel) {
  const std::string small = kernel_word(kernel);
  Arithmetic found;
  if (is_of_ordinary_lanes(small)) {
    found.by = Arithmetic::By::ordinary_lanes;
  } else if (is_instruction_of_tensor_cores(small) || says(small, "flash") || says(small, "triton_mm") ||
             says(small, "triton_tem") || (says(small, "xmma_") && !says(small, "ffma"))) {
    found.by = Arithmetic::By::tensor_cores;
  }
  found.unit = unit_of_name(small, found.by == Arithmetic::By::tensor_cores);
  return found;
}

int element_bytes(std::string_view kernel) {
  struct TypeWord {
    std::string_view word;
    int bytes;
  };
  static constexpr auto kTypes = std::to_array<TypeWord>({{"float", 4},
                                                          {"double", 8},
                                                          {"c10::Half", 2},
                                                          {"c10::BFloat16", 2},
                                                          {"__half", 2},
                                                          {"__nv_bfloat16", 2},
                                                          {"__hip_bfloat16", 2},
                                                          {"OpaqueType<2u>", 2},
                                                          {"OpaqueType<4u>", 4},
                                                          {"OpaqueType<8u>", 8}});
  const std::string_view name = without_parameters(kernel);
  const auto is_word = [](char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; };
  int found = 0;
  std::size_t first = name.npos;
  for (const TypeWord& type : kTypes) {
    for (std::size_t at = name.find(type.word); at < first; at = name.find(type.word, at + 1)) {
      const std::size_t behind = at + type.word.size();
      if ((at > 0 && is_word(name[at - 1])) || (behind < name.size() && is_word(name[behind]))) continue;
      first = at;
      found = type.bytes;
      break;
    }
  }
  return found;
}

namespace {

// The number behind a word, "(int)4" among them; 0 where there is none.
int number_behind(std::string_view text, std::string_view word) {
  std::size_t at = text.find(word);
  if (at == text.npos) return 0;
  at += word.size();
  if (text.substr(at).starts_with("(int)")) at += 5;
  int number = 0;
  for (; at < text.size() && std::isdigit(static_cast<unsigned char>(text[at])) != 0 && number < 1'000'000; ++at) {
    number = number * 10 + (text[at] - '0');
  }
  return number;
}

}  // namespace

ElementwiseForm elementwise_form(std::string_view kernel) {
  ElementwiseForm form;
  if (says(kernel, "vectorized_elementwise_kernel<")) {
    // A thread takes four elements, as two or four at a time; wider vectors came later, with as many as are one.
    const int width = number_behind(kernel, "vectorized_elementwise_kernel<");
    form.elements_of_thread = width == 0 ? 0 : std::max(width, 4);
  } else if (says(kernel, "unrolled_elementwise_kernel<")) {
    form.elements_of_thread = 4;
  } else if (const std::size_t at = kernel.find("::elementwise_kernel<"); at != kernel.npos) {
    form.elements_of_thread = number_behind(kernel.substr(at), ", ");
  }
  if (form.elements_of_thread == 0) return {};
  for (const std::string_view array : {"std::array<char*, ", "at::detail::Array<char*, ",
                                       "std::array<char *, (unsigned long)", "at::detail::Array<char *, (int)"}) {
    if (const int arrays = number_behind(kernel, array); arrays > 0) form.arrays = arrays;
  }
  // Those that compute offsets do not say how many; the function has one argument or two.
  if (form.arrays == 0 && (says(kernel, "BinaryFunctor<") || says(kernel, "CUDAFunctor_add<"))) form.arrays = 3;
  if (form.arrays == 0 && (says(kernel, "AUnaryFunctor<") || says(kernel, "BUnaryFunctor<"))) form.arrays = 2;
  return form;
}

int alignment_of(std::string_view kernel) {
  if (const int found = number_behind(kernel, "_aligna"); found > 0) return found;
  return number_behind(kernel, "_align");
}

}  // namespace paoding::findings
