// SPDX-License-Identifier: Apache-2.0
// A recurrence whose launch multiplies the input of all its steps too, beside them: a launch in front of it that begins
// with what the first steps need and goes on where the recurrence's clusters leave multiprocessors over. See
// recurrence_beside_product.cu.
#pragma once

#include <cstdint>
#include <string>

#include "gpu/text_kernel.h"
#include "ops/recurrence/team.h"

namespace paoding {

class InputProduct {
 public:
  /// Of a call with the attribute `product`, whose recurrence has such teams.
  InputProduct(const KernelCall& call, const LayerExtents& layer, const Team& team);

  /// Why the launch cannot do it; empty when it can.
  std::string refusal() const;
  /// Why the product had better be made in front of the recurrence, a step of which takes so long then; empty where it
  /// had not.
  std::string drawback(double apart_step_us) const;
  std::string text() const;  // what both are expected to take

  /// Words of the step that both launches meet in.
  std::int64_t words() const;
  /// Text of constants that both launches know; `words_at`: where their words begin.
  std::string constants(std::int64_t words_at) const;
  void add_sizes(gpu::SizeFields* sizes) const;
  /// The launch; `operands`: the parameters of the step.
  gpu::TextLaunch launch(const std::vector<std::string>& operands, std::int64_t words_at, bool is_reverse) const;

 private:
  std::int64_t tiles() const { return row_tiles_ * tiles_across_; }
  std::int64_t ctas() const;
  /// Until all of it is there, and the recurrence is over, where each CTA makes so many tiles before it begins.
  double us(std::int64_t first_tiles) const;

  const Target& target_;
  DType dtype_;
  std::int64_t rows_, depth_, columns_, row_tiles_, tiles_across_, stretches_;
  std::int64_t recurrence_ctas_, first_tiles_ = 1;
  std::size_t w_;  // which operand
  double steps_, loop_us_;
};

}  // namespace paoding
