// SPDX-License-Identifier: Apache-2.0
#include <iterator>
#include <set>

#include "base/check.h"
#include "cli/bench/case.h"

namespace paoding::cli::bench {

Cases all_cases() {
  Cases all;
  for (const auto section : {seq2seq_cases, recurrent_cases, streaming_cases, lerp_cases, sum_cases, conv_net_cases,
                             kernel_cases, embedding_cases, control_cases, profiler_cases, recorder_cases, gpt_cases,
                             encoder_decoder_cases, transformer_cases, attention_cases, image_net_cases}) {
    Cases cases = section();
    std::move(cases.begin(), cases.end(), std::back_inserter(all));
  }
  std::set<std::string> names;
  for (const Case& work : all) PD_ASSERT(names.insert(work.name).second, "names of cases are unique");
  return all;
}

std::string type_text(const Case& work) {
  if (work.precision != DType::f32) return fmt::format("mixed_{}", to_string(work.precision));
  return work.tf32 ? "tf32" : std::string(to_string(work.dtype));
}

Case in_mixed_precision(Case work, DType precision) {
  work.name.resize(work.name.size() - type_text(work).size());
  work.precision = precision;
  work.name += type_text(work);
  work.tolerance = !work.has_choices ? 1e-1 : precision == DType::bf16 ? 2e-2 : 5e-3;
  return work;
}

}  // namespace paoding::cli::bench
