// SPDX-License-Identifier: Apache-2.0
// Arguments of spans on the host: their names, and texts that some of them are.
#include "base/check.h"
#include "profile/recorder_state.h"

namespace paoding::profile {

// Names are few; a text of a recording may be another each time.
constexpr std::size_t kMostTextBytes = std::size_t{16} << 20;

ArgumentId Recorder::add_argument(const std::string& name, ArgumentType type) {
  Recording& r = recording();
  const std::lock_guard lock(r.sites_mutex);
  const auto [found, is_new] =
      r.argument_ids.try_emplace({name, type}, static_cast<ArgumentId>(r.argument_names.size()));
  if (is_new) r.argument_names.push_back({name, type});
  if (is_new && r.live != nullptr) r.live->add_argument(found->second, name, type);
  return found->second;
}

ArgumentName Recorder::Recording::argument_name(ArgumentId id) {
  const std::lock_guard lock(sites_mutex);
  return argument_names[id];
}

std::optional<std::uint64_t> Recorder::argument_text(std::string_view text) {
  Recording& r = recording();
  std::shared_ptr<ArgumentTexts> texts;
  {
    const std::lock_guard lock(r.mutex);
    texts = r.texts;
  }
  return texts->add(text);
}

std::optional<std::uint64_t> ArgumentTexts::add(std::string_view text) {
  const std::lock_guard lock(mutex_);
  if (const auto found = ids_.find(text); found != ids_.end()) return found->second;
  const std::size_t bytes = text.size() + sizeof(std::string) + sizeof(*ids_.begin());
  if (bytes_ + bytes > kMostTextBytes) {
    ++left_out_;
    return std::nullopt;
  }
  bytes_ += bytes;
  all_.emplace_back(text);
  ids_.emplace(all_.back(), all_.size() - 1);
  if (live_ != nullptr) live_->add_text(all_.size() - 1, text);
  return all_.size() - 1;
}

// A span may have begun in one recording and ended in the next, which does not know its text.
std::string_view ArgumentTexts::at(std::uint64_t id) const {
  const std::lock_guard lock(mutex_);
  return id < all_.size() ? std::string_view(all_[id]) : std::string_view();
}

std::uint64_t ArgumentTexts::left_out() const {
  const std::lock_guard lock(mutex_);
  return left_out_;
}

}  // namespace paoding::profile
