// SPDX-License-Identifier: Apache-2.0
#include "io/files.h"
#include "profile/recording.h"
#include "profile/site_format.h"

namespace paoding::profile {

RecordingWriter::RecordingWriter(Write write) : write_(std::move(write)) { write_(recording_head()); }

void RecordingWriter::put(ChunkType type, const BodyWriter& body) { write_(chunk_of(type, body)); }

void RecordingWriter::window(std::int64_t start_ns, std::int64_t end_ns) {
  BodyWriter body;
  body.signed_number(start_ns);
  body.signed_number(end_ns);
  put(ChunkType::window, body);
}

void RecordingWriter::clock(std::uint64_t ticks, std::int64_t ns) {
  BodyWriter body;
  body.number(ticks);
  body.signed_number(ns);
  put(ChunkType::clock, body);
}

void RecordingWriter::anchor(ProcessId process, std::string_view host, const SharedClocks& at) {
  put_names();
  BodyWriter body;
  body.number(process);
  body.text(host);
  for (const std::int64_t ns : {at.ns, at.system_ns, at.wall_ns}) body.signed_number(ns);
  put(ChunkType::anchors, body);
}

ProcessId RecordingWriter::process(int pid, int rank, std::string_view name, Source source) {
  const auto [found, is_new] =
      process_ids_.try_emplace({pid, rank, std::string(name), source}, static_cast<ProcessId>(process_ids_.size()));
  if (is_new) {
    processes_.signed_number(pid);
    processes_.signed_number(rank);
    processes_.text(name);
    processes_.number(static_cast<std::uint64_t>(source));
  }
  return found->second;
}

ColumnId RecordingWriter::column(std::string_view name, ArgumentType type) {
  const auto [found, is_new] =
      column_ids_.try_emplace({std::string(name), type}, static_cast<ColumnId>(column_ids_.size()));
  if (is_new) {
    columns_.text(name);
    columns_.number(static_cast<std::uint64_t>(type));
    column_types_.push_back(type);
  }
  return found->second;
}

TrackId RecordingWriter::track(TrackKind kind, std::string_view name, int device, ProcessId process) {
  const auto [found, is_new] =
      track_ids_.try_emplace({kind, std::string(name), device, process}, static_cast<TrackId>(track_ids_.size()));
  if (is_new) {
    tracks_.number(static_cast<std::uint64_t>(kind));
    tracks_.text(name);
    tracks_.signed_number(device);
    tracks_.number(process);
  }
  return found->second;
}

SiteId RecordingWriter::site(const SiteInfo& info) {
  BodyWriter body;
  append_site(body, info);
  const auto [found, is_new] = site_ids_.try_emplace(body.bytes(), static_cast<SiteId>(site_ids_.size()));
  if (is_new) sites_.append(body);
  return found->second;
}

void RecordingWriter::put_names() {
  for (const auto& [type, names] :
       {std::pair{ChunkType::processes, &processes_}, std::pair{ChunkType::tracks, &tracks_},
        std::pair{ChunkType::sites, &sites_}, std::pair{ChunkType::counters, &counters_},
        std::pair{ChunkType::columns, &columns_}}) {
    if (!names->is_empty()) put(type, *names);
    names->clear();
  }
}

// Column by column: neighbours are alike, and pack well.
void RecordingWriter::spans(TrackId track, StoredClock clock, std::span<const StoredSpan> spans, SpanId first,
                            std::span<const Argument> arguments, const TextOfId& text_of) {
  put_names();
  while (!spans.empty()) {
    const auto part = spans.first(std::min(spans.size(), kMostChunkSpans));
    spans = spans.subspan(part.size());
    BodyWriter body;
    body.number(track);
    body.number(static_cast<std::uint64_t>(clock));
    body.number(part.size());
    std::uint64_t before = 0;
    for (const StoredSpan& span : part)
      body.signed_number(static_cast<std::int64_t>(span.start - std::exchange(before, span.start)));
    for (const StoredSpan& span : part) body.number(span.end - span.start);
    for (const StoredSpan& span : part) body.number(span.site);
    before = 0;
    for (const StoredSpan& span : part)
      body.signed_number(static_cast<std::int64_t>(span.run - std::exchange(before, span.run)));
    before = 0;
    for (const StoredSpan& span : part)
      body.signed_number(static_cast<std::int64_t>(span.correlation - std::exchange(before, span.correlation)));
    body.number(first == kNone ? 0 : std::uint64_t{first} + 1);
    if (first != kNone) {
      SpanId own = first;
      for (const StoredSpan& span : part) {
        body.number(span.parent == kNone ? 0 : own - span.parent);
        ++own;
      }
      own = first;
      for (const StoredSpan& span : part) {
        body.signed_number(span.cause == kNone ? 0 : std::int64_t{span.cause} - std::int64_t{own});
        ++own;
      }
      first = own;
    }
    // Seldom said: the numbers of those spans that do, and their words.
    for (std::size_t i = 0; i < part.size(); ++i) {
      const StoredSpan& span = part[i];
      const unsigned says = (span.cut.at_start ? 1u : 0u) | (span.cut.at_end ? 2u : 0u) | (span.bytes >= 0 ? 4u : 0u) |
                            (span.flops >= 0 ? 8u : 0u) | (span.arguments_end > span.arguments_begin ? 16u : 0u);
      if (says == 0) continue;
      body.number(i);
      body.number(says);
      if (span.bytes >= 0) body.signed_number(span.bytes);
      if (span.flops >= 0) body.real(span.flops);
      const auto own = arguments.subspan(span.arguments_begin, span.arguments_end - span.arguments_begin);
      if (!own.empty()) body.number(own.size());
      for (const Argument& argument : own) {
        body.number(argument.column);
        switch (column_types_[argument.column]) {
          case ArgumentType::integer: body.signed_number(static_cast<std::int64_t>(argument.bits)); break;
          case ArgumentType::real: body.real(std::bit_cast<double>(argument.bits)); break;
          case ArgumentType::text: body.text(text_of(static_cast<StringId>(argument.bits))); break;
        }
      }
    }
    put(ChunkType::spans, body);
  }
}

void RecordingWriter::flows(std::span<const Flow> flows) {
  constexpr std::size_t kMostFlows = 1 << 18;
  while (!flows.empty()) {
    const auto part = flows.first(std::min(flows.size(), kMostFlows));
    flows = flows.subspan(part.size());
    BodyWriter body;
    SpanId before = 0;
    for (const Flow& flow : part) {
      body.signed_number(std::int64_t{flow.from} - std::exchange(before, flow.from));
      body.signed_number(std::int64_t{flow.to} - flow.from);
    }
    put(ChunkType::flows, body);
  }
}

void RecordingWriter::note(const Note& note) {
  BodyWriter body;
  body.text(note.text);
  body.number(note.count);
  body.number(static_cast<std::uint64_t>(note.kind));
  put(ChunkType::notes, body);
}

void RecordingWriter::memory(const Memory& memory) {
  BodyWriter body;
  body.signed_number(memory.device);
  body.text(memory.of);
  body.text(memory.what);
  body.number(memory.is_inside ? 1 : 0);
  body.signed_number(memory.bytes);
  put(ChunkType::memory, body);
}

CounterId RecordingWriter::counter(int device, std::string_view name, ProcessId process) {
  const auto [found, is_new] =
      counter_ids_.try_emplace({device, std::string(name), process}, static_cast<CounterId>(counter_ids_.size()));
  if (is_new) {
    counters_.signed_number(device);
    counters_.text(name);
    counters_.number(process);
  }
  return found->second;
}

void RecordingWriter::samples(std::span<const Sample> samples) {
  constexpr std::size_t kMostSamples = 1 << 16;
  put_names();
  while (!samples.empty()) {
    const auto part = samples.first(std::min(samples.size(), kMostSamples));
    samples = samples.subspan(part.size());
    BodyWriter body;
    std::int64_t before = 0;
    for (const Sample& sample : part) {
      body.number(sample.counter);
      body.signed_number(sample.ns - std::exchange(before, sample.ns));
      body.signed_number(sample.value);
    }
    put(ChunkType::samples, body);
  }
}

void RecordingWriter::part(const ReplayPart& part) {
  put_names();
  BodyWriter body;
  body.number(part.replay);
  body.number(part.site == kNone ? 0 : std::uint64_t{part.site} + 1);
  body.number(part.calls);
  body.signed_number(part.ns);
  put(ChunkType::parts, body);
}

void RecordingWriter::phase(const Phase& phase) {
  put_names();
  BodyWriter body;
  body.number(phase.site);
  body.text(phase.name);
  body.signed_number(phase.ns);
  put(ChunkType::phases, body);
}

void RecordingWriter::limit(const Limit& limit) {
  BodyWriter body;
  body.signed_number(limit.device);
  body.real(limit.bytes_per_ns);
  for (const double rate : limit.flops_per_ns) body.real(rate);
  body.text(limit.name);
  for (const std::int32_t count : {limit.sms, limit.threads_of_sm, limit.registers_of_sm, limit.shared_of_sm}) {
    body.signed_number(count);
  }
  put(ChunkType::limits, body);
}

void RecordingWriter::finish() {
  put_names();
  put(ChunkType::end, {});
}

void write_recording(const Trace& trace, const std::string& path) {
  files::AtomicFile file(path, begins_recording);
  RecordingWriter writer([&](std::string_view bytes) { file.write(bytes.data(), bytes.size()); });
  writer.window(trace.window_start(), trace.window_end());
  for (const Process& process : trace.processes()) {
    writer.process(process.pid, process.rank, trace.text(process.name), process.source);
  }
  for (const ClockAnchor& anchor : trace.anchors()) {
    writer.anchor(anchor.process, trace.text(anchor.host), {anchor.ns, anchor.system_ns, anchor.wall_ns});
  }
  for (const ArgumentColumn& column : trace.columns()) writer.column(trace.text(column.name), column.type);
  ArgumentsInOrder in_order(trace);
  std::vector<Argument> arguments;
  const TextOfId text_of = [&](StringId id) { return trace.text(id); };
  std::vector<SiteId> sites;
  for (SiteId i = 0; i < trace.sites().size(); ++i) sites.push_back(writer.site(trace.site_info(i)));
  constexpr std::size_t kAtOnce = 1 << 16;
  std::vector<StoredSpan> spans;
  for (SpanId i = 0; i < trace.size();) {
    spans.clear();
    arguments.clear();
    const SpanId first = i;
    const TrackId track = trace.track_id(i);
    for (; i < trace.size() && trace.track_id(i) == track && spans.size() < kAtOnce; ++i) {
      const Span span = trace.span(i);
      const auto from = static_cast<std::uint32_t>(arguments.size());
      in_order.for_each(i, [&](const ArgumentColumn& column, std::size_t at) {
        arguments.push_back({static_cast<ColumnId>(&column - trace.columns().data()), column.bits[at]});
      });
      spans.push_back({.site = sites[span.site],
                       .run = span.run,
                       .correlation = span.correlation,
                       .parent = span.parent,
                       .cause = span.cause,
                       .start = static_cast<std::uint64_t>(span.start_ns),
                       .end = static_cast<std::uint64_t>(span.start_ns + span.duration_ns),
                       .cut = trace.cut(i),
                       .bytes = span.bytes,
                       .flops = span.flops,
                       .arguments_begin = from,
                       .arguments_end = static_cast<std::uint32_t>(arguments.size())});
    }
    const Track& own = trace.tracks()[track];
    writer.spans(writer.track(own.kind, trace.text(own.name), own.device, own.process), StoredClock::nanoseconds, spans,
                 first, arguments, text_of);
  }
  for (const Track& track : trace.tracks()) {
    writer.track(track.kind, trace.text(track.name), track.device, track.process);
  }
  writer.flows(trace.flows());
  for (const Limit& limit : trace.limits()) writer.limit(limit);
  for (const Phase& phase : trace.phases()) writer.phase({sites[phase.site], phase.name, phase.ns});
  for (const ReplayPart& part : trace.parts()) {
    writer.part({sites[part.replay], part.site == kNone ? kNone : sites[part.site], part.calls, part.ns});
  }
  for (const Note& note : trace.notes()) writer.note(note);
  if (trace.span_cost_ns() > 0) writer.note({"ns that a span costs", trace.span_cost_ns(), Note::Kind::span_cost});
  for (const Memory& memory : trace.memory()) writer.memory(memory);
  for (const Counter& counter : trace.counters()) {
    writer.counter(counter.device, trace.text(counter.name), counter.process);
  }
  writer.samples(trace.samples());
  writer.finish();
  file.commit();
}

}  // namespace paoding::profile
