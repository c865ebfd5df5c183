// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "base/env.h"
#include "base/rounding.h"
#include "gpu/text_kernel.h"
#include "ops/recurrence/team.h"
#include "ops/recurrence/team_sizes.h"
#include "ops/recurrence/team_times.h"

namespace paoding {
namespace {

constexpr std::int64_t kMostWarps = 8;
// Fragments, of 4 words, and blocks, of 16, that the 255 registers of a thread have room for beside 48 sums; beside
// fewer sums some more.
constexpr std::int64_t kMostKept = 34, kMostMore = 8, kMostKeptBlocks = 8, kSumsBeside = 48;
constexpr std::int64_t kPlaces = 8;  // for a state, recurrence_forward_memory.cu
// Where weights come out of memory, once for all rows; registers of a thread that weights, sums and the state have.
constexpr std::int64_t kMostRowsStreamed = 8, kBesideStreams = 144;
// Of a gradient by lanes, what a thread has of several rows beside the weights that it keeps.
constexpr std::int64_t kMostPiecesAtOnce = 8, kMostSumsAtOnce = 32;
constexpr std::int64_t kMostRowsNarrow = 2;   // recurrence_tiles.cu: more would wait for each other's banks
constexpr std::int64_t kMostRowsOfTiles = 8;  // the same of tensor cores, recurrence_forward_tiles.cu
constexpr std::int64_t kMostRowsMarked = 8;   // recurrence_forward_memory.cu: a word of each cell is given for itself
constexpr std::int64_t kMostPipelineBytes = 64 << 20;  // of words that a layer of a pipeline hands on
constexpr std::int64_t kMostPipelineRows = 8;  // of 64 two layers of 10 steps take 39.8 us together, some 30 apart
constexpr std::int64_t kReservedBytes = 1 << 10;
constexpr std::int64_t kMostSums = 4;            // of a unit over time, of a gradient
constexpr std::int64_t kMostRowsTwice = 2;       // beside streams
constexpr std::int64_t kMostGroupFragments = 4;  // of a gradient, that come together

// Clusters that run at once: they lie within parts of the chip, some of whose multiprocessors are left over.
std::int64_t teams_at_once(std::int64_t ctas, const Target& target) {
  const double usable = ctas >= 16 ? 0.85 : ctas >= 4 ? 0.91 : 1;  // 7 of 16, 15 of 8, 30 of 4 on an H200
  return std::max<std::int64_t>(static_cast<std::int64_t>(target.sm_count * usable / static_cast<double>(ctas)), 1);
}

// The extents of the matrix that a CTA multiplies by.
struct Matrix {
  std::int64_t rows, depth_bytes;
  Matrix(const LayerExtents& layer, const Team& team) {
    const std::int64_t gates = team.units * layer.gates, all = team.ctas * team.units;
    const bool is_by_units = team.keeps_sums && !team.is_by_lanes;  // a tile is four gates of four units
    const std::int64_t of_neighbours = layer.is_backward ? all / team.neighbours : gates * team.neighbours;
    rows = is_by_units ? team.units * 4 : round_up(of_neighbours, 16);
    if (layer.is_backward && team.is_by_lanes) {  // by which what comes back to its own units is made
      rows = team.units, depth_bytes = layer.gates * all * 4;
      return;
    }
    depth_bytes = (layer.is_backward ? gates * team.neighbours : all / team.neighbours) * factor_bytes(layer, team);
  }
};

void share_out(const LayerExtents& layer, const Matrix& matrix, Team* team) {
  team->matrix_rows = matrix.rows;
  team->sum_stride = round_up(matrix.rows, 16) + 4;  // lanes of a warp go to different banks
  team->parts = 1, team->warps = kMostWarps;
  if (team->is_by_lanes) {
    team->depth_pieces = matrix.depth_bytes / 16;
    if (layer.is_backward) {  // all threads share out K
      if (team->depth_pieces <= kMostWarps / 2 * 32) team->warps = kMostWarps / 2;
      team->tiles = team->units / 4, team->steps = ceil_div(team->depth_pieces, team->warps * 32);
      team->kept = std::min(team->tiles * team->steps, kMostKeptBlocks);
      const std::int64_t most = std::min(kMostPiecesAtOnce / team->steps, kMostSumsAtOnce / team->units);
      team->asked_rows = std::clamp<std::int64_t>(most, 1, team->rows);
      return;
    }
    const std::int64_t quads = ceil_div(team->units, layer.gates == 1 ? 4 : 1);
    if (team->keeps_sums && quads <= kMostWarps / 2) team->warps = kMostWarps / 2;
    team->tiles = ceil_div(quads, team->warps), team->steps = ceil_div(team->depth_pieces, 32);
    if (team->tiles > 1) team->warps = ceil_div(quads, team->tiles);  // the others would have nothing
    team->kept = std::min(team->tiles * team->steps, kMostKeptBlocks);
    return;
  }
  team->is_narrow = team->keeps_sums && team->rows <= kMostRowsNarrow;
  const std::int64_t tiles = matrix.rows / 16, steps = ceil_div(matrix.depth_bytes, 32);
  if (team->keeps_sums && tiles <= kMostWarps / 2) team->warps = kMostWarps / 2;
  // Two tiles a warp share what it reads of the vectors; K is cut no further than that takes, or than warps are left
  // over.
  if (team->is_by_groups) {
    const auto products = [&](std::int64_t parts) {
      return ceil_div(tiles * parts, team->warps) * ceil_div(steps, parts);
    };
    if (!layer.is_backward && products(2) < products(1)) team->parts = 2;
  }
  const bool shares_depth = !layer.is_backward && !team->is_by_groups && !team->keeps_sums;
  while (shares_depth && team->parts < kMostWarps && tiles * team->parts < 2 * kMostWarps &&
         (tiles * team->parts < kMostWarps || steps / team->parts >= 16) && steps / team->parts >= 2) {
    team->parts *= 2;
  }
  // Of weights that registers have no room for, and few rows, less is read of the vectors where warps have more tiles
  // each.
  const std::int64_t fragments = tiles * team->parts / kMostWarps * ceil_div(steps, team->parts);  // of a warp
  const bool has_few_rows = shares_depth && team->exchange != Exchange::memory && team->rows <= 8;
  const bool can_be_halved = team->parts > 1 && team->parts < kMostWarps && steps % (2 * team->parts) == 0 &&
                             tiles % (kMostWarps / (2 * team->parts)) == 0;
  if (has_few_rows && can_be_halved && fragments > kMostKept + kMostMore) team->parts *= 2;
  team->tiles = ceil_div(tiles, team->warps / team->parts);
  team->steps = ceil_div(steps, team->parts);
  const std::int64_t sums = team->tiles * ceil_div(team->rows, 8) * 4;
  const std::int64_t beside = sums + 10 * (cells(*team) - 1);
  const bool adds_up_much = layer.is_backward && cells(*team) > 2;  // over time: recurrence_backward_sums.cu
  const std::int64_t most = kMostKept + std::min((kSumsBeside - beside) / 4, kMostMore) + (team->is_by_groups ? 3 : 0) -
                            (team->exchange == Exchange::memory ? 4 : 0) - (adds_up_much ? 2 : 0);
  team->kept = std::min(team->tiles * team->steps, std::max<std::int64_t>(most, 1));
  team->depth_pieces = team->parts * team->steps * 2;
}

// Whether two groups can have all gates of half of the units each, and wait for each other only for the state.
bool can_be_apart(const LayerExtents& layer, const Team& team) {
  const std::int64_t in_steps = 32 / size_bytes(layer.dtype);  // of K
  return !layer.is_backward && team.is_by_groups && team.exchange == Exchange::copies && team.parts == 1 &&
         layer.gates == 4 && team.units == team.tiles * 32 && team.units % (2 * in_steps) == 0;
}

// What lies in shared memory: places for what comes and goes, and weights; before the first step the weights come
// through the same places, as many at once as there is room for. False when there is not enough for the least.
bool count_shared(const LayerExtents& layer, const Target& target, Team* team) {
  // Groups read whole tiles of rows.
  const std::int64_t more_rows = team->is_by_groups ? round_up(team->rows, 8) - team->rows : 0;
  const std::int64_t vectors = (team->depth_pieces * team->rows + more_rows) * 16;
  const std::int64_t ring = team->streamed > 0 ? team->ahead * group_bytes(layer, *team) : 0;
  std::int64_t work = 0;
  if (layer.is_backward) {
    work = vectors + (team->exchange == Exchange::memory ? total_bytes(*team) : 4 * got_bytes(layer, *team));
    if (team->is_by_lanes) work = 2 * team->warps * team->rows * team->units * 4;
    const bool is_of_one_unit = team->warps * 32 % team->units == 0;  // a thread's cells: recurrence_backward_sums.cu
    work = std::max(work, team->warps * 32 * (is_of_one_unit ? 1 : cells(*team)) * kMostSums * 4);
    team->ring_at = round_up(work, 16);
    if (ring > 0) work = team->ring_at + ring;
  } else {
    const std::int64_t sums = team->keeps_sums ? 0 : team->parts * team->rows * team->sum_stride * 4;
    const std::int64_t ahead = team->rows * layer.gates * team->units * size_bytes(layer.dtype);
    const std::int64_t slice = team->units * team->rows * factor_bytes(layer, *team);
    const std::int64_t apart = (team->is_once ? 1 : 2) * vectors + sums, shared = std::max(vectors, sums) + slice;
    team->ring_at = round_up((team->shares_state() ? shared : apart) + (team->copies_ahead ? ahead : 0), 16);
    work = team->ring_at + ring;
  }
  const std::int64_t rest = team->rest_fragments() * team->warps * fragment_bytes(layer, *team);
  const std::int64_t mbarriers = team->is_apart ? 4 : 2, head = round_up(mbarriers * 8 + team->rows * 8, 16) + rest;
  const std::int64_t room = target.shared_bytes - kReservedBytes - head;
  team->shared_bytes = head + work, team->work_bytes = work;
  if (layer.is_backward && team->is_by_lanes) return room >= work;  // weights go where they stay
  const std::int64_t gates = team->is_by_lanes || !team->keeps_sums ? layer.gates : 4;
  const std::int64_t matrix_units = team->units * (team->shares_state() ? team->neighbours : 1);
  const std::int64_t row = matrix_units * gates * factor_bytes(layer, *team) + (team->is_by_lanes ? 0 : 16);
  const std::int64_t gaps = team->is_by_lanes ? team->units * gates * 16 : 0;  // recurrence_lanes.cu
  const std::int64_t rows = team->is_by_lanes   ? 128
                            : layer.is_backward ? team->warps * 16
                                                : team->parts * 32 / size_bytes(layer.dtype);
  team->staged = std::min((room - gaps) / (row * rows), layer.is_backward ? team->tiles : team->steps);
  if (team->is_narrow && team->staged < team->steps) team->staged -= team->staged % 2;  // it takes pairs of steps
  team->work_bytes = std::max(work, team->staged * row * rows + gaps);
  team->shared_bytes = head + team->work_bytes;
  return room >= work && team->staged > 0;
}

// Of a cluster: what takes less.
void choose_exchange(const LayerExtents& layer, Team* team) {
  const bool is_copied = layer.is_backward || are_copies_faster(layer, *team);
  team->exchange = team->ctas > 1 && is_copied ? Exchange::copies : Exchange::stores;
}

// A word for each that is given in a place, and what tells uses apart.
std::int64_t state_words(const LayerExtents& layer, const Team& team) {
  if (team.exchange != Exchange::memory) return 0;
  if (team.shares_state()) {  // recurrence_neighbours.cu
    const std::int64_t sums = 2 * team.ctas * (team.neighbours - 1) * team.rows * team.units * 4;
    return team.count * (kPlaces * (got_bytes(layer, team) / 4) + sums + 1 + 2 * team.givers());
  }
  const bool is_marked = layer.is_backward || team.is_marked;  // else places are emptied
  const std::int64_t used = is_marked ? 2 : kPlaces, marks = is_marked ? 2 : 1;
  const std::int64_t places = layer.is_backward && !team.is_by_lanes ? used * team.ctas : used;
  const std::int64_t gates = team.neighbours > 1 ? places * gate_bytes(layer, team) : 0;
  return team.count * (places * (got_bytes(layer, team) / 4) + gates / 4 + marks);
}

// Of each layer, and of what multiplies between two.
std::int64_t teams_of_pipeline(const LayerExtents& layer) { return 2 * layer.pipelined_layers - 1; }

// Those whose shape has all of the words between semicolons, if there are any.
void keep_wanted(const std::string& words, std::vector<Team>* teams) {
  std::vector<Team> kept;
  for (const Team& team : *teams) {
    bool has_all = true;
    for (std::size_t begin = 0; begin <= words.size();) {
      const std::size_t end = std::min(words.find(';', begin), words.size());
      has_all &= team.shape().find(words.substr(begin, end - begin)) != std::string::npos;
      begin = end + 1;
    }
    if (has_all) kept.push_back(team);
  }
  if (!kept.empty()) *teams = kept;
}

// The same of CTAs that synchronize through memory.
std::int64_t teams_in_memory(std::int64_t ctas, const Target& target) { return target.sm_count / ctas; }

// Blocks that stay in registers beside sums of all rows and two pieces of the state, or one: recurrence_lanes.cu.
std::int64_t kept_beside_streams(const Team& team) {
  const std::int64_t beside = team.rows * (team.tiles * 4 + (team.rows <= 2 ? 8 : 4));
  return std::clamp<std::int64_t>((kBesideStreams - beside) / 16, 1, team.tiles * team.steps);
}

// Of tiles those of a step, or of a gradient as many as these can be cut into evenly.
std::int64_t fragments_of_group(const LayerExtents& layer, const Team& team) {
  if (team.is_by_lanes) return 1;
  if (!layer.is_backward) return team.tiles;
  std::int64_t fragments = std::min(kMostGroupFragments, team.tiles);
  while (team.tiles % fragments != 0) --fragments;
  return fragments;
}

// As few of the weights out of memory as there is no room for. False where there would be no room for what goes on.
bool stream_least(const LayerExtents& layer, const Target& target, Team* team) {
  const auto fits = [&](std::int64_t turns) {  // of the ring
    team->streamed = turns * team->ahead;
    return count_shared(layer, target, team);
  };
  const std::int64_t most = (team->tiles * team->steps - team->kept) / (team->ahead * team->group_fragments);
  std::int64_t few = 0, enough = most;
  if (most == 0 || !fits(most)) return false;
  while (enough - few > 1) (fits((few + enough) / 2) ? enough : few) = (few + enough) / 2;
  return fits(enough);
}

// Copies under way at once.
constexpr std::int64_t kLeastAheadBytes = 24 << 10, kMostAheadBytes = 48 << 10;

// Whether what each one multiplies is whole steps, and backward its share of the units whole tiles.
bool can_have_neighbours(const LayerExtents& layer, const Team& team) {
  if (team.is_by_lanes || team.keeps_sums || team.ctas <= team.neighbours) return false;
  if (!layer.is_backward) return team.givers() * team.units * size_bytes(layer.dtype) % 32 == 0;
  return team.units * layer.gates * size_bytes(layer.dtype) % 32 == 0 && team.givers() * team.units % 16 == 0;
}

}  // namespace

std::int64_t fragment_pieces(const LayerExtents& layer, const Team& team) {
  return !team.is_by_lanes ? 1 : layer.is_backward || layer.gates == 1 ? 4 : layer.gates;
}
std::int64_t streamed_bytes(const LayerExtents& layer, const Team& team) {
  return team.count * team.ctas * team.streamed * group_bytes(layer, team);
}

std::int64_t ctas_at_once(const Team& team, const Target& target) {
  const auto at_once = team.exchange == Exchange::memory ? teams_in_memory : teams_at_once;
  return team.ctas * at_once(team.ctas, target);
}

std::int64_t pipeline_words(const LayerExtents& layer, const Team& team) {
  const std::int64_t ctas = team.count * team.ctas;
  return round_up(2 * ctas, 4) +
         layer.steps * (ctas * team.units * team.rows + layer.batch * layer.hidden * layer.gates);
}

bool should_pipeline(const LayerExtents& layer, const Team& team, const Target& target) {
  const std::int64_t ctas = teams_of_pipeline(layer) * team.ctas * team.count;
  return layer.pipelined_layers > 1 && layer.together == 1 && !team.is_by_groups && team.streamed == 0 &&
         layer.batch <= kMostPipelineRows && team.rows <= kMostRowsMarked && ctas <= ctas_at_once(team, target) &&
         pipeline_words(layer, team) * 4 <= kMostPipelineBytes && pipelined_us(layer, team) < apart_us(layer, team);
}

std::string Team::shape() const {
  const char* const ways[] = {"", ", copied in bulk", ", through memory"};
  const std::string far =
      streamed == 0 ? ""
                    : fmt::format(", {} of {} groups of weights out of memory, {} ahead", streamed, groups(), ahead);
  const std::string told = neighbours == 1 ? "" : fmt::format(", {} neighbours", neighbours);
  return fmt::format("{} team{} of {} CTAs: {} rows, {} units a CTA{}{}{}{}{}{}", count, count == 1 ? "" : "s", ctas,
                     rows, units, is_by_lanes ? ", by lanes" : "", keeps_sums ? ", whole units" : "",
                     is_apart ? ", groups apart" : "", ways[static_cast<int>(exchange)], told, far);
}
std::string Team::text() const { return fmt::format("{}; {:.2f} us a step expected", shape(), step_us); }

std::vector<Team> possible_teams(const LayerExtents& layer, const Target& target, std::string* why_not) {
  std::vector<Team> teams;
  std::int64_t bytes = 0;
  const auto consider = [&](Team team, std::int64_t at_once) {
    // One row more a team costs less than a second round of teams.
    team.rows = std::max<std::int64_t>(ceil_div(layer.batch, at_once * layer.rounds), 1);
    team.count = std::min(ceil_div(layer.batch, team.rows), at_once);
    const bool is_in_memory = !layer.is_backward && team.exchange == Exchange::memory;
    team.is_marked = is_in_memory && !team.is_by_groups && team.rows <= kMostRowsMarked;
    team.is_once = is_in_memory && !team.is_marked;
    const std::int64_t most_by_lanes = team.exchange == Exchange::memory ? kMostRowsStreamed : kMostRowsByLanes;
    if (team.keeps_sums && team.rows > (team.is_by_lanes ? most_by_lanes : kMostRowsOfTiles)) return;
    if (!layer.is_backward && team.neighbours > 1 && team.is_marked) return;
    const Matrix matrix(layer, team);
    share_out(layer, matrix, &team);
    if (team.shares_state() && team.depth_pieces * 16 != matrix.depth_bytes) return;  // some would be another's
    if (layer.is_by_units && !reads_by_units(team)) return;
    // Of 16 bits that is 2 us of 152 slower than loads, which the compiler need not wait for too early.
    team.copies_ahead = !layer.is_backward && team.is_by_groups && layer.dtype == DType::f32;
    if (team.exchange != Exchange::memory) choose_exchange(layer, &team);
    team.is_apart = can_be_apart(layer, team);
    team.state_words = state_words(layer, team);
    const bool may_stay = !team.keeps_sums || !team.is_by_lanes || team.rows <= kMostRowsByLanes;
    if (may_stay && count_shared(layer, target, &team)) {
      team.step_us = step_us(layer, team);
      teams.push_back(team);
      return;
    }
    bytes = bytes == 0 ? team.shared_bytes : std::min(bytes, team.shared_bytes);
    if (team.exchange != Exchange::memory || team.is_by_groups) return;
    if (layer.is_backward && (team.count > 1 || (!team.is_by_lanes && team.neighbours == 1))) return;
    if (3 * team.ctas * team.count < 2 * target.sm_count) return;  // others would keep more
    // A second state would take room from weights; of few rows it takes none to speak of.
    if (!layer.is_backward) team.is_once |= team.rows > kMostRowsTwice;
    if (team.is_by_lanes && !layer.is_backward) team.kept = kept_beside_streams(team);
    team.group_fragments = fragments_of_group(layer, team);
    const std::int64_t of_group = group_bytes(layer, team);
    team.ahead = std::max<std::int64_t>(ceil_div(kLeastAheadBytes, of_group), 2);
    for (; team.ahead * of_group <= kMostAheadBytes; ++team.ahead) {
      if (!stream_least(layer, target, &team)) continue;
      team.near = near_groups(layer, team, target);
      team.step_us = streamed_step_us(layer, team, target);
      teams.push_back(team);
    }
  };
  // Also fewer teams of more rows, so that all layers of a pipeline have room.
  const auto consider_stacked = [&](const Team& team, std::int64_t at_once) {
    consider(team, at_once);
    const std::int64_t each = at_once / teams_of_pipeline(layer);
    if (each > 0 && ceil_div(layer.batch, each) > ceil_div(layer.batch, at_once)) consider(team, each);
  };
  const auto consider_all = [&](bool is_by_lanes, bool is_by_groups, bool keeps_sums) {
    Team team{.is_by_lanes = is_by_lanes, .is_by_groups = is_by_groups, .keeps_sums = keeps_sums};
    const std::int64_t least = is_by_lanes ? 4 : 8;  // units
    for (const std::int64_t ctas : {1, 2, 4, 8, 16}) {
      if (target.major < 9) break;                  // no clusters
      if (layer.is_backward && is_by_lanes) break;  // what is exchanged is more than their paths are good for
      team.ctas = ctas, team.units = round_up(ceil_div(layer.hidden, ctas), least);
      if (team.units * (ctas - 1) >= layer.hidden && ctas > 1) continue;  // the last would have nothing
      consider_stacked(team, teams_at_once(ctas, target));
    }
    // Forward what lanes keep goes through memory, and what tensor cores do not.
    if (!layer.is_backward && is_by_lanes != keeps_sums) return;
    team.exchange = Exchange::memory;
    const bool has_quads = !is_by_lanes && layer.dtype == DType::f32;  // pieces of 4 units, which neighbours can have
    const std::int64_t fewest = has_quads ? 4 : least;
    for (std::int64_t units = fewest; units < layer.hidden + fewest; units += fewest) {
      team.units = units;
      for (const std::int64_t neighbours : {1, 2, 4}) {
        if (units % least != 0 && neighbours == 1) continue;
        team.neighbours = neighbours, team.ctas = round_up(ceil_div(layer.hidden, units), neighbours);
        if (neighbours > 1 && !can_have_neighbours(layer, team)) continue;
        if (team.ctas <= target.sm_count) consider_stacked(team, teams_in_memory(team.ctas, target));
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
  if (const std::string wanted = env_text("PAODING_TEAM"); !wanted.empty()) keep_wanted(wanted, &teams);
  // Where all weights have room, they stay, forward by whom has all of the state if it can: what others take is not
  // known well enough.
  const auto is_streamed = [](const Team& team) { return team.streamed > 0; };
  const auto shares = [](const Team& team) { return team.streamed > 0 || team.shares_state(); };
  if (!std::ranges::all_of(teams, is_streamed)) std::erase_if(teams, is_streamed);
  if (!std::ranges::all_of(teams, shares)) std::erase_if(teams, shares);
  if (teams.empty() && why_not != nullptr) {
    *why_not = bytes == 0 ? fmt::format("{} rows are too many for products that do not round", layer.batch)
                          : fmt::format(
                                "the weights of {} units do not fit {} CTAs: they would need {} bytes of shared "
                                "memory each, {} are there",
                                layer.hidden, target.sm_count, bytes, target.shared_bytes - kReservedBytes);
  }
  return teams;
}

std::optional<Team> choose_team(const LayerExtents& layer, const Target& target, std::string* why_not) {
  const std::vector<Team> teams = possible_teams(layer, target, why_not);
  const auto us_of_all = [&](const Team& team) {  // two share a launch where the chip has room: may_be_grouped()
    if (layer.pipelined_layers > 1)
      return should_pipeline(layer, team, target) ? pipelined_us(layer, team) : apart_us(layer, team);
    const bool is_shared = layer.together > 1 && 2 * team.ctas * team.count <= ctas_at_once(team, target);
    return team.step_us * static_cast<double>(is_shared ? ceil_div(layer.together, 2) : layer.together);
  };
  const auto best = std::ranges::min_element(teams, {}, us_of_all);
  return best == teams.end() ? std::nullopt : std::optional(*best);
}

}  // namespace paoding
