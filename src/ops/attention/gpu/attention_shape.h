// SPDX-License-Identifier: Apache-2.0
// A call of attention, or of its gradient, as the kernels for Hopper see it: rows of heads that TMA brings, bands of
// keys as offsets, and constants and sizes that all their sources share.
#pragma once

#include <optional>
#include <string>

#include "gpu/codegen/text_kernel.h"
#include "ops/attention/attention_form.h"

namespace paoding::hopper {

/// Bytes that TMA tiles are aligned to, and of a place's barriers.
inline constexpr std::int64_t kAlign = 1 << 10, kBarrierBytes = 16, kOfGroup = 64;

/// How rows [.., heads, rows, width] lie whose elements lie side by side, with all leading axes as one.
struct Rows {
  std::int64_t row, head, batch;  // strides
};
/// None where leading axes cannot be one.
std::optional<Rows> rows_of(const Layout& layout);

struct AttentionShape {
  AttentionForm form;
  const KernelCall* call;
  bool is_gradient;
  /// Groups of four warps that multiply, 64 rows each, where a head has more than one CTA: the more, the better others
  /// multiply while one works out weights, as long as their sums have registers. A group more gives them its registers,
  /// and one of its warps brings rows.
  std::int64_t groups = 2;

  AttentionShape(const KernelCall& of, bool is_of_gradient)
      : form(attention_form(of, is_of_gradient)), call(&of), is_gradient(is_of_gradient) {
    groups = padded_width() == 64 ? 3 : 2;
  }
  const Layout& layout(std::size_t operand) const {
    return operand < call->inputs.size() ? call->inputs[operand] : call->outputs[operand - call->inputs.size()];
  }
  /// Columns of a row in shared memory, zeros beyond its own.
  std::int64_t padded_width() const;
  std::int64_t threads() const { return (groups + 1) * 128; }
  std::int64_t all_heads() const { return form.batch * form.heads; }
  std::int64_t all_key_heads() const { return form.batch * form.key_heads; }
  /// Keys behind these are seen by no query.
  std::int64_t seen_keys() const;
  bool has_lengths() const { return form.lengths >= 0; }
  bool has_dropout() const { return form.random >= 0; }
  bool is_wanted(std::size_t output) const { return call->outputs[output].type.shape.elements() > 0; }

  /// Operand `operand` for TMA, `rows` of a head at a time.
  gpu::TensorMap map(std::size_t operand, std::int64_t rows) const;
  /// Constants, sources and sizes of every kernel.
  gpu::TextParts parts(const char* name, std::int64_t threads, std::int64_t stages) const;
  /// `item_heads` heads of a batch row, each `item_rows` long, are gone over in blocks of `block` rows; the items of a
  /// head share `head_bytes`. Whole groups of rows that are missing are those of the first block, where that has least
  /// work, or of the last.
  void add_items(gpu::TextParts* parts, std::int64_t item_heads, std::int64_t item_rows, std::int64_t block,
                 std::int64_t head_bytes, bool is_ragged_first = false) const;
  /// Strides of operand `operand`, as size.<name>_row, .._head_wide, .._batch_wide.
  void add_strides(gpu::TextParts* parts, std::size_t operand, const std::string& name) const;
  /// The operands of the op, constants about them, and the tensor maps' names.
  void add_forward_operands(gpu::TextParts* parts) const;
  void add_gradient_operands(gpu::TextParts* parts) const;
  const char* lengths_argument() const { return has_lengths() ? "lengths" : "(const int*)nullptr"; }
  const char* dropout_argument() const { return has_dropout() ? "drops_of(first, run, seed, size)" : "Drops{}"; }

 private:
  void add_lengths(gpu::TextParts* parts) const;
  void add_dropout(gpu::TextParts* parts) const;
};

/// Why no kernel for Hopper does the call; empty where one does.
std::string refusal(const AttentionShape& shape);

gpu::TextLaunch plan_attention(const AttentionShape& shape);
gpu::TextPlan plan_attention_grad(const AttentionShape& shape);

/// Whether a CTA has a whole head.
bool is_short(const AttentionShape& shape);
gpu::TextLaunch plan_short_attention(const AttentionShape& shape);
gpu::TextLaunch plan_short_attention_grad(const AttentionShape& shape);

}  // namespace paoding::hopper
