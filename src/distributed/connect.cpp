// SPDX-License-Identifier: Apache-2.0
// Opens the store of a place, and connects its ranks by the library of the device.
#include <charconv>

#include "base/check.h"
#include "base/one_line.h"
#include "distributed/stores.h"

namespace paoding {
namespace {

[[noreturn]] void no_store(const std::string& text) {
  fail(ErrorKind::argument, "ranks: the store is '{}', needs to be file:/folder or tcp:host:port", one_line(text));
}

void check_place(const RankPlace& place) {
  if (place.size < 1 || place.rank < 0 || place.rank >= place.size || place.local_rank < 0) {
    fail(ErrorKind::argument, "ranks: rank {} of {}, local rank {}: there is no such place", place.rank, place.size,
         place.local_rank);
  }
}

// Its collectives give back their inputs; passes remove them, so that it is asked for its size alone.
class OneRank : public Communicator {
 public:
  explicit OneRank(const Device& device) : device_(device) {}
  int rank() const override { return 0; }
  int size() const override { return 1; }
  Device device() const override { return device_; }
  std::string name() const override { return "one rank"; }
  void all_reduce(const void*, void*, std::int64_t, DType, Reduction, void*) override { removed(); }
  void reduce_scatter(const void*, void*, std::int64_t, DType, Reduction, void*) override { removed(); }
  void all_gather(const void*, void*, std::int64_t, DType, void*) override { removed(); }
  void broadcast(const void*, void*, std::int64_t, DType, int, void*) override { removed(); }
  void barrier() override {}
  void abort(const std::string&) noexcept override {}

 private:
  static void removed() { PD_ASSERT(false, "collectives of one rank are removed by a pass"); }
  Device device_;
};

}  // namespace

std::shared_ptr<Communicator> one_rank(const Device& device) { return std::make_shared<OneRank>(device); }

std::shared_ptr<RankStore> open_rank_store(const RankPlace& place, std::chrono::milliseconds timeout) {
  check_place(place);
  const std::string& text = place.store;
  if (text.starts_with("file:/")) return open_file_store(text.substr(5));
  if (!text.starts_with("tcp:")) no_store(text);
  const std::size_t colon = text.rfind(':');
  int port = 0;
  const auto [end, error] = std::from_chars(text.data() + colon + 1, text.data() + text.size(), port);
  const bool is_port = error == std::errc() && end == text.data() + text.size() && port >= 1 && port <= 65535;
  if (colon <= 4 || !is_port) no_store(text);
  return open_tcp_store(text.substr(4, colon - 4), port, place.rank == 0, timeout);
}

std::string missing_for_ranks(DeviceKind kind) { return kind == DeviceKind::cpu ? missing_gloo() : missing_nccl(); }

std::shared_ptr<Communicator> connect_ranks(const RankPlace& place, const Device& device, const ConnectOptions& given) {
  check_place(place);
  ConnectOptions options = given;
  if (place.size == 1) return one_rank(device);
  if (const std::string missing = missing_for_ranks(device.kind); !missing.empty()) {
    fail(ErrorKind::unsupported, "ranks: {}", missing);
  }
  if (options.store == nullptr) options.store = open_rank_store(place, options.connect_timeout);
  return device.kind == DeviceKind::cpu ? connect_by_gloo(place, options)
                                        : connect_by_nccl(place, device.index, options);
}

void require_equal_on_ranks(RankStore& store, const RankPlace& place, const std::string& name, const std::string& text,
                            std::chrono::milliseconds timeout) {
  const auto key_of = [&](int rank) { return fmt::format("equal/{}/{}", name, rank); };
  store.set(key_of(place.rank), text);
  for (int rank = 0; rank < place.size; ++rank) {
    const std::string theirs = store.get(key_of(rank), timeout);
    if (theirs == text) continue;
    fail(ErrorKind::argument, "ranks: {} differs: '{}' on rank {}, '{}' on rank {}\nhint: all ranks need the same",
         name, one_line(text), place.rank, one_line(theirs), rank);
  }
}

#if !PAODING_WITH_CUDA
std::shared_ptr<Communicator> connect_by_nccl(const RankPlace&, int, const ConnectOptions&) {
  fail(ErrorKind::unsupported, "ranks: {}", missing_nccl());
}
std::string missing_nccl() { return "this build of paoding has no GPU back end: build it where CUDA's headers are"; }
#endif

}  // namespace paoding
