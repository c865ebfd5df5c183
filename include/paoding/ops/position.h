// SPDX-License-Identifier: Apache-2.0
// Positions for models without a recurrence, which would not know the order of a sequence. Learned positions are a
// layer: nn/transformer.h.
#pragma once

#include <cstdint>

#include "paoding/graph.h"

namespace paoding {

/// Sines and cosines of positions [..], integers or floats, as [.., width]: element 2i is sin(position / base^(2i /
/// width)), element 2i + 1 the cosine (Vaswani et al. 2017). Error (argument) unless width is even and positive and
/// base above 0, (dtype) unless dtype is a float.
Value sinusoidal_positions(const Value& positions, std::int64_t width, double base = 10000, DType dtype = DType::f32);

/// x [.., T, E] with pairs of elements turned by angles that grow with the position, so that the product of a query and
/// a key depends on how far they are apart (Su et al. 2021): pair i is turned by position base^(-2i / E). A pair are
/// the elements i and i + E / 2, or 2i and 2i + 1 when `interleaved`. positions, integers or floats, broadcast to [..,
/// T]. Computed in f32 for f16 and bf16. Error (shape) unless E is even and positions broadcast, (dtype) unless x is a
/// float, (argument) unless base is above 0.
Value rotary_embedding(const Value& x, const Value& positions, double base = 10000, bool interleaved = false);

}  // namespace paoding
