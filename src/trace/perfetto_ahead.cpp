// SPDX-License-Identifier: Apache-2.0
// Packets of a large Perfetto trace are read by a second thread, ahead of the one that makes spans of them: some
// thousands at a time, in the order of the file.
#include <condition_variable>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#include "trace/perfetto_events.h"

namespace paoding::trace {
namespace {

// Calls of a taker, to be made later.
class Batch {
 public:
  void clear() {
    calls_.clear(), tracks_.clear(), events_.clear(), stages_.clear(), arguments_.clear(), flows_.clear();
  }
  bool is_full() const {
    // Numbers that one thread wrote are in a cache still when the other one reads it.
    constexpr std::size_t kCalls = 1024, kMostBeside = 1 << 18;
    return calls_.size() >= kCalls || arguments_.size() + flows_.size() >= kMostBeside;
  }

  void add(const PerfettoTrack& track) {
    calls_.push_back({Call::Of::track});
    tracks_.push_back(track);
  }
  void add(const PerfettoGpuStage& stage) {
    calls_.push_back({Call::Of::stage});
    stages_.push_back(stage);
  }
  void add(const PerfettoEvent& event, std::span<const PerfettoArgument> arguments,
           std::span<const std::uint64_t> flows) {
    calls_.push_back(
        {Call::Of::event, static_cast<std::uint32_t>(arguments.size()), static_cast<std::uint32_t>(flows.size())});
    events_.push_back(event);
    for (const PerfettoArgument& argument : arguments) arguments_.push_back(argument);
    for (const std::uint64_t flow : flows) flows_.push_back(flow);
  }

  /// True while the taker wants more.
  void give_to(PerfettoTaker& taker) const {
    std::size_t track = 0, event = 0, stage = 0;
    std::span<const PerfettoArgument> arguments = arguments_;
    std::span<const std::uint64_t> flows = flows_;
    for (const Call& call : calls_) {
      if (taker.is_done()) return;
      switch (call.of) {
        case Call::Of::track: taker.take(tracks_[track++]); break;
        case Call::Of::stage: taker.take(stages_[stage++]); break;
        case Call::Of::event:
          taker.take(events_[event++], arguments.first(call.arguments), flows.first(call.flows));
          arguments = arguments.subspan(call.arguments);
          flows = flows.subspan(call.flows);
          break;
      }
    }
  }

 private:
  struct Call {
    enum class Of : std::uint8_t { track, event, stage };
    Of of;
    std::uint32_t arguments = 0, flows = 0;
  };
  std::vector<Call> calls_;
  std::vector<PerfettoTrack> tracks_;
  std::vector<PerfettoEvent> events_;
  std::vector<PerfettoGpuStage> stages_;
  std::vector<PerfettoArgument> arguments_;
  std::vector<std::uint64_t> flows_;
};

// Batches on their way from one thread to the other, and back when they are empty. A few are under way at most.
class Handover {
 public:
  /// Gives the batch away and gets an empty one for it.
  void put(Batch& batch) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return full_.size() < kMost || is_stopped_; });
    full_.push_back(std::move(batch));
    batch = Batch();
    if (!empty_.empty()) {
      batch = std::move(empty_.back());
      empty_.pop_back();
    }
    changed_.notify_one();
  }
  /// The next batch for one that is of no more use. False after the last.
  bool get(Batch& batch) {
    std::unique_lock lock(mutex_);
    batch.clear();
    empty_.push_back(std::move(batch));
    changed_.wait(lock, [&] { return !full_.empty() || is_over_; });
    if (full_.empty()) return false;
    batch = std::move(full_.front());
    full_.erase(full_.begin());
    changed_.notify_one();
    return true;
  }
  /// No more will come.
  void end() {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
    changed_.notify_one();
  }
  /// No more is wanted: put() waits no longer.
  void stop() {
    const std::lock_guard lock(mutex_);
    is_stopped_ = true;
    changed_.notify_one();
  }
  bool is_stopped() {
    const std::lock_guard lock(mutex_);
    return is_stopped_;
  }

 private:
  static constexpr std::size_t kMost = 4;
  std::mutex mutex_;
  std::condition_variable changed_;  // one thread waits at most
  std::vector<Batch> full_, empty_;
  bool is_over_ = false, is_stopped_ = false;
};

// The taker of the thread that reads ahead.
class Ahead final : public PerfettoTaker {
 public:
  explicit Ahead(Handover& to) : to_(to) {}
  void take(const PerfettoTrack& track) override {
    batch_.add(track);
    put_full();
  }
  void take(const PerfettoGpuStage& stage) override {
    batch_.add(stage);
    put_full();
  }
  void take(const PerfettoEvent& event, std::span<const PerfettoArgument> arguments,
            std::span<const std::uint64_t> flows) override {
    batch_.add(event, arguments, flows);
    put_full();
  }
  bool is_done() const override { return is_done_; }
  void put() {
    to_.put(batch_);
    is_done_ = to_.is_stopped();
  }

 private:
  void put_full() {
    if (batch_.is_full()) put();
  }

  Handover& to_;
  Batch batch_;
  bool is_done_ = false;
};

}  // namespace

PerfettoLosses read_perfetto_packets(TraceFile& file, PerfettoTexts& texts, PerfettoTaker& taker) {
  constexpr std::uint64_t kWorthTwo = std::uint64_t{1} << 20;
  if (file.stored_bytes() <= kWorthTwo) return read_perfetto_packets_here(file, texts, taker);
  Handover handover;
  PerfettoLosses losses;
  std::exception_ptr problem;
  const auto read = [&] {
    try {
      Ahead ahead(handover);
      losses = read_perfetto_packets_here(file, texts, ahead);
      ahead.put();
    } catch (...) {
      problem = std::current_exception();
    }
    handover.end();
  };
  std::jthread other;
  try {
    other = std::jthread(read);
  } catch (const std::system_error&) {  // no more threads are to be had
    return read_perfetto_packets_here(file, texts, taker);
  }
  // The other thread ends before this one leaves, whatever the taker throws.
  struct Stop {
    Handover& of;
    ~Stop() { of.stop(); }
  } stop{handover};
  for (Batch batch; !taker.is_done() && handover.get(batch);) batch.give_to(taker);
  handover.stop();
  other.join();
  if (problem) std::rethrow_exception(problem);
  return losses;
}

}  // namespace paoding::trace
