// SPDX-License-Identifier: Apache-2.0
// A group after a convolution as a part of its kernel (ops/epilogue.h): the group's formula as source for threads that
// have 8 neighbouring channels of a pixel at a time, and sums per channel that go on from pixel to pixel.
#pragma once

#include "gpu/codegen/text_kernel.h"
#include "ops/epilogue.h"

namespace paoding {

/// Why the group is none that can be computed so, after a result that lies so. Images lie as the result does; all
/// other operands are one element a channel.
std::string epilogue_refusal(const Layout& result, const Epilogue& epilogue);

/// Whether it reads where a pixel is.
bool reads_places(const Epilogue& epilogue);
/// Sums per channel.
int sums_of(const Epilogue& epilogue);
/// Images that it reads beside the result.
int images_of(const Epilogue& epilogue);

/// The operands after the kernel's own inputs; "out", where the result is kept, among them.
void add_epilogue_operands(gpu::TextParts* parts, DType result, const Epilogue& epilogue);
/// struct EpilogueOperands with their pointers, and the functions that a kernel calls with them; sizes that it needs
/// are added. Stands after Stored and struct Place, and in front of conv_epilogue_sums.cu where there may be sums. A
/// thread has registers for the epilogue's reads of `at_once` pixels, kAtOnce; those of `ahead` others, where there are
/// any, are on their way to shared memory, after warp_products.cu.
std::string epilogue_text(gpu::TextParts* parts, const Epilogue& epilogue, int at_once = 1, std::int64_t ahead = 0);
/// An EpilogueOperands of those.
std::string epilogue_argument(const Epilogue& epilogue);
/// The same for a kernel without an epilogue.
std::string text_without_epilogue();

}  // namespace paoding
