// SPDX-License-Identifier: Apache-2.0
#include "gpu/codegen/kernel_source.h"

#include <map>
#include <mutex>
#include <utility>

namespace paoding::gpu {

KernelSource::KernelSource(std::string text) {
  if (text.empty()) return;
  struct All {
    std::mutex mutex;
    std::map<Hash128, std::weak_ptr<const Kept>> kept;
  };
  static All* const all = new All;  // sources may outlive static objects
  const Hash128 hash = hash128(text);
  const std::lock_guard lock(all->mutex);
  std::weak_ptr<const Kept>& known = all->kept[hash];
  kept_ = known.lock();
  if (kept_ != nullptr) return;
  const auto forget = [](const Kept* gone) {
    {
      const std::lock_guard lock(all->mutex);
      const auto at = all->kept.find(gone->hash);
      if (at != all->kept.end() && at->second.expired()) all->kept.erase(at);  // else it has been made anew meanwhile
    }
    delete gone;
  };
  kept_ = std::shared_ptr<const Kept>(new Kept{hash, std::move(text)}, forget);
  known = kept_;
}

const std::string& KernelSource::text() const {
  static const std::string none;
  return kept_ == nullptr ? none : kept_->text;
}

}  // namespace paoding::gpu
