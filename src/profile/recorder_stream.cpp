// SPDX-License-Identifier: Apache-2.0
// Spans on their way to a file while they are recorded. Their times are ticks there, with pairs of both clocks between
// them: a reader puts them on the lines through the pairs, also when the writer was killed.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>

#include "base/check.h"
#include "profile/recorder_state.h"

namespace paoding::profile {

namespace {

constexpr auto kPause = std::chrono::milliseconds(100);
constexpr std::chrono::nanoseconds kLongestUnpaired = std::chrono::seconds(1);  // between pairs of the clocks

files::Descriptor nameless_file() {
  const char* folder = std::getenv("TMPDIR");
  if (folder == nullptr || *folder == '\0') folder = "/tmp";
  files::Descriptor made(::open(folder, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (made.is_open()) return made;
  std::string name = std::string(folder) + "/paoding_recording_XXXXXX";
  files::Descriptor named(::mkostemp(name.data(), O_CLOEXEC));
  if (!named.is_open()) fail(ErrorKind::file, "{}: cannot make a file: {}", folder, files::reason(errno));
  ::unlink(name.c_str());
  return named;
}

}  // namespace

Recorder::Stream::Stream(Recording& recording, const std::string& path)
    : r_(recording),
      started_(recording.started),
      last_(recording.started),
      has_name_(!path.empty()),
      path_(path),
      texts_(recording.texts),
      live_(recording.is_from_outside ? recording.live : nullptr),
      process_(::getpid()) {
  if (!has_name_) {
    descriptor_ = nameless_file();
    path_ = fmt::format("/proc/self/fd/{}", descriptor_.get());
  } else {
    descriptor_ = files::open_empty(path, begins_recording);
  }
  writer_.emplace([this](std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_.get(), bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) fail(ErrorKind::file, "{}: cannot write: {}", path_, files::reason(errno));
      bytes_ += static_cast<std::uint64_t>(written);
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
  });
  const OwnProcess own = own_process();
  writer_->process(own.pid, own.rank, own.name);
  writer_->window(started_.ns, started_.ns);
  writer_->clock(started_.ticks, started_.ns);
  write_anchor(recording.shared_at_start);
  thread_ = std::make_unique<std::thread>([this] { run(); });
}

Recorder::Stream::~Stream() { stop_thread(); }

void Recorder::Stream::stop_thread() {
  if (thread_ == nullptr) return;
  if (::getpid() != process_) {
    [[maybe_unused]] const std::thread* parents = thread_.release();
    return;
  }
  {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  over_.notify_all();
  thread_->join();
  thread_.reset();
}

void Recorder::Stream::run() {
  std::unique_lock lock(mutex_);
  while (!over_.wait_for(lock, kPause, [&] { return is_over_; })) {
    lock.unlock();
    std::vector<Full> full = take_full();
    try {
      for (const Full& one : full) write_chunk(one);
      const ClockPair now = read_clocks();
      const bool is_time = !full.empty() || now.ns - last_.ns > kLongestUnpaired.count() || last_.ns == started_.ns;
      while (write_gpu_piece(false)) continue;
      if (is_time && has_name_) write_gpu_piece(true);
      write_samples_so_far();
      if (has_name_) write_facts();
      if (live_ != nullptr) live_->set_alive(now.ticks);
      if (problem_.empty() && is_time) {
        write_clock(now);
        write_anchor(read_shared_clocks());
      }
    } catch (const Error& error) {
      problem_ = error.what();
    }
    {
      const std::lock_guard state(r_.mutex);
      for (Full& one : full) r_.free_chunks.push_back(std::move(one.chunk));
    }
    lock.lock();
  }
}

// In order: a recording may have ended before the last pair that was written.
void Recorder::Stream::write_clock(ClockPair pair) {
  if (pair.ticks <= last_.ticks) return;
  writer_->clock(pair.ticks, pair.ns);
  last_ = pair;
}

void Recorder::Stream::write_anchor(const SharedClocks& at) {
  if (at.ns <= last_anchor_ns_) return;
  writer_->anchor(0, host_, at);
  last_anchor_ns_ = at.ns;
}

// All but the one that each thread writes into. When nothing can be written any more they stay where they are.
std::vector<Recorder::Stream::Full> Recorder::Stream::take_full() {
  std::vector<Full> full;
  if (!problem_.empty()) return full;
  const std::lock_guard lock(r_.mutex);
  if (is_cut_) return full;
  for (const auto& spans : r_.threads) {
    if (spans->session != session_.load() || spans->chunks.size() < 2) continue;
    const std::size_t count = spans->chunks.size() - 1;
    for (std::size_t i = 0; i < count; ++i) full.push_back({spans->number, std::move(spans->chunks[i])});
    spans->chunks.erase(spans->chunks.begin(), spans->chunks.begin() + static_cast<std::ptrdiff_t>(count));
    r_.chunk_count -= count;
  }
  return full;
}

void Recorder::Stream::write(std::uint32_t thread, std::span<const SpanRecord> records) {
  batch_.clear();
  EndOrder& ends = ends_[thread];
  ArgumentsAhead& ahead = ahead_[thread];
  std::vector<Argument> arguments;
  for (const SpanRecord& record : records) {
    if (ahead.take(record)) continue;
    const auto from = static_cast<std::uint32_t>(arguments.size());
    for (const auto& [id, bits] : ahead.of(record)) {
      const ArgumentName name = r_.argument_name(id);
      arguments.push_back({writer_->column(name.name, name.type), bits});
    }
    const auto [found, is_new] = site_of_.try_emplace(record.site);
    if (is_new) found->second = writer_->site(r_.site_info(record.site));
    batch_.push_back({.site = found->second,
                      .run = record.run == 0 && record.start < started_.ticks ? next_run() : record.run,
                      .start = record.start,
                      .end = std::max(record.start, ends.of(record.end)),
                      .arguments_begin = from,
                      .arguments_end = static_cast<std::uint32_t>(arguments.size())});
  }
  writer_->spans(writer_->track(TrackKind::thread, fmt::format("thread{}", thread), -1), StoredClock::ticks, batch_,
                 kNone, arguments, [this](StringId id) { return texts_->at(id); });
}

void Recorder::Stream::write_chunk(const Full& full) {
  Chunk& chunk = *full.chunk;
  if (chunk.live != nullptr) chunk.live->at.store(bytes_ + 1);
  write(full.thread, {chunk.records, chunk.used().load()});
  chunk.is_over();
}

// What a program says of itself once, soon after it has: it may be killed.
void Recorder::Stream::write_facts() {
  std::vector<Limit> limits;
  std::vector<Memory> memory;
  {
    const std::lock_guard state(r_.mutex);
    if (!problem_.empty() || is_cut_) return;
    limits.assign(r_.limits.begin() + static_cast<std::ptrdiff_t>(limits_), r_.limits.end());
    memory.assign(r_.memory.begin() + static_cast<std::ptrdiff_t>(memory_), r_.memory.end());
  }
  for (const Limit& limit : limits) writer_->limit(limit), ++limits_;
  for (const Memory& one : memory) writer_->memory(one), ++memory_;
}

bool Recorder::Stream::write_gpu_piece(bool is_part) {
  std::optional<GpuPiece> piece;
  GpuTracks tracks;
  {
    const std::lock_guard state(r_.mutex);
    if (problem_.empty() && !is_cut_) piece = r_.gpu_spans.take_full(is_part);
    if (piece.has_value()) tracks = r_.gpu_tracks;
  }
  if (piece.has_value()) write_gpu(*piece, tracks);
  return piece.has_value();
}

void Recorder::Stream::write_gpu(const GpuPiece& piece, const GpuTracks& tracks) {
  if (piece.spans.empty()) return;
  for (TrackId track = 0; track < tracks.size(); ++track) {
    const auto& [kind, name, device] = tracks[track];
    const TrackId id = writer_->track(kind, name, device);
    batch_.clear();
    std::vector<Argument> arguments;
    auto argument = piece.arguments.begin();
    for (std::uint32_t i = 0; i < piece.spans.size(); ++i) {
      const GpuSpan& s = piece.spans[i];
      const auto from = static_cast<std::uint32_t>(arguments.size());
      for (; argument != piece.arguments.end() && argument->span == i; ++argument) {
        if (s.track != track) continue;
        arguments.push_back({writer_->column(argument->argument.name, ArgumentType::integer),
                             static_cast<std::uint64_t>(argument->argument.value)});
      }
      if (s.track != track) continue;
      const auto [found, is_new] = site_of_.try_emplace(s.site);
      if (is_new) found->second = writer_->site(r_.site_info(s.site));
      batch_.push_back({.site = found->second,
                        .run = s.run,
                        .correlation = s.correlation,
                        .start = static_cast<std::uint64_t>(s.start_ns),
                        .end = static_cast<std::uint64_t>(s.start_ns + std::max<std::int64_t>(s.duration_ns, 0)),
                        .arguments_begin = from,
                        .arguments_end = static_cast<std::uint32_t>(arguments.size())});
    }
    writer_->spans(id, StoredClock::nanoseconds, batch_, kNone, arguments);
  }
}

void Recorder::Stream::write_samples_so_far() {
  std::vector<Sample> samples;
  std::vector<HeldNow> held;
  {
    const std::lock_guard state(r_.mutex);
    if (!problem_.empty() || is_cut_) return;
    samples.swap(r_.samples);
    held = r_.held;
  }
  write_samples(samples, held);
}

void Recorder::Stream::write_samples(std::span<const Sample> samples, std::span<const HeldNow> held) {
  std::vector<Sample> of_file(samples.begin(), samples.end());
  for (Sample& sample : of_file) {
    const HeldNow& now = held[sample.counter];
    sample.counter = writer_->counter(now.device, to_string(now.what));
  }
  writer_->samples(of_file);
}

// What was in memory still.
void Recorder::Stream::write_rest(Parts& rest) {
  std::uint64_t dropped = 0;
  for (Parts::Thread& thread : rest.threads) {
    dropped += thread.dropped;
    thread.for_each_chunk([&](std::span<const SpanRecord> records) { write(thread.number, records); });
    for (SpanRecord& record : thread.open) record.end = rest.window_end + 1;
    write(thread.number, thread.open);
  }
  for (const GpuPiece& piece : rest.gpu_spans.pieces()) write_gpu(piece, rest.gpu_tracks);
  const auto site_of = [&](SiteId site) { return site == kNone ? kNone : writer_->site(r_.site_info(site)); };
  for (std::size_t i = limits_; i < rest.limits.size(); ++i) writer_->limit(rest.limits[i]);
  for (const Phase& phase : rest.phases) writer_->phase({site_of(phase.site), phase.name, phase.ns});
  for (const ReplayPart& part : rest.parts) {
    writer_->part({site_of(part.replay), site_of(part.site), part.calls, part.ns});
  }
  if (dropped > 0) writer_->note({"host spans dropped, the disk was too slow", dropped, Note::Kind::dropped});
  for (std::size_t i = memory_; i < rest.memory.size(); ++i) writer_->memory(rest.memory[i]);
  write_samples(rest.samples, rest.held);
  for (const Note& note : rest.notes) writer_->note(note);
}

void Recorder::Stream::finish(Parts& rest) {
  stop_thread();
  if (!problem_.empty()) return;
  try {
    write_clock(rest.stopped);
    write_anchor(rest.shared_at_end);
    const double rate =
        static_cast<double>(rest.stopped.ns - started_.ns) / static_cast<double>(rest.stopped.ticks - started_.ticks);
    const auto length = static_cast<std::int64_t>(rate * static_cast<double>(rest.window_end - started_.ticks));
    writer_->window(started_.ns, started_.ns + length);
    write_rest(rest);
    writer_->finish();
  } catch (const Error& error) {
    problem_ = error.what();
  }
}

Trace Recorder::Stream::read() const {
  Trace trace = read_recording(path_);
  if (!problem_.empty()) trace.add_note("the recording ends early: " + problem_);
  return trace;
}

}  // namespace paoding::profile
