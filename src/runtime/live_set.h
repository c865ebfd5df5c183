// SPDX-License-Identifier: Apache-2.0
// The objects of a type that are alive, for work that concerns all of them.
#pragma once

#include <mutex>
#include <set>

namespace paoding {

template <class T>
class LiveSet {
 public:
  static LiveSet& get() {
    static auto* the_set = new LiveSet;  // never destroyed: a recording may end after main()
    return *the_set;
  }

  void insert(T* item) {
    const std::lock_guard lock(mutex_);
    items_.insert(item);
  }
  /// Waits for a for_each that is under way.
  void erase(T* item) {
    const std::lock_guard lock(mutex_);
    items_.erase(item);
  }
  /// Calls `visit` with each, none of which is erased meanwhile.
  template <class Visit>
  void for_each(const Visit& visit) {
    const std::lock_guard lock(mutex_);
    for (T* item : items_) visit(*item);
  }
  /// Calls `work` while none is visited.
  template <class Work>
  void between_visits(const Work& work) {
    const std::lock_guard lock(mutex_);
    work();
  }

 private:
  LiveSet() = default;
  std::mutex mutex_;
  std::set<T*> items_;
};

}  // namespace paoding
