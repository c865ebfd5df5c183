// SPDX-License-Identifier: Apache-2.0
#include "trace/perfetto_events.h"

#include <zlib.h>
#include <zstd.h>

#include <algorithm>
#include <limits>
#include <memory>
#include <utility>

namespace paoding::trace {
namespace {

constexpr std::uint64_t kBootTime = 6;  // the clock of a packet that does not name one

using Names = std::unordered_map<std::uint64_t, std::string_view>;

// What packets of one writer refer to.
struct Sequence {
  Names categories, names, argument_names, texts, stages, kernels;
  std::unordered_map<std::uint64_t, std::int64_t> pids;  // of graphics contexts
  std::uint64_t default_track = 0, default_clock = 0;
  bool is_known = true;                                        // false from a loss until the writer begins anew
  std::unordered_map<std::uint64_t, std::int64_t> own_clocks;  // where those that count up from packet to packet are

  void forget() { *this = Sequence(); }
};

std::string_view look_up(const Names& names, std::uint64_t id, bool* is_missing) {
  const auto found = names.find(id);
  if (found == names.end()) *is_missing = true;
  return found == names.end() ? std::string_view() : found->second;
}

// The number and the text of an entry of a table.
std::pair<std::uint64_t, std::string_view> entry_of(std::string_view message) {
  std::pair<std::uint64_t, std::string_view> entry;
  for (WireReader all(message); all.next();) {
    if (all.field() == 1) entry.first = all.number();
    if (all.field() == 2) entry.second = all.bytes();
  }
  return entry;
}

class Packets {
 public:
  void read(std::string_view file, int depth) {
    if (depth == 0) make_room(file);
    WireReader all(file);
    while (all.next()) {
      if (all.field() == 1 && all.type() == WireType::bytes) read_packet(all.bytes(), depth);
    }
    if (all.is_broken()) ++out_.broken;
  }

  // For as many events as there are packets.
  void make_room(std::string_view file) {
    std::size_t packets = 0;
    for (WireReader all(file); all.next();) ++packets;
    constexpr std::size_t kLeastBytes = 8;
    out_.events.reserve(std::min(packets, file.size() / kLeastBytes));
  }

  PerfettoEvents finish() { return std::move(out_); }

 private:
  static constexpr int kMostDepth = 2;  // of packets that lie packed in packets
  static constexpr std::size_t kMostUnpacked = std::size_t{1} << 32;

  struct Packet {
    std::uint64_t timestamp = 0, clock = 0, sequence = 0, flags = 0;
    bool has_timestamp = false, has_drops = false;
    std::string_view interned, defaults, event, descriptor, clocks, stage, deflated, zstd;
    bool is_other = false;
  };

  void read_packet(std::string_view message, int depth) {
    Packet packet;
    WireReader all(message);
    while (all.next()) {
      switch (all.field()) {
        case 6: packet.clocks = all.bytes(); break;
        case 8:
          packet.timestamp = all.number();
          packet.has_timestamp = true;
          break;
        case 10: packet.sequence = all.number(); break;
        case 11: packet.event = all.bytes(); break;
        case 12: packet.interned = all.bytes(); break;
        case 13: packet.flags = all.number(); break;
        case 41: packet.flags |= all.number() != 0 ? 1 : 0; break;
        case 42: packet.has_drops = all.number() != 0; break;
        case 50: packet.deflated = all.bytes(); break;
        case 53: packet.stage = all.bytes(); break;
        case 58: packet.clock = all.number(); break;
        case 59: packet.defaults = all.bytes(); break;
        case 60: packet.descriptor = all.bytes(); break;
        case 133: packet.zstd = all.bytes(); break;
        default: packet.is_other |= all.type() == WireType::bytes; break;
      }
    }
    if (all.is_broken()) {
      ++out_.broken;
      return;
    }
    take(packet, depth);
  }

  void take(const Packet& packet, int depth) {
    if (sequence_ == nullptr || packet.sequence != sequence_id_) {
      sequence_ = &sequences_[packet.sequence];
      sequence_id_ = packet.sequence;
    }
    Sequence& sequence = *sequence_;
    if (packet.has_drops) {
      ++out_.dropped;
      sequence.is_known = false;
    }
    if ((packet.flags & 1) != 0) sequence.forget();
    if (!packet.defaults.empty()) read_defaults(packet.defaults, &sequence);
    if (!packet.interned.empty()) read_interned(packet.interned, &sequence);
    if (!packet.clocks.empty()) read_clocks(packet.clocks, &sequence);
    if (!packet.descriptor.empty()) read_descriptor(packet.descriptor);
    if (!packet.event.empty()) read_event(packet, &sequence);
    if (!packet.stage.empty()) read_stage(packet, &sequence);
    if (!packet.deflated.empty()) unpack(packet.deflated, true, depth);
    if (!packet.zstd.empty()) unpack(packet.zstd, false, depth);
    const bool is_read = !packet.defaults.empty() || !packet.interned.empty() || !packet.clocks.empty() ||
                         !packet.descriptor.empty() || !packet.event.empty() || !packet.stage.empty() ||
                         !packet.deflated.empty() || !packet.zstd.empty();
    if (!is_read && packet.is_other) ++out_.other_data;
  }

  // ---- packets in packets ----

  void unpack(std::string_view packed, bool is_deflate, int depth) {
    std::string text;
    if (depth >= kMostDepth || !(is_deflate ? inflate_all(packed, &text) : unpack_zstd(packed, &text))) {
      ++out_.not_unpacked;
      return;
    }
    unpacked_bytes_ += text.size();
    out_.unpacked.push_back(std::move(text));
    Sequence* const around = sequence_;
    const std::uint64_t around_id = sequence_id_;
    read(out_.unpacked.back(), depth + 1);
    sequence_ = around;
    sequence_id_ = around_id;
  }

  bool has_room(std::size_t more) const { return unpacked_bytes_ + more <= kMostUnpacked; }

  bool inflate_all(std::string_view packed, std::string* to) const {
    z_stream stream{};
    if (inflateInit2(&stream, 15 + 32) != Z_OK) return false;
    const std::unique_ptr<z_stream, int (*)(z_stream*)> closer(&stream, [](z_stream* s) { return inflateEnd(s); });
    stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(packed.data()));
    stream.avail_in = static_cast<uInt>(std::min<std::size_t>(packed.size(), std::numeric_limits<uInt>::max()));
    for (int code = Z_OK; code != Z_STREAM_END;) {
      constexpr std::size_t kAtOnce = std::size_t{1} << 18;
      const std::size_t before = to->size();
      if (!has_room(before + kAtOnce)) return false;
      to->resize(before + kAtOnce);
      stream.next_out = reinterpret_cast<Bytef*>(to->data() + before);
      stream.avail_out = static_cast<uInt>(kAtOnce);
      code = inflate(&stream, Z_NO_FLUSH);
      to->resize(before + kAtOnce - stream.avail_out);
      if (code != Z_OK && code != Z_STREAM_END) return false;
      if (code == Z_OK && stream.avail_in == 0 && stream.avail_out > 0) return false;  // cut off
    }
    return true;
  }

  bool unpack_zstd(std::string_view packed, std::string* to) const {
    const std::unique_ptr<ZSTD_DStream, std::size_t (*)(ZSTD_DStream*)> stream(ZSTD_createDStream(), ZSTD_freeDStream);
    if (!stream) return false;
    ZSTD_inBuffer in{packed.data(), packed.size(), 0};
    for (std::size_t left = 1; left != 0;) {
      constexpr std::size_t kAtOnce = std::size_t{1} << 18;
      const std::size_t before = to->size();
      if (!has_room(before + kAtOnce)) return false;
      to->resize(before + kAtOnce);
      ZSTD_outBuffer out{to->data() + before, kAtOnce, 0};
      left = ZSTD_decompressStream(stream.get(), &out, &in);
      to->resize(before + out.pos);
      if (ZSTD_isError(left) != 0) return false;
      if (left != 0 && in.pos == in.size && out.pos < kAtOnce) return false;  // cut off
    }
    return true;
  }

  // ---- what others refer to ----

  void read_defaults(std::string_view message, Sequence* sequence) {
    for (WireReader all(message); all.next();) {
      if (all.field() == 58) sequence->default_clock = all.number();
      if (all.field() != 11) continue;
      for (WireReader event(all.bytes()); event.next();) {
        if (event.field() == 11) sequence->default_track = event.number();
      }
    }
  }

  void read_interned(std::string_view message, Sequence* sequence) {
    for (WireReader all(message); all.next();) {
      if (all.type() != WireType::bytes) continue;
      Names* names = nullptr;
      switch (all.field()) {
        case 1: names = &sequence->categories; break;
        case 2: names = &sequence->names; break;
        case 3: names = &sequence->argument_names; break;
        case 23: {
          std::pair<std::uint64_t, std::int64_t> context{0, 0};
          for (WireReader one(all.bytes()); one.next();) {
            if (one.field() == 1) context.first = one.number();
            if (one.field() == 2) context.second = one.signed_number();
          }
          sequence->pids[context.first] = context.second;
          break;
        }
        case 24: names = &sequence->stages; break;
        case 29: names = &sequence->texts; break;
        default: read_kernel(all.field(), all.bytes(), sequence); break;
      }
      if (names == nullptr) continue;
      const auto [id, text] = entry_of(all.bytes());
      (*names)[id] = text;
    }
  }

  // A description of a kernel, which has a name, a demangled one and a machine that it is for.
  static void read_kernel(std::uint32_t field, std::string_view message, Sequence* sequence) {
    constexpr std::uint32_t kNewest = 30;
    if (field < kNewest) return;
    std::uint64_t id = 0;
    std::string_view name, full, machine;
    WireReader all(message);
    while (all.next()) {
      switch (all.field()) {
        case 1: id = all.number(); break;
        case 2: name = all.bytes(); break;
        case 3: full = all.bytes(); break;
        case 4: machine = all.bytes(); break;
        default: break;
      }
    }
    if (all.is_broken() || name.empty() || (full.empty() && machine.empty())) return;
    sequence->kernels[id] = full.empty() ? name : full;
  }

  void read_descriptor(std::string_view message) {
    PerfettoTrack track;
    for (WireReader all(message); all.next();) {
      switch (all.field()) {
        case 1: track.uuid = all.number(); break;
        case 2:
        case 10:
        case 13: track.name = all.bytes(); break;
        case 3:
          for (WireReader one(all.bytes()); one.next();) {
            if (one.field() == 1) track.pid = one.signed_number();
            if (one.field() == 6) track.process_name = one.bytes();
          }
          break;
        case 4:
          track.is_thread = true;
          for (WireReader one(all.bytes()); one.next();) {
            if (one.field() == 1) track.pid = one.signed_number();
            if (one.field() == 2) track.tid = one.signed_number();
            if (one.field() == 5 && track.name.empty()) track.name = one.bytes();
          }
          break;
        case 5: track.parent = all.number(); break;
        case 8:
          track.is_counter = true;
          for (WireReader one(all.bytes()); one.next();) {
            if (one.field() == 4) track.unit_multiplier = one.signed_number();
            if (one.field() == 5) track.is_incremental = one.number() != 0;
          }
          break;
        default: break;
      }
    }
    out_.tracks[track.uuid] = track;
  }

  // ---- clocks ----

  static bool is_own(std::uint64_t clock) { return clock >= 64 && clock < 128; }

  void read_clocks(std::string_view message, Sequence* sequence) {
    struct Reading {
      std::uint64_t clock = 0, ticks = 0, unit = 1;
      bool is_incremental = false;
    };
    std::vector<Reading> all;
    for (WireReader one(message); one.next();) {
      if (one.field() != 1 || one.type() != WireType::bytes) continue;
      Reading reading;
      for (WireReader part(one.bytes()); part.next();) {
        switch (part.field()) {
          case 1: reading.clock = part.number(); break;
          case 2: reading.ticks = part.number(); break;
          case 3: reading.is_incremental = part.number() != 0; break;
          case 4: reading.unit = part.number() == 0 ? 1 : part.number(); break;
          default: break;
        }
      }
      all.push_back(reading);
    }
    const auto boot = std::ranges::find(all, kBootTime, &Reading::clock);
    if (boot == all.end()) return;
    for (const Reading& reading : all) {
      Clock clock{.ahead = static_cast<std::int64_t>(boot->ticks - reading.ticks * reading.unit),
                  .unit = reading.unit,
                  .is_incremental = reading.is_incremental};
      clocks_[{is_own(reading.clock) ? sequence_id_ : 0, reading.clock}] = clock;
      if (reading.is_incremental) sequence->own_clocks[reading.clock] = static_cast<std::int64_t>(reading.ticks);
    }
  }

  // False where nothing sets its clock beside the others.
  bool time_of(const Packet& packet, Sequence* sequence, std::int64_t* ns) {
    std::uint64_t clock = packet.clock != 0 ? packet.clock : sequence->default_clock;
    if (clock == 0) clock = kBootTime;
    auto ticks = static_cast<std::int64_t>(packet.timestamp);
    const auto found = clocks_.find({is_own(clock) ? sequence_id_ : 0, clock});
    if (found == clocks_.end()) {
      // All events by one clock need no other.
      if (is_own(clock) || (only_clock_ != 0 && only_clock_ != clock)) {
        ++out_.without_clock;
        return false;
      }
      only_clock_ = clock;
      *ns = ticks;
      return true;
    }
    if (only_clock_ != 0 && only_clock_ != kBootTime) {
      ++out_.without_clock;
      return false;
    }
    only_clock_ = kBootTime;
    if (found->second.is_incremental) {
      std::int64_t& at = sequence->own_clocks[clock];
      if (__builtin_add_overflow(at, ticks, &at)) at = std::numeric_limits<std::int64_t>::max();
      ticks = at;
    }
    std::int64_t scaled = 0;
    if (__builtin_mul_overflow(ticks, static_cast<std::int64_t>(found->second.unit), &scaled) ||
        __builtin_add_overflow(scaled, found->second.ahead, ns)) {
      *ns = std::numeric_limits<std::int64_t>::max();  // beyond all reason, which is counted where spans are added
    }
    return true;
  }

  // ---- events ----

  void read_event(const Packet& packet, Sequence* sequence) {
    PerfettoEvent event;
    event.track = sequence->default_track;
    event.arguments_begin = static_cast<std::uint32_t>(out_.arguments.size());
    event.flows_begin = static_cast<std::uint32_t>(out_.flows.size());
    bool is_missing = false, has_type = false;
    std::uint64_t phase = 0;
    std::int64_t absolute_us = -1;
    WireReader all(packet.event);
    while (all.next()) {
      switch (all.field()) {
        case 3:
          if (event.category.empty()) event.category = look_up(sequence->categories, all.number(), &is_missing);
          break;
        case 22:
          if (event.category.empty()) event.category = all.bytes();
          break;
        case 4: read_argument(all.bytes(), sequence, &is_missing); break;
        case 6: phase = read_legacy(all.bytes(), &event, sequence, &is_missing); break;
        case 9:
          has_type = true;
          if (!set_type(all.number(), &event)) return drop(event);
          break;
        case 10: event.name = look_up(sequence->names, all.number(), &is_missing); break;
        case 11: event.track = all.number(); break;
        case 16: absolute_us = all.signed_number(); break;
        case 23: event.name = all.bytes(); break;
        case 30: event.value = all.signed_number(); break;
        case 44:
          event.value = std::bit_cast<std::int64_t>(all.real());
          event.is_real = true;
          break;
        case 36:
        case 42:
        case 47:
        case 48:
          if (all.type() != WireType::bytes) out_.flows.push_back(all.number());
          break;
        case 52: event.correlation = all.number(); break;
        default: break;
      }
    }
    if (all.is_broken() || (!has_type && phase == 0)) {
      ++out_.broken;
      return drop(event);
    }
    if (!has_type && !set_phase(phase, &event)) return drop(event);
    if (is_missing && !sequence->is_known) {
      ++out_.without_names;
      if (event.type != PerfettoEvent::Type::end) return drop(event);
    }
    if (absolute_us >= 0) {
      if (__builtin_mul_overflow(absolute_us, 1000, &event.ns)) event.ns = std::numeric_limits<std::int64_t>::max();
    } else if (!packet.has_timestamp) {
      ++out_.without_clock;
      return drop(event);
    } else if (!time_of(packet, sequence, &event.ns)) {
      return drop(event);
    }
    event.arguments_end = static_cast<std::uint32_t>(out_.arguments.size());
    event.flows_end = static_cast<std::uint32_t>(out_.flows.size());
    out_.events.push_back(event);
  }

  void drop(const PerfettoEvent& event) {
    out_.arguments.resize(event.arguments_begin);
    out_.flows.resize(event.flows_begin);
  }

  static bool set_type(std::uint64_t type, PerfettoEvent* event) {
    if (type < 1 || type > 4) return false;
    event->type = static_cast<PerfettoEvent::Type>(type - 1);
    return true;
  }

  static bool set_phase(std::uint64_t phase, PerfettoEvent* event) {
    switch (phase) {
      case 'B': event->type = PerfettoEvent::Type::begin; return true;
      case 'E': event->type = PerfettoEvent::Type::end; return true;
      case 'X': event->type = PerfettoEvent::Type::whole; return true;
      case 'I':
      case 'i': event->type = PerfettoEvent::Type::instant; return true;
      default: return false;
    }
  }

  static std::uint64_t read_legacy(std::string_view message, PerfettoEvent* event, Sequence* sequence,
                                   bool* is_missing) {
    std::uint64_t phase = 0;
    for (WireReader all(message); all.next();) {
      if (all.field() == 1) event->name = look_up(sequence->names, all.number(), is_missing);
      if (all.field() == 2) phase = all.number();
      if (all.field() == 3 && __builtin_mul_overflow(all.signed_number(), 1000, &event->value)) event->value = -1;
    }
    return phase;
  }

  void read_argument(std::string_view message, Sequence* sequence, bool* is_missing) {
    PerfettoArgument argument;
    bool has_value = false;
    for (WireReader all(message); all.next();) {
      using Type = PerfettoArgument::Type;
      const auto set = [&](Type type) {
        argument.type = type;
        has_value = true;
      };
      switch (all.field()) {
        case 1: argument.name = look_up(sequence->argument_names, all.number(), is_missing); break;
        case 10: argument.name = all.bytes(); break;
        case 2:
        case 3:
        case 4:
        case 7:
          argument.number = all.signed_number();
          set(Type::number);
          break;
        case 5:
          argument.number = std::bit_cast<std::int64_t>(all.real());
          set(Type::real);
          break;
        case 6:
        case 9:
          argument.text = all.bytes();
          set(Type::text);
          break;
        case 17:
          argument.text = look_up(sequence->texts, all.number(), is_missing);
          set(Type::text);
          break;
        default: break;
      }
    }
    if (has_value && !argument.name.empty() && out_.arguments.size() < kMostArguments)
      out_.arguments.push_back(argument);
  }

  void read_stage(const Packet& packet, Sequence* sequence) {
    PerfettoGpuStage stage;
    bool is_missing = false;
    std::string_view kernel;
    const auto dims = [](std::string_view message) {
      std::array<std::int64_t, 3> size = {1, 1, 1};
      for (WireReader all(message); all.next();) {
        if (all.field() >= 1 && all.field() <= 3) size[all.field() - 1] = all.signed_number();
      }
      return size;
    };
    WireReader all(packet.stage);
    while (all.next()) {
      switch (all.field()) {
        case 2: stage.duration_ns = all.signed_number(); break;
        case 3: stage.queue = all.number(); break;
        case 5:
          if (const auto found = sequence->pids.find(all.number()); found != sequence->pids.end())
            stage.pid = found->second;
          break;
        case 11: stage.gpu = all.signed_number(); break;
        case 13:
          stage.queue = all.number();
          stage.queue_name = look_up(sequence->stages, all.number(), &is_missing);
          break;
        case 14:
          if (stage.name.empty()) stage.name = look_up(sequence->stages, all.number(), &is_missing);
          break;
        case 17: stage.name = all.bytes(); break;
        case 19:
          if (const auto found = sequence->kernels.find(all.number()); found != sequence->kernels.end())
            kernel = found->second;
          break;
        case 20: stage.name = look_up(sequence->names, all.number(), &is_missing); break;
        case 21:
          for (WireReader one(all.bytes()); one.next();) {
            if (one.field() == 1) stage.grid = dims(one.bytes());
            if (one.field() == 2) stage.block = dims(one.bytes());
          }
          break;
        default: break;
      }
    }
    if (!kernel.empty()) stage.name = kernel;
    if (all.is_broken()) {
      ++out_.broken;
      return;
    }
    if (!packet.has_timestamp) {
      ++out_.without_clock;
      return;
    }
    if (time_of(packet, sequence, &stage.ns)) out_.stages.push_back(stage);
  }

  struct Clock {
    std::int64_t ahead = 0;
    std::uint64_t unit = 1;
    bool is_incremental = false;
  };
  static constexpr std::size_t kMostArguments = 0xf0000000;

  PerfettoEvents out_;
  std::unordered_map<std::uint64_t, Sequence> sequences_;
  Sequence* sequence_ = nullptr;  // the one of the packet before
  std::uint64_t sequence_id_ = 0;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Clock> clocks_;
  std::uint64_t only_clock_ = 0;  // that all times are by
  std::size_t unpacked_bytes_ = 0;
};

}  // namespace

PerfettoEvents read_perfetto_packets(std::string_view file) {
  Packets packets;
  packets.read(file, 0);
  return packets.finish();
}

}  // namespace paoding::trace
