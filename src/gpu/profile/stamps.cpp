// SPDX-License-Identifier: Apache-2.0
#include "gpu/profile/stamps.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "cuda_text.h"
#include "gpu/codegen/text_kernel.h"
#include "profile/clock.h"

namespace paoding::gpu {
namespace {

using profile::steady_ns;

constexpr std::uint64_t kRounds = 16;
constexpr std::int64_t kRoundNs = 50'000;         // the kernel waits for a round; one takes 3 us (H200)
constexpr double kMostDrift = 1e-3;               // of one clock against the other
constexpr std::int64_t kNearNs = 30'000'000'000;  // readings that are held against each other, or make a line
constexpr std::int64_t kLongNs = 3'000'000'000;   // without a reading that is good

TextLaunch plan(TextParts parts, const Target& target) {
  parts.functions = k_stamps_cu;
  parts.ctas = 1;
  TextLaunch launch = make_text_kernel(parts);
  launch.overlaps_before = overlaps_before(target, launch);
  return launch;
}

}  // namespace

TextLaunch plan_stamp(const Target& target) {
  TextParts parts;
  parts.name = "stamp";
  parts.threads = 32;
  parts.operands = {"Word* at"};
  parts.call = "stamp(at)";
  return plan(std::move(parts), target);
}

TextLaunch plan_list_stamp(std::int64_t most, const Target& target) {
  TextParts parts;
  parts.name = "list_stamp";
  parts.threads = 32;
  parts.operands = {"Word* list", "Word which"};
  parts.call = fmt::format("list_stamp(list, which, {})", parts.sizes.wide_number("most", most));
  return plan(std::move(parts), target);
}

TextLaunch plan_keep_stamps(std::int64_t words, std::int64_t places, const Target& target) {
  TextParts parts;
  parts.name = "keep_stamps";
  parts.operands = {"Word* stamps", "Word* replays", "Word* ring"};
  const std::string count = parts.sizes.wide_number("words", words);
  parts.call =
      fmt::format("keep_stamps(stamps, replays, ring, {}, {})", count, parts.sizes.wide_number("places", places));
  return plan(std::move(parts), target);
}

TextLaunch plan_answer_clock(const Target& target) {
  TextParts parts;
  parts.name = "answer_clock";
  parts.threads = 32;
  parts.operands = {"const Word* asked", "Word* answers"};
  const std::string rounds = parts.sizes.wide_number("rounds", kRounds);
  parts.call =
      fmt::format("answer_clock(asked, answers, {}, {})", rounds, parts.sizes.wide_number("patience_ns", kRoundNs));
  return plan(std::move(parts), target);
}

void load_stamp_kernels(const GpuDevice& device) {
  const Target& target = device.target();
  for (const TextLaunch& launch :
       {plan_stamp(target), plan_list_stamp(1, target), plan_keep_stamps(1, 1, target), plan_answer_clock(target)}) {
    load_kernel(device, launch.source, launch.entry);
  }
}

ClockReader::ClockReader(const GpuDevice& device)
    : device_(device),
      stream_(device),
      answered_(device),
      words_(device, (kRounds + 2) * sizeof(std::uint64_t)),
      text_(plan_answer_clock(device.target())),
      kernel_(device, text_, 2) {
  std::memset(words_.bytes(), 0, words_.size_bytes());
}

std::optional<ClockReading> ClockReader::read(std::int64_t patience_ns) {
  device_.make_current();
  if (is_asked_ && !answered_.is_done()) return std::nullopt;  // the last one waits still
  auto* const words = reinterpret_cast<std::uint64_t*>(words_.bytes());
  std::memset(words, 0, words_.size_bytes());
  void* operands[] = {words, words + 1};
  const auto answer = [&](std::uint64_t round) {
    return static_cast<std::int64_t>(std::atomic_ref(words[1 + round]).load(std::memory_order_acquire));
  };
  ClockReading best{0, 0, INT64_MAX};
  const auto take = [&](std::int64_t before, std::int64_t after, std::int64_t gpu_ns) {
    if (after - before < best.width_ns) best = {before + (after - before) / 2, gpu_ns, after - before};
  };
  // The host's time is read once more after each answer, so that a delay of the host counts as part of the round trip.
  const std::int64_t launched = steady_ns();
  kernel_.start(stream_.get(), operands, {});
  answered_.record(stream_.get());
  is_asked_ = true;
  std::int64_t now = launched;
  while (answer(0) == 0 && now - launched < patience_ns) {
    if (now - launched > kRoundNs) (void)answered_.is_done();  // a driver may hold work back until it is asked
    now = steady_ns();
  }
  if (answer(0) == 0) return std::nullopt;
  take(launched, steady_ns(), answer(0));
  for (std::uint64_t round = 1; round <= kRounds; ++round) {
    const std::int64_t before = steady_ns();
    std::atomic_ref(words[0]).store(round, std::memory_order_release);
    while (answer(round) == 0 && steady_ns() - before < 2 * kRoundNs) {
    }
    if (answer(round) == 0) break;
    take(before, steady_ns(), answer(round));
  }
  stream_.wait_idle();
  return best;
}

// Readings that disagree by more than clocks can are of a host that was busy: the one that is known best stands alone.
std::int64_t ClockLine::on_line(const ClockReading& a, const ClockReading& b, std::int64_t gpu_ns) {
  const double rate = static_cast<double>(b.host_ns - a.host_ns) / static_cast<double>(b.gpu_ns - a.gpu_ns);
  if (std::abs(rate - 1) > kMostDrift) {
    const ClockReading& better = a.width_ns <= b.width_ns ? a : b;
    return better.host_ns + (gpu_ns - better.gpu_ns);
  }
  return a.host_ns + static_cast<std::int64_t>(rate * static_cast<double>(gpu_ns - a.gpu_ns));
}

bool ClockLine::add(const ClockReading& reading) {
  recent_.push_back(reading);
  count_ += 1;
  while (recent_.front().host_ns + kNearNs < reading.host_ns) recent_.pop_front();
  const std::int64_t least = std::ranges::min(recent_, {}, &ClockReading::width_ns).width_ns;
  const auto is_bad = [&](const ClockReading& one) { return one.width_ns > least + least / 4 + 250; };
  if (is_bad(reading)) {
    if (readings_.empty()) readings_.push_back(reading);  // better than nothing, until there is a good one
    return false;
  }
  while (!readings_.empty() && readings_.back().host_ns + kNearNs >= reading.host_ns && is_bad(readings_.back())) {
    readings_.pop_back();
  }
  readings_.push_back(reading);
  return true;
}

bool ClockLine::covers(std::int64_t gpu_ns) const {
  if (!has_begun() || readings_.size() < 2) return false;
  return gpu_ns <= std::max(readings_.back().gpu_ns, recent_.back().gpu_ns - kLongNs);
}

std::int64_t ClockLine::to_host(std::int64_t gpu_ns) const {
  if (readings_.size() == 1) return gpu_ns - readings_[0].gpu_ns + readings_[0].host_ns;
  const ClockReading &first = readings_.front(), &last = readings_.back();
  if (gpu_ns > last.gpu_ns) {  // on a line that is long enough to go on
    const auto near = [&](const ClockReading& one) { return one.gpu_ns + kNearNs >= last.gpu_ns; };
    return on_line(*std::min(std::ranges::find_if(readings_, near), readings_.end() - 2), last, gpu_ns);
  }
  if (gpu_ns < first.gpu_ns) {
    const auto far = [&](const ClockReading& one) { return one.gpu_ns > first.gpu_ns + kNearNs; };
    return on_line(first, *std::max(std::ranges::find_if(readings_, far) - 1, readings_.begin() + 1), gpu_ns);
  }
  const auto is_behind = [](std::int64_t ns, const ClockReading& reading) { return ns < reading.gpu_ns; };
  const auto behind = std::upper_bound(readings_.begin() + 1, readings_.end() - 1, gpu_ns, is_behind);
  return on_line(*std::prev(behind), *behind, gpu_ns);
}

std::int64_t ClockLine::residual_ns() const {
  std::int64_t most = 0;
  for (std::size_t i = 1; i + 1 < readings_.size(); ++i) {
    const std::int64_t there = on_line(readings_[i - 1], readings_[i + 1], readings_[i].gpu_ns);
    most = std::max(most, std::abs(there - readings_[i].host_ns));
  }
  return most;
}

}  // namespace paoding::gpu
