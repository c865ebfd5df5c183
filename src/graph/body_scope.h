// SPDX-License-Identifier: Apache-2.0
// Which bodies are being written around the caller, and where a node goes whose inputs are all values of outside. The
// step of a scan leaves such a node outside, where it runs once; a branch must not: its computations and prints are
// only for runs that take it.
#pragma once

#include "paoding/graph.h"

namespace paoding {

enum class BodyKind { loop, endless_loop, branch };

/// While it lives, the function that writes `body` runs. With `body` null called ops go into the graphs whose values
/// they use, as if nothing were being written.
class BodyScope {
 public:
  BodyScope(Graph* body, BodyKind kind) : body_(body), kind_(kind), around_(innermost) { innermost = this; }
  ~BodyScope() { innermost = around_; }
  BodyScope(const BodyScope&) = delete;
  BodyScope& operator=(const BodyScope&) = delete;

  /// The graph in which something is written whose values are of `graph`: the innermost branch inside of it, if any.
  static Graph& home(Graph& graph) {
    for (const BodyScope* scope = innermost; scope != nullptr && scope->body_ != nullptr; scope = scope->around_) {
      if (scope->kind_ == BodyKind::branch) return graph.encloses(*scope->body_) ? *scope->body_ : graph;
    }
    return graph;
  }

  /// Whether the steps of a loop without a limit are being written, which have no numbers.
  static bool is_in_endless_loop() {
    for (const BodyScope* scope = innermost; scope != nullptr && scope->body_ != nullptr; scope = scope->around_) {
      if (scope->kind_ == BodyKind::endless_loop) return true;
    }
    return false;
  }

  /// Moves a body that is being written into the one that is being written around it, and that one into the next:
  /// a body that uses nothing of those around it would run once for all their steps.
  static void nest(Graph& body) {
    const BodyScope* scope = innermost;
    while (scope != nullptr && scope->body_ != nullptr && scope->body_ != &body) scope = scope->around_;
    if (scope == nullptr || scope->around_ == nullptr || scope->around_->body_ == nullptr) return;
    Graph& outer = *scope->around_->body_;
    if (body.parent != &outer && body.parent->encloses(outer)) body.move_into(outer);
    nest(outer);
  }

 private:
  inline static thread_local const BodyScope* innermost = nullptr;
  Graph* body_;
  BodyKind kind_;
  const BodyScope* around_;
};

}  // namespace paoding
