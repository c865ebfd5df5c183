// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "gpu/text_kernel.h"
#include "ops/recurrence/team.h"

namespace paoding {
namespace {

using gpu::parts_of;

constexpr std::int64_t kWarps = 8;
// Fragments, of 4 words, and blocks, of 16, that the 255 registers of a thread have room for.
constexpr std::int64_t kMostKept = 34, kMostKeptBlocks = 8;
constexpr std::int64_t kReservedBytes = 1 << 10;
constexpr double kCyclesPerUs = 1980;

std::int64_t up_to(std::int64_t count, std::int64_t each) { return parts_of(count, each) * each; }

// Clusters that run at once: they lie within parts of the chip, some of whose multiprocessors are left over.
std::int64_t teams_at_once(std::int64_t ctas, const Target& target) {
  const double usable = ctas >= 16 ? 0.85 : ctas >= 4 ? 0.91 : 1;  // 7 of 16, 15 of 8, 30 of 4 on an H200
  return std::max<std::int64_t>(static_cast<std::int64_t>(target.sm_count * usable / static_cast<double>(ctas)), 1);
}

// Until every CTA of a cluster has what all of them sent, so many bytes in all: fitted to measurements on an H200.
double stores_us(std::int64_t ctas, double kilobytes) {
  return ctas <= 4 ? 0.17 + 0.03 * kilobytes : ctas == 8 ? 0.19 + 0.037 * kilobytes : 0.21 + 0.09 * kilobytes;
}
double copies_us(std::int64_t ctas, double kilobytes) {
  return ctas <= 8 ? 0.40 + 0.02 * kilobytes : 0.60 + 0.017 * kilobytes;
}

// The extents of the matrix that a CTA multiplies by.
struct Matrix {
  std::int64_t rows, depth_bytes;
  Matrix(const LayerExtents& layer, const Team& team) {
    const std::int64_t gates = team.units * layer.gates, all = team.ctas * team.units;
    rows = up_to(layer.is_backward ? all : gates, layer.is_exact ? 4 : 16);
    depth_bytes = (layer.is_backward ? gates : all) * size_bytes(layer.dtype);
  }
};

// 16 rows by 32 bytes of a warp's matrix, or 16 weights a lane.
std::int64_t fragment_bytes(const LayerExtents& layer) { return layer.is_exact ? 2048 : 512; }

// What CTAs send each other a step, and keep two places of.
std::int64_t sent_bytes(const LayerExtents& layer, const Team& team) {
  if (layer.is_backward) return team.ctas * team.rows * (team.units + 4) * 4;
  return team.depth_pieces * team.rows * 16;
}

void share_out(const LayerExtents& layer, const Matrix& matrix, Team* team) {
  team->warps = kWarps;
  team->matrix_rows = matrix.rows;
  team->sum_stride = up_to(matrix.rows, 16) + 4;  // lanes of a warp go to different banks
  if (layer.is_exact) {
    team->parts = 1;
    team->depth_pieces = matrix.depth_bytes / 16;
    team->tiles = parts_of(matrix.rows / 4, kWarps), team->steps = parts_of(team->depth_pieces, 32);
    team->kept = std::min(team->tiles * team->steps, kMostKeptBlocks);
    return;
  }
  const std::int64_t tiles = matrix.rows / 16, steps = parts_of(matrix.depth_bytes, 32);
  // Two tiles a warp share what it reads of the vectors; K is cut no further than that takes, or than warps are left
  // over.
  team->parts = 1;
  while (!layer.is_backward && team->parts < kWarps && tiles * team->parts < 2 * kWarps &&
         (tiles * team->parts < kWarps || steps / team->parts >= 16) && steps / team->parts >= 2) {
    team->parts *= 2;
  }
  team->tiles = parts_of(tiles, kWarps / team->parts);
  team->steps = parts_of(steps, team->parts);
  team->kept = std::min(team->tiles * team->steps, kMostKept);
  team->depth_pieces = team->parts * team->steps * 2;
}

// What lies in shared memory: places for what comes and goes, and weights; before the first step the weights come
// through the same places, as many at once as there is room for. False when there is not enough for the least.
bool count_shared(const LayerExtents& layer, const Target& target, Team* team) {
  std::int64_t work = 0;
  if (layer.is_backward) {
    work = team->depth_pieces * team->rows * 16 + 4 * sent_bytes(layer, *team);
  } else {
    work = 2 * sent_bytes(layer, *team) + team->parts * team->rows * team->sum_stride * 4;
  }
  const std::int64_t rest = (team->tiles * team->steps - team->kept) * kWarps * fragment_bytes(layer);
  const std::int64_t head = up_to(16 + team->rows * 8, 16) + rest;
  const std::int64_t room = target.shared_bytes - kReservedBytes - head;
  team->shared_bytes = head + work;
  if (layer.is_exact) return room >= work;
  const std::int64_t row = team->units * layer.gates * size_bytes(layer.dtype) + 16;
  const std::int64_t rows = layer.is_backward ? kWarps * 16 : team->parts * 32 / size_bytes(layer.dtype);
  team->staged = std::min(room / (row * rows), layer.is_backward ? team->tiles : team->steps);
  team->shared_bytes = head + std::max(work, team->staged * row * rows);
  return room >= work && team->staged > 0;
}

double step_us(const LayerExtents& layer, Team* team) {
  const double kilobytes = static_cast<double>(sent_bytes(layer, *team)) / 1024;
  const double stores = stores_us(team->ctas, kilobytes), copies = copies_us(team->ctas, kilobytes);
  team->is_bulk = team->ctas > 1 && (layer.is_backward || copies < stores);
  const double exchange = team->ctas == 1 ? 0 : team->is_bulk ? copies : stores;
  if (layer.is_exact) {
    const auto products = static_cast<double>(team->matrix_rows * team->depth_pieces * 4 * team->rows);
    const auto rest = static_cast<double>((team->tiles * team->steps - team->kept) * kWarps * 16 * team->rows);
    return exchange + 0.25 + std::max(products / 100, rest) / kCyclesPerUs;
  }
  const auto column_tiles = static_cast<double>(parts_of(team->rows, 8));
  const auto fragments = static_cast<double>(kWarps * team->tiles * team->steps);
  const double multiply = fragments * column_tiles * 1.6;
  const double vectors = static_cast<double>(kWarps * team->steps) * column_tiles * 2;
  const double rest = static_cast<double>(kWarps * (team->tiles * team->steps - team->kept)) * 4;
  return exchange + 0.3 + std::max(multiply, vectors + rest) / kCyclesPerUs;
}

}  // namespace

std::string Team::text() const {
  return fmt::format("{} team{} of {} CTAs: {} rows, {} units a CTA{}; {:.2f} us a step expected", count,
                     count == 1 ? "" : "s", ctas, rows, units, is_bulk ? ", copied in bulk" : "", step_us);
}

std::optional<Team> choose_team(const LayerExtents& layer, const Target& target, std::string* why_not) {
  std::optional<Team> best;
  std::int64_t bytes = 0;
  for (const std::int64_t ctas : {1, 2, 4, 8, 16}) {
    if (ctas > 1 && target.major < 9) break;
    Team team;
    team.ctas = ctas;
    team.units = up_to(parts_of(layer.hidden, ctas), 8);
    if (team.units * (ctas - 1) >= layer.hidden && ctas > 1) continue;  // the last would have nothing
    const Matrix matrix(layer, team);
    const std::int64_t at_once = teams_at_once(ctas, target);
    // One row more a team costs less than a second round of teams.
    team.rows = std::max<std::int64_t>(parts_of(layer.batch, at_once), 1);
    team.count = parts_of(layer.batch, team.rows);
    share_out(layer, matrix, &team);
    if (!count_shared(layer, target, &team)) {
      bytes = team.shared_bytes;
      continue;
    }
    team.step_us = step_us(layer, &team);
    if (!best || team.step_us < best->step_us) best = team;
  }
  if (!best && why_not != nullptr) {
    *why_not = fmt::format(
        "the weights of {} units do not fit 16 CTAs: they would need {} bytes of shared memory each, {} are there",
        layer.hidden, bytes, target.shared_bytes - kReservedBytes);
  }
  return best;
}

}  // namespace paoding
