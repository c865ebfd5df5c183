// SPDX-License-Identifier: Apache-2.0
// Executable CUDA graphs take memory of the device, about 4 KiB a node. Those of programs that are bound together have
// a budget: the least recently used are dropped, and made again when they are needed.
#pragma once

#include <cstdint>
#include <list>

#include "profile/held_bytes.h"

namespace paoding {

class GraphBudget {
 public:
  /// A graph that can be dropped.
  class Graph {
   public:
    virtual ~Graph() = default;
    virtual void drop() = 0;

   private:
    friend class GraphBudget;
    std::list<Graph*>::iterator place_;
    std::int64_t bytes_ = 0;  // counted; 0 while it is dropped
  };

  GraphBudget(std::int64_t bytes, int device) : most_(bytes), held_(profile::HeldFor::graphs, device, 0) {}

  /// The graph, of so many bytes, is launched next: others are dropped until it fits. One alone always may be there.
  void use(Graph* graph, std::int64_t bytes) {
    if (graph == last_) return;
    last_ = graph;
    if (graph->bytes_ != 0) {
      used_.splice(used_.begin(), used_, graph->place_);
      return;
    }
    change(bytes);
    used_.push_front(graph);
    graph->place_ = used_.begin();
    graph->bytes_ = bytes;
    drop_to(most_);
  }

  /// Whether another of so many bytes drops none.
  bool has_room(std::int64_t bytes) const { return bytes_ + bytes <= most_; }

  /// All but the last used, where memory has run out.
  void drop_others() { drop_to(0); }

  /// The graph is no more.
  void forget(Graph* graph) {
    if (graph->bytes_ == 0) return;
    used_.erase(graph->place_);
    change(-graph->bytes_);
    graph->bytes_ = 0;
    if (graph == last_) last_ = nullptr;
  }

  std::int64_t bytes() const { return bytes_; }

 private:
  void change(std::int64_t more) {
    bytes_ += more;
    held_.set(bytes_);
  }

  void drop_to(std::int64_t most) {
    while (bytes_ > most && used_.size() > 1) {
      Graph* last = used_.back();
      forget(last);
      last->drop();
    }
  }

  Graph* last_ = nullptr;  // used, while it is there
  const std::int64_t most_;
  std::int64_t bytes_ = 0;
  profile::HeldBytes held_;
  std::list<Graph*> used_;  // the last used first
};

}  // namespace paoding
