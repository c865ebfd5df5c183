// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/reads.h"

#include <algorithm>
#include <cstring>

#include "runtime/gpu/copy_span.h"

namespace paoding {

class GpuReads::Read : public LaterRead {
 public:
  Read(GpuReads& owner, Block block, std::vector<Type> types)
      : owner_(&owner), block_(std::move(block)), types_(std::move(types)), run_(owner.guard_.last_run()) {
    owner.under_way_.push_back(this);
  }
  ~Read() override { leave(); }

  bool is_there() const override { return owner_ == nullptr || block_.copied.is_done(); }

  std::vector<Tensor> values() override {
    finish();
    if (error_) std::rethrow_exception(error_);
    return std::move(values_);
  }

  // After it neither the run nor the program is needed.
  void finish() {
    if (owner_ == nullptr) return;
    try {
      owner_->device_.make_current();
      owner_->cancel_.wait_done(block_.copied);
      owner_->guard_.check(run_);
      const std::byte* at = block_.memory.bytes();
      for (const Type& type : types_) {
        const Tensor& made = values_.emplace_back(type);
        std::memcpy(const_cast<std::byte*>(made.bytes()), at, static_cast<std::size_t>(made.size_bytes()));
        at += padded(made.size_bytes());
      }
    } catch (...) {
      error_ = std::current_exception();
    }
    leave();
  }

  static std::int64_t padded(std::int64_t bytes) { return (bytes + 63) / 64 * 64; }

 private:
  void leave() {
    if (owner_ == nullptr) return;
    owner_->free_.push_back(std::move(block_));  // whoever takes it waits for the copy
    std::erase(owner_->under_way_, this);
    owner_ = nullptr;
  }

  GpuReads* owner_;  // nullptr once it is finished
  Block block_;
  const std::vector<Type> types_;
  const std::uint64_t run_;
  std::vector<Tensor> values_;
  std::exception_ptr error_;
};

GpuReads::~GpuReads() {
  while (!under_way_.empty()) under_way_.back()->finish();
}

// The smallest that is large enough.
GpuReads::Block GpuReads::take(std::size_t bytes) {
  auto best = free_.end();
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    const std::size_t size = it->memory.size_bytes();
    if (size >= bytes && (best == free_.end() || size < best->memory.size_bytes())) best = it;
  }
  if (best == free_.end()) return {gpu::PinnedMemory(device_, bytes), gpu::Event(device_)};
  Block block = std::move(*best);
  free_.erase(best);
  block.copied.wait_done();
  return block;
}

std::unique_ptr<LaterRead> GpuReads::start(const std::vector<Source>& sources) {
  std::int64_t bytes = 64;
  for (const Source& source : sources) bytes += Read::padded(size_bytes(source.type));
  Block block = take(static_cast<std::size_t>(bytes));
  std::vector<Type> types;
  std::byte* to = block.memory.bytes();
  for (const Source& source : sources) {
    const std::int64_t size = size_bytes(source.type);
    types.push_back(source.type);
    if (size != 0) {
      const CopySpan seen(profile::Copy::device_to_host, device_, stream_.get());
      PD_CUDA(gpu::required_driver().cuMemcpyDtoHAsync(to, source.at, static_cast<std::size_t>(size), stream_.get()));
    }
    to += Read::padded(size);
  }
  block.copied.record(stream_.get());
  return std::make_unique<Read>(*this, std::move(block), std::move(types));
}

}  // namespace paoding
