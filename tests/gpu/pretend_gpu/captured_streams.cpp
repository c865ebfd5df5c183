// SPDX-License-Identifier: Apache-2.0
// Streams that an event brings into a capture. In the graph each is a lane; a launch runs the lanes beside each other,
// in an order that the seed decides, and events of the graph order them. A capture that ends before all lanes are
// joined is an error, as the driver has it.
#include <utility>

#include "tests/gpu/pretend_gpu/machine.h"

namespace paoding::pretend {

void Machine::record(CUevent event, CUstream given) {
  CUstream_st* const from = stream(given);
  CUgraph_st& graph = *from->captured;
  event->captured = &graph;
  event->number = graph.events++;
  event->lane = from->lane;
  event->behind = graph.pieces[static_cast<std::size_t>(from->lane)];
  event->node = from->last.empty() ? 0 : reinterpret_cast<std::uint64_t>(from->last.back());
  Piece piece;
  piece.lane = from->lane, piece.records = event->number;
  graph.nodes.push_back(std::move(piece));
}

CUresult Machine::wait_for(CUevent event, CUstream given) {
  CUstream_st* const to = stream(given);
  if (event->captured == nullptr) {
    if (to->captured != nullptr) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
    return enqueue(given, {{}, event, event->recorded}), CUDA_SUCCESS;
  }
  CUgraph_st& graph = *event->captured;
  if (to->captured == nullptr) {
    to->captured = &graph;
    to->lane = static_cast<int>(graph.pieces.size());
    to->last = {};
    graph.pieces.push_back(0), graph.joined.push_back(0);
    graph.streams.push_back(to);
  }
  if (to->captured != &graph) return CUDA_ERROR_STREAM_CAPTURE_ISOLATION;
  if (to->lane == 0) {
    std::size_t& joined = graph.joined[static_cast<std::size_t>(event->lane)];
    joined = std::max(joined, event->behind);
  }
  if (event->node != 0) to->last.push_back(node_handle(event->node));
  Piece piece;
  piece.lane = to->lane, piece.waits = event->number;
  graph.nodes.push_back(std::move(piece));
  return CUDA_SUCCESS;
}

CUresult Machine::end_capture(CUstream given, CUgraph* graph) {
  CUstream_st* const from = stream(given);
  *graph = std::exchange(from->captured, nullptr);
  if (*graph == nullptr) return CUDA_ERROR_ILLEGAL_STATE;
  bool is_joined = true;
  for (std::size_t lane = 1; lane < (*graph)->pieces.size(); ++lane) {
    is_joined &= (*graph)->joined[lane] == (*graph)->pieces[lane];
    (*graph)->streams[lane - 1]->captured = nullptr;
  }
  return is_joined ? CUDA_SUCCESS : CUDA_ERROR_STREAM_CAPTURE_UNJOINED;
}

void Machine::launch(CUgraphExec exec, CUstream given, std::uint32_t correlation) {
  for (Piece piece : exec->nodes) {
    const CUstream to = piece.lane == 0 ? given : exec->streams[static_cast<std::size_t>(piece.lane - 1)];
    if (piece.records >= 0) {
      const CUevent event = exec->events[static_cast<std::size_t>(piece.records)];
      const std::uint64_t version = ++event->recorded;
      piece.work = [=] { event->done = version; };
    } else if (piece.waits >= 0) {
      piece.event = exec->events[static_cast<std::size_t>(piece.waits)];
      piece.version = piece.event->recorded;
    }
    piece.correlation = correlation;
    enqueue(to, std::move(piece));
  }
}

}  // namespace paoding::pretend
