// SPDX-License-Identifier: Apache-2.0
#include "runtime/parameter_preprocessing.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "group/lower.h"
#include "ops/decision.h"
#include "ops/recurrence/packed_weights.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "runtime/compile.h"
#include "runtime/parameter_store.h"

namespace paoding {
namespace {

// Growth over the operands: a result that is much larger had better be made where it is read.
constexpr std::int64_t kMostGrowth = 2, kSmall = 4 << 10;  // times, bytes
// [O, C, KH, KW] as [O, KH, KW, C], and back.
constexpr std::array<std::int64_t, 4> kChannelsInside{0, 2, 3, 1}, kChannelsBeforePixels{0, 3, 1, 2};

class Taking {
 public:
  Taking(Graph* graph, const KernelSetting& kernels) : graph_(*graph), kernels_(kernels), target_(*kernels.target) {}

  PreprocessingPart run() {
    PreprocessingPart part;
    if (graph_.inputs().empty() || !graph_.assigns().empty()) return part;
    find_preprocessed();
    find_wanted();
    if (wanted_.empty() && packed_.empty() && blocked_.empty() && by_units_.empty()) return part;
    part.graph = std::make_unique<Graph>();
    std::map<Ref, Ref> replaced;
    for (const Ref ref : wanted_) {
      replaced[ref] = kept(part.graph->value(copied(ref, part.graph.get())), &part).ref();
    }
    for (const auto& [ref, readers] : packed_) {
      const Value made = part.graph->value(copied(ref, part.graph.get()));
      const Value there = transpose(kept(transpose(made, kChannelsInside), &part), kChannelsBeforePixels);
      for (const NodeId id : readers) graph_.mutable_node(id).inputs[1] = there.ref();
    }
    for (const auto& [ref, readers] : blocked_) {
      const Value made = part.graph->value(copied(ref, part.graph.get()));
      const Value there = kept(packed_weights(made, recurrence_depth(graph_.node(readers[0]))), &part);
      for (const NodeId id : readers) graph_.mutable_node(id).inputs[1] = there.ref();
    }
    for (const auto& [ref, readers] : by_units_) {
      const Value there = kept(weights_by_units(part.graph->value(copied(ref, part.graph.get()))), &part);
      for (const NodeId id : readers) graph_.mutable_node(id).inputs[1] = there.ref();
    }
    graph_.replace(replaced);
    graph_.compact();
    return part;
  }

 private:
  // A parameter that the part gives this value.
  Value kept(const Value& made, PreprocessingPart* part) {
    std::string name = fmt::format("preprocessed/{}", part->names.size());
    while (graph_.find(name).valid()) name += "_";
    part->graph->assign(part->graph->parameter(name, made.dtype(), made.shape()), made);
    part->names.push_back(name);
    return graph_.parameter(name, made.dtype(), made.shape());
  }

  // Kernels for convolutions on a GPU would put weights in this order in every run: all of 16 bits, and those of f32 of
  // which a CTA keeps no copy, if they can be read in whole pieces then.
  bool packs_weights(const Node& node) const {
    constexpr std::int64_t kPieceBytes = 16, kKeptChannels = 64;
    const auto& convolution = node.op->convolution;
    if (!target_.is_gpu() || !convolution) return false;
    if (convolution->result != Convolution::Result::image || convolution->is_pooled) return false;
    const Type& weights = graph_.type(node.inputs[1]);
    const std::int64_t channels = weights.shape[1], size = size_bytes(weights.dtype);
    if (weights.shape[2] * weights.shape[3] == 1 || channels == 1 || node.attrs.get_int("groups") != 1) return false;
    const bool is_kept = std::max(weights.shape[0], channels) <= kKeptChannels;
    return size == 2 || (weights.dtype == f32 && !is_kept && channels * size % kPieceBytes == 0);
  }

  // Recurrences on a CPU would pack the matrix of their state in blocks of units in every run; 0: this node does not.
  std::int64_t recurrence_depth(const Node& node) const {
    return node.inputs.size() < 2 ? 0 : packed_depth(cell_over_time(*node.op), graph_.type(node.inputs[1]), target_);
  }

  // The kernel of a recurrence on a GPU decides, by which of its results are read. Layers of a pipeline may share a
  // launch, which takes weights of both in their own order: several of one direction are left alone.
  bool wants_by_units(NodeId id) {
    const Node& node = graph_.node(id);
    const bool may_be_one =
        node.inputs.size() > 2 && node.types.size() > 1;  // and no product: kernels need not be asked
    if (!target_.is_gpu() || !may_be_one || graph_.type(node.inputs[1]).shape.rank() != 2) return false;
    std::uint32_t unread = 0;
    for (int k = 0; k < static_cast<int>(node.types.size()); ++k) {
      if (!read_.contains({id, k})) unread |= 1u << k;
    }
    const Decision& decision = decide(graph_, id, kernels_, unread);
    const KernelImplementation* const kernel = decision.kernel();
    if (kernel == nullptr || !kernel->wants_by_units) return false;
    KernelCall call = decision.call;
    for (NodeId other = 0; other < graph_.size(); ++other) {
      const Node& like = graph_.node(other);
      if (other == id || like.op != node.op) continue;
      if (like.attrs.get_bool("reverse") == node.attrs.get_bool("reverse")) return false;
      if (like.types == node.types) ++call.together;
    }
    return kernel->wants_by_units(call);
  }

  enum class Kind : std::uint8_t { fed, free, parameter, view, computed };  // free: it follows from nothing

  Kind kind(NodeId id) const { return kinds_[static_cast<std::size_t>(id)]; }
  bool is_preprocessed(NodeId id) const { return kind(id) >= Kind::parameter; }

  static bool is_pure(const Node& node) {
    if (has_effect(node) || node.placement != Placement::any) return false;
    if (!node.bodies.empty() && !node.op->is_fusion_group()) return false;
    return is_groupable(node) || node.op->kind == OpKind::view || node.op->kind == OpKind::kernel;
  }

  void find_preprocessed() {
    std::vector<std::int64_t> source_bytes;  // per node: of the parameters that it is made of
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Node& node = graph_.node(id);
      std::int64_t bytes = node.op->is_kept ? size_bytes(node.types[0]) : 0;
      Kind made = node.op->is_kept                                      ? Kind::parameter
                  : is_generated(node) || node.op->is(OpRole::constant) ? Kind::free
                  : node.op->is(OpRole::source) || !is_pure(node)       ? Kind::fed
                  : node.op->kind == OpKind::view                       ? Kind::view
                                                                        : Kind::computed;
      if (made == Kind::view || made == Kind::computed) {
        bool is_of_parameters = false;
        for (const Ref& ref : node.inputs) {
          if (kind(ref.node) == Kind::fed) made = Kind::fed;
          is_of_parameters |= is_preprocessed(ref.node);
          bytes += source_bytes[static_cast<std::size_t>(ref.node)];
        }
        std::int64_t size = 0;
        for (const Type& type : node.types) size += size_bytes(type);
        if (!is_of_parameters || size > std::max(kMostGrowth * bytes, kSmall)) made = Kind::fed;
      }
      kinds_.push_back(made), source_bytes.push_back(bytes);
    }
  }

  // Computed values that the rest reads, through views or not.
  void find_wanted() {
    std::set<NodeId> views;
    for (NodeId id = 0; id < graph_.size(); ++id)
      read_.insert(graph_.node(id).inputs.begin(), graph_.node(id).inputs.end());
    for (const Graph::Fetch& fetch : graph_.fetches()) read_.insert(fetch.ref);
    const auto want = [&](Ref ref, const auto& again) -> void {
      if (kind(ref.node) == Kind::computed) {
        if (seen_.insert(ref).second) wanted_.push_back(ref);
      } else if (kind(ref.node) == Kind::view && views.insert(ref.node).second) {
        for (const Ref& source : graph_.node(ref.node).inputs) again(source, again);
      }
    };
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (kind(id) != Kind::fed) continue;
      const Node& node = graph_.node(id);
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        if (i == 1 && is_preprocessed(node.inputs[i].node) && packs_weights(node)) {
          packed_[node.inputs[i]].push_back(id);
        } else if (i == 1 && is_preprocessed(node.inputs[i].node) && recurrence_depth(node) > 0) {
          blocked_[node.inputs[i]].push_back(id);
        } else if (i == 1 && is_preprocessed(node.inputs[i].node) && wants_by_units(id)) {
          by_units_[node.inputs[i]].push_back(id);
        } else {
          want(node.inputs[i], want);
        }
      }
    }
    for (const Graph::Fetch& fetch : graph_.fetches()) want(fetch.ref, want);
  }

  // With all that it is made of; inputs stand before it, so that nothing is deep.
  Ref copied(Ref wanted, Graph* to) {
    std::vector<NodeId> open{wanted.node};
    std::set<NodeId> needed;
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      if (copies_.contains(id) || !needed.insert(id).second) continue;
      for (const Ref& ref : graph_.node(id).inputs) open.push_back(ref.node);
    }
    for (const NodeId id : needed) {
      const Node& node = graph_.node(id);
      if (kind(id) == Kind::parameter) {
        copies_[id] = to->parameter(node.name.str(), node.types[0].dtype, node.types[0].shape).ref().node;
        continue;
      }
      Node copy = node;
      for (Ref& ref : copy.inputs) ref.node = copies_.at(ref.node);
      for (auto& body : copy.bodies) body = body->clone();
      copies_[id] = to->add(std::move(copy));
    }
    return {copies_.at(wanted.node), wanted.output};
  }

  Graph& graph_;
  const KernelSetting& kernels_;
  const Target& target_;
  std::set<Ref> read_;       // by a node, or fetched
  std::vector<Kind> kinds_;  // per node
  std::vector<Ref> wanted_;
  std::set<Ref> seen_;
  std::map<Ref, std::vector<NodeId>> packed_;    // weights, and the convolutions that read them with channels inside
  std::map<Ref, std::vector<NodeId>> blocked_;   // weights, and the recurrences that read them in blocks of units
  std::map<Ref, std::vector<NodeId>> by_units_;  // weights, and the recurrences that read them so
  std::map<NodeId, NodeId> copies_;
};

}  // namespace

PreprocessingPart take_preprocessing(Graph* graph, const KernelSetting& kernels) {
  return Taking(graph, kernels).run();
}

PreprocessedSet& PreprocessedParameters::at(const std::string& text) {
  const std::lock_guard lock(mutex_);
  auto& found = all_[text];
  if (found == nullptr) found = std::make_unique<PreprocessedSet>();
  return *found;
}

PreprocessedSet& Parameters::Store::preprocess(CompiledPlan* compiled, const CompileOptions& options) {
  PreprocessingPart& part = compiled->preprocessed;
  // Names aside, the values follow from the text and from how products are rounded.
  const std::string text = fmt::format("{}{}", options.allow_tf32 ? "tf32\n" : "", to_text(*part.graph));
  PreprocessedSet& made = preprocessed.at(text);
  const std::lock_guard lock(made.making);
  if (made.executor != nullptr) return made;
  made.plan = std::move(compiled->preprocessing_plan);
  ExecutorOptions executor_options;
  executor_options.device = device;
  executor_options.name = "preprocessed";
  made.buffers.clear(), made.shadows.clear();
  for (const auto& [name, slot] : made.plan.parameters) {
    const Type type = part.graph->find(name).type();
    if (std::ranges::find(part.names, name) != part.names.end()) {
      const std::int64_t bytes = paoding::size_bytes(type);
      auto buffer = device.kind == DeviceKind::cpu ? make_cpu_buffer(bytes) : make_gpu_buffer(bytes, device);
      executor_options.parameters.push_back(buffer->address());
      made.buffers.emplace(name, std::move(buffer));
    } else if (const auto of = compiled->shadows.find(name); of != compiled->shadows.end()) {
      made.shadows.push_back(&shadows.at(name, of->second, type, device));
      executor_options.parameters.push_back(made.shadows.back()->buffer->address());
    } else {
      executor_options.parameters.push_back(at(name).buffer->address());
    }
  }
  auto executor = device.kind == DeviceKind::cpu ? make_cpu_executor(made.plan, executor_options)
                                                 : make_gpu_executor(made.plan, executor_options);
  for (const auto& [slot, tensor] : made.plan.constants) executor->write(slot, tensor);
  made.executor = std::move(executor);
  return made;
}

}  // namespace paoding
