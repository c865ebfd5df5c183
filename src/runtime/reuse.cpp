// SPDX-License-Identifier: Apache-2.0
#include "runtime/reuse.h"

#include <algorithm>
#include <utility>

namespace paoding {
namespace {

// A cache loses its content little by little; a reader waits for lines that it has lost, a writer does not.
constexpr std::int64_t kReadFrom = 2;

bool is_run(const Launch& launch) { return launch.kind == Launch::Kind::run; }

// How many bytes are touched in a stretch of time, each once: of every place the last touch so far counts.
class Touches {
 public:
  explicit Touches(std::size_t moments) : sums_(moments + 1) {}

  void touch(std::pair<int, std::int64_t> place, std::int64_t bytes, std::size_t moment) {
    const auto [last, is_new] = last_.try_emplace(place, moment, bytes);
    if (!is_new) {
      add(last->second.first, -last->second.second);
      last->second = {moment, std::max(bytes, last->second.second)};
    }
    add(moment, last->second.second);
  }
  std::int64_t bytes_since(std::size_t moment) const { return total_ - before(moment); }

 private:
  // A Fenwick tree: sums_[i] is of as many moments up to i as its lowest bit says.
  void add(std::size_t moment, std::int64_t bytes) {
    total_ += bytes;
    for (std::size_t i = moment + 1; i < sums_.size(); i += i & -i) sums_[i] += bytes;
  }
  std::int64_t before(std::size_t moment) const {
    std::int64_t sum = 0;
    for (std::size_t i = moment; i > 0; i -= i & -i) sum += sums_[i];
    return sum;
  }

  std::vector<std::int64_t> sums_;
  std::int64_t total_ = 0;
  std::map<std::pair<int, std::int64_t>, std::pair<std::size_t, std::int64_t>> last_;  // moment, bytes
};

// Bytes that a run touches, memory that is touched twice counted twice.
std::int64_t most_touched(const std::vector<Launch>& launches) {
  std::int64_t bytes = 0;
  for (const Launch& launch : launches) {
    for (std::size_t k = 0; is_run(launch) && k < launch.addresses.size(); ++k) {
      bytes += size_bytes(launch.step->operands[k].layout.type);
    }
  }
  return bytes;
}

// Per launch, whether it is in a loop whose turns follow each other by a jump: its next launch then is in front of it.
std::vector<bool> those_that_turn(const std::vector<Launch>& launches) {
  std::vector<bool> turn(launches.size());
  for (std::size_t i = 0; i < launches.size(); ++i) {
    for (const std::size_t target : launches[i].targets) {
      for (std::size_t k = target; k <= i; ++k) turn[k] = true;
    }
  }
  return turn;
}

bool reads(const Step& step, int slot) {
  return std::any_of(step.operands.begin(), step.operands.begin() + static_cast<std::ptrdiff_t>(step.reads),
                     [&](const Operand& operand) { return operand.slot == slot; });
}

}  // namespace

std::map<const Step*, std::vector<bool>> far_results(const std::vector<Launch>& launches, std::int64_t cache_bytes) {
  std::map<const Step*, std::vector<bool>> far;
  if (most_touched(launches) <= cache_bytes) return far;
  // Results that nobody has touched since they were written.
  struct Written {
    const Step* step;
    std::size_t result, moment;
  };
  std::map<int, Written> waiting;  // by slot
  const std::vector<bool> turns = those_that_turn(launches);
  Touches touches(2 * launches.size());
  for (std::size_t moment = 0; moment < 2 * launches.size(); ++moment) {
    const bool is_first_run = moment < launches.size();
    if (!is_first_run && waiting.empty()) break;
    const Launch& launch = launches[moment % launches.size()];
    if (!is_run(launch)) continue;
    const Step& step = *launch.step;
    for (std::size_t k = 0; k < step.operands.size(); ++k) {
      const auto written = waiting.find(step.operands[k].slot);
      if (written == waiting.end()) continue;
      const auto& [by, result, when] = written->second;
      if (touches.bytes_since(when) <= (k < step.reads ? kReadFrom : 1) * cache_bytes) far[by][result] = false;
      waiting.erase(written);
    }
    for (std::size_t k = 0; k < step.operands.size(); ++k) {
      touches.touch(launch.addresses[k], size_bytes(step.operands[k].layout.type), moment);
    }
    if (!is_first_run || step.kind != Step::Kind::group) continue;
    std::vector<bool>& results = far.try_emplace(&step, step.operands.size() - step.reads, true).first->second;
    for (std::size_t k = step.reads; k < step.operands.size(); ++k) {
      const int slot = step.operands[k].slot;
      if (turns[moment] || reads(step, slot)) {
        results[k - step.reads] = false;
      } else {
        waiting.insert_or_assign(slot, Written{&step, k - step.reads, moment});
      }
    }
  }
  std::erase_if(far, [](const auto& entry) { return std::ranges::find(entry.second, true) == entry.second.end(); });
  return far;
}

}  // namespace paoding
