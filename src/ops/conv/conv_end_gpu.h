// SPDX-License-Identifier: Apache-2.0
// A group behind a convolution as a part of its kernel (ops/kernel_end.h): the group's formula as text for threads that
// have 8 neighbouring channels of a pixel at a time, and sums per channel that go on from pixel to pixel.
#pragma once

#include "gpu/text_kernel.h"
#include "ops/kernel_end.h"

namespace paoding {

/// Why the group is none that can be computed so, behind a result that lies so. Images lie as the result does; what
/// else is read is one number a channel.
std::string end_refusal(const Layout& result, const KernelEnd& end);

/// Whether it reads where a pixel is.
bool reads_places(const KernelEnd& end);
/// Sums per channel.
int sums_of(const KernelEnd& end);
/// Images that it reads beside the result.
int images_of(const KernelEnd& end);

/// The operands behind the kernel's own inputs; "out", where the result is kept, among them.
void add_end_operands(gpu::TextParts* parts, DType result, const KernelEnd& end);
/// struct End with their pointers, and what a kernel does with them; sizes that it needs are added. Stands behind
/// Stored and struct Place, and in front of conv_end_sums.cu where there may be sums. A thread has registers for what
/// the end reads of `at_once` pixels, kAtOnce; of `ahead` others, where there are any, behind warp_products.cu, that is
/// on its way to shared memory.
std::string end_text(gpu::TextParts* parts, const KernelEnd& end, int at_once = 1, std::int64_t ahead = 0);
/// An End of those operands.
std::string end_argument(const KernelEnd& end);
/// The same for a kernel without an end.
std::string text_without_end();

}  // namespace paoding
