// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/entry_capture.h"

#include <algorithm>
#include <span>

#include "runtime/gpu/capture.h"

namespace paoding {

EntryCapture::EntryCapture(const gpu::GpuDevice& device, const Schedule& schedule, std::size_t first, std::size_t end)
    : device_(device), driver_(gpu::required_driver()), schedule_(schedule), first_(first), end_(end) {
  add_streams(first, end, 0);
  constexpr int kHighest = -5;  // or the highest there is
  for (std::size_t k = first; k < end; ++k) {
    if (schedule.entries[k].stream == 0) continue;
    if (ended_.empty()) collectives_ = gpu::Stream(device, kHighest), fork_ = gpu::Event(device);
    ended_.emplace(k, gpu::Event(device));
  }
}

void EntryCapture::add_streams(std::size_t first, std::size_t end, std::size_t depth) {
  for (std::size_t k = first; k < end; ++k) {
    const LaunchEntry& entry = schedule_.entries[k];
    if (!schedule_.holds_bodies(entry)) continue;
    if (streams_.size() == depth) streams_.emplace_back(device_);
    const Choice& choice = schedule_.choice_of(entry);
    for (const auto& [begin, behind] : choice.bodies) add_streams(begin, behind, depth + 1);
    k = choice.end - 1;
  }
}

void EntryCapture::run(CUstream stream, const Start& start, Lasts* lasts) {
  start_ = &start;
  is_listed_ = lasts != nullptr;
  root_ = nullptr;
  handles_.clear(), bodies_.clear();
  body_count_ = 0;
  last_beside_ = kNone;
  start_all(stream, first_, end_, 0, lasts);
  if (last_beside_ != kNone) wait_for_collective(stream, last_beside_);
}

// After all that is in the stream so far, and after the collectives before.
void EntryCapture::start_beside(CUstream stream, std::size_t k, Lasts* lasts) {
  fork_.record(stream);
  collectives_.wait_for(fork_);
  (*start_)(k, collectives_.get(), 0);
  ended_.at(k).record(collectives_.get());
  last_beside_ = k;
  if (lasts != nullptr) lasts->emplace_back(k, last_node(driver_, collectives_.get()));
}

void EntryCapture::wait_for_collective(CUstream stream, std::size_t k) {
  gpu::Stream(stream).wait_for(ended_.at(k));
  if (k == last_beside_) last_beside_ = kNone;
}

CUgraphNode EntryCapture::last_node(const gpu::Driver& driver, CUstream stream) {
  CUstreamCaptureStatus status;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;  // asked for: launches that overlap are edges that need more than a pair
  std::size_t count = 0;
  PD_CUDA(driver.cuStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, &edges, &count));
  return count == 0 ? nullptr : nodes[count - 1];
}

// Whether the node is among those that the next one will wait for.
bool EntryCapture::waits_for(CUstream stream, CUgraphNode node) const {
  CUstreamCaptureStatus status;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;
  std::size_t count = 0;
  PD_CUDA(driver_.cuStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, &edges, &count));
  return node == nullptr ? count == 0 : std::ranges::count(std::span(nodes, count), node) > 0;
}

void EntryCapture::start_all(CUstream stream, std::size_t first, std::size_t end, std::size_t depth, Lasts* lasts) {
  CUgraphNode noted = nullptr;
  const auto note = [&](std::size_t k) {
    if (lasts == nullptr) return;
    // An entry without a node of its own: beside the last that was captured the next may wait for a collective's.
    if (!ended_.empty() && waits_for(stream, noted)) return;
    lasts->emplace_back(k, noted = last_node(driver_, stream));
  };
  for (std::size_t k = first; k < end; ++k) {
    const LaunchEntry& entry = schedule_.entries[k];
    if (entry.waits_for >= static_cast<int>(first_)) {
      wait_for_collective(stream, static_cast<std::size_t>(entry.waits_for));
    }
    if (entry.stream != 0) {
      start_beside(stream, k, lasts);
      continue;
    }
    if (!schedule_.holds_bodies(entry)) {
      (*start_)(k, stream, entry.kind == LaunchEntry::Kind::again ? handles_.at(entry.choice) : 0);
      note(k);
      continue;
    }
    (*start_)(k, stream, handles_[entry.choice] = new_handle(stream));
    note(k);
    add_conditional(stream, entry.choice, depth);
    note(k);
    k = schedule_.choice_of(entry).end - 1;
  }
}

CUgraph EntryCapture::graph_of(CUstream stream) const {
  CUstreamCaptureStatus status;
  CUgraph graph = nullptr;
  PD_CUDA(driver_.cuStreamGetCaptureInfo(stream, &status, nullptr, &graph, nullptr, nullptr, nullptr));
  return graph;
}

CUgraphConditionalHandle EntryCapture::new_handle(CUstream stream) {
  if (root_ == nullptr) root_ = graph_of(stream);
  CUgraphConditionalHandle handle = 0;
  CUcontext context = nullptr;
  PD_CUDA(driver_.cuCtxGetCurrent(&context));
  PD_CUDA(driver_.cuGraphConditionalHandleCreate(&handle, root_, context, 0, 0));
  return handle;
}

void EntryCapture::add_conditional(CUstream stream, int number, std::size_t depth) {
  const Choice& choice = schedule_.choices[static_cast<std::size_t>(number)];
  CUgraphNodeParams params{};
  params.type = CU_GRAPH_NODE_TYPE_CONDITIONAL;
  params.conditional.handle = handles_.at(number);
  params.conditional.type = choice.is_loop ? CU_GRAPH_COND_TYPE_WHILE : CU_GRAPH_COND_TYPE_SWITCH;
  params.conditional.size = static_cast<unsigned>(choice.bodies.size());
  PD_CUDA(driver_.cuCtxGetCurrent(&params.conditional.ctx));
  CUgraphNode node = nullptr, before = last_node(driver_, stream);
  PD_CUDA(driver_.cuGraphAddNode(&node, graph_of(stream), &before, nullptr, 1, &params));
  PD_CUDA(driver_.cuStreamUpdateCaptureDependencies(stream, &node, nullptr, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
  for (std::size_t b = 0; b < choice.bodies.size(); ++b) {
    add_body(params.conditional.phGraph_out[b], choice.bodies[b], depth, ++body_count_);
  }
}

void EntryCapture::add_body(CUgraph graph, const std::pair<std::size_t, std::size_t>& body, std::size_t depth,
                            std::size_t number) {
  if (body.first == body.second) return;
  const CUstream stream = streams_.at(depth).get();
  PD_CUDA(driver_.cuStreamBeginCaptureToGraph(stream, graph, nullptr, nullptr, 0, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  Lasts lasts;
  CUgraph same = nullptr;
  capture_to_end(stream, &same,
                 [&] { start_all(stream, body.first, body.second, depth + 1, is_listed_ ? &lasts : nullptr); });
  if (is_listed_) bodies_.push_back({graph, number, std::move(lasts)});
}

}  // namespace paoding
