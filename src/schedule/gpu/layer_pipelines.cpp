// SPDX-License-Identifier: Apache-2.0
#include "schedule/gpu/layer_pipelines.h"

#include <fmt/format.h>

#include "gpu/codegen/pipelined_launch.h"
#include "plan/epilogues.h"
#include "schedule/independent.h"

namespace paoding {
namespace {

constexpr std::size_t kStates = 0, kWeights = 1;  // of a product

std::byte* address(const Launch& launch, std::size_t operand, const std::vector<std::byte*>& bases) {
  const auto& [slot, offset] = launch.addresses[operand];
  return bases[static_cast<std::size_t>(slot)] + offset;
}

bool is_of_pipeline(const Launch& launch, int pipeline) {
  return launch.kind == Launch::Kind::run && launch.step->kind == Step::Kind::kernel &&
         launch.step->pipeline == pipeline;
}

const gpu::TextLaunch* layer_text(const Launch& launch) {
  const auto& text = launch.step->text;
  return text != nullptr && text->launches.size() == 1 ? text->launches.data() : nullptr;
}

// Why the product is not all that is between the two layers; empty where it is.
std::string why_not_between(const Launch& below, const Launch& product, const Launch& above,
                            const std::vector<std::byte*>& bases) {
  const Step& step = *product.step;
  if (has_epilogue(step) || step.has_prologue) return "more than a product is between them";
  const Layout &states = below.step->operands[below.step->reads].layout, &read = step.operands[kStates].layout;
  const Layout &weights = step.operands[kWeights].layout, &own = above.step->operands[kPipelineWeights].layout;
  const std::int64_t of_step = size_bytes(states.type) / states.type.shape[0];
  const std::int64_t behind = below.step->call.attrs.get_bool("reverse") ? 0 : of_step;
  const bool are_its_states = address(product, kStates, bases) == address(below, below.step->reads, bases) + behind &&
                              size_bytes(read.type) == size_bytes(states.type) - of_step;
  if (!are_its_states || !read.is_dense()) return "the product is not of its states of all steps";
  const bool has_such_weights = weights.is_dense() && weights.type.dtype == own.type.dtype &&
                                weights.type.shape == own.type.shape &&
                                step.call.alignments[kWeights] >= above.step->call.alignments[kPipelineWeights];
  if (!has_such_weights) return "the weights of the input do not lie as those of the state";
  if (address(product, step.reads, bases) != address(above, kPipelineInput, bases)) return "the product is copied";
  const bool are_unmodified = above.step->call.unmodified_by_previous >> kPipelineWeights & 1u;
  if (are_unmodified && !(step.call.unmodified_by_previous >> kWeights & 1u))
    return "the weights of the input are made right before";
  return "";
}

bool have_same_lengths(const Launch& a, const Launch& b, const std::vector<std::byte*>& bases) {
  for (std::size_t k = 0; k < a.step->reads; ++k) {
    const bool is_number = is_float(a.step->operands[k].layout.type.dtype);
    if (!is_number && address(a, k, bases) != address(b, k, bases)) return false;
  }
  return true;
}

// The same of all launches from `begin` on to `end`.
std::string why_not_together(const std::vector<Launch>& launches, std::size_t begin, std::size_t end,
                             const std::vector<std::byte*>& bases, const std::vector<int>& kind,
                             const std::vector<bool>& is_target) {
  std::vector<MemoryRanges> memory;
  for (std::size_t i = begin; i < end; ++i) {
    if (i > begin && is_target[i]) return "a branch leads to one of them";
    if ((i - begin) % 2 == 1) {  // between two of one kind
      memory.push_back({range_of(launches[i], kWeights, bases)});
      continue;
    }
    if (kind[i] != kind[begin]) return "some of them write what a failed run leaves alone";
    const gpu::TextLaunch *lowest = layer_text(launches[begin]), *layer = layer_text(launches[i]);
    if (lowest == nullptr || layer == nullptr || !gpu::may_be_pipelined(*lowest, *layer))
      return "their CTA groups differ";
    if (!have_same_lengths(launches[begin], launches[i], bases)) return "the lengths of their rows differ";
    if (i > begin) {
      const std::string why = why_not_between(launches[i - 2], launches[i - 1], launches[i], bases);
      if (!why.empty()) return why;
    }
    // The input of a layer above comes from the layer below it, not from memory.
    memory.push_back(ranges_of(launches[i], bases, i == begin ? 0 : kPipelineInput + 1));
  }
  for (std::size_t a = 0; a < memory.size(); ++a) {
    for (std::size_t b = a + 1; b < memory.size(); ++b) {
      if (collide(memory[a], memory[b])) return "one writes what another reads";
    }
  }
  return "";
}

}  // namespace

std::vector<LayerPipeline> layer_pipelines_of(const std::vector<Launch>& launches, const std::vector<std::byte*>& bases,
                                              const std::vector<int>& kind, std::vector<std::string>* notes) {
  const std::vector<bool> is_target = targets_of(launches);
  std::vector<LayerPipeline> pipelines;
  for (std::size_t begin = 0; begin < launches.size();) {
    const Step* const first = launches[begin].step;
    const bool is_lowest = first != nullptr && first->pipeline >= 0 &&
                           is_of_pipeline(launches[begin], first->pipeline) && layer_text(launches[begin]) != nullptr;
    if (!is_lowest) {
      ++begin;
      continue;
    }
    const auto layers = static_cast<std::size_t>(first->call.pipelined_layers);
    const LayerPipeline pipeline{begin, layers};
    std::size_t end = begin;
    while (end < launches.size() && end < pipeline.end() && is_of_pipeline(launches[end], first->pipeline)) ++end;
    const std::string why = end < pipeline.end() ? "another launch is between them"
                                                 : why_not_together(launches, begin, end, bases, kind, is_target);
    if (why.empty()) {
      pipelines.push_back(pipeline);
    } else if (notes != nullptr) {
      notes->push_back(fmt::format("step {}: {} layers one above the other do not share a launch: {}", first->position,
                                   layers, why));
    }
    begin = end;
  }
  return pipelines;
}

}  // namespace paoding
