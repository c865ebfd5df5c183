// SPDX-License-Identifier: Apache-2.0
// States of few rows in global memory by the LL protocol (as in NCCL). Every cell has a 32-bit word: an f32, or a
// 16-bit value in the upper half. Its lowest bit is an epoch that changes with each use of the word, so a reader sees
// by the word itself whether it has come. For an f32 that costs the last bit of the mantissa, less than 2^-23 of the
// value (for normal ones). A piece is the words of four units of a row; the pieces of all rows for these units are
// adjacent.
struct LlWords {
  static constexpr bool kAreHalved = sizeof(Factor) == 2;

  // The index of the word of this thread's cell; negative where another thread writes it.
  static PD_DEVICE int place_of(const CellPlace& place) {
    const bool is_mine = place.row < kRows && CellPlace::gate_of(0) == 0;
    return is_mine ? (place.unit / 4 * kRows + place.row) * 4 + place.unit % 4 : -1;
  }
  static PD_DEVICE unsigned made_of(float h, unsigned epoch) {
    unsigned bits = factor_bits(__float_as_uint(h)) & ~1u;
    if constexpr (kAreHalved) bits = stored_bits<Stored>(h) << 16;
    return bits | epoch;
  }
  static PD_DEVICE bool have_come(const uint4& piece, unsigned epoch) {
    const unsigned all = piece.x & piece.y & piece.z & piece.w, any = piece.x | piece.y | piece.z | piece.w;
    return ((epoch ? all : ~any) & 1) != 0;
  }
  // The byte offset of a piece in the state in shared memory.
  static PD_DEVICE int place_in_vectors(int piece) {
    if constexpr (!kAreHalved) return piece * 16;
    else return kRows == 1 ? piece * 8 : piece / kRows / 2 * (kRows * 16) + piece % kRows * 16 + piece / kRows % 2 * 8;
  }
  static PD_DEVICE void store(Place at, const uint4& piece) {
    if constexpr (kAreHalved) store_piece(at, make_uint2(halves(piece.x, piece.y), halves(piece.z, piece.w)));
    else store_piece(at, make_uint4(piece.x & ~1u, piece.y & ~1u, piece.z & ~1u, piece.w & ~1u));
  }

 private:
  static PD_DEVICE unsigned halves(unsigned low, unsigned high) { return low >> 16 | (high & 0xffff0000u); }
};
