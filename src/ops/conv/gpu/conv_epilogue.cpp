// SPDX-License-Identifier: Apache-2.0
#include "ops/conv/gpu/conv_epilogue.h"

#include "gpu/codegen/group_formula.h"

namespace paoding {
namespace {

constexpr std::uint32_t kPixelAxes = 0b1101;  // of [N, C, H, W]

bool is_narrow(DType dtype) { return dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::boolean; }

// Axes along which there is one element only.
std::uint32_t single_axes(const Group& group) {
  std::uint32_t axes = 0;
  for (int axis = 0; axis < group.rank(); ++axis)
    axes |= group.extents[static_cast<std::size_t>(axis)] == 1 ? 1u << axis : 0;
  return axes;
}

bool lies_as(const Layout& result, const std::vector<std::int64_t>& strides, std::uint32_t single) {
  for (int axis = 0; axis < 4; ++axis) {
    const auto at = static_cast<std::size_t>(axis);
    if (((single >> axis) & 1u) == 0 && strides[at] != result.strides[at]) return false;
  }
  return true;
}

bool is_per_channel(const std::vector<std::int64_t>& strides, std::uint32_t single) {
  for (int axis = 0; axis < 4; ++axis) {
    if (((kPixelAxes & ~single) >> axis & 1u) != 0 && strides[static_cast<std::size_t>(axis)] != 0) return false;
  }
  return true;
}

bool is_image(const Group& group, std::size_t load) {
  return load == 0 || !is_per_channel(group.loads[load].strides, single_axes(group));
}
// Whether 8 elements of neighbouring channels can be read at once.
bool is_whole(const Epilogue& epilogue, std::size_t load) {
  return epilogue.group.loads[load].strides[1] == 1 && epilogue.alignments[load - 1] % 16 == 0;
}
bool is_sum(const GroupOutput& output) { return output.reduce_mask != 0; }

gpu::FormulaUse use_of(const Group& group) {
  return gpu::used_by(group, gpu::live_values(group, std::vector<bool>(group.outputs.size(), true)));
}

// A number that follows from where a channel of a pixel is: the source's "pixel" and "channel".
std::string index_text(gpu::TextParts* parts, const Group& group, std::size_t i) {
  const GroupIndex& index = group.indices[i];
  const char* const places[] = {"place.n", "(first + v)", "place.h", "place.w"};
  std::string text = parts->sizes.wide_number(fmt::format("epilogue_idx{}", i), index.start);
  for (std::size_t axis = 0; axis < 4; ++axis) {
    if (index.strides[axis] == 0) continue;
    const std::string step = parts->sizes.wide_number(fmt::format("epilogue_idx{}_{}", i, axis), index.strides[axis]);
    text += fmt::format(" + {} * {}", places[axis], step);
  }
  return fmt::format("({})({})", gpu::computed_type(index.dtype), text);
}

}  // namespace

std::string epilogue_refusal(const Layout& result, const Epilogue& epilogue) {
  const Group& group = epilogue.group;
  const Shape& shape = result.type.shape;
  if (group.rank() != 4) return fmt::format("it goes over {} axes", group.rank());
  for (int axis = 0; axis < 4; ++axis) {
    if (group.extents[static_cast<std::size_t>(axis)] != shape[axis]) return "it goes over more than the result";
  }
  if (!group.reductions.empty()) return "it reads its own sums";
  const std::uint32_t single = single_axes(group);
  for (std::size_t i = 1; i < group.loads.size(); ++i) {
    const GroupLoad& load = group.loads[i];
    if (is_per_channel(load.strides, single)) {
      if (compute_dtype(load.dtype) != DType::f32) return fmt::format("it reads {} a channel", to_string(load.dtype));
      continue;
    }
    if (!lies_as(result, load.strides, single)) return "it reads an image that does not lie as the result does";
    if (!is_narrow(load.dtype)) return fmt::format("it reads an image of {}", to_string(load.dtype));
    if (epilogue.alignments[i - 1] % 16 != 0) return "it reads an image that does not begin at a multiple of 16 bytes";
  }
  for (std::size_t o = 0; o < group.outputs.size(); ++o) {
    const GroupOutput& output = group.outputs[o];
    if (is_sum(output)) {
      const bool is_of_pixels =
          (output.reduce_mask | single) == (kPixelAxes | single) && (output.reduce_mask & 2u) == 0;
      if (!is_of_pixels || output.combine != Combine::sum) return "it reduces other than to sums per channel";
      if (group.expr.dtype_of(output.value) != DType::f32) return "it sums up something else than f32";
      continue;
    }
    if (!lies_as(result, output.strides, single)) return "it writes an image that does not lie as the result does";
    if (!is_narrow(output.dtype)) return fmt::format("it writes an image of {}", to_string(output.dtype));
    if (epilogue.alignments[group.loads.size() - 1 + o] % 16 != 0)
      return "it writes an image that does not begin at a multiple of 16 bytes";
  }
  return "";
}

bool reads_places(const Epilogue& epilogue) { return !epilogue.group.indices.empty(); }

int sums_of(const Epilogue& epilogue) {
  return static_cast<int>(std::ranges::count_if(epilogue.group.outputs, is_sum));
}

int images_of(const Epilogue& epilogue) {
  const std::vector<bool> used = use_of(epilogue.group).loads;
  int images = 0;
  for (std::size_t i = 1; i < used.size(); ++i) images += used[i] && is_image(epilogue.group, i) ? 1 : 0;
  return images;
}

void add_epilogue_operands(gpu::TextParts* parts, DType result, const Epilogue& epilogue) {
  const Group& group = epilogue.group;
  for (std::size_t i = 1; i < group.loads.size(); ++i) {
    parts->operands.push_back(gpu::input_parameter(group.loads[i].dtype, fmt::format("epilogue_in{}", i)));
  }
  if (epilogue.is_kept) parts->operands.push_back(gpu::output_parameter(result, "out"));
  for (std::size_t o = 0; o < group.outputs.size(); ++o) {
    parts->operands.push_back(gpu::output_parameter(group.outputs[o].dtype, fmt::format("epilogue_out{}", o)));
  }
}

std::string epilogue_argument(const Epilogue& epilogue) {
  std::string list;
  const auto add = [&](const std::string& name) { list += (list.empty() ? "" : ", ") + name; };
  for (std::size_t i = 1; i < epilogue.group.loads.size(); ++i) add(fmt::format("epilogue_in{}", i));
  for (std::size_t o = 0; o < epilogue.group.outputs.size(); ++o) add(fmt::format("epilogue_out{}", o));
  return "EpilogueOperands{" + list + "}";
}

std::string text_without_epilogue() { return "constexpr int kSums = 0;\nstruct EpilogueOperands {};\n"; }

std::string epilogue_text(gpu::TextParts* parts, const Epilogue& epilogue, int at_once, std::int64_t ahead) {
  const Group& group = epilogue.group;
  const gpu::FormulaUse use = use_of(group);
  const std::vector<bool>& used = use.loads;
  gpu::Lines text;
  std::vector<gpu::FormulaResult> results;
  for (std::size_t o = 0; o < group.outputs.size(); ++o) {
    results.push_back({fmt::format("out{}", o), group.outputs[o].value});
  }
  text.add("constexpr bool kIsKept = {};", epilogue.is_kept);
  text.add("constexpr int kSums = {}, kAtOnce = {}, kImages = {};", sums_of(epilogue), at_once, images_of(epilogue));
  text.raw(gpu::formula_text(group, "formula", results));
  text.raw("struct EpilogueOperands {");
  for (std::size_t i = 1; i < group.loads.size(); ++i) {
    text.add("{};", gpu::input_parameter(group.loads[i].dtype, fmt::format("in{}", i)));
  }
  for (std::size_t o = 0; o < group.outputs.size(); ++o) {
    text.add("{};", gpu::output_parameter(group.outputs[o].dtype, fmt::format("out{}", o)));
  }
  text.raw("};");

  // The elements of 8 channels, and the images' values of a pixel's 8.
  text.raw("struct EpilogueChannels {");
  for (std::size_t i = 1; i < group.loads.size(); ++i) {
    if (!used[i] || is_image(group, i)) continue;
    if (is_whole(epilogue, i))
      text.add("Pack<{}, 8> in{};", gpu::stored_type(group.loads[i].dtype), i);
    else
      text.add("float in{}[8];", i);
  }
  text.raw("};");
  text.raw(
      "PD_DEVICE void read_channels(EpilogueChannels& channels, const EpilogueOperands& epilogue, int first, const "
      "Sizes& size) {");
  for (std::size_t i = 1; i < group.loads.size(); ++i) {
    if (used[i] && !is_image(group, i) && is_whole(epilogue, i))
      text.add("load<true>(channels.in{0}, epilogue.in{0} + first);", i);
  }
  text.raw("#pragma unroll");
  text.raw("for (int v = 0; v < 8; ++v) {");
  for (std::size_t i = 1; i < group.loads.size(); ++i) {
    if (!used[i] || is_image(group, i) || is_whole(epilogue, i)) continue;
    text.add("channels.in{0}[v] = load_one<true>(epilogue.in{0} + (first + v) * {1});", i,
             parts->sizes.number(fmt::format("epilogue_in{}_c", i), group.loads[i].strides[1]));
  }
  text.raw("}");
  text.raw("}");
  text.raw("struct EpiloguePixel {");
  for (std::size_t i = 1; i < group.loads.size(); ++i) {
    if (used[i] && is_image(group, i)) text.add("Pack<{}, 8> in{};", gpu::stored_type(group.loads[i].dtype), i);
  }
  text.raw("};");
  text.raw("PD_DEVICE void read_pixel(EpiloguePixel& pixel, const EpilogueOperands& epilogue, Index at) {");
  for (std::size_t i = 1; i < group.loads.size(); ++i) {
    if (used[i] && is_image(group, i)) text.add("load<true>(pixel.in{0}, epilogue.in{0} + at);", i);
  }
  text.raw("}");

  if (ahead > 0) {
    // A thread's piece of each image, one image after the other for all threads.
    text.raw("PD_DEVICE void ask_pixel(char* slot, const EpilogueOperands& epilogue, Index at) {");
    int image = 0;
    for (std::size_t i = 1; i < group.loads.size(); ++i) {
      if (!used[i] || !is_image(group, i)) continue;
      text.add("copy_beside<{}>(slot + {} * kConsumers * 16, epilogue.in{} + at, true);",
               8 * size_bytes(group.loads[i].dtype), image++, i);
    }
    text.raw("}");
    text.raw("PD_DEVICE void take_pixel(EpiloguePixel& pixel, const char* slot) {");
    image = 0;
    for (std::size_t i = 1; i < group.loads.size(); ++i) {
      if (!used[i] || !is_image(group, i)) continue;
      text.add("load<false>(pixel.in{}, (const {}*)(slot + {} * kConsumers * 16));", i,
               gpu::stored_type(group.loads[i].dtype), image++);
    }
    text.raw("}");
  }
  text.raw("struct EpilogueResults {");
  for (std::size_t o = 0; o < group.outputs.size(); ++o) {
    if (!is_sum(group.outputs[o])) text.add("Draft<{}, 8> out{};", gpu::stored_type(group.outputs[o].dtype), o);
  }
  text.raw("};");
  text.raw(
      "PD_DEVICE void make_pixel(EpilogueResults& made, const Pack<Stored, 8>& result, const EpiloguePixel& pixel,");
  text.raw("                          const EpilogueChannels& channels, const Place& place, int first,");
  text.raw("                          float (&sum)[kSums + 1][8], const Sizes& size) {");
  text.raw("#pragma unroll");
  text.raw("for (int v = 0; v < 8; ++v) {");
  std::string arguments;
  for (std::size_t i = 0; i < group.loads.size(); ++i) {
    if (!used[i]) continue;
    arguments += (arguments.empty() ? "" : ", ") + (i == 0                  ? std::string("result.get(v)")
                                                    : is_image(group, i)    ? fmt::format("pixel.in{}.get(v)", i)
                                                    : is_whole(epilogue, i) ? fmt::format("channels.in{}.get(v)", i)
                                                                            : fmt::format("channels.in{}[v]", i));
  }
  for (std::size_t i = 0; i < group.indices.size(); ++i) {
    if (use.indices[i]) arguments += (arguments.empty() ? "" : ", ") + index_text(parts, group, i);
  }
  for (std::size_t o = 0; o < group.outputs.size(); ++o) {
    text.add("{} made{};", gpu::computed_type(group.expr.dtype_of(group.outputs[o].value)), o);
    arguments += fmt::format("{}made{}", arguments.empty() ? "" : ", ", o);
  }
  text.add("formula({});", arguments);
  int sums = 0;
  for (std::size_t o = 0; o < group.outputs.size(); ++o) {
    if (is_sum(group.outputs[o]))
      text.add("sum[{}][v] += made{};", sums++, o);
    else
      text.add("made.out{0}.put(v, made{0});", o);
  }
  text.raw("}");
  text.raw("}");
  text.raw("PD_DEVICE void finish_pixel(const Pack<Stored, 8>& result, const EpiloguePixel& pixel,");
  text.raw(
      "                            const EpilogueChannels& channels, const EpilogueOperands& epilogue, Index at, const "
      "Place& place,");
  text.raw("                            int first, float (&sum)[kSums + 1][8], const Sizes& size) {");
  text.raw("EpilogueResults made;");
  text.raw("make_pixel(made, result, pixel, channels, place, first, sum, size);");
  for (std::size_t o = 0; o < group.outputs.size(); ++o) {
    if (!is_sum(group.outputs[o])) text.add("store(epilogue.out{0} + at, made.out{0});", o);
  }
  text.raw("}");

  text.raw(
      "PD_DEVICE void store_sum(const EpilogueOperands& epilogue, int which, int channel, float sum, const Sizes& "
      "size) {");
  sums = 0;
  for (std::size_t o = 0; o < group.outputs.size(); ++o) {
    if (!is_sum(group.outputs[o])) continue;
    text.add("if (which == {}) store_one(epilogue.out{} + channel * {}, sum);", sums++, o,
             parts->sizes.number(fmt::format("epilogue_out{}_c", o), group.outputs[o].strides[1]));
  }
  text.raw("}");
  return text.text();
}

}  // namespace paoding
