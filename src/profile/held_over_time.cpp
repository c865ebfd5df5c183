// SPDX-License-Identifier: Apache-2.0
#include "profile/held_over_time.h"

#include <algorithm>
#include <map>
#include <utility>

namespace paoding::profile {

namespace {

// Follows a number from the start of the window on.
class Follow {
 public:
  explicit Follow(std::int64_t start) : start_(start) {}

  void take(std::int64_t ns, std::int64_t value) {
    value_ = value;
    if (ns == start_) {
      seen_.at_start = value;
    } else {
      seen_.changes += 1;
    }
    if (value <= seen_.most) return;
    seen_.most = value;
    seen_.most_ns = ns - start_;
  }
  HeldOverTime seen(std::int32_t device, std::string_view what) {
    seen_.device = device;
    seen_.what = what;
    seen_.at_end = value_;
    return seen_;
  }

 private:
  const std::int64_t start_;
  std::int64_t value_ = 0;
  HeldOverTime seen_;
};

}  // namespace

std::vector<HeldOverTime> held_over_time(const Trace& trace, State state) {
  struct Device {
    std::vector<Sample> changes;  // of all its counters: by how much
    std::vector<HeldOverTime> each;
  };
  std::map<std::pair<ProcessId, std::int32_t>, Device> devices;
  const std::vector<Sample>& samples = trace.samples();
  for (auto at = samples.begin(); at != samples.end();) {
    const Counter& counter = trace.counters()[at->counter];
    Device& device = devices[{counter.process, counter.device}];
    Follow follow(trace.window_start());
    std::int64_t before = 0;
    const auto end = std::find_if(at, samples.end(), [&](const Sample& s) { return s.counter != at->counter; });
    for (; at != end; ++at) {
      follow.take(at->ns, at->value);
      device.changes.push_back({at->counter, at->ns, at->value - std::exchange(before, at->value)});
    }
    HeldOverTime seen = follow.seen(counter.device, trace.text(counter.name));
    if (seen.most > 0) device.each.push_back(std::move(seen));
  }
  std::vector<HeldOverTime> all;
  for (auto& [where, device] : devices) {
    const auto [process, index] = where;
    const bool is_left_out = state != State::all && (index < 0) != (state == State::cpu);
    if (is_left_out || device.each.empty()) continue;
    std::ranges::stable_sort(device.changes, {}, &Sample::ns);
    Follow follow(trace.window_start());
    std::int64_t sum = 0;
    for (std::size_t i = 0; i < device.changes.size(); ++i) {
      sum += device.changes[i].value;
      const bool is_last = i + 1 == device.changes.size() || device.changes[i + 1].ns != device.changes[i].ns;
      if (is_last) follow.take(device.changes[i].ns, sum);
    }
    device.each.insert(device.each.begin(), follow.seen(index, ""));
    for (HeldOverTime& one : device.each) {
      one.process = trace.process_name(process);
      all.push_back(std::move(one));
    }
  }
  return all;
}

}  // namespace paoding::profile
