// SPDX-License-Identifier: Apache-2.0
#include "trace/perfetto_events.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "trace/perfetto_sequence.h"
#include "trace/unpack.h"

namespace paoding::trace {
namespace {

constexpr std::uint64_t kBootTime = 6;  // the clock of a packet that does not name one

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
  Packets(PerfettoTexts& texts, PerfettoTaker& taker) : texts_(texts), taker_(taker) {}

  // Each part of the file is read over the one before it: it stays near, and most of a large file is never in memory.
  PerfettoLosses read(TraceFile& file) {
    std::vector<char> buffer(kAtOnce);
    for (std::size_t size = 0; !taker_.is_done();) {
      const std::size_t more = file.read(buffer.data() + size, buffer.size() - size);
      size += more;
      const bool is_over = size < buffer.size();
      const std::string_view rest = read_whole_packets({buffer.data(), size}, 0);
      if (is_over) {
        if (!rest.empty()) ++losses_.broken;
        break;
      }
      // A packet that does not fit.
      if (rest.size() == buffer.size()) {
        buffer.resize(2 * buffer.size());
      } else {
        std::memmove(buffer.data(), rest.data(), rest.size());
      }
      size = rest.size();
    }
    return losses_;
  }

 private:
  static constexpr std::size_t kAtOnce = std::size_t{1} << 20;
  static constexpr int kMostDepth = 2;  // of packets that lie packed in packets
  static constexpr std::size_t kMostUnpacked = std::size_t{1} << 32;

  // Reads up to a field that is not whole, and returns the rest from there on.
  std::string_view read_whole_packets(std::string_view bytes, int depth) {
    std::string_view rest = bytes;
    for (WireReader all(bytes); !taker_.is_done() && all.next(); rest = all.rest()) {
      if (all.field() == 1 && all.type() == WireType::bytes) read_packet(all.bytes(), all.readable(), depth);
    }
    return rest;
  }

  // The parts of a packet that are messages or bytes.
  enum class Part : std::uint8_t { interned, defaults, event, descriptor, clocks, stage, deflated, zstd };
  static constexpr int kParts = static_cast<int>(Part::zstd) + 1;

  // Most have one or two, so that the others are left as they are.
  struct Packet {
    Packet() {}
    std::uint64_t timestamp = 0, clock = 0, sequence = 0, flags = 0;
    bool has_timestamp = false, has_drops = false, is_other = false;
    std::uint32_t has_parts = 0;
    const char* readable = nullptr;  // up to there
    struct Bytes {
      const char* at;
      std::size_t size;
    };
    std::array<Bytes, kParts> parts;

    static std::uint32_t bit(Part part) { return 1u << static_cast<int>(part); }
    bool has(Part part) const { return (has_parts & bit(part)) != 0; }
    std::string_view operator[](Part part) const {
      const Bytes& bytes = parts[static_cast<std::size_t>(part)];
      return {bytes.at, bytes.size};
    }
    void set(Part part, std::string_view bytes) {
      parts[static_cast<std::size_t>(part)] = {bytes.data(), bytes.size()};
      has_parts = bytes.empty() ? has_parts & ~bit(part) : has_parts | bit(part);
    }
  };

  void read_packet(std::string_view message, const char* readable, int depth) {
    Packet packet;
    packet.readable = readable;
    WireReader all(message, readable);
    while (all.next()) {
      switch (all.field()) {
        case 6: packet.set(Part::clocks, all.bytes()); break;
        case 8:
          packet.timestamp = all.number();
          packet.has_timestamp = true;
          break;
        case 10: packet.sequence = all.number(); break;
        case 11: packet.set(Part::event, all.bytes()); break;
        case 12: packet.set(Part::interned, all.bytes()); break;
        case 13: packet.flags = all.number(); break;
        case 41: packet.flags |= all.number() != 0 ? 1 : 0; break;
        case 42: packet.has_drops = all.number() != 0; break;
        case 50: packet.set(Part::deflated, all.bytes()); break;
        case 53: packet.set(Part::stage, all.bytes()); break;
        case 58: packet.clock = all.number(); break;
        case 59: packet.set(Part::defaults, all.bytes()); break;
        case 60: packet.set(Part::descriptor, all.bytes()); break;
        case 133: packet.set(Part::zstd, all.bytes()); break;
        default: packet.is_other |= all.type() == WireType::bytes; break;
      }
    }
    if (all.is_broken()) {
      ++losses_.broken;
      return;
    }
    take(packet, depth);
  }

  void take(const Packet& packet, int depth) {
    if (sequence_ == nullptr || packet.sequence != sequence_id_) {
      sequence_ = &sequences_[packet.sequence];
      sequence_id_ = packet.sequence;
    }
    PerfettoSequence& sequence = *sequence_;
    if (packet.has_drops) {
      ++losses_.dropped;
      sequence.is_known = false;
    }
    if ((packet.flags & 1) != 0) sequence.forget();
    if (packet.has_parts == Packet::bit(Part::event)) return read_event(packet, &sequence);
    if (packet.has(Part::defaults)) read_defaults(packet[Part::defaults], &sequence);
    if (packet.has(Part::interned)) read_interned(packet[Part::interned], &sequence);
    if (packet.has(Part::clocks)) read_clocks(packet[Part::clocks], &sequence);
    if (packet.has(Part::descriptor)) read_descriptor(packet);
    if (packet.has(Part::event)) read_event(packet, &sequence);
    if (packet.has(Part::stage)) read_stage(packet, &sequence);
    if (packet.has(Part::deflated)) unpack(packet[Part::deflated], true, depth);
    if (packet.has(Part::zstd)) unpack(packet[Part::zstd], false, depth);
    if (packet.has_parts == 0 && packet.is_other) ++losses_.other_data;
  }

  // ---- packets in packets ----

  void unpack(std::string_view packed, bool is_deflate, int depth) {
    std::string text;
    const std::size_t most = kMostUnpacked - std::min(unpacked_bytes_, kMostUnpacked);
    if (depth >= kMostDepth || !(is_deflate ? inflate_all(packed, most, &text) : unpack_zstd(packed, most, &text))) {
      ++losses_.not_unpacked;
      return;
    }
    unpacked_bytes_ += text.size();
    PerfettoSequence* const around = sequence_;
    const std::uint64_t around_id = sequence_id_;
    if (!read_whole_packets(text, depth + 1).empty() && !taker_.is_done()) ++losses_.broken;
    sequence_ = around;
    sequence_id_ = around_id;
  }

  // ---- names and tracks ----

  void read_defaults(std::string_view message, PerfettoSequence* sequence) {
    for (WireReader all(message); all.next();) {
      if (all.field() == 58) sequence->default_clock = all.number();
      if (all.field() != 11) continue;
      for (WireReader event(all.bytes()); event.next();) {
        if (event.field() == 11) sequence->default_track = event.number();
      }
    }
  }

  void read_interned(std::string_view message, PerfettoSequence* sequence) {
    for (WireReader all(message); all.next();) {
      if (all.type() != WireType::bytes) continue;
      NumberedTexts* names = nullptr;
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
      names->set(id, texts_.add(text));
    }
  }

  // A description of a kernel, which has a name, a demangled one and a machine that it is for.
  void read_kernel(std::uint32_t field, std::string_view message, PerfettoSequence* sequence) {
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
    sequence->kernels.set(id, texts_.add(full.empty() ? name : full));
  }

  void read_descriptor(const Packet& packet) {
    if (known_tracks_.is_again(packet[Part::descriptor], packet.readable)) return;
    PerfettoTrack track;
    for (WireReader all(packet[Part::descriptor], packet.readable); all.next();) {
      switch (all.field()) {
        case 1: track.uuid = all.number(); break;
        case 2:
        case 10:
        case 13: track.name = texts_.add(all.bytes()); break;
        case 3:
          for (WireReader one(all.bytes()); one.next();) {
            if (one.field() == 1) track.pid = one.signed_number();
            if (one.field() == 6) track.process_name = texts_.add(one.bytes());
          }
          break;
        case 4:
          track.is_thread = true;
          for (WireReader one(all.bytes()); one.next();) {
            if (one.field() == 1) track.pid = one.signed_number();
            if (one.field() == 2) track.tid = one.signed_number();
            if (one.field() == 5 && track.name == 0) track.name = texts_.add(one.bytes());
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
    taker_.take(track);
  }

  // ---- clocks ----

  static bool is_own(std::uint64_t clock) { return clock >= 64 && clock < 128; }

  void read_clocks(std::string_view message, PerfettoSequence* sequence) {
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
  bool time_of(const Packet& packet, PerfettoSequence* sequence, std::int64_t* ns) {
    std::uint64_t clock = packet.clock != 0 ? packet.clock : sequence->default_clock;
    if (clock == 0) clock = kBootTime;
    auto ticks = static_cast<std::int64_t>(packet.timestamp);
    const std::pair key{is_own(clock) ? sequence_id_ : 0, clock};
    if (last_clock_ == clocks_.end() || last_clock_->first != key) last_clock_ = clocks_.find(key);
    const auto found = last_clock_;
    if (found == clocks_.end()) {
      // All events by one clock need no other.
      if (is_own(clock) || (only_clock_ != 0 && only_clock_ != clock)) {
        ++losses_.without_clock;
        return false;
      }
      only_clock_ = clock;
      *ns = ticks;
      return true;
    }
    if (only_clock_ != 0 && only_clock_ != kBootTime) {
      ++losses_.without_clock;
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

  // Categories that are texts come again and again, one behind the other.
  PerfettoText category_of(std::string_view text) {
    if (text != categories_[0].second) {
      if (text != categories_[1].second) {
        const PerfettoText added = texts_.add(text);
        categories_[1] = {added, texts_[added]};
      }
      std::swap(categories_[0], categories_[1]);
    }
    return categories_[0].first;
  }

  void read_event(const Packet& packet, PerfettoSequence* sequence) {
    PerfettoEvent event;
    event.track = sequence->default_track;
    arguments_.clear(), flows_.clear();
    bool is_missing = false, has_type = false;
    std::uint64_t phase = 0;
    std::int64_t absolute_us = -1;
    WireReader all(packet[Part::event], packet.readable);
    while (all.next()) {
      switch (all.field()) {
        case 3:
          if (event.category == 0) event.category = sequence->categories.look_up(all.number(), &is_missing);
          break;
        case 22:
          if (event.category == 0) event.category = category_of(all.bytes());
          break;
        case 4: read_argument(all.bytes(), all.readable(), sequence, &is_missing); break;
        case 6: phase = read_legacy(all.bytes(), &event, sequence, &is_missing); break;
        case 9:
          has_type = true;
          if (!set_type(all.number(), &event)) return;
          break;
        case 10: event.name = sequence->names.look_up(all.number(), &is_missing); break;
        case 11: event.track = all.number(); break;
        case 16: absolute_us = all.signed_number(); break;
        case 23: event.name = texts_.add(all.bytes()); break;
        case 30: event.value = all.signed_number(); break;
        case 44:
          event.value = std::bit_cast<std::int64_t>(all.real());
          event.is_real = true;
          break;
        case 36:
        case 42:
        case 47:
        case 48:
          if (all.type() != WireType::bytes) flows_.push_back(all.number());
          break;
        case 52: event.correlation = all.number(); break;
        default: break;
      }
    }
    if (all.is_broken() || (!has_type && phase == 0)) {
      ++losses_.broken;
      return;
    }
    if (!has_type && !set_phase(phase, &event)) return;
    if (is_missing && !sequence->is_known) {
      ++losses_.without_names;
      if (event.type != PerfettoEvent::Type::end) return;
    }
    if (absolute_us >= 0) {
      if (__builtin_mul_overflow(absolute_us, 1000, &event.ns)) event.ns = std::numeric_limits<std::int64_t>::max();
    } else if (!packet.has_timestamp) {
      ++losses_.without_clock;
      return;
    } else if (!time_of(packet, sequence, &event.ns)) {
      return;
    }
    taker_.take(event, arguments_, flows_);
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

  static std::uint64_t read_legacy(std::string_view message, PerfettoEvent* event, PerfettoSequence* sequence,
                                   bool* is_missing) {
    std::uint64_t phase = 0;
    for (WireReader all(message); all.next();) {
      if (all.field() == 1) event->name = sequence->names.look_up(all.number(), is_missing);
      if (all.field() == 2) phase = all.number();
      if (all.field() == 3 && __builtin_mul_overflow(all.signed_number(), 1000, &event->value)) event->value = -1;
    }
    return phase;
  }

  void read_argument(std::string_view message, const char* readable, PerfettoSequence* sequence, bool* is_missing) {
    if (const PerfettoArgument* known = known_.find(message)) {
      arguments_.push_back(*known);
      return;
    }
    PerfettoArgument argument;
    bool has_value = false, is_by_number = false;
    for (WireReader all(message, readable); all.next();) {
      using Type = PerfettoArgument::Type;
      const auto set = [&](Type type) {
        argument.type = type;
        has_value = true;
      };
      switch (all.field()) {
        case 1:
          argument.name = sequence->argument_names.look_up(all.number(), is_missing);
          is_by_number = true;
          break;
        case 10: argument.name = texts_.add(all.bytes()); break;
        case 2:
        case 3:
        case 4:
        case 7:
          argument.bits = all.number();
          set(Type::number);
          break;
        case 5:
          argument.bits = std::bit_cast<std::uint64_t>(all.real());
          set(Type::real);
          break;
        case 6:
        case 9:
          argument.bits = texts_.add(all.bytes());
          set(Type::text);
          break;
        case 17:
          argument.bits = sequence->texts.look_up(all.number(), is_missing);
          is_by_number = true;
          set(Type::text);
          break;
        default: break;
      }
    }
    if (!has_value || argument.name == 0) return;
    arguments_.push_back(argument);
    // Numbers are rarely the same again, and those of texts mean another one to another writer.
    if (argument.type == PerfettoArgument::Type::text && !is_by_number) known_.keep(message, argument);
  }

  void read_stage(const Packet& packet, PerfettoSequence* sequence) {
    PerfettoGpuStage stage;
    bool is_missing = false;
    PerfettoText kernel = 0;
    const auto dims = [](std::string_view message) {
      std::array<std::int64_t, 3> size = {1, 1, 1};
      for (WireReader all(message); all.next();) {
        if (all.field() >= 1 && all.field() <= 3) size[all.field() - 1] = all.signed_number();
      }
      return size;
    };
    WireReader all(packet[Part::stage]);
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
          stage.queue_name = sequence->stages.look_up(all.number(), &is_missing);
          break;
        case 14:
          if (stage.name == 0) stage.name = sequence->stages.look_up(all.number(), &is_missing);
          break;
        case 17: stage.name = texts_.add(all.bytes()); break;
        case 19: kernel = sequence->kernels.look_up(all.number(), &is_missing); break;
        case 20: stage.name = sequence->names.look_up(all.number(), &is_missing); break;
        case 21:
          for (WireReader one(all.bytes()); one.next();) {
            if (one.field() == 1) stage.grid = dims(one.bytes());
            if (one.field() == 2) stage.block = dims(one.bytes());
          }
          break;
        default: break;
      }
    }
    if (kernel != 0) stage.name = kernel;
    if (all.is_broken()) {
      ++losses_.broken;
      return;
    }
    if (!packet.has_timestamp) {
      ++losses_.without_clock;
      return;
    }
    if (time_of(packet, sequence, &stage.ns)) taker_.take(stage);
  }

  struct Clock {
    std::int64_t ahead = 0;
    std::uint64_t unit = 1;
    bool is_incremental = false;
  };

  PerfettoTexts& texts_;
  PerfettoTaker& taker_;
  PerfettoLosses losses_;
  std::array<std::pair<PerfettoText, std::string_view>, 2> categories_ = {{{0, ""}, {0, ""}}};  // the last ones
  KnownArguments known_;
  KnownTracks known_tracks_;
  // Both are the event's that is read.
  std::vector<PerfettoArgument> arguments_;
  std::vector<std::uint64_t> flows_;
  std::unordered_map<std::uint64_t, PerfettoSequence> sequences_;
  PerfettoSequence* sequence_ = nullptr;  // the one of the packet before
  std::uint64_t sequence_id_ = 0;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Clock> clocks_;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Clock>::const_iterator last_clock_ = clocks_.end();
  std::uint64_t only_clock_ = 0;  // that all times are by
  std::size_t unpacked_bytes_ = 0;
};

}  // namespace

PerfettoLosses read_perfetto_packets_here(TraceFile& file, PerfettoTexts& texts, PerfettoTaker& taker) {
  return Packets(texts, taker).read(file);
}

}  // namespace paoding::trace
