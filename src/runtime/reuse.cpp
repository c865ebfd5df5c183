// SPDX-License-Identifier: Apache-2.0
#include "runtime/reuse.h"

#include <algorithm>
#include <unordered_map>
#include <utility>

#include "base/hash.h"

namespace paoding {
namespace {

// A cache loses its content little by little; a reader waits for lines that it has lost, a writer does not.
constexpr std::int64_t kReadFrom = 2;

bool is_run(const Launch& launch) { return launch.kind == Launch::Kind::run; }

// The places that launches touch, by number: of each operand of each launch, in their order.
class Places {
 public:
  explicit Places(const std::vector<Launch>& launches) {
    std::size_t operands = 0;
    for (const Launch& launch : launches) operands += launch.addresses.size();
    std::unordered_map<const Step*, std::size_t> bytes_of;
    std::unordered_map<std::pair<int, std::int64_t>, std::uint32_t, Hash> numbers;
    of_.reserve(operands);
    first_.reserve(launches.size());
    for (const Launch& launch : launches) {
      first_.push_back(of_.size());
      first_bytes_.push_back(0);
      if (is_run(launch)) {
        const auto [found, is_new] = bytes_of.try_emplace(launch.step, bytes_.size());
        first_bytes_.back() = found->second;
        for (std::size_t k = 0; is_new && k < launch.step->operands.size(); ++k) {
          bytes_.push_back(size_bytes(launch.step->operands[k].layout.type));
        }
      }
      for (const auto& address : launch.addresses) {
        of_.push_back(numbers.try_emplace(address, static_cast<std::uint32_t>(numbers.size())).first->second);
      }
    }
    count_ = numbers.size();
  }
  std::uint32_t of(std::size_t launch, std::size_t operand) const { return of_[first_[launch] + operand]; }
  // Of an operand of a launch that is a run.
  std::int64_t bytes(std::size_t launch, std::size_t operand) const { return bytes_[first_bytes_[launch] + operand]; }
  std::size_t count() const { return count_; }

 private:
  struct Hash {
    std::size_t operator()(const std::pair<int, std::int64_t>& address) const {
      const auto [slot, offset] = address;
      return fnv1a(fnv1a(kFnvStart, static_cast<std::uint64_t>(slot)), static_cast<std::uint64_t>(offset));
    }
  };
  std::vector<std::uint32_t> of_;
  std::vector<std::size_t> first_, first_bytes_;  // by launch
  std::vector<std::int64_t> bytes_;               // of the operands of every step
  std::size_t count_ = 0;
};

// How many bytes are touched in a stretch of time, each once: of every place the last touch so far counts.
class Touches {
 public:
  Touches(std::size_t moments, std::size_t places) : sums_(moments + 1), last_(places) {}

  void touch(std::uint32_t place, std::int64_t bytes, std::size_t moment) {
    Last& last = last_[place];
    if (last.bytes > 0) add(last.moment, -last.bytes);
    last = {moment, std::max(bytes, last.bytes)};
    add(moment, last.bytes);
  }
  std::int64_t bytes_since(std::size_t moment) const { return total_ - before(moment); }

 private:
  struct Last {
    std::size_t moment = 0;
    std::int64_t bytes = 0;
  };
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
  std::vector<Last> last_;  // by place
};

// Bytes that a run touches, memory that is touched twice counted twice.
std::int64_t most_touched(const std::vector<Launch>& launches, const Places& places) {
  std::int64_t bytes = 0;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    for (std::size_t k = 0; is_run(launches[i]) && k < launches[i].addresses.size(); ++k) bytes += places.bytes(i, k);
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
  const Places places(launches);
  if (most_touched(launches, places) <= cache_bytes) return far;
  // Results that nobody has touched since they were written.
  struct Written {
    const Step* step;
    std::size_t result, moment;
  };
  std::unordered_map<int, Written> waiting;  // by slot
  const std::vector<bool> turns = those_that_turn(launches);
  Touches touches(2 * launches.size(), places.count());
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
      touches.touch(places.of(moment % launches.size(), k), places.bytes(moment % launches.size(), k), moment);
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
