// SPDX-License-Identifier: Apache-2.0
// Plan: the steps of a Program in order, with every operand's place. Nothing is decided after it.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "group/group.h"
#include "ops/decision.h"
#include "paoding/graph.h"
#include "paoding/tensor.h"

namespace paoding {

/// How an operand moves from one turn of a loop to the next: turn s (0, 1, ..) adds ((s + shift) mod modulus) * stride
/// bytes; without a modulus (0) s * stride.
struct LoopTerm {
  int loop = 0;
  std::int64_t stride = 0;  // bytes; negative in a reverse scan
  std::int64_t shift = 0;
  std::int64_t modulus = 0;

  friend bool operator==(const LoopTerm&, const LoopTerm&) = default;
};

/// A value's place: a slot, an offset in it, how it moves with the loops around, and its layout there.
struct Operand {
  int slot = -1;
  std::int64_t offset = 0;  // bytes
  std::vector<LoopTerm> terms;
  Layout layout;
};

enum class SlotKind : std::uint8_t {
  input,      // fed; keeps its own memory, so that a feed lands where it is read
  parameter,  // memory of the Parameters store
  state,      // of a kernel; keeps its own memory, zero before the first run
  arena,      // shares the arena with slots that live at other times
};

/// The most bytes of a slot or of the arena: far above any memory, far below where sums of sizes overflow.
inline constexpr std::int64_t kMaxPlanBytes = std::int64_t{1} << 47;
/// The most launches of a run. A loop is unrolled when a program is made, at about 240 bytes a launch.
inline constexpr std::int64_t kMaxLaunches = std::int64_t{1} << 22;

/// A piece of memory.
struct Slot {
  SlotKind kind = SlotKind::arena;
  std::string name;  // of the input or parameter; else of the node whose result it holds
  std::int64_t bytes = 0;
  std::int64_t offset = 0;  // in the arena
  int first = 0;            // position of the first step that writes it
  int last = -1;            // position of the last step that reads it
  bool is_fetched = false;  // lives to the end of the run
  bool is_aliased = false;  // holds results of several nodes, one after the other: "matmul, then lstm_recurrence"
  /// First and last positions in between at which it holds nothing yet, in their order: a result of a branch, while a
  /// branch that comes later in the plan has not written it.
  std::vector<std::pair<int, int>> gaps;

  bool is_alive_at(int position) const;
};

/// Whether there is a position at which both are alive.
bool alive_together(const Slot& a, const Slot& b);

/// Who a step is, for reports.
struct StepLabel {
  std::string op;  // "matmul", "lstm_cell/matmul", "lstm_cell_grad/group"
  std::string scope;
  std::vector<std::string> members;  // the ops of a group
  NodeId node = -1;                  // of the graph that was planned
  Placement placement = Placement::any;
  std::vector<std::int64_t> member_bytes = {};  // bytes that each member would read and write alone
};

struct Step {
  enum class Kind : std::uint8_t {
    group,
    kernel,
    loop,    // runs `body` `length` times, unrolled
    branch,  // reads its operand, an index, and runs that one of `branches`
    repeat,  // runs `condition`, then, if its operand is true, `body`, and again
    print,   // hands its operand to whoever listens
  };
  Kind kind = Kind::group;
  StepLabel label;
  int position = 0;               // in the order of the text; a loop's body counts once
  std::vector<Operand> operands;  // its inputs, then its outputs
  std::size_t reads = 0;

  Group group;  // Kind::group; Kind::kernel: after it, or, has_prologue, in front of its input 0 (plan/epilogues.h)
  bool has_prologue = false;
  /// Kind::kernel: which kernel runs it, and why.
  DecisionPtr decision;
  /// The decision's call, with the inputs that the launch before leaves alone.
  KernelCall call;
  /// The decision's kernel, or another that accepts the call and takes `group` as well.
  const KernelImplementation* kernel = nullptr;
  /// On a GPU, for groups and kernel ops that are CUDA source of our own: the launches.
  std::shared_ptr<const gpu::TextPlan> text;
  int workspace = -1, state = -1;  // on a GPU: slots of memory that it needs beside its operands
  bool may_be_grouped = false;     // on a GPU, of kernel ops: may be in one launch with neighbours of the same op
  /// On a GPU: kernel ops one above the other (KernelCall::pipelined_layers), and the products between them, have one
  /// number and may be in one launch; -1: it is none of them.
  int pipeline = -1;

  int loop = -1;  // Kind::loop: its number in LoopTerm::loop
  std::int64_t length = 0;
  bool is_reverse = false;  // the first turn is the last time step
  std::vector<Step> body;
  std::vector<Step> condition;              // Kind::repeat
  std::vector<std::vector<Step>> branches;  // Kind::branch
  /// Kind::branch, on a GPU: a conditional node runs the one taken; else all are launched, and the kernels of the
  /// others return at once.
  bool is_conditional = false;
  std::string message;  // Kind::print

  /// The lists of steps inside, in the order in which they stand.
  std::vector<std::vector<Step>*> bodies() {
    std::vector<std::vector<Step>*> lists{&condition, &body};
    for (auto& branch : branches) lists.push_back(&branch);
    return lists;
  }
  std::vector<const std::vector<Step>*> bodies() const {
    std::vector<const std::vector<Step>*> lists{&condition, &body};
    for (const auto& branch : branches) lists.push_back(&branch);
    return lists;
  }
};

struct Plan {
  TargetPtr target = std::make_shared<const Target>();
  std::vector<Step> steps;
  /// The index in `steps` at which the commit begins: the first that writes a parameter, after all that may_fault();
  /// their number where none writes one.
  std::size_t commit = 0;
  std::vector<Slot> slots;
  std::vector<std::pair<std::string, int>> inputs;      // name, slot
  std::vector<std::pair<std::string, int>> parameters;  // name, slot
  std::vector<std::pair<int, Tensor>> constants;        // slot and its value from the start; slots like inputs'
  struct Fetch {
    std::string name;
    Operand operand;                         // dense; of a Variant its index
    std::vector<Operand> alternatives = {};  // of a Variant: where each is, dense
  };
  std::vector<Fetch> fetches;
  int loops = 0;
  int positions = 0;
  std::int64_t arena_bytes = 0;
  std::int64_t peak_live_bytes = 0;  // the least any arena could do for this order
  std::vector<std::string> notes;    // refusals and copies, with the reason
};

/// Memory that a step needs beside its operands.
struct StepNeeds {
  std::int64_t workspace_bytes = 0;  // while it runs
  std::int64_t state_bytes = 0;      // from run to run, zero before the first
  bool is_launched = true;           // not so: there is nothing to do
  bool may_be_grouped = false;       // neighbours may be in one launch with it (schedule/gpu/fused_launches.h)
};

struct PlanOptions {
  TargetPtr target = std::make_shared<const Target>();
  bool allow_tf32 = false;
  KernelEnvironmentPtr environment = no_environment();
  bool choose_layouts = true;  // off: everything lies densely in the order of its axes
  bool alias_views = true;  // off: every slice, reshape, concat and carry is copied, as frameworks that run op by op do
  /// Lowers a step to the target, and returns its needs beside its operands.
  std::function<StepNeeds(Step&)> lower = {};
  bool reorder = true;  // run the nodes in the order, of several, that needs the least memory
};

/// Plans a graph that has been through the passes. Error (unsupported) when an op has no kernel for the device, a run
/// would have more than kMaxLaunches launches, or memory would be more than kMaxPlanBytes.
Plan make_plan(const Graph& graph, const PlanOptions& options);

/// On the CPU: puts results of kernels that may lie where an input does (KernelImplementation::in_place) there, where
/// nothing reads the input later.
void alias_outputs(Plan* plan);

/// Numbers the steps, and says of every slot from which position to which it is alive, and how much is at most.
void find_lives(Plan* plan);

/// find_lives(), then gives arena slots their offsets: greedy by size, lowest offset that no slot alive at the same
/// time covers.
void place_slots(Plan* plan);

/// The most bytes that are alive at one position, and the first position at which they are.
struct LivePeak {
  std::int64_t bytes = 0;
  int position = 0;
};
/// Counts every slot as a multiple of `alignment` bytes.
LivePeak live_peak(const Plan& plan, std::int64_t alignment);

/// "decoder/matmul (104857600 bytes, steps 3..17), ..": the largest of the slots that are alive where the most is, and
/// of those that always are.
std::string largest_slots(const Plan& plan, std::size_t count);
/// The same as a list; of those outside of the arena none.
std::vector<const Slot*> largest_at_peak(const Plan& plan, std::size_t count);

/// Whether the step is a collective over ranks.
bool is_collective(const Step& step);

/// Whether a run of the step may end in an error, or without end: a kernel that may (KernelImplementation::faults), a
/// print, whose listener may throw, a loop without a length; or a step with one of these in it.
bool may_fault(const Step& step);
/// Whether it, or a step in it, writes memory of a parameter.
bool writes_parameter(const Plan& plan, const Step& step);

/// The plan as text: steps with operands, slots, and the values that are live at the peak.
std::string to_string(const Plan& plan);

/// One entry of a plan with its loops unrolled: which step, and every operand's slot and byte offset. Control flow is
/// in entries that name the next one.
struct Launch {
  enum class Kind : std::uint8_t {
    run,     // the step, then the next entry
    select,  // reads a number; that one of `targets` is next, the last when there is none of that number
    jump,    // targets[0] is next
  };
  const Step* step = nullptr;
  std::int64_t instance = 0;                            // turn of the innermost loop, 0 outside
  std::vector<std::pair<int, std::int64_t>> addresses;  // slot, offset in it; none of a jump
  Kind kind = Kind::run;
  std::vector<std::size_t> targets = {};  // positions in the list; its size stands for the end
  bool is_commit = false;                 // of the plan's commit
  std::size_t end = 0;  // of a select: the position after all that its branches, or the turns of its loop, consist of
};

/// Which of `count` the number at `index` chooses: the last when there is none of that number.
inline std::size_t chosen(DType dtype, const void* index, std::size_t count) {
  const std::int64_t number = dtype == DType::i64   ? *static_cast<const std::int64_t*>(index)
                              : dtype == DType::i32 ? *static_cast<const std::int32_t*>(index)
                                                    : *static_cast<const std::uint8_t*>(index);
  return number >= 0 && number < static_cast<std::int64_t>(count) ? static_cast<std::size_t>(number) : count - 1;
}

/// How many entries the list of launches has for a run; at most 2^62, which stands for all that is more.
std::int64_t count_launches(const std::vector<Step>& steps);

/// Every launch of `repeats` runs in order.
std::vector<Launch> unroll(const Plan& plan, int repeats = 1);

/// Bytes to which the operand's address is aligned on every turn, slots being aligned to 256.
std::int64_t alignment_of(const Operand& operand);

}  // namespace paoding
