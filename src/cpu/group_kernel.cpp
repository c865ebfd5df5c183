// SPDX-License-Identifier: Apache-2.0
// Running a Nest: walk the loops, move the slots, execute the lists.
#include "cpu/group_kernel.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "cpu/group_kernel_nest.h"
#include "cpu/parallel.h"

namespace paoding {
namespace {

constexpr std::align_val_t kPage{4096};  // threads never share a page of registers or sums

struct PageDelete {
  void operator()(char* memory) const { ::operator delete(memory, kPage); }
};

struct Worker {
  std::int64_t begin = 0, end = 0;  // its part of the split loop
  TileShape shape;
  std::vector<char*> slots;
  std::unique_ptr<char, PageDelete> arena;
};

inline void execute(const std::vector<Instruction>& list, const Worker& worker) {
  char* const* slots = worker.slots.data();
  for (const Instruction& instruction : list) instruction.routine(instruction, slots, worker.shape);
}

inline void move(const NestLoop& loop, std::int64_t units, Worker& worker) {
  for (const SlotMove& m : loop.moves) worker.slots[m.slot] += m.bytes * units;
}

void walk(const Nest& nest, std::size_t depth, Worker& worker) {
  const NestLoop& loop = nest.loops[depth];
  const bool innermost = depth + 1 == nest.loops.size();
  const std::int64_t begin = loop.split ? worker.begin : 0, end = loop.split ? worker.end : loop.extent;
  execute(loop.enter, worker);
  if (begin != 0) move(loop, begin, worker);
  std::int64_t at = begin;
  for (; at < end; at += loop.step) {
    if (loop.tile_axis == TileAxis::rows) worker.shape.rows = std::min(loop.step, end - at);
    if (loop.tile_axis == TileAxis::cols) worker.shape.cols = std::min(loop.step, end - at);
    if (innermost) {
      execute(nest.tile, worker);
    } else {
      walk(nest, depth + 1, worker);
    }
    move(loop, loop.step, worker);
  }
  move(loop, -at, worker);
  if (loop.tile_axis == TileAxis::rows) worker.shape.rows = nest.shape.rows;
  if (loop.tile_axis == TileAxis::cols) worker.shape.cols = nest.shape.cols;
  execute(loop.exit, worker);
}

template <class Sum>
void add_sums(char* to, const char* from, std::int64_t count) {
  auto* sums = reinterpret_cast<Sum*>(to);
  const auto* more = reinterpret_cast<const Sum*>(from);
  for (std::int64_t i = 0; i < count; ++i) sums[i] += more[i];
}

// Adds up the sums of all threads, in the order of the threads, and writes them out.
void finish(const SharedSum& sum, std::vector<Worker>& workers, char* out) {
  char* total = workers[0].slots[sum.slot];
  for (std::size_t w = 1; w < workers.size(); ++w) {
    const char* more = workers[w].slots[sum.slot];
    sum.is_float ? add_sums<double>(total, more, sum.count) : add_sums<std::uint64_t>(total, more, sum.count);
  }
  if (sum.count == 0) return;
  const int outer = static_cast<int>(sum.extents.size()) - 1;  // the last kept axis is one run of the flush
  const TileShape run{1, outer < 0 ? 1 : sum.extents.back()};
  std::int64_t index[kMaxGroupRank] = {};
  for (std::int64_t done = 0; done < sum.count; done += run.cols) {
    std::int64_t offset = 0;
    for (int axis = 0; axis < outer; ++axis) offset += index[axis] * sum.out_strides[static_cast<std::size_t>(axis)];
    char* const slots[2] = {out + offset * sum.out_bytes, total + done * kSumBytes};
    sum.flush.routine(sum.flush, slots, run);
    for (int axis = outer; axis-- > 0;) {
      if (++index[axis] < sum.extents[static_cast<std::size_t>(axis)]) break;
      index[axis] = 0;
    }
  }
}

}  // namespace

struct CpuGroupKernel::Running {
  Nest nest;
  std::vector<Worker> workers;
  std::size_t operands = 0;
  void* const* pointers = nullptr;  // of the call in progress

  void work(Worker& worker) const {
    for (std::size_t i = 0; i < operands; ++i) worker.slots[i] = static_cast<char*>(pointers[i]);
    for (const SharedSum& sum : nest.shared_sums) {
      std::memset(worker.slots[sum.slot], 0, static_cast<std::size_t>(sum.count * kSumBytes));
    }
    if (worker.begin >= worker.end) return;
    if (nest.loops.empty()) {
      execute(nest.tile, worker);
    } else {
      walk(nest, 0, worker);
    }
    if (nest.streams) finish_streaming();
  }
};

CpuGroupKernel::CpuGroupKernel(const Group& group, int threads, Sharing sharing)
    : running_(std::make_unique<Running>()) {
  Running& r = *running_;
  r.nest = build_nest(group, threads, sharing);
  r.operands = group.operands();
  r.workers.resize(static_cast<std::size_t>(r.nest.threads));
  const Nest& nest = r.nest;
  for (std::int64_t w = 0; w < nest.threads; ++w) {
    Worker& worker = r.workers[static_cast<std::size_t>(w)];
    const std::int64_t units = (nest.split_extent + nest.split_unit - 1) / nest.split_unit;
    worker.begin = units * w / nest.threads * nest.split_unit;
    worker.end = std::min(nest.split_extent, units * (w + 1) / nest.threads * nest.split_unit);
    if (nest.empty) worker.end = worker.begin;
    worker.shape = nest.shape;
    const auto bytes = static_cast<std::size_t>(std::max<std::int64_t>(nest.arena_bytes, 1));
    worker.arena.reset(static_cast<char*>(::operator new(bytes, kPage)));
    std::memset(worker.arena.get(), 0, bytes);
    worker.slots.assign(static_cast<std::size_t>(nest.slot_count), worker.arena.get());
    for (const ArenaSlot& slot : nest.arena_slots) worker.slots[slot.slot] = worker.arena.get() + slot.offset;
    for (const Constant& c : nest.constants) std::memcpy(worker.arena.get() + c.offset, &c.bits, sizeof c.bits);
  }
}

CpuGroupKernel::~CpuGroupKernel() = default;
CpuGroupKernel::CpuGroupKernel(CpuGroupKernel&&) noexcept = default;
CpuGroupKernel& CpuGroupKernel::operator=(CpuGroupKernel&&) noexcept = default;

void CpuGroupKernel::run(void* const* operands) const {
  Running& r = *running_;
  r.pointers = operands;
  if (r.nest.threads == 1) {
    r.work(r.workers[0]);
  } else {
    parallel(
        r.nest.threads,
        [](int thread, void* state) {
          auto* running = static_cast<Running*>(state);
          running->work(running->workers[static_cast<std::size_t>(thread)]);
        },
        &r);
  }
  for (const SharedSum& sum : r.nest.shared_sums) {
    finish(sum, r.workers, static_cast<char*>(operands[sum.out_slot]));
  }
}

int CpuGroupKernel::threads() const { return running_->nest.threads; }

}  // namespace paoding
