// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/copy_span.h"

#include <map>
#include <mutex>

#include "base/check.h"
#include "runtime/gpu/copy_stamps.h"

namespace paoding {

profile::SiteId CopySpan::site_of(profile::Copy copy, bool is_async) {
  static std::mutex mutex;
  static std::map<std::pair<profile::Copy, bool>, profile::SiteId> sites;
  const std::lock_guard lock(mutex);
  const auto [found, is_new] = sites.try_emplace({copy, is_async}, 0);
  if (is_new) {
    profile::SiteInfo info{.name = std::string(to_string(copy)), .kind = profile::SpanKind::memcpy, .copy = copy};
    info.async = is_async;
    found->second = profile::Recorder::add_site(info);
  }
  return found->second;
}

void CopySpan::begin(profile::Copy copy, bool is_async) {
  static const profile::SiteId own =
      profile::Recorder::add_site({.name = "stamps", .kind = profile::SpanKind::recording});
  site_ = site_of(copy, is_async);
  if (!is_async && GpuTrace::is_wanted()) waited_from_ns_ = profile::steady_ns();
  if (is_async && GpuTrace::is_wanted()) {
    const profile::SpanScope seen(own);
    try {
      place_ = CopyStamps::get().begin(*device_, stream_);
    } catch (const Error& error) {
      if (error.kind() != ErrorKind::device) throw;
      profile::Recorder::add_note(fmt::format("a copy that got no stamps ({})", error.what()));
    }
  }
  start_ = profile::Recorder::now();
}

void CopySpan::end() {
  const std::uint32_t number = place_ || waited_from_ns_ != 0 ? profile::Recorder::next_run() : 0;
  profile::Recorder::complete(site_, start_, profile::Recorder::now(), number);
  if (waited_from_ns_ != 0) {
    const auto copies = profile::Recorder::gpu_track(profile::TrackKind::copy_engine, "copies", device_->index());
    profile::Recorder::add_gpu(site_, number, waited_from_ns_, profile::steady_ns() - waited_from_ns_, copies, number);
  }
  if (!place_) return;
  try {
    CopyStamps::get().end(*device_, stream_, *place_, site_, number);
  } catch (const Error& error) {  // a destructor: the copy itself has gone well
    profile::Recorder::add_note(fmt::format("a copy that got no stamps ({})", error.what()));
  }
}

}  // namespace paoding
