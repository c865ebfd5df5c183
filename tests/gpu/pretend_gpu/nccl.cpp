// SPDX-License-Identifier: Apache-2.0
// The functions of NCCL that paoding uses, over a Machine: ranks are threads of one process. A collective is two pieces
// of work of its stream: the rank's values come to those of the others, and, when all have come, the result is there.
// Ranks that come with another collective than the first do break the device, as a real one would hang.
#include <cstring>
#include <map>

#include "base/half.h"
#include "distributed/gpu/nccl_interface.h"
#include "tests/gpu/pretend_gpu/machine.h"

#pragma GCC visibility push(default)

namespace nccl = paoding::gpu::nccl;
using paoding::pretend::Machine;

namespace {

struct Meeting {
  std::string what;
  std::vector<std::vector<char>> in;
  int come = 0;
};

struct Ranks {
  int size = 0, made = 0;
  std::map<std::uint64_t, Meeting> meetings;  // by the number of the collective
};

struct Wanted {
  enum class Kind { reduce, scatter, gather, broadcast } kind;
  std::size_t count;
  nccl::DataType type;
  int number;  // operation, or root
};

std::size_t bytes_of(nccl::DataType type) {
  switch (type) {
    case nccl::kUint8: return 1;
    case nccl::kFloat16:
    case nccl::kBfloat16: return 2;
    case nccl::kInt32:
    case nccl::kFloat32: return 4;
    default: return 8;
  }
}

template <class T>
T reduced(T a, T b, int operation) {
  return operation == nccl::kMax ? (a < b ? b : a) : operation == nccl::kMin ? (b < a ? b : a) : static_cast<T>(a + b);
}

template <class T>
void reduce_as(char* to, const char* from, std::size_t count, int operation) {
  for (std::size_t i = 0; i < count; ++i) {
    T a, b;
    std::memcpy(&a, to + i * sizeof(T), sizeof(T)), std::memcpy(&b, from + i * sizeof(T), sizeof(T));
    a = reduced(a, b, operation);
    std::memcpy(to + i * sizeof(T), &a, sizeof(T));
  }
}

template <float (*Load)(std::uint16_t), std::uint16_t (*Store)(float)>
void reduce_half(char* to, const char* from, std::size_t count, int operation) {
  for (std::size_t i = 0; i < count; ++i) {
    std::uint16_t a, b;
    std::memcpy(&a, to + i * 2, 2), std::memcpy(&b, from + i * 2, 2);
    a = Store(reduced(Load(a), Load(b), operation));
    std::memcpy(to + i * 2, &a, 2);
  }
}

void reduce(char* to, const char* from, std::size_t count, nccl::DataType type, int operation) {
  switch (type) {
    case nccl::kUint8: return reduce_as<std::uint8_t>(to, from, count, operation);
    case nccl::kFloat16: return reduce_half<paoding::f16_to_float, paoding::float_to_f16>(to, from, count, operation);
    case nccl::kBfloat16:
      return reduce_half<paoding::bf16_to_float, paoding::float_to_bf16>(to, from, count, operation);
    case nccl::kInt32: return reduce_as<std::int32_t>(to, from, count, operation);
    case nccl::kInt64: return reduce_as<std::int64_t>(to, from, count, operation);
    case nccl::kFloat64: return reduce_as<double>(to, from, count, operation);
    default: return reduce_as<float>(to, from, count, operation);
  }
}

}  // namespace

struct paoding::gpu::nccl::ncclComm {
  std::shared_ptr<Ranks> ranks;
  int rank = 0;
  std::uint64_t come = 0;  // collectives that have begun on the device
  bool is_aborted = false;
};

using nccl::ncclComm;

namespace {

void arrive(ncclComm& comm, const Wanted& wanted, const void* in) {
  Meeting& meeting = comm.ranks->meetings[comm.come++];
  const std::string what = std::to_string(static_cast<int>(wanted.kind)) + " " + std::to_string(wanted.count) + " " +
                           std::to_string(wanted.type) + " " + std::to_string(wanted.number);
  if (meeting.what.empty()) meeting.what = what, meeting.in.resize(static_cast<std::size_t>(comm.ranks->size));
  if (meeting.what != what) Machine::get().broken = CUDA_ERROR_LAUNCH_TIMEOUT;
  const bool is_whole = wanted.kind == Wanted::Kind::scatter;
  const std::size_t bytes =
      wanted.count * bytes_of(wanted.type) * static_cast<std::size_t>(is_whole ? comm.ranks->size : 1);
  const char* const from = static_cast<const char*>(in);
  meeting.in[static_cast<std::size_t>(comm.rank)].assign(from, from + bytes);
  ++meeting.come;
}

bool have_all_come(const ncclComm& comm) {
  return comm.is_aborted || comm.ranks->meetings.at(comm.come - 1).come == comm.ranks->size;
}

void finish(const ncclComm& comm, const Wanted& wanted, void* out) {
  if (comm.is_aborted) return;
  const Meeting& meeting = comm.ranks->meetings.at(comm.come - 1);
  char* const to = static_cast<char*>(out);
  const std::size_t bytes = wanted.count * bytes_of(wanted.type);
  switch (wanted.kind) {
    case Wanted::Kind::gather:
      for (std::size_t i = 0; i < meeting.in.size(); ++i) std::memcpy(to + i * bytes, meeting.in[i].data(), bytes);
      return;
    case Wanted::Kind::broadcast:
      return void(std::memcpy(to, meeting.in[static_cast<std::size_t>(wanted.number)].data(), bytes));
    default: break;
  }
  const std::size_t at = wanted.kind == Wanted::Kind::scatter ? bytes * static_cast<std::size_t>(comm.rank) : 0;
  std::vector<char> sum(meeting.in[0].begin() + static_cast<std::ptrdiff_t>(at),
                        meeting.in[0].begin() + static_cast<std::ptrdiff_t>(at + bytes));
  for (std::size_t i = 1; i < meeting.in.size(); ++i) {
    reduce(sum.data(), meeting.in[i].data() + at, wanted.count, wanted.type, wanted.number);
  }
  std::memcpy(to, sum.data(), bytes);
}

nccl::Result enqueue(ncclComm* comm, CUstream stream, const Wanted& wanted, const void* in, void* out) {
  const std::lock_guard lock(Machine::get().mutex);
  if (comm->is_aborted) return 5;  // ncclInvalidUsage
  Piece come, done;
  come.work = [=] { arrive(*comm, wanted, in); };
  come.kind = Piece::Kind::kernel, come.name = "ncclDevKernel";
  done.work = [=] { finish(*comm, wanted, out); };
  done.is_ready = [=] { return have_all_come(*comm); };
  Machine::get().enqueue(stream, std::move(come));
  Machine::get().enqueue(stream, std::move(done));
  return nccl::kSuccess;
}

std::map<std::string, std::shared_ptr<Ranks>>& jobs() {
  static auto* all = new std::map<std::string, std::shared_ptr<Ranks>>();
  return *all;
}

}  // namespace

extern "C" {

nccl::Result ncclGetVersion(int* version) { return *version = 22809, nccl::kSuccess; }
nccl::Result ncclGetUniqueId(nccl::UniqueId* id) {
  const std::lock_guard lock(Machine::get().mutex);
  const std::uint64_t number = Machine::get().next_number();
  std::memset(id->bytes, 0, sizeof id->bytes);
  std::memcpy(id->bytes, &number, sizeof number);
  return nccl::kSuccess;
}
nccl::Result ncclCommInitRank(nccl::Communicator* comm, int size, nccl::UniqueId id, int rank) {
  const std::lock_guard lock(Machine::get().mutex);
  std::shared_ptr<Ranks>& ranks = jobs()[std::string(id.bytes, sizeof id.bytes)];
  if (ranks == nullptr) ranks = std::make_shared<Ranks>();
  if (ranks->size != 0 && ranks->size != size) return 4;  // ncclInvalidArgument
  ranks->size = size;
  *comm = new ncclComm{ranks, rank};  // stays: work under way may use it
  return nccl::kSuccess;
}
nccl::Result ncclCommDestroy(nccl::Communicator) { return nccl::kSuccess; }
nccl::Result ncclCommAbort(nccl::Communicator comm) {
  const std::lock_guard lock(Machine::get().mutex);
  return comm->is_aborted = true, nccl::kSuccess;
}
nccl::Result ncclCommGetAsyncError(nccl::Communicator, nccl::Result* result) {
  return *result = nccl::kSuccess, nccl::kSuccess;
}
const char* ncclGetErrorString(nccl::Result) { return "as a test wanted it"; }
const char* ncclGetLastError(nccl::Communicator) { return ""; }
nccl::Result ncclAllReduce(const void* in, void* out, std::size_t count, nccl::DataType type, nccl::Operation operation,
                           nccl::Communicator comm, CUstream stream) {
  return enqueue(comm, stream, {Wanted::Kind::reduce, count, type, operation}, in, out);
}
nccl::Result ncclReduceScatter(const void* in, void* out, std::size_t count, nccl::DataType type,
                               nccl::Operation operation, nccl::Communicator comm, CUstream stream) {
  return enqueue(comm, stream, {Wanted::Kind::scatter, count, type, operation}, in, out);
}
nccl::Result ncclAllGather(const void* in, void* out, std::size_t count, nccl::DataType type, nccl::Communicator comm,
                           CUstream stream) {
  return enqueue(comm, stream, {Wanted::Kind::gather, count, type, 0}, in, out);
}
nccl::Result ncclBroadcast(const void* in, void* out, std::size_t count, nccl::DataType type, int root,
                           nccl::Communicator comm, CUstream stream) {
  return enqueue(comm, stream, {Wanted::Kind::broadcast, count, type, root}, in, out);
}
}
