// SPDX-License-Identifier: Apache-2.0
// The CPU's kernels of recurrences over time and of their gradients work on these plain pointers and extents.
#pragma once

#include <cstdint>

namespace paoding {

class TeamBarrier;

/// Units of the hidden state are dealt out in blocks of so many: a vector of f32 on any CPU is a part of one.
inline constexpr std::int64_t kUnitBlock = 16;
/// Blocks that are multiplied at a time: a block of one gate alone would be a quarter of the others' work.
constexpr std::int64_t blocks_together(std::int64_t gates) { return gates == 1 ? 4 : 1; }
/// With so few rows u is read where it lies, unless there are many steps: packing takes as long as some of them.
inline constexpr std::int64_t kFewRows = 4, kManySteps = 16;
/// The CPU's tiles have so many rows of so many bf16 each.
inline constexpr std::int64_t kTileRows = 16, kTileDepth = 32;

enum class CellKind { lstm, gru, rnn };

/// How elements are stored and multiplied.
enum class Numbers {
  f32,
  bf16_as_f32,    // bf16, of which products are computed in f32
  bf16_in_pairs,  // bf16, of which the CPU multiplies two at a time
  bf16_in_tiles,  // bf16, of which the CPU multiplies tiles of rows and columns
};

/// A run of a recurrence or of a gradient. f32, or bf16 for all but cell states. Results that nobody reads are null.
struct RecurrenceWork {
  CellKind cell;
  Numbers numbers;
  bool is_reverse, is_relu, is_packed;
  bool is_by_columns;  // u is [gates * H, H], of the forward part only
  int row_groups;      // that threads form: each steps through rows of its own, for all units
  std::int64_t steps, rows, hidden;
  const std::int32_t* lengths;  // null: all steps count
  const void *u, *xw, *h0;
  const void* bm;     // of a GRU
  const void* bias;   // added to every step's xw, or null
  bool is_bias_wide;  // it is f32
  const float* c0;    // of an LSTM
  void *states, *saved, *last_h;
  float *cells, *last_c;

  // ---- of the gradient ----
  const void *given_saved, *given_states;
  const float* given_cells;
  const void *dstates, *dlast_h;  // null where absent
  const float* dlast_c;
  void *dxw, *dhu, *dh0;
  float* dc0;
  void* dbias;         // sums of the gates' gradients over steps and rows, those of a GRU's second bias after them
  bool is_dbias_wide;  // it is f32

  // ---- memory of the kernel ----
  void* packed;                      // u, as each thread reads its part; null where it is not packed, or was before
  const void* panels;                // u so packed, by whomever
  std::int64_t blocks_of_panel = 1;  // that are not dealt out one by one
  float* sums;                       // [B, gates * H], where u is not packed
  float* from_bias;                  // [gates * H]: the bias, or zeros
  void* left[2];                     // factors: states [B, H] before and after a step; gates' gradients [B, gates * H]
  float *c, *d_h;                    // [B, H]
  float* totals;                     // of each group: dbias [2, biases * H]; null where nobody reads it
  TeamBarrier* barriers;             // of all threads, then of each group's

  // ---- of a thread ----
  int group, member, members;       // of its group
  std::int64_t first_row, end_row;  // of its group
  std::int64_t first_own, end_own;  // blocks of units: of its own in its group

  std::int64_t gates() const { return cell == CellKind::lstm ? 4 : cell == CellKind::gru ? 3 : 1; }
  std::int64_t biases() const { return gates() + (cell == CellKind::gru ? 1 : 0); }
  std::int64_t blocks() const { return (hidden + kUnitBlock - 1) / kUnitBlock; }
  /// The first that a thread of a team has.
  std::int64_t first_block(int thread, int team) const {
    return thread == team ? blocks() : blocks() / blocks_of_panel * thread / team * blocks_of_panel;
  }
  std::int64_t step_of(std::int64_t turn, bool is_backwards) const { return is_backwards ? steps - 1 - turn : turn; }
  bool counts(std::int64_t step, std::int64_t row) const { return lengths == nullptr || step < lengths[row]; }
  /// Elements in a row that has `count` factors, padded with 0: an even count for pairs, whole tiles.
  static std::int64_t padded(Numbers numbers, std::int64_t count) {
    const std::int64_t unit = numbers == Numbers::bf16_in_tiles   ? kTileDepth
                              : numbers == Numbers::bf16_in_pairs ? 2
                                                                  : 1;
    return (count + unit - 1) / unit * unit;
  }
  /// How far apart such rows begin: of tiles an odd number of cache lines, or all rows of one lay in a few sets of a
  /// cache.
  static std::int64_t stride_of(Numbers numbers, std::int64_t count) {
    const std::int64_t numbers_there = padded(numbers, count);
    const bool is_even = numbers == Numbers::bf16_in_tiles && numbers_there / kTileDepth % 2 == 0;
    return is_even ? numbers_there + kTileDepth : numbers_there;
  }
  /// Rows that there is memory for: whole tiles, whatever is in the last rows.
  static std::int64_t padded_rows(Numbers numbers, std::int64_t rows) {
    return numbers == Numbers::bf16_in_tiles ? (rows + kTileRows - 1) / kTileRows * kTileRows : rows;
  }
};

/// The part of a thread: see cpu/recurrence_forward.cpp and cpu/recurrence_backward.cpp.
void run_recurrence_forward(const RecurrenceWork& work, int thread, int team);
void run_recurrence_backward(const RecurrenceWork& work, int thread, int team);

/// Rows that are multiplied at a time with a panel of parts * kUnitBlock columns.
inline constexpr std::int64_t rows_in_registers(std::int64_t parts) { return parts == 3 ? 8 : 6; }

/// Whether this CPU multiplies pairs of bf16.
bool multiplies_pairs();
/// tile [rows, parts * kUnitBlock] = rows of pairs, `stride` elements apart, times a panel [pairs, parts * kUnitBlock,
/// 2]. At most rows_in_registers(parts) rows; parts 1 to 4. Only where multiplies_pairs().
void multiply_pairs(std::int64_t rows, std::int64_t parts, const std::uint16_t* a, std::int64_t stride,
                    std::int64_t pairs, const std::uint16_t* panel, float* tile);

/// Rows that are multiplied at a time by tiles.
inline constexpr std::int64_t kRowsInTiles = 2 * kTileRows;
/// multiply_pairs() by tiles, of at most kRowsInTiles rows: of `a` whole tiles of rows are read, of the tile as many
/// are written, and `depth` elements of each row are multiplied, a multiple of kTileDepth. Only where the target has
/// AMX, in a TileScope.
void multiply_tiles(std::int64_t rows, std::int64_t parts, const std::uint16_t* a, std::int64_t stride,
                    std::int64_t depth, const std::uint16_t* panel, float* tile);

/// While it lives, the tiles of its thread are those of multiply_tiles(), if `is_used`; then as they were.
class TileScope {
 public:
  explicit TileScope(bool is_used);
  ~TileScope();
  TileScope(const TileScope&) = delete;
  TileScope& operator=(const TileScope&) = delete;

 private:
  bool is_used_;
  alignas(64) std::uint8_t before_[64];
};

}  // namespace paoding
