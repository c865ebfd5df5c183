// SPDX-License-Identifier: Apache-2.0
// Running a Nest: walk the loops, move the slots, execute the lists.
#include "cpu/group_kernel.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "base/check.h"
#include "cpu/arena.h"
#include "cpu/group_kernel_nest.h"
#include "cpu/group_kernel_stages.h"
#include "cpu/parallel.h"
#include "cpu/shared_nest.h"

namespace paoding {
namespace {

constexpr std::align_val_t kPage{4096};  // threads never share a page of sums

struct PageDelete {
  void operator()(char* memory) const { ::operator delete(memory, kPage); }
};
using PageMemory = std::unique_ptr<char, PageDelete>;

PageMemory page_memory(std::int64_t size) {
  const auto bytes = static_cast<std::size_t>(std::max<std::int64_t>(size, 1));
  PageMemory memory(static_cast<char*>(::operator new(bytes, kPage)));
  std::memset(memory.get(), 0, bytes);
  return memory;
}

struct Range {
  std::int64_t begin = 0, end = 0;
};

struct Worker {
  std::vector<Range> ranges;  // its part of each split loop
  bool idle = false;
  TileShape shape;
  std::vector<char*> slots;
  char* tiles = nullptr;  // the memory in which its slots are that are kept for a walk; of the thread that ran it last
  PageMemory sums;        // absent where there are none
};

inline void execute(const std::vector<Instruction>& list, const Worker& worker) {
  char* const* slots = worker.slots.data();
  for (const Instruction& instruction : list) instruction.routine(instruction, slots, worker.shape);
}

// Moves slots as integers, since an index slot holds a number that points nowhere.
inline void move(const NestLoop& loop, std::int64_t units, Worker& worker) {
  for (const SlotMove& m : loop.moves) {
    char*& slot = worker.slots[m.slot];
    slot =
        reinterpret_cast<char*>(reinterpret_cast<std::uintptr_t>(slot) + static_cast<std::uintptr_t>(m.bytes * units));
  }
}

// `phase`: whose loops these are, none for the nest's own.
void walk(const Nest& nest, const Phase* phase, std::size_t depth, Worker& worker) {
  const std::vector<NestLoop>& loops = phase ? phase->loops : nest.loops;
  if (depth == loops.size()) {
    if (phase) return execute(phase->tile, worker);
    for (const Phase& each : nest.phases) walk(nest, &each, 0, worker);
    return;
  }
  const NestLoop& loop = loops[depth];
  Range range{0, loop.extent};
  if (loop.split >= 0) range = worker.ranges[static_cast<std::size_t>(loop.split)];
  execute(loop.enter, worker);
  if (range.begin != 0) move(loop, range.begin, worker);
  std::int64_t at = range.begin;
  while (at < range.end) {
    const std::int64_t end = loop.block > 0 ? std::min(range.end, at + loop.block * loop.step) : range.end;
    execute(loop.block_enter, worker);
    for (; at < end; at += loop.step) {
      if (loop.tile_axis == TileAxis::rows) worker.shape.rows = std::min(loop.step, range.end - at);
      if (loop.tile_axis == TileAxis::cols) worker.shape.cols = std::min(loop.step, range.end - at);
      walk(nest, phase, depth + 1, worker);
      move(loop, loop.step, worker);
    }
    execute(loop.block_exit, worker);
  }
  move(loop, -at, worker);
  if (loop.tile_axis == TileAxis::rows) worker.shape.rows = nest.shape.rows;
  if (loop.tile_axis == TileAxis::cols) worker.shape.cols = nest.shape.cols;
  execute(loop.exit, worker);
}

// Combines the accumulators of all threads, in the order of the threads, and writes them out.
void write_shared(const SharedSum& sum, std::vector<Worker>& workers, char* out) {
  char* total = workers[0].slots[sum.slot];
  for (std::size_t w = 1; w < workers.size(); ++w) sum.combine(total, workers[w].slots[sum.slot], sum.count);
  if (sum.count == 0) return;
  const int outer = static_cast<int>(sum.extents.size()) - 1;  // the last kept axis is one run of the flush
  const TileShape run{1, outer < 0 ? 1 : sum.extents.back()};
  std::int64_t index[kMaxGroupRank] = {};
  for (std::int64_t done = 0; done < sum.count; done += run.cols) {
    std::int64_t offset = 0;
    for (int axis = 0; axis < outer; ++axis) offset += index[axis] * sum.out_strides[static_cast<std::size_t>(axis)];
    char* const slots[2] = {out + offset * sum.out_bytes, total + done * kAccumulatorBytes};
    sum.flush.routine(sum.flush, slots, run);
    for (int axis = outer; axis-- > 0;) {
      if (++index[axis] < sum.extents[static_cast<std::size_t>(axis)]) break;
      index[axis] = 0;
    }
  }
}

}  // namespace

// One nest with the memory of its threads.
struct CpuGroupKernel::Part {
  std::shared_ptr<const Nest> shared;
  const Nest& nest;
  std::vector<Worker> workers;
  std::vector<int> operands;  // per operand slot of the nest: of the kernel's operands, -1 when it is `own`
  std::vector<char*> own;     // per operand slot: memory of the kernel
  std::vector<std::uint64_t> constants;
  void* const* pointers = nullptr;  // of the call in progress

  Part(const Group& group, int threads, Sharing sharing, const std::vector<bool>& far)
      : shared(shared_nest(group, threads, sharing, far)), nest(*shared) {
    for (std::size_t i = 0; i < group.operands(); ++i) operands.push_back(static_cast<int>(i));
    own.assign(operands.size(), nullptr);
  }

  void hire() {
    constants.resize(static_cast<std::size_t>(nest.bytes_of(Kept::forever)) / sizeof(std::uint64_t));
    for (const Constant& c : nest.constants) std::memcpy(constant(c.offset), &c.bits, sizeof c.bits);
    workers.resize(static_cast<std::size_t>(nest.threads));
    for (int w = 0; w < nest.threads; ++w) {
      Worker& worker = workers[static_cast<std::size_t>(w)];
      worker.idle = nest.empty;
      int rest = w;
      for (std::size_t s = nest.splits.size(); s-- > 0;) {
        const NestSplit& split = nest.splits[s];
        const std::int64_t units = (split.extent + split.unit - 1) / split.unit, part = rest % split.parts;
        rest /= split.parts;
        const Range range{units * part / split.parts * split.unit,
                          std::min(split.extent, units * (part + 1) / split.parts * split.unit)};
        worker.ranges.insert(worker.ranges.begin(), range);
        worker.idle = worker.idle || range.begin >= range.end;
      }
      worker.shape = nest.shape;
      if (nest.bytes_of(Kept::run) > 0) worker.sums = page_memory(nest.bytes_of(Kept::run));
      worker.slots.assign(static_cast<std::size_t>(nest.slot_count), nullptr);
      for (const ArenaSlot& slot : nest.arena_slots) {
        if (slot.kept == Kept::run) worker.slots[slot.slot] = worker.sums.get() + slot.offset;
        if (slot.kept == Kept::forever) worker.slots[slot.slot] = constant(slot.offset);
      }
      for (const IndexSlot& slot : nest.index_slots) {
        worker.slots[slot.slot] = reinterpret_cast<char*>(static_cast<std::intptr_t>(slot.start));
      }
    }
  }

  char* constant(std::int64_t offset) { return reinterpret_cast<char*>(constants.data()) + offset; }

  void place(Worker& worker, char* tiles) const {
    for (const ArenaSlot& slot : nest.arena_slots) {
      if (slot.kept == Kept::walk) worker.slots[slot.slot] = tiles + slot.offset;
    }
    worker.tiles = tiles;
  }

  char* operand(std::size_t slot, void* const* given) const {
    const int from = operands[slot];
    return from < 0 ? own[slot] : static_cast<char*>(given[from]);
  }

  void work(int thread, void* const* given) {
    Worker& worker = workers[static_cast<std::size_t>(thread)];
    char* const tiles = tile_memory(nest.bytes_of(Kept::walk));
    if (tiles != worker.tiles) place(worker, tiles);
    for (std::size_t i = 0; i < operands.size(); ++i) worker.slots[i] = operand(i, given);
    for (const SharedSum& sum : nest.shared_sums) {
      std::fill_n(reinterpret_cast<std::uint64_t*>(worker.slots[sum.slot]), sum.count, sum.identity);
    }
    if (worker.idle) return;
    walk(nest, nullptr, 0, worker);
    if (nest.streams) finish_streaming();
  }

  void finish(void* const* given) {
    for (const SharedSum& sum : nest.shared_sums) write_shared(sum, workers, operand(sum.out_slot, given));
  }

  void run(void* const* given) {
    pointers = given;
    if (nest.threads == 1) {
      work(0, given);
    } else {
      parallel(
          nest.threads,
          [](int thread, void* state) {
            auto* part = static_cast<Part*>(state);
            part->work(thread, part->pointers);
          },
          this);
    }
    finish(given);
  }
};

struct CpuGroupKernel::Running {
  std::vector<Part> parts;
  std::vector<PageMemory> stage_values;
};

CpuGroupKernel::CpuGroupKernel(const Group& group, int threads, Sharing sharing, const std::vector<bool>& far)
    : running_(std::make_unique<Running>()) {
  std::vector<Part>& parts = running_->parts;
  parts.emplace_back(group, threads, sharing, far);
  if (parts[0].nest.waits) {
    // Every pass gets loops and threads of its own, and waits for the one before.
    parts.clear();
    const Group whole = canonical(group);
    const Stages stages = split_into_groups(whole);
    for (const StageValue& value : stages.values) {
      const std::int64_t elements = kept_points(whole, reduced_axes(whole));
      running_->stage_values.push_back(page_memory(elements * size_bytes(value.dtype)));
    }
    for (const StagePass& pass : stages.passes) {
      std::vector<bool> far_of_pass;
      for (const int operand : pass.output_operands) {
        const std::size_t o = static_cast<std::size_t>(operand) - group.loads.size();
        far_of_pass.push_back(o < far.size() && far[o]);
      }
      Part& part = parts.emplace_back(pass.group, threads, sharing, far_of_pass);
      part.operands = pass.load_operands;
      part.operands.insert(part.operands.end(), pass.output_operands.begin(), pass.output_operands.end());
      for (std::size_t slot = 0; slot < part.operands.size(); ++slot) {
        const auto value = part.operands[slot] - static_cast<int>(group.operands());
        if (value < 0) continue;
        part.own[slot] = running_->stage_values[static_cast<std::size_t>(value)].get();
        part.operands[slot] = -1;
      }
    }
  }
  for (Part& part : parts) part.hire();
}

CpuGroupKernel::~CpuGroupKernel() = default;
CpuGroupKernel::CpuGroupKernel(CpuGroupKernel&&) noexcept = default;
CpuGroupKernel& CpuGroupKernel::operator=(CpuGroupKernel&&) noexcept = default;

void CpuGroupKernel::run(void* const* operands) const {
  for (Part& part : running_->parts) part.run(operands);
}

int CpuGroupKernel::threads() const {
  int most = 1;
  for (const Part& part : running_->parts) most = std::max(most, part.nest.threads);
  return most;
}

bool CpuGroupKernel::has_machine_code() const {
  return std::ranges::any_of(running_->parts, [](const Part& part) { return !part.nest.code.empty(); });
}

std::int64_t CpuGroupKernel::tile_bytes() const {
  std::int64_t most = 0;
  for (const Part& part : running_->parts) most = std::max(most, part.nest.bytes_of(Kept::walk));
  return most;
}

int CpuGroupKernel::regions() const { return static_cast<int>(running_->parts.size()); }

void CpuGroupKernel::run_part(int thread, void* const* operands) const {
  PD_ASSERT(running_->parts.size() == 1, "a kernel of several regions has no parts to run apart");
  running_->parts[0].work(thread, operands);
}

void CpuGroupKernel::finish(void* const* operands) const { running_->parts[0].finish(operands); }

double estimated_cost(const Group& group) { return group_cost(canonical(group)); }

}  // namespace paoding
