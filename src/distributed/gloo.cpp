// SPDX-License-Identifier: Apache-2.0
// Ranks on CPUs by Gloo (Debian's libgloo-dev), over TCP. Its ring sums each part in one order of the ranks and sends
// the result around, so that all ranks get the same bits. f16 and bf16 are added in f32 and rounded from rank to rank.
#include "distributed/stores.h"

#if PAODING_WITH_GLOO

#include <gloo/allgather.h>
#include <gloo/allreduce.h>
#include <gloo/alltoall.h>
#include <gloo/barrier.h>
#include <gloo/broadcast.h>
#include <gloo/rendezvous/context.h>
#include <gloo/transport/tcp/device.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <csignal>
#include <cstring>
#include <fstream>
#include <mutex>
#include <vector>

#include "base/check.h"
#include "base/half.h"
#include "base/one_line.h"

namespace paoding {
namespace {

using Reduce = void (*)(void*, const void*, const void*, std::size_t);

template <Reduction R, class T>
T reduced(T a, T b) {
  if constexpr (R == Reduction::sum) return static_cast<T>(a + b);
  // A NaN stays one, as in the reductions of one rank.
  if constexpr (R == Reduction::max) return a != a || a > b ? a : b;
  return a != a || a < b ? a : b;
}

template <Reduction R, class T>
void reduce_plain(void* out, const void* a, const void* b, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    static_cast<T*>(out)[i] = reduced<R>(static_cast<const T*>(a)[i], static_cast<const T*>(b)[i]);
  }
}

template <Reduction R, float (*Load)(std::uint16_t), std::uint16_t (*Store)(float)>
void reduce_half(void* out, const void* a, const void* b, std::size_t count) {
  using Bits = std::uint16_t;
  for (std::size_t i = 0; i < count; ++i) {
    const float sum = reduced<R>(Load(static_cast<const Bits*>(a)[i]), Load(static_cast<const Bits*>(b)[i]));
    static_cast<Bits*>(out)[i] = Store(sum);
  }
}

template <Reduction R>
Reduce reduce_of(DType dtype) {
  switch (dtype) {
    case DType::f64: return reduce_plain<R, double>;
    case DType::f32: return reduce_plain<R, float>;
    case DType::f16: return reduce_half<R, f16_to_float, float_to_f16>;
    case DType::bf16: return reduce_half<R, bf16_to_float, float_to_bf16>;
    case DType::i64: return R == Reduction::sum ? reduce_plain<R, std::uint64_t> : reduce_plain<R, std::int64_t>;
    case DType::i32: return R == Reduction::sum ? reduce_plain<R, std::uint32_t> : reduce_plain<R, std::int32_t>;
    default: return reduce_plain<R, std::uint8_t>;
  }
}

Reduce reduce_of(DType dtype, Reduction reduction) {
  switch (reduction) {
    case Reduction::max: return reduce_of<Reduction::max>(dtype);
    case Reduction::min: return reduce_of<Reduction::min>(dtype);
    default: return reduce_of<Reduction::sum>(dtype);
  }
}

// Gloo's view of our store.
class GlooStore : public gloo::rendezvous::Store {
 public:
  GlooStore(RankStore& store, std::chrono::milliseconds timeout) : store_(store), timeout_(timeout) {}
  void set(const std::string& key, const std::vector<char>& value) override {
    store_.set("gloo/" + key, std::string(value.begin(), value.end()));
  }
  std::vector<char> get(const std::string& key) override {
    const std::string value = store_.get("gloo/" + key, timeout_);
    return {value.begin(), value.end()};
  }
  void wait(const std::vector<std::string>& keys) override {
    for (const std::string& key : keys) store_.get("gloo/" + key, timeout_);
  }

 private:
  RankStore& store_;
  std::chrono::milliseconds timeout_;
};

// Where the processes of the ranks are, to name one that is gone.
class Processes {
 public:
  Processes(RankStore& store, const RankPlace& place, std::chrono::milliseconds timeout) {
    store.set(fmt::format("process/{}", place.rank), fmt::format("{} {}", getpid(), host()));
    for (int rank = 0; rank < place.size; ++rank) {
      const std::string text = store.get(fmt::format("process/{}", rank), timeout);
      const std::size_t space = std::min(text.find(' '), text.size());
      const bool is_here = text.substr(std::min(space + 1, text.size())) == host();
      processes_.push_back(is_here ? std::atoi(text.c_str()) : 0);
    }
  }

  // "rank 1 (process 4711) is gone", of all that are on this machine; "" when none is.
  std::string missing() const {
    std::string text;
    for (std::size_t rank = 0; rank < processes_.size(); ++rank) {
      if (processes_[rank] == 0 || is_there(processes_[rank])) continue;
      text += fmt::format("{}rank {} (process {}) is gone", text.empty() ? "" : ", ", rank, processes_[rank]);
    }
    return text;
  }

 private:
  static std::string host() {
    char name[256] = "";
    gethostname(name, sizeof name - 1);
    return name;
  }
  // One that has ended is there until its parent asks for its status.
  static bool is_there(int process) {
    std::ifstream file(fmt::format("/proc/{}/stat", process));
    std::string text;
    if (!std::getline(file, text)) return false;
    const std::size_t end = text.rfind(") ");
    return end == std::string::npos || end + 2 >= text.size() || (text[end + 2] != 'Z' && text[end + 2] != 'X');
  }

  std::vector<int> processes_;  // 0: on another machine
};

class GlooCommunicator : public Communicator {
 public:
  GlooCommunicator(const RankPlace& place, const ConnectOptions& options)
      : place_(place), store_(options.store), processes_(*options.store, place, options.connect_timeout) {
    gloo::transport::tcp::attr address(store_->local_address().c_str());
    auto device = gloo::transport::tcp::CreateDevice(address);
    GlooStore store(*store_, options.connect_timeout);
    auto connected = std::make_shared<gloo::rendezvous::Context>(place.rank, place.size);
    connected->setTimeout(options.connect_timeout);
    guarded(", to connect", [&] { connected->connectFullMesh(store, device); });
    connected->setTimeout(options.timeout);
    context_ = std::move(connected);
  }
  ~GlooCommunicator() override { context_->closeConnections(); }

  int rank() const override { return place_.rank; }
  int size() const override { return place_.size; }
  Device device() const override { return Device::cpu(); }
  std::string name() const override { return "gloo"; }

  void all_reduce(const void* in, void* out, std::int64_t count, DType dtype, Reduction reduction, void*) override {
    guarded("", [&] {
      gloo::AllreduceOptions options(context_);
      options.setAlgorithm(gloo::AllreduceOptions::Algorithm::RING);
      options.setReduceFunction(reduce_of(dtype, reduction));
      const auto set = [&]<class T>(T) {
        const auto elements = static_cast<std::size_t>(count);
        if (in != out) options.setInput(static_cast<T*>(const_cast<void*>(in)), elements);
        options.setOutput(static_cast<T*>(out), elements);
      };
      switch (size_bytes(dtype)) {  // Gloo asks for no more of a type
        case 8: set(std::int64_t{}); break;
        case 4: set(std::int32_t{}); break;
        case 2: set(std::int16_t{}); break;
        default: set(std::int8_t{}); break;
      }
      gloo::allreduce(options);
    });
  }

  // Parts go to their ranks, which add them in the order of the ranks.
  void reduce_scatter(const void* in, void* out, std::int64_t count, DType dtype, Reduction reduction, void*) override {
    const auto part = static_cast<std::size_t>(count * size_bytes(dtype)), ranks = static_cast<std::size_t>(size());
    std::vector<char> received(part * ranks);
    guarded("", [&] {
      gloo::AlltoallOptions options(context_);
      options.setInput(static_cast<char*>(const_cast<void*>(in)), part * ranks);
      options.setOutput(received.data(), part * ranks);
      gloo::alltoall(options);
    });
    const Reduce reduce = reduce_of(dtype, reduction);
    std::memcpy(out, received.data(), part);
    for (std::size_t rank = 1; rank < ranks; ++rank) {
      reduce(out, out, received.data() + rank * part, static_cast<std::size_t>(count));
    }
  }

  void all_gather(const void* in, void* out, std::int64_t count, DType dtype, void*) override {
    const auto bytes = static_cast<std::size_t>(count * size_bytes(dtype));
    guarded("", [&] {
      gloo::AllgatherOptions options(context_);
      options.setInput(static_cast<char*>(const_cast<void*>(in)), bytes);
      options.setOutput(static_cast<char*>(out), bytes * static_cast<std::size_t>(size()));
      gloo::allgather(options);
    });
  }

  void broadcast(const void* in, void* out, std::int64_t count, DType dtype, int root, void*) override {
    const auto bytes = static_cast<std::size_t>(count * size_bytes(dtype));
    if (rank() == root && in != out) std::memcpy(out, in, bytes);
    guarded("", [&] {
      gloo::BroadcastOptions options(context_);
      options.setOutput(static_cast<char*>(out), bytes);
      options.setRoot(root);
      gloo::broadcast(options);
    });
  }

  void barrier() override {
    guarded(", barrier", [&] {
      gloo::BarrierOptions options(context_);
      gloo::barrier(options);
    });
  }

  void abort(const std::string& reason) noexcept override {
    try {
      {
        const std::lock_guard lock(mutex_);
        if (reason_.empty()) reason_ = reason;
      }
      // There is none while it connects.
      if (context_ != nullptr) context_->closeConnections();
    } catch (...) {  // then it is of no use already
    }
  }

 private:
  template <class Work>
  void guarded(const char* what, const Work& work) {
    if (const std::string reason = reason_of_abort(); !reason.empty()) {
      fail(ErrorKind::device, "rank {} of {}: {}", rank(), size(), reason);
    }
    try {
      work();
    } catch (const Error&) {
      throw;
    } catch (const std::exception& error) {
      throw_named(what, error.what());
    }
  }

  [[noreturn]] void throw_named(const char* what, const std::string& problem) {
    std::string why = reason_of_abort();
    if (why.empty()) why = processes_.missing();
    if (why.empty()) why = one_line(problem);
    abort(why);
    fail(ErrorKind::device, "rank {} of {}{}: {}", rank(), size(), what, why);
  }

  std::string reason_of_abort() {
    const std::lock_guard lock(mutex_);
    return reason_;
  }

  RankPlace place_;
  std::shared_ptr<RankStore> store_;
  Processes processes_;
  std::mutex mutex_;
  std::string reason_;
  std::shared_ptr<gloo::Context> context_;
};

}  // namespace

std::shared_ptr<Communicator> connect_by_gloo(const RankPlace& place, const ConnectOptions& options) {
  return std::make_shared<GlooCommunicator>(place, options);
}

std::string missing_gloo() { return ""; }

}  // namespace paoding

#else

#include "base/check.h"

namespace paoding {

std::shared_ptr<Communicator> connect_by_gloo(const RankPlace&, const ConnectOptions&) {
  fail(ErrorKind::unsupported, "ranks: {}", missing_gloo());
}

std::string missing_gloo() {
  return "this build of paoding has no Gloo, by which ranks on CPUs reach each other: install libgloo-dev (make deps) "
         "and "
         "build again";
}

}  // namespace paoding

#endif
