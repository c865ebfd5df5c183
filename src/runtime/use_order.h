// SPDX-License-Identifier: Apache-2.0
// Memory that several users share: whom the next one has to come after. Readers may be there together.
#pragma once

#include <algorithm>
#include <vector>

namespace paoding {

template <class User>
class UseOrder {
 public:
  /// Calls follow(other) for every user that `next` must come after; all users that those came after are then before
  /// it too.
  template <class Follow>
  void use(User* next, bool writes, const Follow& follow) {
    const bool has_read = std::find(readers_.begin(), readers_.end(), next) != readers_.end();
    if (writes) {
      for (User* reader : readers_) {
        if (reader != next) follow(*reader);
      }
    }
    const bool is_behind_the_writer = writer_ == nullptr || writer_ == next || has_read;
    if (!is_behind_the_writer && (!writes || readers_.empty())) follow(*writer_);
    if (writes) {
      readers_.clear();
      writer_ = next;
    } else if (!has_read) {
      readers_.push_back(next);
    }
  }

  /// The users that a reader, or a writer, has to wait for.
  std::vector<User*> before(bool writes) const {
    std::vector<User*> all = writes ? readers_ : std::vector<User*>{};
    if (writer_ != nullptr) all.push_back(writer_);
    return all;
  }

  /// Drops a user whose work has ended.
  void forget(const User* user) {
    std::erase(readers_, user);
    if (writer_ == user) writer_ = nullptr;
  }

 private:
  User* writer_ = nullptr;      // the last
  std::vector<User*> readers_;  // since then
};

}  // namespace paoding
