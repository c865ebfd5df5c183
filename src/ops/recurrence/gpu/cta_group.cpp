// SPDX-License-Identifier: Apache-2.0
#include "ops/recurrence/gpu/cta_group.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/rounding.h"
#include "gpu/codegen/text_kernel.h"
#include "ops/recurrence/gpu/cta_group_sizes.h"
#include "ops/recurrence/gpu/cta_group_times.h"

namespace paoding {
namespace {

constexpr std::int64_t kMostWarps = 8;
// Fragments, of 4 words, and blocks, of 16, that the 255 registers of a thread have room for beside 48 sums; beside
// fewer sums some more.
constexpr std::int64_t kMostKept = 34, kMostMore = 8, kMostKeptBlocks = 8, kSumsBeside = 48;
constexpr std::int64_t kPlaces = 8;  // for a state, recurrence_forward_memory.cu
// Where weights come out of memory, once for all rows; registers of a thread that weights, sums and the state have.
constexpr std::int64_t kMostRowsStreamed = 8, kBesideStreams = 144;
// The pieces and sums of several rows that a thread of a gradient by SIMT FMA has beside the weights that it keeps.
constexpr std::int64_t kMostPiecesAtOnce = 8, kMostSumsAtOnce = 32;
constexpr std::int64_t kMostRowsNarrow = 2;   // recurrence_tiles.cu: more would wait for each other's banks
constexpr std::int64_t kMostRowsOfTiles = 8;  // the same of tensor cores, recurrence_forward_tiles.cu
constexpr std::int64_t kMostLlRows = 8;       // recurrence_forward_memory.cu: a word of each cell is given for itself
constexpr std::int64_t kMostPipelineBytes = 64 << 20;  // of words that a layer of a pipeline hands on
constexpr std::int64_t kMostPipelineRows = 8;  // of 64 two layers of 10 steps take 39.8 us together, some 30 apart
constexpr std::int64_t kReservedOfCta = 1 << 10;
constexpr std::int64_t kMostSumsOfUnit = 4;      // of a unit over time, of a gradient
constexpr std::int64_t kMostRowsTwice = 2;       // beside streams
constexpr std::int64_t kMostChunkFragments = 4;  // of a gradient, that come together

// Clusters that run at once: they lie within parts of the chip, some of whose multiprocessors are left over.
std::int64_t cta_groups_at_once(std::int64_t ctas, const Target& target) {
  const double usable = ctas >= 16 ? 0.85 : ctas >= 4 ? 0.91 : 1;  // 7 of 16, 15 of 8, 30 of 4 on an H200
  return std::max<std::int64_t>(static_cast<std::int64_t>(target.sm_count * usable / static_cast<double>(ctas)), 1);
}

// The extents of the matrix that a CTA multiplies by.
struct Matrix {
  std::int64_t rows, depth_bytes;
  Matrix(const LayerExtents& layer, const CtaGroup& cta_group) {
    const std::int64_t gates = cta_group.units * layer.gates, all = cta_group.ctas * cta_group.units;
    const bool is_by_units = cta_group.keeps_sums && !cta_group.simt_fma;  // a tile is four gates of four units
    const std::int64_t of_sum_peers = layer.is_backward ? all / cta_group.sum_peers : gates * cta_group.sum_peers;
    rows = is_by_units ? cta_group.units * 4 : round_up(of_sum_peers, 16);
    if (layer.is_backward && cta_group.simt_fma) {  // these rows make the gradients that come back to its own units
      rows = cta_group.units, depth_bytes = layer.gates * all * 4;
      return;
    }
    depth_bytes =
        (layer.is_backward ? gates * cta_group.sum_peers : all / cta_group.sum_peers) * factor_bytes(layer, cta_group);
  }
};

void share_out(const LayerExtents& layer, const Matrix& matrix, CtaGroup* cta_group) {
  cta_group->matrix_rows = matrix.rows;
  cta_group->sum_stride = round_up(matrix.rows, 16) + 4;  // lanes of a warp go to different banks
  cta_group->parts = 1, cta_group->warps = kMostWarps;
  if (cta_group->simt_fma) {
    cta_group->depth_pieces = matrix.depth_bytes / 16;
    if (layer.is_backward) {  // all threads share out K
      if (cta_group->depth_pieces <= kMostWarps / 2 * 32) cta_group->warps = kMostWarps / 2;
      cta_group->tiles = cta_group->units / 4,
      cta_group->steps = ceil_div(cta_group->depth_pieces, cta_group->warps * 32);
      cta_group->kept = std::min(cta_group->tiles * cta_group->steps, kMostKeptBlocks);
      const std::int64_t most = std::min(kMostPiecesAtOnce / cta_group->steps, kMostSumsAtOnce / cta_group->units);
      cta_group->rows_in_flight = std::clamp<std::int64_t>(most, 1, cta_group->rows);
      return;
    }
    const std::int64_t quads = ceil_div(cta_group->units, layer.gates == 1 ? 4 : 1);
    if (cta_group->keeps_sums && quads <= kMostWarps / 2) cta_group->warps = kMostWarps / 2;
    cta_group->tiles = ceil_div(quads, cta_group->warps), cta_group->steps = ceil_div(cta_group->depth_pieces, 32);
    if (cta_group->tiles > 1) cta_group->warps = ceil_div(quads, cta_group->tiles);  // the others would have nothing
    cta_group->kept = std::min(cta_group->tiles * cta_group->steps, kMostKeptBlocks);
    return;
  }
  cta_group->is_narrow = cta_group->keeps_sums && cta_group->rows <= kMostRowsNarrow;
  const std::int64_t tiles = matrix.rows / 16, steps = ceil_div(matrix.depth_bytes, 32);
  if (cta_group->keeps_sums && tiles <= kMostWarps / 2) cta_group->warps = kMostWarps / 2;
  // Two tiles a warp share their reads of the vectors; K is cut no further than that takes, or than warps are left
  // over.
  if (cta_group->wgmma) {
    const auto products = [&](std::int64_t parts) {
      return ceil_div(tiles * parts, cta_group->warps) * ceil_div(steps, parts);
    };
    if (!layer.is_backward && products(2) < products(1)) cta_group->parts = 2;
  }
  const bool shares_depth = !layer.is_backward && !cta_group->wgmma && !cta_group->keeps_sums;
  while (shares_depth && cta_group->parts < kMostWarps && tiles * cta_group->parts < 2 * kMostWarps &&
         (tiles * cta_group->parts < kMostWarps || steps / cta_group->parts >= 16) && steps / cta_group->parts >= 2) {
    cta_group->parts *= 2;
  }
  // When registers have no room for the weights and rows are few, warps with more tiles each read less of the vectors.
  const std::int64_t fragments =
      tiles * cta_group->parts / kMostWarps * ceil_div(steps, cta_group->parts);  // of a warp
  const bool has_few_rows = shares_depth && cta_group->exchange != Exchange::memory && cta_group->rows <= 8;
  const bool can_be_halved = cta_group->parts > 1 && cta_group->parts < kMostWarps &&
                             steps % (2 * cta_group->parts) == 0 && tiles % (kMostWarps / (2 * cta_group->parts)) == 0;
  if (has_few_rows && can_be_halved && fragments > kMostKept + kMostMore) cta_group->parts *= 2;
  cta_group->tiles = ceil_div(tiles, cta_group->warps / cta_group->parts);
  cta_group->steps = ceil_div(steps, cta_group->parts);
  const std::int64_t sums = cta_group->tiles * ceil_div(cta_group->rows, 8) * 4;
  const std::int64_t beside = sums + 10 * (cells(*cta_group) - 1);
  const bool adds_up_much = layer.is_backward && cells(*cta_group) > 2;  // over time: recurrence_backward_sums.cu
  const std::int64_t most = kMostKept + std::min((kSumsBeside - beside) / 4, kMostMore) + (cta_group->wgmma ? 3 : 0) -
                            (cta_group->exchange == Exchange::memory ? 4 : 0) - (adds_up_much ? 2 : 0);
  cta_group->kept = std::min(cta_group->tiles * cta_group->steps, std::max<std::int64_t>(most, 1));
  cta_group->depth_pieces = cta_group->parts * cta_group->steps * 2;
}

// Whether two groups can have all gates of half of the units each, and wait for each other only for the state.
bool can_have_units_per_warpgroup(const LayerExtents& layer, const CtaGroup& cta_group) {
  const std::int64_t in_steps = 32 / size_bytes(layer.dtype);  // of K
  return !layer.is_backward && cta_group.wgmma && cta_group.exchange == Exchange::copies && cta_group.parts == 1 &&
         layer.gates == 4 && cta_group.units == cta_group.tiles * 32 && cta_group.units % (2 * in_steps) == 0;
}

// Shared memory holds places for the exchanged vectors, and weights; before the first step the weights come through the
// same places, as many at once as there is room for. False when there is not enough for the least.
bool count_shared(const LayerExtents& layer, const Target& target, CtaGroup* cta_group) {
  // Groups read whole tiles of rows.
  const std::int64_t more_rows = cta_group->wgmma ? round_up(cta_group->rows, 8) - cta_group->rows : 0;
  const std::int64_t vectors = (cta_group->depth_pieces * cta_group->rows + more_rows) * 16;
  const std::int64_t ring = cta_group->streamed > 0 ? cta_group->ahead * chunk_bytes(layer, *cta_group) : 0;
  std::int64_t work = 0;
  if (layer.is_backward) {
    work = vectors +
           (cta_group->exchange == Exchange::memory ? total_bytes(*cta_group) : 4 * got_bytes(layer, *cta_group));
    if (cta_group->simt_fma) work = 2 * cta_group->warps * cta_group->rows * cta_group->units * 4;
    const bool is_of_one_unit =
        cta_group->warps * 32 % cta_group->units == 0;  // a thread's cells: recurrence_backward_sums.cu
    work = std::max(work, cta_group->warps * 32 * (is_of_one_unit ? 1 : cells(*cta_group)) * kMostSumsOfUnit * 4);
    cta_group->ring_at = round_up(work, 16);
    if (ring > 0) work = cta_group->ring_at + ring;
  } else {
    const std::int64_t sums =
        cta_group->keeps_sums ? 0 : cta_group->parts * cta_group->rows * cta_group->sum_stride * 4;
    const std::int64_t ahead = cta_group->rows * layer.gates * cta_group->units * size_bytes(layer.dtype);
    const std::int64_t slice = cta_group->units * cta_group->rows * factor_bytes(layer, *cta_group);
    const std::int64_t apart = (cta_group->single_buffered ? 1 : 2) * vectors + sums,
                       shared = std::max(vectors, sums) + slice;
    cta_group->ring_at =
        round_up((cta_group->shares_state() ? shared : apart) + (cta_group->copies_ahead ? ahead : 0), 16);
    work = cta_group->ring_at + ring;
  }
  const std::int64_t rest = cta_group->rest_fragments() * cta_group->warps * fragment_bytes(layer, *cta_group);
  const std::int64_t mbarriers = cta_group->units_per_warpgroup ? 4 : 2,
                     head = round_up(mbarriers * 8 + cta_group->rows * 8, 16) + rest;
  const std::int64_t room = target.shared_bytes - kReservedOfCta - head;
  cta_group->shared_bytes = head + work, cta_group->work_bytes = work;
  if (layer.is_backward && cta_group->simt_fma) return room >= work;  // weights go where they stay
  const std::int64_t gates = cta_group->simt_fma || !cta_group->keeps_sums ? layer.gates : 4;
  const std::int64_t matrix_units = cta_group->units * (cta_group->shares_state() ? cta_group->sum_peers : 1);
  const std::int64_t row = matrix_units * gates * factor_bytes(layer, *cta_group) + (cta_group->simt_fma ? 0 : 16);
  const std::int64_t gaps = cta_group->simt_fma ? cta_group->units * gates * 16 : 0;  // recurrence_simt.cu
  const std::int64_t rows = cta_group->simt_fma ? 128
                            : layer.is_backward ? cta_group->warps * 16
                                                : cta_group->parts * 32 / size_bytes(layer.dtype);
  cta_group->staged = std::min((room - gaps) / (row * rows), layer.is_backward ? cta_group->tiles : cta_group->steps);
  if (cta_group->is_narrow && cta_group->staged < cta_group->steps)
    cta_group->staged -= cta_group->staged % 2;  // it takes pairs of steps
  cta_group->work_bytes = std::max(work, cta_group->staged * row * rows + gaps);
  cta_group->shared_bytes = head + cta_group->work_bytes;
  return room >= work && cta_group->staged > 0;
}

// Chooses the faster exchange within a cluster.
void choose_exchange(const LayerExtents& layer, CtaGroup* cta_group) {
  const bool is_copied = layer.is_backward || are_copies_faster(layer, *cta_group);
  cta_group->exchange = cta_group->ctas > 1 && is_copied ? Exchange::copies : Exchange::stores;
}

// The words of all values in all buffers, and those that hold the epochs.
std::int64_t state_words(const LayerExtents& layer, const CtaGroup& cta_group) {
  if (cta_group.exchange != Exchange::memory) return 0;
  if (cta_group.shares_state()) {  // recurrence_sum_peers.cu
    const std::int64_t sums = 2 * cta_group.ctas * (cta_group.sum_peers - 1) * cta_group.rows * cta_group.units * 4;
    return cta_group.count * (kPlaces * (got_bytes(layer, cta_group) / 4) + sums + 1 + 2 * cta_group.givers());
  }
  const bool ll_protocol = layer.is_backward || cta_group.ll_protocol;  // else places are emptied
  const std::int64_t used = ll_protocol ? 2 : kPlaces, epochs = ll_protocol ? 2 : 1;
  const std::int64_t places = layer.is_backward && !cta_group.simt_fma ? used * cta_group.ctas : used;
  const std::int64_t gates = cta_group.sum_peers > 1 ? places * gate_bytes(layer, cta_group) : 0;
  return cta_group.count * (places * (got_bytes(layer, cta_group) / 4) + gates / 4 + epochs);
}

// Every layer has CTA groups, and so has the product between two layers.
std::int64_t cta_groups_of_pipeline(const LayerExtents& layer) { return 2 * layer.pipelined_layers - 1; }

// Those whose shape has all of the words between semicolons, if there are any.
void keep_wanted(const std::string& words, std::vector<CtaGroup>* cta_groups) {
  std::vector<CtaGroup> kept;
  for (const CtaGroup& cta_group : *cta_groups) {
    bool has_all = true;
    for (std::size_t begin = 0; begin <= words.size();) {
      const std::size_t end = std::min(words.find(';', begin), words.size());
      has_all &= cta_group.shape().find(words.substr(begin, end - begin)) != std::string::npos;
      begin = end + 1;
    }
    if (has_all) kept.push_back(cta_group);
  }
  if (!kept.empty()) *cta_groups = kept;
}

// The same of CTAs that synchronize through memory.
std::int64_t cta_groups_in_memory(std::int64_t ctas, const Target& target) { return target.sm_count / ctas; }

// Blocks that stay in registers beside sums of all rows and two pieces of the state, or one: recurrence_simt.cu.
std::int64_t kept_beside_streams(const CtaGroup& cta_group) {
  const std::int64_t beside = cta_group.rows * (cta_group.tiles * 4 + (cta_group.rows <= 2 ? 8 : 4));
  return std::clamp<std::int64_t>((kBesideStreams - beside) / 16, 1, cta_group.tiles * cta_group.steps);
}

// A chunk has the tiles of a step, or in a gradient as many as these can be cut into evenly.
std::int64_t fragments_of_chunk(const LayerExtents& layer, const CtaGroup& cta_group) {
  if (cta_group.simt_fma) return 1;
  if (!layer.is_backward) return cta_group.tiles;
  std::int64_t fragments = std::min(kMostChunkFragments, cta_group.tiles);
  while (cta_group.tiles % fragments != 0) --fragments;
  return fragments;
}

// Streams the smallest number of weights, those that there is no room for. False where the ring would have no room
// either.
bool stream_least(const LayerExtents& layer, const Target& target, CtaGroup* cta_group) {
  const auto fits = [&](std::int64_t turns) {  // of the ring
    cta_group->streamed = turns * cta_group->ahead;
    return count_shared(layer, target, cta_group);
  };
  const std::int64_t most =
      (cta_group->tiles * cta_group->steps - cta_group->kept) / (cta_group->ahead * cta_group->chunk_fragments);
  std::int64_t few = 0, enough = most;
  if (most == 0 || !fits(most)) return false;
  while (enough - few > 1) (fits((few + enough) / 2) ? enough : few) = (few + enough) / 2;
  return fits(enough);
}

// Copies under way at once.
constexpr std::int64_t kLeastAheadBytes = 24 << 10, kMostAheadBytes = 48 << 10;

// Each peer must multiply whole steps, and backward its share of the units must be whole tiles.
bool can_have_sum_peers(const LayerExtents& layer, const CtaGroup& cta_group) {
  if (cta_group.simt_fma || cta_group.keeps_sums || cta_group.ctas <= cta_group.sum_peers) return false;
  if (!layer.is_backward) return cta_group.givers() * cta_group.units * size_bytes(layer.dtype) % 32 == 0;
  return cta_group.units * layer.gates * size_bytes(layer.dtype) % 32 == 0 &&
         cta_group.givers() * cta_group.units % 16 == 0;
}

}  // namespace

std::int64_t fragment_pieces(const LayerExtents& layer, const CtaGroup& cta_group) {
  return !cta_group.simt_fma ? 1 : layer.is_backward || layer.gates == 1 ? 4 : layer.gates;
}
std::int64_t streamed_bytes(const LayerExtents& layer, const CtaGroup& cta_group) {
  return cta_group.count * cta_group.ctas * cta_group.streamed * chunk_bytes(layer, cta_group);
}

std::int64_t ctas_at_once(const CtaGroup& cta_group, const Target& target) {
  const auto at_once = cta_group.exchange == Exchange::memory ? cta_groups_in_memory : cta_groups_at_once;
  return cta_group.ctas * at_once(cta_group.ctas, target);
}

std::int64_t pipeline_words(const LayerExtents& layer, const CtaGroup& cta_group) {
  const std::int64_t ctas = cta_group.count * cta_group.ctas;
  return round_up(2 * ctas, 4) +
         layer.steps * (ctas * cta_group.units * cta_group.rows + layer.batch * layer.hidden * layer.gates);
}

bool should_pipeline(const LayerExtents& layer, const CtaGroup& cta_group, const Target& target) {
  const std::int64_t ctas = cta_groups_of_pipeline(layer) * cta_group.ctas * cta_group.count;
  return layer.pipelined_layers > 1 && layer.together == 1 && !cta_group.wgmma && cta_group.streamed == 0 &&
         layer.batch <= kMostPipelineRows && cta_group.rows <= kMostLlRows && ctas <= ctas_at_once(cta_group, target) &&
         pipeline_words(layer, cta_group) * 4 <= kMostPipelineBytes &&
         pipelined_us(layer, cta_group) < separate_us(layer, cta_group);
}

std::string CtaGroup::shape() const {
  const char* const ways[] = {"", ", copied in bulk", ", through memory"};
  const std::string far =
      streamed == 0 ? ""
                    : fmt::format(", {} of {} chunks of weights out of memory, {} ahead", streamed, chunks(), ahead);
  const std::string told = sum_peers == 1 ? "" : fmt::format(", {} partial-sum peers", sum_peers);
  return fmt::format("{} CTA group{} of {} CTAs: {} rows, {} units a CTA{}{}{}{}{}{}", count, count == 1 ? "" : "s",
                     ctas, rows, units, simt_fma ? ", SIMT FMA" : "", keeps_sums ? ", whole units" : "",
                     units_per_warpgroup ? ", units per warpgroup" : "", ways[static_cast<int>(exchange)], told, far);
}
std::string CtaGroup::text() const { return fmt::format("{}; {:.2f} us a step expected", shape(), step_us); }

std::vector<CtaGroup> possible_cta_groups(const LayerExtents& layer, const Target& target, std::string* why_not) {
  std::vector<CtaGroup> cta_groups;
  std::int64_t bytes = 0;
  const auto consider = [&](CtaGroup cta_group, std::int64_t at_once) {
    // One row more a CTA group costs less than a second round of CTA groups.
    cta_group.rows = std::max<std::int64_t>(ceil_div(layer.batch, at_once * layer.batch_tiles), 1);
    cta_group.count = std::min(ceil_div(layer.batch, cta_group.rows), at_once);
    const bool is_in_memory = !layer.is_backward && cta_group.exchange == Exchange::memory;
    cta_group.ll_protocol = is_in_memory && !cta_group.wgmma && cta_group.rows <= kMostLlRows;
    cta_group.single_buffered = is_in_memory && !cta_group.ll_protocol;
    const std::int64_t most_by_fma = cta_group.exchange == Exchange::memory ? kMostRowsStreamed : kMostSimtRows;
    if (cta_group.keeps_sums && cta_group.rows > (cta_group.simt_fma ? most_by_fma : kMostRowsOfTiles)) return;
    if (!layer.is_backward && cta_group.sum_peers > 1 && cta_group.ll_protocol) return;
    const Matrix matrix(layer, cta_group);
    share_out(layer, matrix, &cta_group);
    if (cta_group.shares_state() && cta_group.depth_pieces * 16 != matrix.depth_bytes)
      return;  // some would be another's
    if (layer.is_by_units && !reads_by_units(cta_group)) return;
    // In 16 bits copies take 2 us of 152 longer than loads, which the compiler need not wait for too early.
    cta_group.copies_ahead = !layer.is_backward && cta_group.wgmma && layer.dtype == DType::f32;
    if (cta_group.exchange != Exchange::memory) choose_exchange(layer, &cta_group);
    cta_group.units_per_warpgroup = can_have_units_per_warpgroup(layer, cta_group);
    cta_group.state_words = state_words(layer, cta_group);
    const bool may_stay = !cta_group.keeps_sums || !cta_group.simt_fma || cta_group.rows <= kMostSimtRows;
    if (may_stay && count_shared(layer, target, &cta_group)) {
      cta_group.step_us = step_us(layer, cta_group);
      cta_groups.push_back(cta_group);
      return;
    }
    bytes = bytes == 0 ? cta_group.shared_bytes : std::min(bytes, cta_group.shared_bytes);
    if (cta_group.exchange != Exchange::memory || cta_group.wgmma) return;
    if (layer.is_backward && (cta_group.count > 1 || (!cta_group.simt_fma && cta_group.sum_peers == 1))) return;
    if (3 * cta_group.ctas * cta_group.count < 2 * target.sm_count) return;  // others would keep more
    // A second state would take room from weights; of few rows it takes none to speak of.
    if (!layer.is_backward) cta_group.single_buffered |= cta_group.rows > kMostRowsTwice;
    if (cta_group.simt_fma && !layer.is_backward) cta_group.kept = kept_beside_streams(cta_group);
    cta_group.chunk_fragments = fragments_of_chunk(layer, cta_group);
    const std::int64_t of_chunk = chunk_bytes(layer, cta_group);
    cta_group.ahead = std::max<std::int64_t>(ceil_div(kLeastAheadBytes, of_chunk), 2);
    for (; cta_group.ahead * of_chunk <= kMostAheadBytes; ++cta_group.ahead) {
      if (!stream_least(layer, target, &cta_group)) continue;
      cta_group.l2_resident = l2_resident_chunks(layer, cta_group, target);
      cta_group.step_us = streamed_step_us(layer, cta_group, target);
      cta_groups.push_back(cta_group);
    }
  };
  // Also fewer CTA groups of more rows, so that all layers of a pipeline have room.
  const auto consider_stacked = [&](const CtaGroup& cta_group, std::int64_t at_once) {
    consider(cta_group, at_once);
    const std::int64_t each = at_once / cta_groups_of_pipeline(layer);
    if (each > 0 && ceil_div(layer.batch, each) > ceil_div(layer.batch, at_once)) consider(cta_group, each);
  };
  const auto consider_all = [&](bool simt_fma, bool wgmma, bool keeps_sums) {
    CtaGroup cta_group{.simt_fma = simt_fma, .wgmma = wgmma, .keeps_sums = keeps_sums};
    const std::int64_t least = simt_fma ? 4 : 8;  // units
    for (const std::int64_t ctas : {1, 2, 4, 8, 16}) {
      if (target.major < 9) break;               // no clusters
      if (layer.is_backward && simt_fma) break;  // the exchanged data exceed the capacity of the cluster's paths
      cta_group.ctas = ctas, cta_group.units = round_up(ceil_div(layer.hidden, ctas), least);
      if (cta_group.units * (ctas - 1) >= layer.hidden && ctas > 1) continue;  // the last would have nothing
      consider_stacked(cta_group, cta_groups_at_once(ctas, target));
    }
    // Forward, lanes that keep their sums exchange through memory, and so do tensor cores that do not.
    if (!layer.is_backward && simt_fma != keeps_sums) return;
    cta_group.exchange = Exchange::memory;
    const bool has_quads =
        !simt_fma && layer.dtype == DType::f32;  // pieces of 4 units, which partial-sum peers can have
    const std::int64_t fewest = has_quads ? 4 : least;
    for (std::int64_t units = fewest; units < layer.hidden + fewest; units += fewest) {
      cta_group.units = units;
      for (const std::int64_t sum_peers : {1, 2, 4}) {
        if (units % least != 0 && sum_peers == 1) continue;
        cta_group.sum_peers = sum_peers, cta_group.ctas = round_up(ceil_div(layer.hidden, units), sum_peers);
        if (sum_peers > 1 && !can_have_sum_peers(layer, cta_group)) continue;
        if (cta_group.ctas <= target.sm_count)
          consider_stacked(cta_group, cta_groups_in_memory(cta_group.ctas, target));
      }
    }
  };
  if (!layer.is_exact) {
    consider_all(false, false, false);
    if (target.major == 9) consider_all(false, true, false);
    if (!layer.is_backward && layer.gates > 1) consider_all(false, false, true);
  }
  if (!layer.is_backward && layer.dtype != DType::f64)
    consider_all(true, false, false), consider_all(true, false, true);
  if (layer.is_backward && layer.is_exact) consider_all(true, false, false);
  if (!layer.wanted.empty()) keep_wanted(layer.wanted, &cta_groups);
  // Where all weights have room, they stay, forward in CTAs that have all of the state if they can: the times of the
  // other CTA groups are not known well enough.
  const auto is_streamed = [](const CtaGroup& cta_group) { return cta_group.streamed > 0; };
  const auto shares = [](const CtaGroup& cta_group) { return cta_group.streamed > 0 || cta_group.shares_state(); };
  if (!std::ranges::all_of(cta_groups, is_streamed)) std::erase_if(cta_groups, is_streamed);
  if (!std::ranges::all_of(cta_groups, shares)) std::erase_if(cta_groups, shares);
  if (cta_groups.empty() && why_not != nullptr) {
    *why_not = bytes == 0 ? fmt::format("{} rows are too many for exact f32 products", layer.batch)
                          : fmt::format(
                                "the weights of {} units do not fit {} CTAs: they would need {} bytes of shared "
                                "memory each, {} are there",
                                layer.hidden, target.sm_count, bytes, target.shared_bytes - kReservedOfCta);
  }
  return cta_groups;
}

std::optional<CtaGroup> choose_cta_group(const LayerExtents& layer, const Target& target, std::string* why_not) {
  const std::vector<CtaGroup> cta_groups = possible_cta_groups(layer, target, why_not);
  const auto us_of_all =
      [&](const CtaGroup& cta_group) {  // two share a launch where the chip has room: may_be_grouped()
        if (layer.pipelined_layers > 1)
          return should_pipeline(layer, cta_group, target) ? pipelined_us(layer, cta_group)
                                                           : separate_us(layer, cta_group);
        const bool is_shared =
            layer.together > 1 && 2 * cta_group.ctas * cta_group.count <= ctas_at_once(cta_group, target);
        return cta_group.step_us * static_cast<double>(is_shared ? ceil_div(layer.together, 2) : layer.together);
      };
  const auto best = std::ranges::min_element(cta_groups, {}, us_of_all);
  return best == cta_groups.end() ? std::nullopt : std::optional(*best);
}

}  // namespace paoding
