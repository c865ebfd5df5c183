// SPDX-License-Identifier: Apache-2.0
#include "plan/planner.h"

#include <algorithm>
#include <optional>
#include <set>

#include "base/check.h"
#include "base/one_line.h"
#include "base/slot_alignment.h"
#include "group/lower.h"
#include "ops/views.h"
#include "plan/choice.h"
#include "plan/epilogues.h"
#include "plan/host_steps.h"

namespace paoding {

namespace {
// Below this it does not matter, and plans of small graphs read in the order in which they were written.
constexpr std::int64_t kLeastBytesToReorder = 1 << 20;

Plan plan_in_best_order(const Graph& graph, const PlanOptions& options) {
  Decisions decisions;
  Plan best = Planner(options, NodeOrder::as_built, &decisions).run(graph);
  if (!options.reorder || best.peak_live_bytes < kLeastBytesToReorder) return best;
  const std::int64_t as_built = best.peak_live_bytes;
  for (const NodeOrder order : {NodeOrder::forward, NodeOrder::backward}) {
    Plan other = Planner(options, order, &decisions).run(graph);
    if (other.peak_live_bytes >= best.peak_live_bytes) continue;
    other.notes.push_back(fmt::format("order_steps: {} bytes live at the peak, {} in the order of the graph",
                                      other.peak_live_bytes, as_built));
    best = std::move(other);
  }
  return best;
}

// Slots that the step, or a step in it, writes.
void add_written(const Step& step, std::set<int>* slots) {
  for (std::size_t i = step.reads; i < step.operands.size(); ++i) slots->insert(step.operands[i].slot);
  for (const auto* body : step.bodies()) {
    for (const Step& inner : *body) add_written(inner, slots);
  }
}

// The inputs that the launch right in front does not write; `before` are the slots that it may write.
std::uint32_t inputs_unmodified_by_previous(const Step& step, const std::set<int>& before) {
  std::uint32_t unmodified_by_previous = 0;
  for (std::size_t i = 0; i < std::min<std::size_t>(step.reads, 32); ++i) {
    if (!before.contains(step.operands[i].slot)) unmodified_by_previous |= 1u << i;
  }
  return unmodified_by_previous;
}

// Lowers steps to the target. Their needs beside their operands lie in slots like everything else. `before`: slots that
// the launch before the first of them may write; nothing is known of launches before a run. A collective may be beside
// the launches after it: its slots count as written right before each, and the launch in front of it as right before
// the one after it.
void lower_steps(const PlanOptions& options, std::vector<Step>& steps, std::optional<std::set<int>> before,
                 Plan* plan) {
  const auto book = [&](SlotKind kind, const Step& step, const char* what, std::int64_t bytes) {
    if (bytes == 0) return -1;
    Slot slot;
    slot.kind = kind;
    slot.name = step.label.op + what;
    slot.bytes = bytes;
    plan->slots.push_back(std::move(slot));
    return static_cast<int>(plan->slots.size()) - 1;
  };
  std::set<int> collective;  // slots that collectives write
  for (Step& step : steps) {
    if (runs_on_host(*options.target, step)) continue;
    std::set<int> written;
    add_written(step, &written);
    for (auto* body : step.bodies()) {
      std::optional<std::set<int>> outside = before;
      if (outside) outside->insert(written.begin(), written.end());
      lower_steps(options, *body, std::move(outside), plan);
    }
    if (step.kind == Step::Kind::branch) choose_form(&step, plan);
    if (before) step.call.unmodified_by_previous = inputs_unmodified_by_previous(step, *before);
    const StepNeeds needs = options.lower(step);
    step.workspace = book(SlotKind::arena, step, " workspace", needs.workspace_bytes);
    step.state = book(SlotKind::state, step, " state", needs.state_bytes);
    step.may_be_grouped = step.kind == Step::Kind::kernel && needs.may_be_grouped;
    if (!needs.is_launched) continue;
    if (before && is_collective(step)) {
      before->insert(written.begin(), written.end());
      collective.insert(written.begin(), written.end());
      continue;
    }
    written.insert(collective.begin(), collective.end());
    // Members of a fused launch all have the same launch in front of them.
    if (before && (needs.may_be_grouped || step.pipeline >= 0)) written.insert(before->begin(), before->end());
    before = std::move(written);
  }
}

}  // namespace

Plan make_plan(const Graph& graph, const PlanOptions& options) {
  Plan plan = plan_in_best_order(graph, options);
  if (options.lower) lower_steps(options, plan.steps, std::nullopt, &plan);
  place_slots(&plan);
  if (options.lower) note_host_segments(&plan);
  return plan;
}

DecisionPtr Decisions::of(const Node& node, const KernelCall& call) {
  if (node.decision != nullptr && are_same_question(node.decision->call, call)) return node.decision;
  std::vector<DecisionPtr>& made = made_[&node];
  const auto found =
      std::ranges::find_if(made, [&](const DecisionPtr& each) { return are_same_question(each->call, call); });
  if (found != made.end()) return *found;
  return made.emplace_back(std::make_shared<const Decision>(decide(call)));
}

const LoweredGroup& Decisions::lowered(const Graph& graph, const Node& node, std::vector<Layout> inputs,
                                       std::vector<Layout> outputs) {
  std::deque<Lowered>& made = lowered_[&node];
  const auto are_equal = [](const std::vector<Layout>& a, const std::vector<Layout>& b) {
    return std::ranges::equal(
        a, b, [](const Layout& x, const Layout& y) { return x.type == y.type && x.strides == y.strides; });
  };
  const auto found = std::ranges::find_if(
      made, [&](const Lowered& each) { return are_equal(each.inputs, inputs) && are_equal(each.outputs, outputs); });
  if (found != made.end()) return found->group;
  LoweredGroup group = lower(graph, node, inputs, outputs);
  return made.emplace_back(std::move(inputs), std::move(outputs), std::move(group)).group;
}

Plan Planner::run(const Graph& graph) {
  Frame frame{graph, {}, {}, &plan_.steps};
  const auto give_slot = [&](NodeId id, SlotKind kind, std::vector<std::pair<std::string, int>>* list) {
    const Node& node = graph.node(id);
    const int slot = new_slot(kind, node.name.str(), size_bytes(node.types[0]));
    frame.places[{id, 0}] = {slot, 0, {}, Layout::dense(node.types[0])};
    list->emplace_back(node.name.str(), slot);
  };
  for (NodeId id : graph.inputs()) give_slot(id, SlotKind::input, &plan_.inputs);
  for (NodeId id : graph.parameters()) give_slot(id, SlotKind::parameter, &plan_.parameters);
  plan_nodes(frame);
  fetch(frame);
  plan_assigns(frame);
  drop_alias_copies();
  order_host_steps(*options_.target, static_cast<int>(plan_.slots.size()), &plan_.steps);
  fuse_epilogues(&plan_);
  start_collectives_early();
  order_commit();
  alias_outputs(&plan_);
  find_lives(&plan_);
  if (const std::int64_t launches = count_launches(plan_.steps); launches > kMaxLaunches) {
    fail(ErrorKind::unsupported,
         "plan: a run has {} launches, at most {} are possible\nhint: shorter scans, or several runs", launches,
         kMaxLaunches);
  }
  return std::move(plan_);
}

void Planner::plan_nodes(Frame& frame) {
  find_roundings(frame);
  assign_destinations(frame);
  choose_layouts(frame);
  std::vector<NodeId> order = collectives_early(frame.graph, node_order(frame.graph, order_));
  if (options_.target->is_gpu()) {
    frame.together = bring_together(frame.graph, &order);
    frame.pipelines = bring_layer_pipelines_together(frame.graph, &order);
  }
  for (NodeId id : order) plan_node(frame, id);
}

void Planner::plan_node(Frame& frame, NodeId id) {
  poll_();
  const Node& node = frame.graph.node(id);
  const OpDef& op = *node.op;
  if (op.is(OpRole::source) || is_generated(node) || op.is(OpRole::update) || op.is(OpRole::alternatives)) return;
  if (op.bodies == BodyUse::one_chosen) return plan_branch(frame, id);
  if (op.bodies == BodyUse::while_true) return plan_while(frame, id);
  if (op.passes_on()) return plan_passed(frame, id);
  if (op.is(OpRole::constant)) return plan_constant(frame, id);
  if (op.is_scan()) return plan_scan(frame, id);
  if (is_rounding(node) && frame.places.contains({id, 0})) return;  // a part of the store of its operand
  if (op.kind == OpKind::view) return plan_view(frame, id);
  if (is_groupable(node)) return plan_group(frame, id);
  plan_kernel(frame, id);
}

void Planner::plan_group(Frame& frame, NodeId id) {
  const Node& node = frame.graph.node(id);
  std::vector<Layout> inputs, outputs;
  for (const Ref& ref : node.inputs) {
    const bool is_free = is_generated(frame.graph.node(ref.node));
    inputs.push_back(is_free ? Layout::dense(frame.graph.type(ref)) : place(frame, ref).layout);
  }
  std::vector<Operand> results;
  for (std::int32_t k = 0; k < static_cast<std::int32_t>(node.types.size()); ++k) {
    const Ref made{id, k};
    const auto rounded = frame.rounded.find(made);
    results.push_back(result_place(frame, rounded == frame.rounded.end() ? made : rounded->second));
    if (rounded != frame.rounded.end()) frame.places[rounded->second] = results.back();
    outputs.push_back(results.back().layout);
  }
  const LoweredGroup& lowered = decisions_.lowered(frame.graph, node, std::move(inputs), std::move(outputs));
  Step step;
  step.kind = Step::Kind::group;
  step.label = label_of(frame, id);
  for (std::size_t input : lowered.load_inputs) step.operands.push_back(place(frame, node.inputs[input]));
  step.reads = step.operands.size();
  for (std::size_t k = 0; k < results.size(); ++k) {
    step.operands.push_back(results[k]);
    frame.places[{id, static_cast<std::int32_t>(k)}] = results[k];
  }
  step.group = lowered.group;
  frame.steps->push_back(std::move(step));
}

namespace {

// Which operands, made dense at the start of a slot, let some kernel take the call: the fewest bytes that do; none when
// nothing helps. Those that lie in strides are tried alone first, and then those in the middle of a slot as well.
std::vector<std::size_t> operands_to_copy(const KernelCall& call, bool also_unaligned = false) {
  constexpr std::size_t kMostTried = 6;
  std::vector<std::size_t> strided;
  const auto layout_of = [](auto& of, std::size_t i) -> auto& {
    return i < of.inputs.size() ? of.inputs[i] : of.outputs[i - of.inputs.size()];
  };
  for (std::size_t i = 0; i < call.inputs.size() + call.outputs.size(); ++i) {
    const bool is_unaligned = also_unaligned && call.alignments[i] % kSlotAlignment != 0;
    if (!layout_of(call, i).is_dense() || is_unaligned) strided.push_back(i);
  }
  std::vector<std::pair<std::int64_t, unsigned>> sets;  // bytes, mask over `strided`
  for (unsigned mask = 1; mask < 1u << std::min(strided.size(), kMostTried); ++mask) {
    std::int64_t bytes = 0;
    for (std::size_t k = 0; k < strided.size(); ++k) {
      if ((mask >> k) & 1u || k >= kMostTried) bytes += size_bytes(layout_of(call, strided[k]).type);
    }
    sets.emplace_back(bytes, mask);
  }
  std::sort(sets.begin(), sets.end());
  for (const auto& [bytes, mask] : sets) {
    KernelCall trial = call;
    std::vector<std::size_t> copied;
    for (std::size_t k = 0; k < strided.size(); ++k) {
      if (!((mask >> k) & 1u) && k < kMostTried) continue;
      copied.push_back(strided[k]);
      layout_of(trial, strided[k]) = Layout::dense(layout_of(call, strided[k]).type);
      trial.alignments[strided[k]] = kSlotAlignment;
    }
    if (decide(std::move(trial)).kernel() != nullptr) return copied;
  }
  return also_unaligned ? std::vector<std::size_t>() : operands_to_copy(call, true);
}

// Whether anything reads the value.
bool is_read(const Graph& graph, Ref ref) {
  for (NodeId id = ref.node + 1; id < graph.size(); ++id) {
    const auto& inputs = graph.node(id).inputs;
    if (std::find(inputs.begin(), inputs.end(), ref) != inputs.end()) return true;
  }
  return std::any_of(graph.fetches().begin(), graph.fetches().end(),
                     [&](const Graph::Fetch& fetch) { return fetch.ref == ref; });
}

}  // namespace

void Planner::plan_kernel(Frame& frame, NodeId id) {
  const Node& node = frame.graph.node(id);
  Step step;
  step.kind = Step::Kind::kernel;
  step.label = label_of(frame, id);
  for (std::size_t i = 0; i < node.inputs.size(); ++i) step.operands.push_back(kernel_input(frame, id, i));
  step.reads = step.operands.size();
  for (std::int32_t k = 0; k < static_cast<std::int32_t>(node.types.size()); ++k) {
    const Ref ref{id, k};
    if (node.op->kind == OpKind::composed && !is_read(frame.graph, ref)) {
      const Type nothing{node.types[static_cast<std::size_t>(k)].dtype, {0}};
      step.operands.push_back({new_slot(SlotKind::arena, node.title(), 0), 0, {}, Layout::dense(nothing)});
      continue;
    }
    step.operands.push_back(result_place(frame, ref));
  }
  const std::vector<Operand> wanted(step.operands.begin() + static_cast<std::ptrdiff_t>(step.reads),
                                    step.operands.end());
  alias_results(frame, id, &step);
  const auto decide_kernel = [&] {
    step.call = call_of(node, kernels_);
    if (const auto it = frame.together.find(id); it != frame.together.end()) step.call.together = it->second;
    if (const auto it = frame.pipelines.find(id); it != frame.pipelines.end()) {
      step.pipeline = it->second.pipeline, step.call.pipelined_layers = it->second.layers;
    }
    for (std::size_t i = 0; i < step.operands.size(); ++i) {
      (i < step.reads ? step.call.inputs : step.call.outputs).push_back(step.operands[i].layout);
      step.call.alignments.push_back(alignment_of(step.operands[i]));
    }
    step.decision = decisions_.of(node, step.call);
    step.call.timed = step.decision->call.timed;
    step.kernel = step.decision->kernel();
  };
  decide_kernel();
  std::vector<std::string> refusals = step.decision->refusals;
  bool is_copied = false;
  if (step.kernel == nullptr) {
    // Perhaps only the layouts do not suit: dense copies of as little as helps.
    for (const std::size_t i : operands_to_copy(step.call)) {
      is_copied = true;
      if (i < step.reads) {
        step.operands[i] = dense_copy(frame, step.operands[i], node, "copy_" + node.op->name);
      } else {
        step.operands[i] = new_operand(frame, {id, static_cast<std::int32_t>(i - step.reads)});
      }
    }
    if (is_copied) {
      decide_kernel();
      refusals.insert(refusals.end(), step.decision->refusals.begin(), step.decision->refusals.end());
    }
  }
  for (const std::string& refusal : refusals) {
    plan_.notes.push_back(refusal + in_scope(node.scope.str()));
  }
  if (step.kernel == nullptr) {
    const bool is_without_cuda = PAODING_WITH_CUDA == 0 && step.call.target->is_gpu();
    fail(ErrorKind::unsupported, "{}: no kernel for {} on this device{}{}{}", node.op->name, to_string(node.types[0]),
         in_scope(node.scope.str()), refusals.empty() ? "" : "\n" + refusals.back(),
         is_without_cuda ? "\nhint: this build of paoding has no GPU back end; build it where CUDA's headers are" : "");
  }
  if (turn_inputs(frame, &step, node)) {
    decide_kernel();
    PD_ASSERT(step.kernel != nullptr, "what lies as a kernel wants it has one");
  }
  for (const std::string& note : step.decision->notes()) plan_.notes.push_back(note + in_scope(node.scope.str()));
  const std::vector<Operand> written(step.operands.begin() + static_cast<std::ptrdiff_t>(step.reads),
                                     step.operands.end());
  frame.steps->push_back(std::move(step));
  for (std::size_t k = 0; k < written.size(); ++k) {
    const Ref ref{id, static_cast<std::int32_t>(k)};
    const bool is_elsewhere = frame.destinations.contains(ref) && written[k].slot != wanted[k].slot;
    if (is_elsewhere) copy(frame, written[k], wanted[k], node, "copy_" + node.op->name);
    frame.places[ref] = is_elsewhere ? wanted[k] : written[k];
  }
}

int Planner::new_slot(SlotKind kind, std::string name, std::int64_t bytes) {
  PD_ASSERT(bytes >= 0 && bytes <= kMaxPlanBytes, "a slot of more bytes than any device has");
  Slot slot;
  slot.kind = kind;
  slot.name = std::move(name);
  slot.bytes = bytes;
  plan_.slots.push_back(std::move(slot));
  return static_cast<int>(plan_.slots.size()) - 1;
}

Operand Planner::new_operand(Frame& frame, Ref ref) {
  const Node& node = frame.graph.node(ref.node);
  const Type& type = frame.graph.type(ref);
  return {new_slot(SlotKind::arena, node.title(), size_bytes(type)), 0, {}, Layout::dense(type)};
}

Operand Planner::result_place(Frame& frame, Ref ref) {
  const auto it = frame.destinations.find(ref);
  if (it != frame.destinations.end()) return it->second;
  Operand made = new_operand(frame, ref);
  if (frame.channels_last.contains(ref)) made.layout = channels_last(made.layout.type);
  return made;
}

const Operand& Planner::place(Frame& frame, Ref ref) {
  const auto it = frame.places.find(ref);
  if (it != frame.places.end()) return it->second;
  // Only generated values are made on demand: inside groups that costs nothing.
  const Node& node = frame.graph.node(ref.node);
  if (node.op->is(OpRole::alternatives)) {
    fail(ErrorKind::unsupported, "variant: an op uses it, but only a fetch can\nhint: visit(variant, f)");
  }
  PD_ASSERT(is_generated(node), "a value is read before it has a place");
  if (!frame.destinations.contains(ref) && !frame.channels_last.contains(ref)) {
    if (const auto constant = made_constant(node)) return frame.places[ref] = *constant;
  }
  const Operand made = result_place(frame, ref);
  fill(frame, lower_generated(node, made.layout), made, node);
  return frame.places[ref] = made;
}

void Planner::copy(Frame& frame, const Operand& from, const Operand& to, const Node& why, std::string_view label) {
  Step step;
  step.kind = Step::Kind::group;
  step.label = {std::string(label), why.scope.str(), {}, -1};
  step.operands = {from, to};
  step.reads = 1;
  step.group = lower_copy(from.layout, to.layout);
  frame.steps->push_back(std::move(step));
  plan_.notes.push_back(fmt::format("{}: copies {}{}{}", one_line(label), to_string(to.layout.type),
                                    frame.scan != nullptr ? " in every step" : "", in_scope(why.scope.str())));
}

Operand Planner::dense_copy(Frame& frame, const Operand& operand, const Node& why, std::string_view label) {
  Operand dense{new_slot(SlotKind::arena, std::string(label), size_bytes(operand.layout.type)),
                0,
                {},
                Layout::dense(operand.layout.type)};
  copy(frame, operand, dense, why, label);
  return dense;
}

void Planner::fill(Frame& frame, Group group, const Operand& to, const Node& why) {
  Step step;
  step.kind = Step::Kind::group;
  step.label = {"fill", why.scope.str(), {}, -1};
  step.operands = {to};
  step.reads = 0;
  step.group = std::move(group);
  frame.steps->push_back(std::move(step));
}

StepLabel Planner::label_of(const Frame& frame, NodeId id) const {
  const Node& node = frame.graph.node(id);
  StepLabel label{node.title(), node.scope.str(), {}, frame.scan ? -1 : id, node.placement};
  if (node.op->is_fusion_group()) {
    for (NodeId inner = 0; inner < node.bodies[0]->size(); ++inner) {
      const Node& member = node.bodies[0]->node(inner);
      if (member.op->is(OpRole::source) || is_generated(member)) continue;
      label.members.push_back(node.origin.empty() ? member.title() : member.op->name);
      std::int64_t bytes = 0;
      for (const Ref& ref : member.inputs) bytes += size_bytes(node.bodies[0]->type(ref));
      for (const Type& type : member.types) bytes += size_bytes(type);
      label.member_bytes.push_back(bytes);
    }
  }
  return label;
}

// Fetches are read after the run, dense; each keeps its memory to the end.
void Planner::fetch(Frame& frame) {
  const auto keep = [&](Ref ref) {
    Operand operand = place(frame, ref);
    const Slot& slot = plan_.slots[static_cast<std::size_t>(operand.slot)];
    const bool stays = slot.kind == SlotKind::arena || is_constant(operand);
    if (!operand.layout.is_dense() || !stays) {
      operand = dense_copy(frame, operand, frame.graph.node(ref.node), "copy_fetch");
    }
    plan_.slots[static_cast<std::size_t>(operand.slot)].is_fetched = true;
    return operand;
  };
  for (const Graph::Fetch& fetch : frame.graph.fetches()) {
    const Node& node = frame.graph.node(fetch.ref.node);
    const bool is_variant = node.op->is(OpRole::alternatives);
    Plan::Fetch planned{fetch.name, keep(is_variant ? node.inputs[0] : fetch.ref), {}};
    for (std::size_t i = 1; is_variant && i < node.inputs.size(); ++i) {
      planned.alternatives.push_back(keep(node.inputs[i]));
    }
    plan_.fetches.push_back(std::move(planned));
  }
}

}  // namespace paoding
