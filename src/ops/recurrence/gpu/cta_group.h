// SPDX-License-Identifier: Apache-2.0
// How a recurrent layer over time is shared out over a GPU whose CTAs keep its weights: groups of CTAs, each with rows
// of the batch; within a CTA group each CTA has units; within a CTA warps share the rows of its matrix and K. A CTA
// group is a cluster, or any CTAs that run at once. See recurrence.cu.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/target.h"
#include "paoding/types.h"

namespace paoding {

/// A layer, as far as its CTA groups depend on it. Backward, tensor cores multiply the gradients of a CTA's own gates,
/// and the products belong to everybody; lanes multiply those of all gates, and the products are the CTA's own.
struct LayerExtents {
  std::int64_t gates = 0;  // products per unit: 4 of an LSTM
  std::int64_t batch = 0, hidden = 0;
  DType dtype = DType::f32;
  bool is_exact = false;     // exact f32 (no TF32)
  bool is_training = false;  // forward: keeps values for the gradient
  bool is_backward = false;
  std::int64_t together = 1;     // layers like it that may share a launch, as the directions of one may
  std::int64_t batch_tiles = 1;  // CTA groups may have so many tiles of the batch, one after the other
  std::int64_t steps = 0;
  bool is_by_units = false;  // forward: weights lie by units, packed_weights.h
  std::int64_t pipelined_layers =
      1;  // forward: layers one above the other that may share a launch, recurrence_pipelined.cu
  /// Words, split by ;, of which each is in the description of the CTA groups that may be chosen, where there are any
  /// (PAODING_CTA_GROUP).
  std::string wanted = {};
};

/// How a CTA's results get to the others of its CTA group: into their shared memory by stores or by TMA, within a
/// cluster; or through global memory.
enum class Exchange { stores, copies, memory };

struct CtaGroup {
  std::int64_t ctas = 0,
               units = 0;  // of a CTA; a multiple of 8, or of 4 in f32 that lanes multiply or partial-sum peers
  std::int64_t warps = 0;  // of a CTA
  std::int64_t rows = 0, count = 0;  // of the batch that a CTA group has; CTA groups
  std::int64_t parts = 0;            // of K
  bool simt_fma = false;             // without tensor cores, in f32
  bool wgmma = false;                // four warps multiply together: recurrence_wgmma.cu
  bool keeps_sums = false;           // forward: a warp has all gates of its units, and sums end in their cells' threads
  bool ll_protocol = false;          // forward, through memory: words tell which use of their place they are of
  bool single_buffered = false;      // forward, through memory: shared memory has one place for the state
  bool is_narrow = false;            // forward: tensor cores get the vectors of rows that are there, and no others
  std::int64_t tiles = 0, steps = 0;  // of a warp: 16 rows of the matrix, 32 bytes along K (lanes: 4 rows, 512 bytes)
  std::int64_t kept = 0;              // tiles by steps that are kept in registers
  // Through memory: chunks of so many fragments that come out of memory every step, recurrence_stream.cu; of lanes a
  // chunk is a single block, of tiles forward a step's, of a gradient a part of that. So many are asked for ahead.
  std::int64_t chunk_fragments = 1;
  std::int64_t streamed = 0, ahead = 1, ring_at = 0;  // in the work
  std::int64_t l2_resident = 0;                       // of those streamed, that L2 keeps
  // CTAs that share out the matrix of all their units, for tiles through memory: backward each has all their gates,
  // forward a part of K.
  std::int64_t sum_peers = 1;
  std::int64_t staged = 0;           // steps (forward) or tiles (backward) of every warp that come at once at the start
  std::int64_t rows_in_flight = 1;   // backward, by SIMT FMA: that a thread asks for together
  bool units_per_warpgroup = false;  // forward, by groups: each has units of its own, and sends its half of the state
  bool copies_ahead = false;         // forward: values of the input lie in shared memory, recurrence_ahead_copied.cu
  std::int64_t matrix_rows = 0, depth_pieces = 0, sum_stride = 0;  // pieces of 16 bytes along K
  Exchange exchange = Exchange::stores;
  std::int64_t shared_bytes = 0, work_bytes = 0;  // the part of it that is free until the weights come
  std::int64_t state_words = 0;  // of all CTA groups, for the exchange through memory from launch to launch
  double step_us = 0;            // expected time of a step

  std::int64_t chunks() const { return tiles * steps / chunk_fragments; }
  std::int64_t givers() const { return ctas / sum_peers; }  // CTAs that send to a CTA, if lanes do not multiply
  bool shares_state() const { return single_buffered && sum_peers > 1; }
  /// Fragments of a warp that lie in shared memory.
  std::int64_t rest_fragments() const { return tiles * steps - kept - streamed * chunk_fragments; }
  std::string shape() const;
  std::string text() const;  // and its expected time
};

/// Whether its lanes read weights that lie by units (packed_weights.h).
inline bool reads_by_units(const CtaGroup& cta_group) { return cta_group.simt_fma || cta_group.is_narrow; }
/// Pieces of 16 bytes that a lane has of a fragment of a warp's weights.
std::int64_t fragment_pieces(const LayerExtents& layer, const CtaGroup& cta_group);
/// In memory, the weights of all CTAs that are read there every step.
std::int64_t streamed_bytes(const LayerExtents& layer, const CtaGroup& cta_group);
/// All that fit, one for each number of CTAs and way of exchange; none when the weights do not fit, and then why.
std::vector<CtaGroup> possible_cta_groups(const LayerExtents& layer, const Target& target, std::string* why_not);
/// Those of which a step of all layers that may share a launch takes least.
std::optional<CtaGroup> choose_cta_group(const LayerExtents& layer, const Target& target, std::string* why_not);
/// Whether layers of a pipeline had better share a launch, by such CTA groups.
bool should_pipeline(const LayerExtents& layer, const CtaGroup& cta_group, const Target& target);
/// Words through which layers of a pipeline synchronize.
std::int64_t pipeline_words(const LayerExtents& layer, const CtaGroup& cta_group);
/// CTAs of all CTA groups like this one that run at once.
std::int64_t ctas_at_once(const CtaGroup& cta_group, const Target& target);

}  // namespace paoding
