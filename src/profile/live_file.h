// SPDX-License-Identifier: Apache-2.0
// A file that is mapped into a program while it is recorded. It holds the chunks that its threads write, their open
// spans and the meaning of their ids. It outlives a program that is killed, and read_live() adds its content to the
// recording that the program had written until then.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/files.h"
#include "profile/recorder.h"
#include "profile/recording_format.h"

namespace paoding::profile {

struct ClockPair {
  Ticks ticks = 0;
  std::int64_t ns = 0;
};

/// In front of the records of a chunk.
struct LiveChunk {
  std::atomic<std::uint32_t> used{0};
  std::uint32_t thread = 0;
  std::atomic<std::uint64_t> order{0};  // among those of its thread, from 1 on; 0: its records are in the recording
  std::atomic<std::uint64_t> at{0};     // one more than where in the recording it is about to be written
};

/// The open spans of a thread.
struct LiveThread {
  std::atomic<std::uint32_t> is_taken{0};
  std::atomic<std::uint32_t> number{0};  // one more than its own; 0: it has recorded nothing
  OpenSpans open;
};

/// The head of the file.
struct LiveHead {
  std::uint64_t mark = 0;
  ClockPair started;
  double ns_per_tick = 0;
  std::atomic<Ticks> alive{0};         // when the program was seen to be alive
  std::atomic<std::uint32_t> lost{0};  // there are records that the file had no room for
};

/// Where things are in the file, in bytes.
struct LiveLayout {
  static constexpr std::uint64_t kMark = 0x31306576696c6470;  // "pdlive01"
  static constexpr std::size_t kPage = 4096, kThreads = 256, kChunks = 320;
  static constexpr std::size_t kThreadsAt = kPage;
  static constexpr std::size_t kChunksAt = kThreadsAt + kThreads * sizeof(LiveThread);
  static constexpr std::size_t kHeadBytes = (kChunksAt + kChunks * sizeof(LiveChunk) + kPage - 1) / kPage * kPage;
  static constexpr std::size_t kChunkBytes = Recorder::kChunkRecords * sizeof(SpanRecord);
  static constexpr std::size_t kBytes = kHeadBytes + kChunks * kChunkBytes;
  static_assert(sizeof(LiveHead) <= kPage && kChunkBytes % kPage == 0);
};

/// Entries of the file of names, one after the other: the length of the rest, and its kind.
enum class LiveName : std::uint8_t { site = 1, argument, text };

/// "FOLDER/PID.live" and "FOLDER/PID.names", by "FOLDER/PID.paoding".
struct LivePaths {
  explicit LivePaths(const std::string& recording);
  std::string live, names;
};

/// The writing side. It lives as long as the process: threads may write into a chunk that is nobody's any more.
class LiveFile {
 public:
  /// Error (file) when it cannot be made.
  explicit LiveFile(const std::string& recording);

  struct Memory {
    LiveChunk* head;
    SpanRecord* records;
  };
  /// Memory of a free chunk; nothing where there is no more room. Its pages are mapped, so that a thread that writes
  /// into them does not wait for one.
  std::optional<Memory> add_chunk();
  /// For a thread that begins; nullptr where there are too many.
  LiveThread* add_thread();
  static void remove_thread(LiveThread* thread);

  void begin(ClockPair started);
  void set_alive(Ticks now) { head().alive.store(now, std::memory_order_relaxed); }
  void set_lost() { head().lost.store(1, std::memory_order_relaxed); }

  void add_site(SiteId first, std::uint32_t turns, const SiteInfo& info);
  void add_argument(ArgumentId id, std::string_view name, ArgumentType type);
  void add_text(std::uint64_t id, std::string_view text);

  /// Called in a child of fork(), whose spans do not belong into its parent's file.
  void leave_to_parent();

 private:
  LiveHead& head() { return *reinterpret_cast<LiveHead*>(memory_); }
  LiveThread* threads() { return reinterpret_cast<LiveThread*>(memory_ + LiveLayout::kThreadsAt); }
  LiveChunk* chunks() { return reinterpret_cast<LiveChunk*>(memory_ + LiveLayout::kChunksAt); }
  void add_name(LiveName of, const BodyWriter& body);

  files::Descriptor file_, names_;
  std::byte* memory_ = nullptr;
  std::size_t chunk_count_ = 0;
  std::mutex names_mutex_;
};

/// The spans that a killed program had in memory, from the files beside its recording.
struct LiveRest {
  struct Thread {
    std::uint32_t number = 0;
    std::vector<SpanRecord> records, open;  // in the order in which they were written; spans that had not ended
  };
  ClockPair started;
  double ns_per_tick = 0;
  Ticks end = 0;             // the last moment of which it tells
  bool is_all = false;       // nothing is known to be missing
  std::uint64_t broken = 0;  // records that contradict themselves, left out
  std::vector<Thread> threads;

  struct Name {
    std::string name;
    ArgumentType type;
  };
  struct Sites {
    SiteId first;
    std::uint32_t turns;
    SiteInfo info;
  };
  /// The range that has the id; nullptr for an id without a meaning.
  const Sites* sites_of(SiteId id) const;
  /// The facts of a site that sites_of() knows.
  SiteInfo site_info(SiteId id) const;
  std::vector<Sites> sites;  // in the order of their ids
  std::vector<Name> arguments;
  std::vector<std::string> texts;
};

/// Beside the recording of a file whose last spans end at byte `spans_end` of it. Nothing where there is none, or it is
/// of another recording than one that started then. Whatever it says is doubted: its program may have written anywhere.
std::optional<LiveRest> read_live(const std::string& recording, std::uint64_t spans_end, ClockPair started);

}  // namespace paoding::profile
