// SPDX-License-Identifier: Apache-2.0
// The second launch of a group whose CTAs leave partial sums and do not wait to learn who came last: a CTA for each
// sum.
#include "base/rounding.h"
#include "cuda_text.h"
#include "gpu/codegen/group_writer.h"

namespace paoding::gpu {
namespace {

constexpr std::int64_t kLeastThreads = 32, kMostThreads = 256, kPartsOfThread = 4;

}  // namespace

void KernelText::emit_leaving(std::size_t o) {
  const bool is_row = s_.sinks[o] == SinkKind::row;
  const int p = part_group_[o];
  if (leaves_sums_) k_.raw("__syncthreads();");
  leaves_sums_ = true;
  k_.add("combine_rows<{}, {}>(out{}_sum[0], shared, [&](int r, {} sum) {{", op(o),
         is_row ? "kLanes, kRows" : "kThreads, 1", o, sum_type(o));
  k_.add("{}out{}_tile[r * parts{} + part{}] = sum;", is_row ? "if (s_begin + r < s_end) " : "", o, p, p);
  k_.raw("});");
}

TextLaunch KernelText::add_later() {
  std::int64_t ctas = 0, most = 1;
  for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
    if (part_group_[o] < 0) continue;
    ctas += left_sums(o), most = std::max(most, parts_of(o).parts);
  }
  const std::int64_t wanted = pow2_ceil(ceil_div(most, kPartsOfThread));
  const auto threads = static_cast<int>(std::clamp(wanted, kLeastThreads, kMostThreads));
  k_.indent();
  k_.add("constexpr int kThreads = {}, kRows = {};", threads, s_.rows);
  k_.raw("__shared__ double shared[kThreads / 32];");
  k_.raw("Index at = blockIdx.x;");
  for (std::size_t o = 0; o < group_.outputs.size(); ++o) {
    if (part_group_[o] >= 0) emit_later_sum(o);
  }
  TextLaunch launch = finish(k_later_sums_cu, signature(std::to_string(threads)), ctas, threads);
  launch.leaves_stamp = true;
  launch.why = fmt::format("{} sums of up to {} parts: a CTA of {} threads each", ctas, most, threads);
  return launch;
}

void KernelText::emit_later_sum(std::size_t o) {
  const bool is_row = s_.sinks[o] == SinkKind::row;
  k_.add("if (at >= 0 && at < {}) {{", sizes_.number(fmt::format("out{}_sums", o), left_sums(o)));
  k_.raw("Index rest = at;");
  std::string first_row = "0";
  if (is_row) k_.add("const Index row = next_coordinate(rest, {});", sizes_.divisor("rows", s_.rows));
  for (std::size_t d = 0; d < s_.grid.size(); ++d) {
    const GridDim& dim = s_.grid[d];
    if (parts_of(o).is_reduced[d]) continue;
    k_.add("const Index g{} = next_coordinate(rest, {});", d, sizes_.divisor(fmt::format("grid{}", d), dim.count));
    if (dim.over == GridDim::Over::axis) k_.add("const Index x{} = g{};", dim.axis, d);
    if (dim.over == GridDim::Over::serial) first_row = fmt::format("g{} * kRows", d);
  }
  if (is_row) {
    k_.add("const Index s = {} + row;", first_row);
    k_.add("if (s < {}) {{", sizes_.number("serial", s_.serial_count));
  }
  const std::string parts = sizes_.wide_number(fmt::format("parts{}_count", part_group_[o]), parts_of(o).parts);
  k_.add("const {} sum = combine_left<{}, kThreads>({} + at * {}, (int){}, shared);", sum_type(o), op(o), parts_text(o),
         parts, parts);
  k_.raw("if (threadIdx.x == 0) {");
  if (is_row && !s_.serial_axes.empty()) emit_decode(s_.serial_axes, "s", "s");
  emit_final_store(o, is_row ? s_.serial_axes : std::vector<int>{}, "sum", "0");
  k_.raw("}");
  if (is_row) k_.raw("}");
  k_.raw("}");
  k_.add("at -= {};", sizes_.named(fmt::format("out{}_sums", o)));
}

}  // namespace paoding::gpu
