// SPDX-License-Identifier: Apache-2.0
// The recorder's slow half: sites, chunks, threads that come and go, and the start of a recording.
#include "profile/recorder.h"

#include <pthread.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <utility>

#include "base/check.h"
#include "base/huge_pages.h"
#include "profile/recorder_state.h"

namespace paoding::profile {

const bool Recorder::counter_is_steady_ = profile::counter_is_steady();
const bool Recorder::follows_environment_ = follow_environment();

Recorder::Recording& Recorder::recording() {
  static Recording* const the_one = new Recording;  // never destroyed: threads may outlive main()
  return *the_one;
}

// Ends with its thread; the spans stay, shared with the Recording, until stop().
struct Recorder::ThreadExit {
  std::shared_ptr<ThreadSpans> spans = std::make_shared<ThreadSpans>();
  bool* gone;

  explicit ThreadExit(bool* flag) : gone(flag) {
    Recording& r = recording();
    std::lock_guard lock(r.mutex);
    r.threads.push_back(spans);
    if (r.live == nullptr) return;
    spans->live = r.live->add_thread();
    if (spans->live == nullptr) {
      r.live->set_lost();  // its open spans are lost
    } else {
      spans->open = &spans->live->open;
    }
  }
  ~ThreadExit() {
    Recording& r = recording();
    std::lock_guard lock(r.mutex);
    cursor_ = {};
    open_ = &beyond_its_end();
    *gone = true;
    spans->exited = true;
    spans->open = &spans->own_open;
    if (spans->live != nullptr) LiveFile::remove_thread(std::exchange(spans->live, nullptr));
    // Spans of a recording that is over are of no use any more.
    if (spans->session != session_.load() || !r.running) std::erase(r.threads, spans);
  }
};

Recorder::ThreadExit* Recorder::this_thread() {
  static constinit thread_local bool gone = false;
  if (gone) return nullptr;  // a later thread_local's destructor records: too late to be kept
  thread_local ThreadExit mine(&gone);
  return &mine;
}

// For destructors of thread_locals that come later: nobody reads it.
OpenSpans& Recorder::beyond_its_end() {
  static OpenSpans nobodys;
  return nobodys;
}

void Recorder::find_open_spans() {
  ThreadExit* mine = this_thread();
  open_ = mine == nullptr ? &beyond_its_end() : mine->spans->open;
}

void Recorder::Recording::stream_where_much() {
  constexpr std::size_t kMuch = 4;  // a quarter of the most bytes
  if (stream != nullptr || !problem.empty() || kMuch * bytes_in_memory() <= options->max_bytes) return;
  try {
    stream = std::make_unique<Stream>(*this, "");
  } catch (const Error& error) {
    problem = error.what();
    notes.push_back({"spans stay in memory: " + problem, 0});
  }
}

// A page of 4 KB that is written to for the first time costs every span in it as much as the reading of a clock; of one
// of 2 MB a quarter of that.
void Recorder::Recording::make_chunks() {
  if (live != nullptr && is_from_outside) {
    if (const auto in_file = live->add_chunk()) return free_chunks.push_back(std::make_shared<Chunk>(*in_file));
    live->set_lost();
  }
  constexpr std::size_t kMany = 8, kChunkBytes = kChunkRecords * sizeof(SpanRecord);
  const bool is_large = chunk_count > kMany;
  const std::size_t bytes = is_large ? kHugePage : kChunkBytes;
  const std::shared_ptr<std::byte> memory(
      static_cast<std::byte*>(std::aligned_alloc(is_large ? kHugePage : alignof(SpanRecord) * 8, bytes)),
      [](std::byte* p) { std::free(p); });
  if (memory == nullptr) throw std::bad_alloc();
  if (is_large) prefer_huge_pages(memory.get(), bytes);
  for (std::size_t i = 0; i < bytes / kChunkBytes; ++i) free_chunks.push_back(std::make_shared<Chunk>(memory, i));
}

// Arguments whose span will be in the next chunk stand there too: this process may be killed when the chunk that they
// were written to has left its memory. To be told the same twice is no harm.
void Recorder::Recording::repeat_arguments(const RecordCursor& full) {
  const SpanRecord* const last = full.records + full.used - 1;
  const SpanRecord* first = last + 1;
  const std::uint32_t most = std::min(full.used, kChunkRecords / 2);
  while (first > last + 1 - most && first[-1].site == kNone && first[-1].end == last->end) --first;
  for (; first <= last; ++first) complete(first->site, first->start, first->end, first->run);
}

bool Recorder::next_chunk() {
  const Ticks began = now();
  ThreadExit* mine = this_thread();
  if (mine == nullptr) return false;
  Recording& r = recording();
  std::lock_guard lock(r.mutex);
  ThreadSpans& spans = *mine->spans;
  const std::uint64_t session = session_.load();
  if (!r.running) {
    cursor_ = {};  // began while recording, ended after it
    cursor_.session = session;
    return false;
  }
  if (spans.session != session) {
    spans.session = session;
    spans.number = r.thread_count++;
    if (spans.live != nullptr) spans.live->number.store(spans.number + 1);
    spans.dropped = 0;
    spans.chunks.clear();
  }
  r.stream_where_much();
  constexpr std::size_t kChunkBytes = kChunkRecords * sizeof(SpanRecord);
  if ((r.chunk_count + 1) * kChunkBytes > r.options->max_bytes) {
    spans.dropped.fetch_add(1, std::memory_order_relaxed);
    cursor_ = {};
    cursor_.session = session;
    return false;
  }
  r.chunk_count += 1;
  if (r.free_chunks.empty()) r.make_chunks();
  spans.chunks.push_back(std::move(r.free_chunks.back()));
  r.free_chunks.pop_back();
  Chunk& chunk = *spans.chunks.back();
  std::atomic<std::uint32_t>& used = chunk.used();
  used.store(0);
  if (chunk.live != nullptr && r.is_from_outside) {
    chunk.live->thread = spans.number;
    chunk.live->at.store(0);
    chunk.live->order.store(++r.live_order);
  }
  const RecordCursor full = cursor_;
  cursor_ = {chunk.records, 0, kChunkRecords, &used, session};
  if (chunk.live != nullptr && full.session == session && full.used > 0) Recording::repeat_arguments(full);
  static const SiteId site = add_site({.name = "recorder", .kind = SpanKind::recording});
  complete(site, began, now());
  return true;
}

SiteId Recorder::run_as(SiteId site, const std::string& kernel) {
  SiteInfo info = recording().site_info(site);
  if (info.kernel == kernel) return site;
  info.kernel = kernel;
  return add_site(info);
}

std::uint32_t Recorder::next_run() {
  std::uint32_t run = 0;
  while (run == 0) run = recording().runs.fetch_add(1, std::memory_order_relaxed) + 1;
  return run;
}

TrackId Recorder::gpu_track(TrackKind kind, const std::string& name, int device) {
  Recording& r = recording();
  std::lock_guard lock(r.mutex);
  const std::tuple<TrackKind, std::string, int> track{kind, name, device};
  const auto found = std::find(r.gpu_tracks.begin(), r.gpu_tracks.end(), track);
  const auto id = static_cast<TrackId>(found - r.gpu_tracks.begin());
  if (found == r.gpu_tracks.end()) r.gpu_tracks.push_back(track);
  return id;
}

void Recorder::add_gpu(SiteId site, std::uint32_t run, std::int64_t start_ns, std::int64_t duration_ns, TrackId track,
                       std::uint32_t correlation, std::span<const SpanArgument> arguments) {
  Recording& r = recording();
  std::lock_guard lock(r.mutex);
  if (!r.running || r.options->state == State::cpu) return;
  PD_ASSERT(track < r.gpu_tracks.size(), "a GPU span on a track of an earlier recording");
  if (r.gpu_spans.add({site, run, start_ns, duration_ns, track, correlation}, arguments)) r.stream_where_much();
}

void Recorder::add_part(SiteId replay, SiteId site, std::uint64_t calls, std::int64_t ns) {
  Recording& r = recording();
  std::lock_guard lock(r.mutex);
  if (r.running) r.parts.push_back({replay, site, calls, ns});
}

void Recorder::add_phase(SiteId site, std::string name, std::int64_t ns) {
  Recording& r = recording();
  std::lock_guard lock(r.mutex);
  if (r.running) r.phases.push_back({site, std::move(name), ns});
}

void Recorder::add_limit(const Limit& limit) {
  Recording& r = recording();
  std::lock_guard lock(r.mutex);
  const bool is_known = std::find(r.limits.begin(), r.limits.end(), limit) != r.limits.end();
  if (r.running && !is_known && limit.bytes_per_ns > 0) r.limits.push_back(limit);
}

void Recorder::add_memory(const Memory& memory) {
  Recording& r = recording();
  std::lock_guard lock(r.mutex);
  constexpr std::size_t kMost = 1000;  // programs may be many, and a report's reader is one
  const bool is_known = std::find(r.memory.begin(), r.memory.end(), memory) != r.memory.end();
  if (r.running && !is_known && r.memory.size() < kMost) r.memory.push_back(memory);
}

void Recorder::Recording::add_sample(std::size_t of, std::int64_t ns) {
  const State left_out = held[of].device < 0 ? State::gpu : State::cpu;
  if (options->state == left_out) return;
  if (bytes_in_memory() < options->max_bytes) {
    samples.push_back({static_cast<CounterId>(of), ns, held[of].bytes});
  } else {
    dropped_samples += 1;
  }
}

void Recorder::hold(HeldFor what, int device, std::int64_t more) noexcept {
  try {
    Recording& r = recording();
    const std::lock_guard lock(r.mutex);
    const auto same = [&](const HeldNow& held) { return held.what == what && held.device == device; };
    auto found = std::ranges::find_if(r.held, same);
    const bool is_new = found == r.held.end();
    if (is_new) found = r.held.insert(r.held.end(), {what, device, 0});
    const auto of = static_cast<std::size_t>(found - r.held.begin());
    if (is_new && r.running) r.add_sample(of, r.started.ns);
    found->bytes += more;
    if (!r.running) return;
    r.add_sample(of, steady_ns());
    if (r.samples.size() % kChunkRecords == 0) r.stream_where_much();
  } catch (const std::exception&) {  // without memory, or a thread: the next sample is right again
  }
}

void Recorder::add_note(std::string text, std::uint64_t count, Note::Kind kind) {
  Recording& r = recording();
  std::lock_guard lock(r.mutex);
  if (!r.running) return;
  const auto same = [&](const Note& note) { return note.kind == kind && note.text == text; };
  const auto found = std::ranges::find_if(r.notes, same);
  if (found == r.notes.end()) {
    r.notes.push_back({std::move(text), count, kind});
  } else {
    found->count += count;
  }
}

void Recorder::add_source(GpuSource source) {
  Recording& r = recording();
  std::lock_guard lock(r.control);
  // The first program for a GPU may be made while a recording is under way.
  if (running() && r.options->state != State::cpu) {
    source.start(r.options->state, r.options->detail);
    if (r.goes_by_cupti) source.begin_cupti();
  }
  r.sources.push_back(std::move(source));
  if (follows_environment_) end_at_exit();
}

std::uint64_t Recorder::begin_cupti() {
  static const SiteId site = add_site({.name = "CUPTI begins", .kind = SpanKind::recording});
  Recording& r = recording();
  std::lock_guard lock(r.control);
  if (!running()) fail(ErrorKind::argument, "CuptiWindow: nothing is being recorded, needs start_profiler first");
  if (r.goes_by_cupti) fail(ErrorKind::argument, "CuptiWindow: another is open, needs to end first");
  r.goes_by_cupti = true;
  const SpanScope seen(site);
  if (r.options->state != State::cpu) {
    for (const GpuSource& source : r.sources) source.begin_cupti();
  }
  return session();
}

void Recorder::end_cupti(std::uint64_t of) {
  static const SiteId site = add_site({.name = "CUPTI ends", .kind = SpanKind::recording});
  Recording& r = recording();
  std::lock_guard lock(r.control);
  if (!running() || session() != of) return;
  r.goes_by_cupti = false;
  const SpanScope seen(site);
  if (r.options->state == State::cpu) return;
  for (const GpuSource& source : r.sources) {
    try {
      source.end_cupti();
    } catch (const std::exception& e) {  // earlier spans are kept
      add_note(fmt::format("GPU spans: {}", e.what()));
    }
  }
}

bool Recorder::running() {
  Recording& r = recording();
  std::lock_guard lock(r.mutex);
  return r.running;
}

RecorderOptions Recorder::options() {
  Recording& r = recording();
  std::lock_guard lock(r.mutex);
  return r.options.value_or(RecorderOptions{});
}

// A child of fork() has none of the other threads and does not record; its parent's recording goes on.
void Recorder::leave_fork() {
  static const int asked = pthread_atfork([] { recording().mutex.lock(); }, [] { recording().mutex.unlock(); },
                                          [] {
                                            Recording& r = recording();
                                            flags_.store(0);
                                            counts_runs_.store(false);
                                            session_.fetch_add(1);
                                            r.running = false;
                                            if (r.live != nullptr) std::exchange(r.live, nullptr)->leave_to_parent();
                                            r.texts->tell(nullptr);
                                            [[maybe_unused]] Stream* parents = r.stream.release();
                                            r.mutex.unlock();
                                          });
  PD_ASSERT(asked == 0, "no memory for what is done in a fork");
}

void Recorder::start(const RecorderOptions& options) { begin(options, false); }

void Recorder::begin(const RecorderOptions& options, bool is_from_outside) {
  leave_fork();
  Recording& r = recording();
  std::lock_guard control(r.control);
  {
    std::scoped_lock lock(r.mutex, r.sites_mutex);
    r.has_recorded = true;
    if (r.running && r.is_from_outside && !r.has_inside) {  // who profiles a program must not end it
      r.has_inside = true;
      return;
    }
    if (r.running) {
      fail(ErrorKind::argument,
           "start_profiler: a recording is already under way (state {}, detail {}{}), needs to be stopped first",
           to_string(r.options->state), to_string(r.options->detail),
           r.is_from_outside ? "; `paoding profile` records the whole program" : "");
    }
    std::erase_if(r.threads, [](const auto& spans) { return spans->exited; });
    set_steady_ns();
    r.running = true;
    r.is_from_outside = is_from_outside;
    r.has_inside = false;
    r.options = options;
    r.chunk_count = r.thread_count = 0;
    static_cast<BesideThreads&>(r) = {};
    if (is_from_outside && r.live != nullptr) r.texts->tell(r.live);
    r.problem.clear();
    r.goes_by_cupti = false;
    session_.fetch_add(1);
  }
  try {
    if (options.state != State::cpu) {
      for (const GpuSource& source : r.sources) source.start(options.state, options.detail);
    }
  } catch (...) {
    std::lock_guard lock(r.mutex);
    r.running = false;
    throw;
  }
  if (options.state != State::gpu) add_note("ns that a span costs", span_cost_ns(), Note::Kind::span_cost);
  {
    const std::lock_guard lock(r.mutex);
    r.started = read_clocks();
    r.shared_at_start = read_shared_clocks();
    r.samples.clear();
    r.dropped_samples = 0;
    for (std::size_t i = 0; i < r.held.size(); ++i) r.add_sample(i, r.started.ns);
  }
  if (is_from_outside && r.live != nullptr) r.live->begin(r.started);
  if (!options.file.empty()) {
    try {
      r.stream = std::make_unique<Stream>(r, options.file);
    } catch (const Error& error) {  // nothing that is recorded is lost: it stays in memory, and goes where it can
      add_note(fmt::format("the recording is not in its file: {}", error.what()));
    }
    static const SiteId site = add_site({.name = "start_profiler", .kind = SpanKind::recording});
    if (options.state != State::gpu) complete(site, r.started.ticks, now());
  }
  std::uint32_t flags = 0;
  if (options.state != State::gpu) flags |= kHost | (options.detail == Detail::op ? 0 : kPhases);
  if (options.state != State::cpu) flags |= kGpu;
  flags_.store(flags);
}

}  // namespace paoding::profile
