// SPDX-License-Identifier: Apache-2.0
#include "profile/live_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <filesystem>
#include <new>

#include "base/check.h"
#include "profile/clock_rate.h"
#include "profile/site_format.h"

namespace paoding::profile {

namespace {

files::Descriptor new_file(const std::string& path) {
  files::Descriptor made(::open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!made.is_open()) fail(ErrorKind::file, "{}: cannot make the file: {}", path, files::reason(errno));
  return made;
}

// Room on the disk: writing into a page that there is none for would kill the program.
bool has_room(int file, std::size_t from, std::size_t bytes) {
  int problem = 0;
  do problem = ::posix_fallocate(file, static_cast<off_t>(from), static_cast<off_t>(bytes));
  while (problem == EINTR);
  return problem == 0;
}

}  // namespace

LivePaths::LivePaths(const std::string& recording)
    : live(std::filesystem::path(recording).replace_extension(".live").string()),
      names(std::filesystem::path(recording).replace_extension(".names").string()) {}

LiveFile::LiveFile(const std::string& recording) {
  const LivePaths paths(recording);
  ::unlink(paths.live.c_str());  // of the program that this process was before
  ::unlink(paths.names.c_str());
  names_ = new_file(paths.names);
  file_ = new_file(paths.live);
  if (!has_room(file_.get(), 0, LiveLayout::kHeadBytes) ||
      ::ftruncate(file_.get(), static_cast<off_t>(LiveLayout::kBytes)) != 0) {
    fail(ErrorKind::file, "{}: there is no room for {} bytes", paths.live, LiveLayout::kHeadBytes);
  }
  void* const mapped = ::mmap(nullptr, LiveLayout::kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file_.get(), 0);
  if (mapped == MAP_FAILED) fail(ErrorKind::file, "{}: cannot be mapped: {}", paths.live, files::reason(errno));
  memory_ = static_cast<std::byte*>(mapped);
  new (memory_) LiveHead;
  for (std::size_t i = 0; i < LiveLayout::kThreads; ++i) new (&threads()[i]) LiveThread;
  for (std::size_t i = 0; i < LiveLayout::kChunks; ++i) new (&chunks()[i]) LiveChunk;
}

std::optional<LiveFile::Memory> LiveFile::add_chunk() {
  if (chunk_count_ == LiveLayout::kChunks) return std::nullopt;
  const std::size_t from = LiveLayout::kHeadBytes + chunk_count_ * LiveLayout::kChunkBytes;
  if (!has_room(file_.get(), from, LiveLayout::kChunkBytes)) return std::nullopt;
  auto* const bytes = reinterpret_cast<volatile char*>(memory_ + from);
  for (std::size_t at = 0; at < LiveLayout::kChunkBytes; at += LiveLayout::kPage) bytes[at] = 0;
  return Memory{&chunks()[chunk_count_++], reinterpret_cast<SpanRecord*>(memory_ + from)};
}

LiveThread* LiveFile::add_thread() {
  for (std::size_t i = 0; i < LiveLayout::kThreads; ++i) {
    LiveThread& thread = threads()[i];
    if (thread.is_taken.exchange(1) == 0) return &thread;
  }
  return nullptr;
}

void LiveFile::remove_thread(LiveThread* thread) {
  thread->number.store(0);
  thread->open.depth.store(0);
  thread->is_taken.store(0);
}

void LiveFile::begin(ClockPair started) {
  head().started = started;
  head().ns_per_tick = steady_ns_per_tick();
  set_alive(started.ticks);
  std::atomic_thread_fence(std::memory_order_release);
  head().mark = LiveLayout::kMark;
}

// A failed write is not reported, since nobody is there to handle it: the name is missing later.
void LiveFile::add_name(LiveName of, const BodyWriter& body) {
  BodyWriter whole;
  whole.number(body.bytes().size() + 1);
  whole.byte(static_cast<std::uint8_t>(of));
  whole.append(body);
  const std::lock_guard lock(names_mutex_);
  std::string_view bytes = whole.bytes();
  while (!bytes.empty()) {
    const ssize_t written = ::write(names_.get(), bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return set_lost();
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
}

void LiveFile::add_site(SiteId first, std::uint32_t turns, const SiteInfo& info) {
  BodyWriter body;
  body.number(first);
  body.number(turns);
  append_site(body, info);
  add_name(LiveName::site, body);
}

void LiveFile::add_argument(ArgumentId id, std::string_view name, ArgumentType type) {
  BodyWriter body;
  body.number(id);
  body.text(name);
  body.number(static_cast<std::uint64_t>(type));
  add_name(LiveName::argument, body);
}

void LiveFile::add_text(std::uint64_t id, std::string_view text) {
  BodyWriter body;
  body.number(id);
  body.text(text);
  add_name(LiveName::text, body);
}

void LiveFile::leave_to_parent() {
  // The same bytes at the same place, of which this process has copies where it writes.
  [[maybe_unused]] void* const mapped =
      ::mmap(memory_, LiveLayout::kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, file_.get(), 0);
}

}  // namespace paoding::profile
