// SPDX-License-Identifier: Apache-2.0
#include "tests/support/thread_ranks.h"

#include <algorithm>
#include <chrono>
#include <cstring>

#include "base/check.h"

namespace paoding::testing_program {
namespace {

constexpr auto kTooLong = std::chrono::seconds(20);  // nothing here takes that long
constexpr int kMostDelay = 300;                      // us, before a rank comes to a collective

std::vector<double> loaded(const void* from, std::int64_t count, DType dtype) {
  const Type type{dtype, {count}};
  Tensor tensor(type);
  std::memcpy(tensor.bytes(), from, static_cast<std::size_t>(size_bytes(type)));
  return tensor.to_doubles();
}

void store(const std::vector<double>& values, void* to, DType dtype) {
  const Tensor tensor = Tensor::from(dtype, {static_cast<std::int64_t>(values.size())}, values);
  std::memcpy(to, tensor.bytes(), static_cast<std::size_t>(tensor.size_bytes()));
}

double reduced(double a, double b, Reduction reduction) {
  return reduction == Reduction::sum ? a + b : reduction == Reduction::max ? std::max(a, b) : std::min(a, b);
}

}  // namespace

class OneOfThreads : public Communicator {
 public:
  OneOfThreads(ThreadRanks& all, int rank) : all_(all), rank_(rank) {}
  int rank() const override { return rank_; }
  int size() const override { return all_.size(); }
  Device device() const override { return all_.device_; }
  std::string name() const override { return "threads"; }

  void all_reduce(const void* in, void* out, std::int64_t count, DType dtype, Reduction reduction, void*) override {
    const auto all = meet("all_reduce " + text(dtype, reduction), count, in, count, dtype);
    store(sum(all, reduction), out, dtype);
  }
  void reduce_scatter(const void* in, void* out, std::int64_t count, DType dtype, Reduction reduction, void*) override {
    const auto all = meet("reduce_scatter " + text(dtype, reduction), count, in, count * size(), dtype);
    const std::vector<double> whole = sum(all, reduction);
    store({whole.begin() + rank_ * count, whole.begin() + (rank_ + 1) * count}, out, dtype);
  }
  void all_gather(const void* in, void* out, std::int64_t count, DType dtype, void*) override {
    std::vector<double> whole;
    for (const auto& each : meet("all_gather " + std::string(to_string(dtype)), count, in, count, dtype)) {
      whole.insert(whole.end(), each.begin(), each.end());
    }
    store(whole, out, dtype);
  }
  void broadcast(const void* in, void* out, std::int64_t count, DType dtype, int root, void*) override {
    const auto all = meet(fmt::format("broadcast {} of {}", to_string(dtype), root), count, in, count, dtype);
    store(all[static_cast<std::size_t>(root)], out, dtype);
  }
  void barrier() override { all_.meet(rank_, {"barrier", 0}, {}); }
  void abort(const std::string& reason) noexcept override { all_.leave(rank_, reason); }

 private:
  static std::string text(DType dtype, Reduction reduction) {
    return fmt::format("{} {}", to_string(dtype), to_string(reduction));
  }
  std::vector<std::vector<double>> meet(std::string what, std::int64_t count, const void* in, std::int64_t loads,
                                        DType dtype) {
    return all_.meet(rank_, {std::move(what), count}, loaded(in, loads, dtype));
  }
  static std::vector<double> sum(const std::vector<std::vector<double>>& all, Reduction reduction) {
    std::vector<double> total = all[0];
    for (std::size_t rank = 1; rank < all.size(); ++rank) {
      for (std::size_t i = 0; i < total.size(); ++i) total[i] = reduced(total[i], all[rank][i], reduction);
    }
    return total;
  }

  ThreadRanks& all_;
  const int rank_;
};

ThreadRanks::ThreadRanks(int size, unsigned seed, Device device)
    : size_(size), seed_(seed), device_(device), calls_(static_cast<std::size_t>(size)) {
  for (int rank = 0; rank < size; ++rank) random_.emplace_back(seed * 1000 + static_cast<unsigned>(rank));
}

std::shared_ptr<Communicator> ThreadRanks::rank(int number) { return std::make_shared<OneOfThreads>(*this, number); }

std::vector<std::vector<double>> ThreadRanks::meet(int rank, const CollectiveCall& call, std::vector<double> in) {
  const auto at = static_cast<std::size_t>(rank);
  if (seed_ != 0) std::this_thread::sleep_for(std::chrono::microseconds(random_[at]() % kMostDelay));
  std::unique_lock lock(mutex_);
  const std::size_t number = calls_[at].size();
  calls_[at].push_back(call);
  if (failing_ && failing_->first == rank && number >= failing_->second) {
    fail(ErrorKind::device, "rank {}: a planted error in collective {}", rank, number);
  }
  if (!gone_.empty()) fail(ErrorKind::device, "rank {}: {}", rank, gone_);
  if (meetings_.size() <= number) meetings_.push_back(std::make_shared<Meeting>(size_));
  const std::shared_ptr<Meeting> meeting = meetings_[number];
  if (meeting->first < 0) meeting->first = rank, meeting->call = call;
  if (!(meeting->call == call)) {
    gone_ = fmt::format("collective {} is {} of {} on rank {}, {} of {} on rank {}", number, meeting->call.what,
                        meeting->call.count, meeting->first, call.what, call.count, rank);
    changed_.notify_all();
    fail(ErrorKind::device, "rank {}: {}", rank, gone_);
  }
  meeting->in[at] = std::move(in);
  ++meeting->come;
  changed_.notify_all();
  const bool all_came = changed_.wait_for(lock, kTooLong, [&] { return meeting->come == size_ || !gone_.empty(); });
  if (meeting->come != size_) {
    fail(ErrorKind::device, "rank {}: {}", rank, all_came ? gone_ : "the others do not come");
  }
  return meeting->in;
}

void ThreadRanks::leave(int rank, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (gone_.empty()) gone_ = fmt::format("rank {} is gone: {}", rank, why);
  changed_.notify_all();
}

std::vector<std::string> ThreadRanks::run(const std::function<void(int rank, std::shared_ptr<Communicator>)>& work) {
  std::vector<std::string> errors(static_cast<std::size_t>(size_));
  std::vector<std::thread> threads;
  for (int number = 0; number < size_; ++number) {
    threads.emplace_back([&, number] {
      try {
        work(number, rank(number));
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(number)] = error.what();
        leave(number, error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

}  // namespace paoding::testing_program
