// SPDX-License-Identifier: Apache-2.0
// mixed_precision: products and convolutions of f32 are done in bf16 or f16, and the values in memory between them are
// kept so. The policy of precision_needs.h decides which values stay f32.
//
//   h = tanh(add(matmul(x, w), b));  y = matmul(h, u);  loss = sum(y)
// becomes
//   p = matmul(store_as(x), w');  h = store_as(tanh(add(p, b)));  y = matmul(h, u')
//   loss = sum(store_as(y))
//
// where x, p, h and y are bf16, and w', u' shadows: parameters that hold w and u in bf16. Whoever assigns w assigns w'
// too. Rounding is a part of the store of the group that makes a value, widening of the load of the group that reads
// it: store_as is nothing within a kernel. A product whose result is wanted in f32 (the gradient of a parameter)
// writes its sums as they are (matmul_wide, conv2d_grad_weight_wide).
#include <fmt/format.h>

#include <functional>

#include "graph/keep_names.h"
#include "graph/shadow.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/pass.h"
#include "passes/precision_needs.h"
#include "passes/scan_parts.h"

namespace paoding {
namespace {

struct Counts {
  int products = 0, wide_products = 0, shadows = 0;
};

class PrecisionRewriter {
 public:
  PrecisionRewriter(Graph& graph, const PrecisionNeeds& needs, DType narrow, Counts& counts)
      : graph_(graph),
        needs_(needs),
        narrow_(narrow),
        counts_(counts),
        versions_(static_cast<std::size_t>(graph.size())) {
    for (NodeId id = 0; id < graph.size(); ++id) versions_[static_cast<std::size_t>(id)].resize(outputs_of(id));
  }

  void rewrite_nodes() {
    const auto size = static_cast<NodeId>(versions_.size());
    for (NodeId id = 0; id < size; ++id) rewrite(id);
  }

  /// The same where the graph is no body of a scan: its fetches keep their dtype.
  void rewrite_all() {
    rewrite_nodes();
    for (Graph::Fetch& fetch : graph_.mutable_fetches()) fetch.ref = wide(fetch.ref).ref();
    for (const auto& [parameter, shadow] : shadows_) assign_shadow(parameter, shadow);
  }

  /// The value that replaces an f32 value in f32, and in 16 bits; any other value is itself.
  Value wide(Ref ref) {
    if (!is_rewritten(ref)) return graph_.value(now(ref));
    Version& version = version_of(ref);
    if (!version.wide.valid()) version.wide = named_as(ref, [&] { return stored(graph_.value(version.narrow), f32); });
    return graph_.value(version.wide);
  }
  Value narrow(Ref ref) {
    if (!is_rewritten(ref)) return graph_.value(now(ref));
    Version& version = version_of(ref);
    if (!version.narrow.valid()) version.narrow = named_as(ref, [&] { return narrowed(ref, version.wide); });
    return graph_.value(version.narrow);
  }
  /// The one that arithmetic reads.
  Value main(Ref ref) { return is_narrow(ref) ? narrow(ref) : wide(ref); }
  bool is_narrow(Ref ref) { return is_rewritten(ref) && version_of(ref).is_narrow; }
  /// Sets the versions of an input of a scan's body; a ref is invalid where there is none.
  void set_input(Ref ref, Ref in_f32, Ref in_16_bits, bool reads_narrow) {
    version_of(ref) = {in_f32, in_16_bits, reads_narrow};
  }

 private:
  struct Version {
    Ref wide, narrow;
    bool is_narrow = false;  // the version that arithmetic reads
  };

  std::size_t outputs_of(NodeId id) const { return graph_.node(id).types.size(); }
  bool is_rewritten(Ref ref) const { return graph_.type(ref).dtype == f32; }
  Ref now(Ref ref) const {
    const auto it = others_.find(ref);
    return it == others_.end() ? ref : it->second;
  }
  Version& version_of(Ref ref) {
    return versions_[static_cast<std::size_t>(ref.node)][static_cast<std::size_t>(ref.output)];
  }
  unsigned needs(Ref ref) const { return needs_.of(graph_, ref); }
  bool is_wanted_wide(Ref ref) const { return wants_wide(needs(ref)); }
  bool is_wanted_narrow(Ref ref) const { return wants_narrow(needs(ref)); }

  template <class Make>
  Ref named_as(Ref ref, Make make) {
    const KeepNames keep(graph_, graph_.node(ref.node));
    return make().ref();
  }
  static Value stored(const Value& value, DType dtype) { return call("store_as", {value}, {{"dtype", dtype}}); }

  Value narrowed(Ref ref, Ref in_f32) {
    const Node& node = graph_.node(ref.node);
    if (node.op->is_uniform) {
      Attrs attrs = node.attrs;
      attrs.set("dtype", narrow_);
      return call(*node.op, {}, attrs, {}, &graph_)[0];
    }
    if (node.op->is_kept) {
      const std::string name = shadow_name(node.name.str(), narrow_);
      if (!graph_.find(name).valid()) {  // else the user has such a parameter
        ++counts_.shadows;
        const Value shadow = graph_.parameter(name, narrow_, node.types[0].shape);
        shadows_.emplace_back(ref, shadow.ref());
        return shadow;
      }
    }
    return stored(graph_.value(in_f32), narrow_);
  }

  void rewrite(NodeId id) {
    const Node& node = graph_.node(id);
    const KeepNames keep(graph_, node);
    switch (precision_role(node)) {
      case PrecisionRole::none: return stay(id);
      case PrecisionRole::product: return rewrite_product(id);
      case PrecisionRole::mover: return rewrite_mover(id);
      case PrecisionRole::storage: return rewrite_storage(id);
      case PrecisionRole::barrier: return rewrite_barrier(id);
      case PrecisionRole::formula: return rewrite_formula(id);
      case PrecisionRole::adder: return set(id, again(id, moves_narrow(id) ? all_narrow() : all_wide()), true);
      case PrecisionRole::reduction: return rewrite_reduction(id);
      case PrecisionRole::scan: return rewrite_scan(id);
      case PrecisionRole::other: return rewrite_other(id);
    }
  }

  // The node is as it was, or its inputs were brought up to date.
  void stay(NodeId id) {
    for (std::int32_t k = 0; k < static_cast<std::int32_t>(outputs_of(id)); ++k) {
      Version& version = version_of({id, k});
      if (!version.wide.valid() && !version.narrow.valid()) version.wide = {id, k};
    }
  }

  using Choice = std::function<Value(Ref)>;
  Choice all_wide() {
    return [this](Ref ref) { return wide(ref); };
  }
  Choice all_narrow() {
    return [this](Ref ref) { return narrow(ref); };
  }
  Choice all_main() {
    return [this](Ref ref) { return main(ref); };
  }

  // The op on other inputs; the node itself where they have not changed.
  Values again(NodeId id, const Choice& choose) {
    const std::vector<Ref> inputs = graph_.node(id).inputs;
    Values chosen;
    bool is_same = true;
    for (const Ref& ref : inputs) {
      chosen.push_back(choose(ref));
      is_same &= chosen.back().ref() == ref;
    }
    Values made;
    if (!is_same) return call(*graph_.node(id).op, chosen, graph_.node(id).attrs, {}, &graph_);
    for (std::size_t k = 0; k < outputs_of(id); ++k) made.push_back(graph_.value({id, static_cast<std::int32_t>(k)}));
    return made;
  }

  // Outputs that are not f32 are found by who reads them as those of the node: they are replaced.
  void set(NodeId id, const Values& made, bool is_main) {
    for (std::size_t k = 0; k < made.size(); ++k) {
      const Ref old{id, static_cast<std::int32_t>(k)};
      if (!is_rewritten(old)) {
        if (!(made[k].ref() == old) && is_main) others_[old] = made[k].ref();
        continue;
      }
      Version& version = version_of(old);
      (made[k].dtype() == narrow_ ? version.narrow : version.wide) = made[k].ref();
      if (is_main) version.is_narrow = made[k].dtype() == narrow_;
    }
  }

  void rewrite_product(NodeId id) {
    const Ref old{id, 0};
    ++counts_.products;
    Version& version = version_of(old);
    if (const std::string& op = graph_.node(id).op->wide_form; !op.empty() && is_best_wide(needs(old))) {
      ++counts_.wide_products;
      const std::vector<Ref> inputs = graph_.node(id).inputs;
      const Attrs attrs = graph_.node(id).attrs;
      version.wide = call(op, {narrow(inputs[0]), narrow(inputs[1])}, attrs).ref();
      return;
    }
    version.narrow = again(id, all_narrow())[0].ref();
    version.is_narrow = !is_wanted_wide(old);
  }

  // Handles the store_as nodes of narrow_composed.
  void rewrite_storage(NodeId id) {
    const Ref old{id, 0}, input = graph_.node(id).inputs[0];
    const DType from = graph_.type(input).dtype, to = graph_.type(old).dtype;
    if (from == f32 && to == narrow_) {
      others_[old] = narrow(input).ref();
    } else if (from == narrow_ && to == f32) {
      version_of(old) = {{}, now(input), !is_wanted_wide(old)};
    } else {
      rewrite_formula(id);
    }
  }

  // Views and the like are there in each precision that is wanted; kernels are run in one.
  void rewrite_mover(NodeId id) {
    const Ref old{id, 0};
    if (!is_rewritten(old)) return rewrite_formula(id);
    bool makes_wide = is_wanted_wide(old), makes_narrow = is_wanted_narrow(old);
    if (!makes_wide && !makes_narrow) (moves_narrow(id) ? makes_narrow : makes_wide) = true;
    const bool is_view = graph_.node(id).op->kind == OpKind::view;
    if (makes_wide) set(id, again(id, all_wide()), true);
    if (makes_narrow && (is_view || !makes_wide)) set(id, again(id, all_narrow()), !makes_wide);
  }

  // Whether all that it moves is narrow, so that nothing would be converted.
  bool moves_narrow(NodeId id) {
    bool is_any = false;
    for (const Ref& ref : graph_.node(id).inputs) {
      if (!is_rewritten(ref) || is_generated(ref)) continue;
      if (!is_narrow(ref)) return false;
      is_any = true;
    }
    return is_any;
  }

  bool is_generated(Ref ref) const { return graph_.node(ref.node).op->is(OpRole::generated); }

  // Arithmetic gives 16 bits where products want them, or where all that it reads of the size of its result is so.
  bool computes_narrow(NodeId id) {
    const Ref old{id, 0};
    if (is_best_wide(needs(old))) return false;
    if (is_wanted_narrow(old)) return true;
    const std::int64_t elements = graph_.type(old).shape.elements();
    bool is_any = false;
    for (const Ref& ref : graph_.node(id).inputs) {
      const bool is_whole = graph_.type(ref).shape.elements() == elements;
      if (!is_rewritten(ref) || !is_whole || is_generated(ref)) continue;
      if (graph_.node(ref.node).op->is_kept) continue;
      if (!is_narrow(ref)) return false;
      is_any = true;
    }
    return is_any;
  }

  void rewrite_formula(NodeId id) {
    const Ref old{id, 0};
    if (!is_rewritten(old)) return set(id, again(id, all_main()), true);
    Version& version = version_of(old);
    version.is_narrow = computes_narrow(id);
    if (version.is_narrow) {
      const Value made = again(id, all_main())[0];
      version.narrow = made.dtype() == narrow_ ? made.ref() : stored(made, narrow_).ref();
    } else {
      version.wide = again(id, all_wide())[0].ref();
    }
  }

  void rewrite_reduction(NodeId id) {
    const Ref old{id, 0};
    const bool is_narrow = is_rewritten(old) && is_wanted_narrow(old) && !is_wanted_wide(old);
    set(id, again(id, is_narrow ? all_narrow() : all_wide()), true);
  }

  void rewrite_barrier(NodeId id) {
    const std::vector<Ref> inputs = graph_.node(id).inputs;
    Values passed;
    std::vector<std::pair<Ref, bool>> which;  // output, and whether narrow
    for (std::size_t i = 0; i < inputs.size(); ++i) {
      const Ref old{id, static_cast<std::int32_t>(i)};
      const bool makes_narrow =
          is_rewritten(old) && (is_wanted_narrow(old) || (!is_wanted_wide(old) && is_narrow(inputs[i])));
      const bool makes_wide = !makes_narrow || is_wanted_wide(old);
      if (makes_wide) passed.push_back(wide(inputs[i])), which.emplace_back(old, false);
      if (makes_narrow) passed.push_back(narrow(inputs[i])), which.emplace_back(old, true);
    }
    const Values made = call(*graph_.node(id).op, passed);
    for (std::size_t i = 0; i < made.size(); ++i) {
      const auto [old, is_in_16_bits] = which[i];
      if (!is_rewritten(old)) {
        others_[old] = made[i].ref();
        continue;
      }
      Version& version = version_of(old);
      (is_in_16_bits ? version.narrow : version.wide) = made[i].ref();
      version.is_narrow = !version.wide.valid();
    }
  }

  void rewrite_other(NodeId id) {
    std::vector<Ref> inputs = graph_.node(id).inputs;
    if (graph_.node(id).op->is(OpRole::update)) assigned_[inputs[0]] = inputs[1];
    for (Ref& ref : inputs) ref = wide(ref).ref();
    graph_.mutable_node(id).inputs = inputs;
    for (const auto& body : graph_.node(id).bodies) {
      PrecisionRewriter(*body, needs_, narrow_, counts_).rewrite_all();
      body->compact();
    }
    stay(id);
  }

  // ---- loops ----

  void rewrite_scan(NodeId id) {
    ScanParts parts(graph_, id);
    PrecisionRewriter body(parts.body, needs_, narrow_, counts_);
    const std::vector<ScanParts::Carry> carries = parts.carries;
    parts.carries.clear();
    std::vector<std::pair<std::size_t, bool>> carried;  // of the new ones: which it was, and whether narrow
    for (std::size_t i = 0; i < carries.size(); ++i) {
      const ScanParts::Carry& old = carries[i];
      const unsigned bits = parts.body.type(old.input).dtype == f32 ? needs_.of(parts.body, old.input) : 0;
      const bool is_wide = bits == 0 || wants_wide(bits), is_narrow = wants_narrow(bits);
      Ref inside;
      if (is_wide)
        parts.carries.push_back({wide(old.initial).ref(), old.input, {}, {}}), carried.emplace_back(i, false);
      if (is_narrow) {
        inside = parts.new_input("narrow", {narrow_, parts.body.type(old.input).shape});
        parts.carries.push_back({narrow(old.initial).ref(), inside, {}, {}});
        carried.emplace_back(i, true);
      }
      body.set_input(old.input, is_wide ? old.input : Ref{}, inside, !is_wide);
    }
    rewrite_arguments(parts, body, &parts.sequences);
    rewrite_arguments(parts, body, &parts.constants);
    body.rewrite_nodes();

    for (std::size_t i = 0; i < carried.size(); ++i) {
      const Ref next = carries[carried[i].first].next;
      parts.carries[i].next = (carried[i].second ? body.narrow(next) : body.wide(next)).ref();
    }
    const std::vector<ScanParts::Output> outputs = parts.outputs;
    parts.outputs.clear();
    std::vector<std::pair<Ref, bool>> stacked;
    for (const ScanParts::Output& old : outputs) {
      bool makes_wide = true, makes_narrow = false;
      if (is_rewritten(old.stacked)) {
        makes_wide = is_wanted_wide(old.stacked);
        makes_narrow = is_wanted_narrow(old.stacked);
        if (!makes_wide && !makes_narrow) (body.is_narrow(old.value) ? makes_narrow : makes_wide) = true;
      }
      if (makes_wide)
        parts.outputs.push_back({body.wide(old.value).ref(), {}, old.name}), stacked.emplace_back(old.stacked, false);
      if (makes_narrow)
        parts.outputs.push_back({body.narrow(old.value).ref(), {}, ""}), stacked.emplace_back(old.stacked, true);
    }
    std::map<Ref, Ref> none;
    const NodeId made = parts.rebuild(&none);
    const auto result = [&](Ref old, bool is_in_16_bits, std::size_t k) {
      const Ref now{made, static_cast<std::int32_t>(k)};
      if (!is_rewritten(old)) {
        others_[old] = now;
        return;
      }
      Version& version = version_of(old);
      (is_in_16_bits ? version.narrow : version.wide) = now;
      version.is_narrow = !version.wide.valid();
    };
    for (std::size_t i = 0; i < carried.size(); ++i) result(carries[carried[i].first].last, carried[i].second, i);
    for (std::size_t i = 0; i < stacked.size(); ++i) result(stacked[i].first, stacked[i].second, carried.size() + i);
  }

  // A loop gets an argument in each precision that it reads it in.
  void rewrite_arguments(ScanParts& parts, PrecisionRewriter& body, std::vector<ScanParts::Argument>* arguments) {
    std::vector<ScanParts::Argument> made;
    for (const ScanParts::Argument& old : *arguments) {
      const Type type = parts.body.type(old.input);
      if (type.dtype != f32) {
        made.push_back({now(old.outer), old.input});
        continue;
      }
      const unsigned bits = needs_.of(parts.body, old.input);
      bool is_wide = wants_wide(bits), is_narrow = wants_narrow(bits);
      if (!is_wide && !is_narrow) (this->is_narrow(old.outer) ? is_narrow : is_wide) = true;
      Ref inside;
      if (is_wide) made.push_back({wide(old.outer).ref(), old.input});
      if (is_narrow) {
        inside = parts.new_input("narrow", {narrow_, type.shape});
        made.push_back({narrow(old.outer).ref(), inside});
      }
      body.set_input(old.input, is_wide ? old.input : Ref{}, inside, !is_wide);
    }
    *arguments = std::move(made);
  }

  void assign_shadow(Ref parameter, Ref shadow) {
    const auto value = assigned_.find(parameter);
    if (value == assigned_.end()) return;
    const KeepNames keep(graph_, graph_.node(value->second.node));
    graph_.assign(graph_.value(shadow), narrow(value->second));
  }

  Graph& graph_;
  const PrecisionNeeds& needs_;
  const DType narrow_;
  Counts& counts_;
  std::vector<std::vector<Version>> versions_;
  std::map<Ref, Ref> others_;                 // replacements of values that are not f32
  std::vector<std::pair<Ref, Ref>> shadows_;  // of parameters
  std::map<Ref, Ref> assigned_;               // values, by parameter
};

}  // namespace

void mixed_precision(Graph& graph, PassNotes& notes) {
  const DType narrow = notes.precision();
  if (narrow == f32) return;
  Counts counts;
  PrecisionRewriter(graph, PrecisionNeeds(graph), narrow, counts).rewrite_all();
  graph.compact();
  notes.add(fmt::format("{} products read {}, {} of them with a result in f32; {} parameters have shadows",
                        counts.products, to_string(narrow), counts.wide_products, counts.shadows));
}

}  // namespace paoding
