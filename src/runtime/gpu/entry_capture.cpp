// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/entry_capture.h"

#include "runtime/gpu/capture.h"

namespace paoding {

EntryCapture::EntryCapture(const gpu::GpuDevice& device, const Schedule& schedule, std::size_t first, std::size_t end)
    : device_(device), driver_(gpu::required_driver()), schedule_(schedule), first_(first), end_(end) {
  add_streams(first, end, 0);
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
  start_all(stream, first_, end_, 0, lasts);
}

CUgraphNode EntryCapture::last_node(const gpu::Driver& driver, CUstream stream) {
  CUstreamCaptureStatus status;
  const CUgraphNode* nodes = nullptr;
  const CUgraphEdgeData* edges = nullptr;  // asked for: launches that overlap are edges that need more than a pair
  std::size_t count = 0;
  PD_CUDA(driver.cuStreamGetCaptureInfo(stream, &status, nullptr, nullptr, &nodes, &edges, &count));
  return count == 0 ? nullptr : nodes[count - 1];
}

void EntryCapture::start_all(CUstream stream, std::size_t first, std::size_t end, std::size_t depth, Lasts* lasts) {
  const auto note = [&](std::size_t k) {
    if (lasts != nullptr) lasts->emplace_back(k, last_node(driver_, stream));
  };
  for (std::size_t k = first; k < end; ++k) {
    const LaunchEntry& entry = schedule_.entries[k];
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
