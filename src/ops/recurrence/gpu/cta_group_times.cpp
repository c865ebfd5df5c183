// SPDX-License-Identifier: Apache-2.0
#include "ops/recurrence/gpu/cta_group_times.h"

#include <algorithm>

#include "base/rounding.h"
#include "ops/recurrence/gpu/cta_group_sizes.h"

namespace paoding {
namespace {

// kLayerUs: a layer's launch, the work before its first step and the product of its input, which a pipeline pays once.
// kStepsBehind: how many steps a layer of a pipeline runs behind the layer below. kStackedStep and kStackedCta: how
// much longer a step of all layers takes than a step of one, which grows with the CTAs of a layer (two layers of 512
// units in f32: 82.5 us with 32 CTAs each, 92.8 with 43).
constexpr double kLayerUs = 6, kStepsBehind = 3, kStackedStep = 1.05, kStackedCta = 0.003;
constexpr double kCyclesPerUs = 1980;
// With streamed weights: the extra time of a step, and the latency of a copy while many are in flight.
constexpr double kStreamingUs = 0.2, kCopyUs = 0.7;
constexpr double kStreamedGradient = 1.15;  // by tensor cores: measured time over the sum of its parts
constexpr double kSumPeersUs = 0.9;         // until partial-sum peers have each other's gates
// Shares of L2. kCacheShare: how much of it keeps lines from step to step when they are read in the same order.
// kMostUntold: up to which size that works best without cache hints. kToldShare: how much of larger weights it keeps by
// hints. kRoundRate: the share of memory's rate where it keeps none.
constexpr double kCacheShare = 0.5, kMostUntold = 0.8, kToldShare = 0.45, kRoundRate = 0.8;

// The time until every CTA of a cluster has the data of all of them, so many bytes in all: fitted to measurements on an
// H200.
double stores_us(std::int64_t ctas, double kilobytes) {
  return ctas <= 4 ? 0.17 + 0.03 * kilobytes : ctas == 8 ? 0.19 + 0.037 * kilobytes : 0.21 + 0.09 * kilobytes;
}
double copies_us(std::int64_t ctas, double kilobytes) {
  return ctas <= 8 ? 0.40 + 0.02 * kilobytes : 0.60 + 0.017 * kilobytes;
}

// The same through memory, where the values that training keeps of a step go too.
double memory_us(const LayerExtents& layer, const CtaGroup& cta_group, double kilobytes) {
  if (cta_group.ll_protocol) return (layer.is_training ? 0.95 : 0.6) + 0.035 * kilobytes;
  if (cta_group.simt_fma) return 0.38 + 0.0024 * static_cast<double>(cta_group.ctas) + 0.018 * kilobytes;  // backward
  if (cta_group.shares_state()) {
    const auto sums = static_cast<double>((cta_group.sum_peers - 1) * cta_group.rows * cta_group.units * 16) / 1024;
    kilobytes = kilobytes / static_cast<double>(cta_group.sum_peers) + sums;
  } else if (cta_group.sum_peers > 1) {
    kilobytes += gate_bytes(layer, cta_group) / 1024.0 * static_cast<double>(cta_group.sum_peers - 1);
  }
  return (cta_group.sum_peers > 1 ? kSumPeersUs : 0) +
         (layer.is_backward   ? 0.8
          : layer.is_training ? 1.2
                              : 0.85) +
         0.05 * kilobytes;
}

// The data that a CTA of a cluster gets; packets of 4 or 8 bytes that lanes give take as long as packets of 16.
double sent_kilobytes(const LayerExtents& layer, const CtaGroup& cta_group) {
  const bool is_by_units = cta_group.keeps_sums && cta_group.simt_fma && layer.gates > 1;
  const double more = !is_by_units || cta_group.tiles % 4 == 0 ? 1 : cta_group.tiles % 2 == 0 ? 2 : 4;
  return static_cast<double>(got_bytes(layer, cta_group)) / 1024 * more;
}

double exchange_us(const LayerExtents& layer, const CtaGroup& cta_group) {
  if (cta_group.ctas == 1) return 0;
  const double kilobytes = static_cast<double>(got_bytes(layer, cta_group)) / 1024;
  switch (cta_group.exchange) {
    case Exchange::stores: return stores_us(cta_group.ctas, sent_kilobytes(layer, cta_group));
    case Exchange::copies: return copies_us(cta_group.ctas, kilobytes);
    case Exchange::memory: return memory_us(layer, cta_group, kilobytes);
  }
  return 0;
}

// Memory that a step reads and writes; the exchanged data count for two steps.
double used_bytes(const LayerExtents& layer, const CtaGroup& cta_group) {
  return static_cast<double>(streamed_bytes(layer, cta_group) + cta_group.state_words * 4);
}

// The part of a step's reads that is not in L2 any more when its turn comes.
double far_share(const LayerExtents& layer, const CtaGroup& cta_group, const Target& target) {
  const double used = used_bytes(layer, cta_group), cache = kCacheShare * static_cast<double>(target.last_cache_bytes);
  return std::clamp(2 * (used - cache) / used, 0.0, 1.0);
}

// The time of a step's reads of memory, if they never stop.
double streaming_us(const LayerExtents& layer, const CtaGroup& cta_group, const Target& target) {
  const auto all = static_cast<double>(streamed_bytes(layer, cta_group)),
             ctas = static_cast<double>(cta_group.ctas * cta_group.count);
  const auto ahead = static_cast<double>(cta_group.ahead * chunk_bytes(layer, cta_group));
  const double cached_rate = std::min(target.cached_bytes_per_us / target.sm_count, ahead / kCopyUs) * ctas;
  if (cta_group.l2_resident > 0 && !layer.is_backward) {
    const double far =
        all * static_cast<double>(cta_group.streamed - cta_group.l2_resident) / static_cast<double>(cta_group.streamed);
    return (all - far) / cached_rate + far / target.read_bytes_per_us;
  }
  const double far = all * far_share(layer, cta_group, target);
  return (all - far) / cached_rate + far / std::min(kRoundRate * target.read_bytes_per_us, cached_rate);
}

}  // namespace

bool are_copies_faster(const LayerExtents& layer, const CtaGroup& cta_group) {
  const double kilobytes = static_cast<double>(got_bytes(layer, cta_group)) / 1024;
  return copies_us(cta_group.ctas, kilobytes) < stores_us(cta_group.ctas, sent_kilobytes(layer, cta_group));
}

double step_us(const LayerExtents& layer, const CtaGroup& cta_group) {
  const double exchange = exchange_us(layer, cta_group);
  if (cta_group.simt_fma && layer.is_backward) {
    // Fitted to 19 CTA groups on an H200: benchmarks/results/2026-11-26-recurrence-gradients-f32-2.txt.
    const auto at_once = static_cast<double>(ceil_div(cta_group.rows, cta_group.rows_in_flight));
    const auto products =
        static_cast<double>(cta_group.tiles * cta_group.steps * cta_group.warps * 512 * cta_group.rows);
    const auto rest = static_cast<double>((cta_group.tiles * cta_group.steps - cta_group.kept) * cta_group.warps * 20);
    return exchange + 0.23 * at_once + std::max(products / 100, rest * at_once) / kCyclesPerUs;
  }
  if (cta_group.simt_fma) {
    const auto products =
        static_cast<double>(cta_group.tiles * cta_group.steps * cta_group.warps * 512 * cta_group.rows);
    const std::int64_t reads = cta_group.streamed > 0 ? 1 : cta_group.rows;  // of each block
    const auto rest =
        static_cast<double>((cta_group.tiles * cta_group.steps - cta_group.kept) * cta_group.warps * 16 * reads);
    const auto sums = static_cast<double>(cta_group.tiles * cta_group.rows) * 250;  // over the lanes
    // The code of many rows is more than an SM keeps of it.
    const double rate = cta_group.streamed > 0 && cta_group.rows > kMostSimtRows ? 33 : 100;
    return exchange + (cta_group.keeps_sums ? 0.07 : 0.15) + (std::max(products / rate, rest) + sums) / kCyclesPerUs;
  }
  const auto column_tiles = static_cast<double>(ceil_div(cta_group.rows, 8));
  const auto fragments = static_cast<double>(cta_group.warps * cta_group.tiles * cta_group.steps);
  const auto rest_fragments =
      static_cast<double>(cta_group.warps * (cta_group.tiles * cta_group.steps - cta_group.kept));
  const auto more_cells = static_cast<double>(cells(cta_group) - 1);
  if (cta_group.keeps_sums) {  // a warp that has all of K waits for its reads of the vectors
    const double vectors = static_cast<double>(cta_group.warps * cta_group.steps) * 3.4;
    const double multiply = std::max(vectors, fragments * 1.6) + rest_fragments * 6;
    return exchange + 0.145 + multiply / kCyclesPerUs + more_cells * 0.2;
  }
  // A group's product of 64 rows takes as long for few columns as for 24.
  const double by_wgmma = fragments / 4 * std::max(12.0, column_tiles * 4) + rest_fragments / 4 * 6;
  const double multiply = cta_group.wgmma ? by_wgmma : fragments * column_tiles * 1.6;
  const double vectors =
      cta_group.wgmma ? 0 : static_cast<double>(cta_group.warps * cta_group.steps) * column_tiles * 2;
  const double rest = cta_group.wgmma ? 0 : rest_fragments * 6;
  return exchange + 0.3 + std::max(multiply, vectors + rest) / kCyclesPerUs + more_cells * 0.1;
}

std::int64_t l2_resident_chunks(const LayerExtents& layer, const CtaGroup& cta_group, const Target& target) {
  const auto cache = static_cast<double>(target.last_cache_bytes);
  if (target.major != 9 || used_bytes(layer, cta_group) <= kMostUntold * cache) return 0;
  const double share = kToldShare * cache / static_cast<double>(streamed_bytes(layer, cta_group));
  return static_cast<std::int64_t>(std::min(share, 1.0) * static_cast<double>(cta_group.streamed));
}

double streamed_step_us(const LayerExtents& layer, const CtaGroup& cta_group, const Target& target) {
  // The gradient by SIMT FMA reads them again for rows that are not asked for together.
  const std::int64_t turns =
      layer.is_backward && cta_group.simt_fma ? ceil_div(cta_group.rows, cta_group.rows_in_flight) : 1;
  const double streaming = streaming_us(layer, cta_group, target) * static_cast<double>(turns);
  const double exchange = exchange_us(layer, cta_group), products = step_us(layer, cta_group) - exchange;
  if (layer.is_backward && !cta_group.simt_fma) {
    // Each part is written and read once; and hardly anything goes on beside something else.
    const auto parts = static_cast<double>(got_bytes(layer, cta_group) * cta_group.ctas * cta_group.count);
    const double far = 2 * parts * far_share(layer, cta_group, target) / target.read_bytes_per_us;
    return kStreamedGradient * (exchange + far + products + streaming);
  }
  const double ahead =
      streaming * static_cast<double>(cta_group.ahead) / static_cast<double>(cta_group.streamed * turns);
  return std::max(exchange + std::max(products, streaming - ahead), streaming) + kStreamingUs;
}

double separate_us(const LayerExtents& layer, const CtaGroup& cta_group) {
  return static_cast<double>(layer.pipelined_layers) *
         (static_cast<double>(layer.steps) * cta_group.step_us + kLayerUs);
}
double pipelined_us(const LayerExtents& layer, const CtaGroup& cta_group) {
  const double steps =
      static_cast<double>(layer.steps) + kStepsBehind * static_cast<double>(layer.pipelined_layers - 1);
  return steps * cta_group.step_us * (kStackedStep + kStackedCta * static_cast<double>(cta_group.ctas)) + kLayerUs;
}

}  // namespace paoding
