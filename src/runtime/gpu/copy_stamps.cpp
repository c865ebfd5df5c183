// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/copy_stamps.h"

#include <atomic>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "runtime/gpu/stamp_times.h"

namespace paoding {
namespace {

constexpr std::size_t kPlaces = 1024;
constexpr std::int64_t kAtFirstNs = 500'000;  // of stamping, whatever the program is at
constexpr int kCopyPatienceMs = 50;           // at the end of a recording

using profile::steady_ns;

std::int64_t read(const std::uint64_t& word) {
  return static_cast<std::int64_t>(std::atomic_ref(const_cast<std::uint64_t&>(word)).load(std::memory_order_acquire));
}

}  // namespace

CopyStamps& CopyStamps::get() {
  static auto* the_stamps = new CopyStamps;  // never destroyed: a recording may end after main()
  return *the_stamps;
}

CopyStamps::Places::Places(const gpu::GpuDevice& device)
    : words(device, 2 * kPlaces * sizeof(std::uint64_t)),
      text(gpu::plan_stamp(device.target())),
      stamp(device, text, 1) {
  std::memset(words.bytes(), 0, words.size_bytes());
}

std::uint64_t* CopyStamps::Places::pair(std::size_t place) const {
  return reinterpret_cast<std::uint64_t*>(words.bytes()) + 2 * place;
}

void CopyStamps::start() {
  const std::lock_guard lock(mutex_);
  for (auto& [device, places] : places_) places->copies.clear();
  started_ns_ = steady_ns();
  spent_ns_ = 0;
  without_ = 0;
}

void CopyStamps::start_stamp(const Places& places, std::uint64_t* word, CUstream stream) {
  void* operands[] = {word};
  places.stamp.start(stream, operands, {});
}

std::optional<std::size_t> CopyStamps::begin(const gpu::GpuDevice& device, CUstream stream) {
  const std::int64_t now = steady_ns();
  const std::lock_guard lock(mutex_);
  const double allowed = StampTimes::get().budget() * static_cast<double>(now - started_ns_);
  if (static_cast<double>(spent_ns_ - kAtFirstNs) > allowed) {
    ++without_;
    return std::nullopt;
  }
  std::unique_ptr<Places>& places = places_[device.index()];
  if (places == nullptr) places = std::make_unique<Places>(device);
  drain(device.index(), *places);
  if (places->copies.size() + 1 >= kPlaces) {
    ++without_;
    return std::nullopt;
  }
  const std::size_t place = places->next++ % kPlaces;
  std::memset(places->pair(place), 0, 2 * sizeof(std::uint64_t));
  start_stamp(*places, places->pair(place), stream);
  spent_ns_ += steady_ns() - now;
  return place;
}

void CopyStamps::end(const gpu::GpuDevice& device, CUstream stream, std::size_t place, profile::SiteId site,
                     std::uint32_t number) {
  const std::int64_t now = steady_ns();
  const std::lock_guard lock(mutex_);
  Places& places = *places_.at(device.index());
  start_stamp(places, places.pair(place) + 1, stream);
  places.copies.push_back({place, stream, site, number});
  spent_ns_ += steady_ns() - now;
}

void CopyStamps::drain(int device, Places& places) {
  while (!places.copies.empty()) {
    const Copy& copy = places.copies.front();
    const std::uint64_t* const pair = places.pair(copy.place);
    if (read(pair[0]) == 0 || read(pair[1]) == 0) return;
    StampTimes::get().add({.launch = {copy.number, 0, 0},
                           .device = device,
                           .stream = copy.stream,
                           .site = copy.site,
                           .begin_ns = read(pair[0]),
                           .end_ns = read(pair[1]),
                           .is_copy = true});
    places.copies.pop_front();
  }
}

void CopyStamps::stop() {
  const std::lock_guard lock(mutex_);
  std::uint64_t lost = 0;
  for (auto& [device, places] : places_) {
    for (int ms = 0; ms < kCopyPatienceMs; ++ms) {
      drain(device, *places);
      if (places->copies.empty()) break;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    lost += places->copies.size();
    places->copies.clear();
  }
  if (without_ + lost != 0) {
    profile::Recorder::add_note("copies whose time on the GPU is not known", without_ + lost);
  }
}

}  // namespace paoding
