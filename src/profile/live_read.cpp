// SPDX-License-Identifier: Apache-2.0
// Reads the spans that a killed program had in memory from the files beside its recording.
#include <algorithm>
#include <cstring>
#include <filesystem>
#include <map>
#include <utility>

#include "base/check.h"
#include "io/files.h"
#include "profile/live_file.h"
#include "profile/site_format.h"

namespace paoding::profile {

namespace {

constexpr Ticks kMostTicks = Ticks{1} << 62;

std::string whole_file(const std::string& path) {
  const files::InputFile file(path);
  std::string bytes(file.size_bytes(), '\0');
  file.read_at(0, bytes.data(), bytes.size());
  return bytes;
}

// Up to where it contradicts itself.
void read_names(std::string_view file, LiveRest* rest) {
  BodyReader all(file);
  while (!all.is_at_end()) {
    const std::string_view one = all.text();
    if (one.empty()) return;
    BodyReader body(one.substr(1));
    const std::uint64_t id = body.small();
    switch (static_cast<LiveName>(one[0])) {
      case LiveName::site: {
        LiveRest::Sites sites{static_cast<SiteId>(id), body.small(), {}};
        const std::uint64_t next =
            rest->sites.empty() ? 0 : std::uint64_t{rest->sites.back().first} + rest->sites.back().turns;
        if (!take_site(body, &sites.info) || id < next) return;
        rest->sites.push_back(std::move(sites));
        break;
      }
      case LiveName::argument: {
        std::string name(body.text());
        const std::uint64_t type = body.number();
        if (body.is_broken() || id != rest->arguments.size() || type > static_cast<std::uint64_t>(ArgumentType::text))
          return;
        rest->arguments.push_back({std::move(name), static_cast<ArgumentType>(type)});
        break;
      }
      case LiveName::text: {
        std::string text(body.text());
        if (body.is_broken() || id != rest->texts.size()) return;
        rest->texts.push_back(std::move(text));
        break;
      }
      default: return;
    }
  }
}

class LiveReader {
 public:
  LiveReader(const files::InputFile& file, LiveRest* rest)
      : file_(file), rest_(*rest), head_(LiveLayout::kHeadBytes, 0) {
    file_.read_at(0, head_.data(), head_.size());
  }

  bool read(std::uint64_t spans_end, ClockPair started) {
    const auto& head = at<LiveHead>(0);
    if (head.mark != LiveLayout::kMark || head.started.ticks != started.ticks || head.started.ns != started.ns) {
      return false;
    }
    rest_.started = started;
    rest_.ns_per_tick = head.ns_per_tick;
    if (!(rest_.ns_per_tick > 1e-3 && rest_.ns_per_tick < 1e3)) return false;
    rest_.is_all = head.lost.load() == 0;
    rest_.end = std::clamp(head.alive.load(), started.ticks, kMostTicks);
    read_chunks(spans_end);
    read_open();
    for (auto& [number, thread] : threads_) {
      for (const SpanRecord& record : thread.records) {
        if (record.site != kNone) rest_.end = std::max(rest_.end, record.end);
        std::erase_if(thread.open,
                      [&](const SpanRecord& o) { return o.site == record.site && o.start == record.start; });
      }
      for (const SpanRecord& open : thread.open) rest_.end = std::max(rest_.end, open.start);
      rest_.threads.push_back(std::move(thread));
    }
    return true;
  }

 private:
  template <class T>
  const T& at(std::size_t offset) const {
    return *reinterpret_cast<const T*>(head_.data() + offset);
  }

  bool is_sound(const SpanRecord& record) const {
    if (record.site == kNone) return record.run < rest_.arguments.size();
    return record.end >= record.start && record.end < kMostTicks && rest_.sites_of(record.site) != nullptr;
  }

  LiveRest::Thread& thread(std::uint32_t number) {
    LiveRest::Thread& own = threads_[number];
    own.number = number;
    return own;
  }

  void read_chunks(std::uint64_t spans_end) {
    struct Found {
      std::uint32_t thread;
      std::uint64_t order;
      std::size_t place;
      std::uint32_t used;
    };
    std::vector<Found> found;
    for (std::size_t i = 0; i < LiveLayout::kChunks; ++i) {
      const auto& chunk = at<LiveChunk>(LiveLayout::kChunksAt + i * sizeof(LiveChunk));
      const std::uint64_t order = chunk.order.load(), place = chunk.at.load();
      const bool is_written = place != 0 && place - 1 < spans_end;
      if (order == 0 || is_written) continue;
      if (chunk.used.load() > Recorder::kChunkRecords) {
        rest_.broken += 1;
        continue;
      }
      found.push_back({chunk.thread, order, i, chunk.used.load()});
    }
    std::ranges::sort(found, {}, [](const Found& f) { return std::pair(f.thread, f.order); });
    std::vector<SpanRecord> records(Recorder::kChunkRecords);
    for (const Found& f : found) {
      file_.read_at(LiveLayout::kHeadBytes + f.place * LiveLayout::kChunkBytes, records.data(),
                    f.used * sizeof(SpanRecord));
      LiveRest::Thread& own = thread(f.thread);
      for (std::uint32_t i = 0; i < f.used; ++i) {
        if (is_sound(records[i])) {
          own.records.push_back(records[i]);
        } else {
          rest_.broken += 1;
        }
      }
    }
  }

  void read_open() {
    std::uint32_t next = threads_.empty() ? 0 : threads_.rbegin()->first + 1;
    for (std::size_t i = 0; i < LiveLayout::kThreads; ++i) {
      const auto& one = at<LiveThread>(LiveLayout::kThreadsAt + i * sizeof(LiveThread));
      if (one.is_taken.load() != 0 && one.number.load() != 0) next = std::max(next, one.number.load());
    }
    for (std::size_t i = 0; i < LiveLayout::kThreads; ++i) {
      const auto& one = at<LiveThread>(LiveLayout::kThreadsAt + i * sizeof(LiveThread));
      const std::uint32_t depth = std::min(one.open.depth.load(), OpenSpans::kMost);
      if (one.is_taken.load() == 0 || depth == 0) continue;
      LiveRest::Thread& own = thread(one.number.load() != 0 ? one.number.load() - 1 : next++);
      for (std::uint32_t k = 0; k < depth; ++k) {
        const OpenSpans::Span& span = one.open.spans[k];
        const SpanRecord record{span.site.load(), span.run.load(), span.start.load(), kMostTicks - 1};
        if (record.site != kNone && is_sound(record)) own.open.push_back(record);
      }
    }
  }

  const files::InputFile& file_;
  LiveRest& rest_;
  std::string head_;
  std::map<std::uint32_t, LiveRest::Thread> threads_;
};

}  // namespace

const LiveRest::Sites* LiveRest::sites_of(SiteId id) const {
  const auto behind = std::ranges::upper_bound(sites, id, {}, &Sites::first);
  if (behind == sites.begin()) return nullptr;
  const Sites& range = *std::prev(behind);
  return id - range.first < range.turns ? &range : nullptr;
}

SiteInfo LiveRest::site_info(SiteId id) const {
  const Sites& range = *sites_of(id);
  SiteInfo info = range.info;
  if (id > range.first) info.instance += fmt::format("@{}", id - range.first);
  return info;
}

std::optional<LiveRest> read_live(const std::string& recording, std::uint64_t spans_end, ClockPair started) {
  const LivePaths paths(recording);
  std::error_code ignored;
  if (!std::filesystem::exists(paths.live, ignored) || !std::filesystem::exists(paths.names, ignored)) {
    return std::nullopt;
  }
  LiveRest rest;
  read_names(whole_file(paths.names), &rest);
  const files::InputFile file(paths.live);
  if (file.size_bytes() != LiveLayout::kBytes || !LiveReader(file, &rest).read(spans_end, started)) return std::nullopt;
  return rest;
}

}  // namespace paoding::profile
