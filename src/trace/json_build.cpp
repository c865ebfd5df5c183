// SPDX-License-Identifier: Apache-2.0
#include "trace/json_build.h"

#if __has_include(<malloc.h>)
#include <malloc.h>
#endif
#include <fmt/format.h>

#include <algorithm>

#include "base/one_line.h"
#include "trace/decimal_time.h"
#include "trace/readers.h"

namespace paoding::trace {

using namespace profile;

JsonNames::JsonNames(const JsonEvents& events, TraceSink& sink) : events_(events), sink_(sink) {
  for (const auto& names : events.names) texts_.emplace_back(names->strings.size(), kNone);
  for (std::size_t who = 0; who < events.names.size(); ++who) {
    EventBlock of;
    of.names = static_cast<std::uint32_t>(who);
    std::vector<std::uint32_t>& own = places_.emplace_back();
    for (RawPlace place : events.names[who]->places) {
      for (Id* id : {&place.pid, &place.tid}) {
        if (id->is_text) id->value = text(of, static_cast<std::uint32_t>(id->value));
      }
      own.push_back(number_of(place));
    }
  }
  read_metadata();
}

StringId JsonNames::text(const EventBlock& block, std::uint32_t raw) {
  StringId& id = texts_[block.names][raw];
  if (id == kNone) {
    bool is_clean = true;
    id = sink_.text(unescaped(events_.names[block.names]->strings[raw], &is_clean));
    unclean_ += is_clean ? 0 : 1;
  }
  return id;
}

std::uint32_t JsonNames::number_of(const RawPlace& place) {
  const auto [found, is_new] = numbers_.try_emplace(place, static_cast<std::uint32_t>(all_.size()));
  if (is_new) all_.push_back({place.pid, place.tid, {}, {}});
  return found->second;
}

// Names of processes are those of all their threads.
void JsonNames::read_metadata() {
  struct Less {
    bool operator()(const Id& a, const Id& b) const {
      return std::pair(a.is_text, a.value) < std::pair(b.is_text, b.value);
    }
  };
  std::map<Id, std::string_view, Less> processes;
  for (const EventBlock& block : events_.blocks) {
    for (const RawEvent& event : block.events) {
      if (event.phase != 'M') continue;
      const std::string_view what = raw(block, event.name);
      const std::uint32_t name = EventArgs(block, event).text(ArgKey::name);
      if (name == 0) continue;
      Place& own = all_[place(block, event.place)];
      if (what == "thread_name") own.thread = sink_.trace().text(text(block, name));
      if (what == "process_name") processes[own.pid] = sink_.trace().text(text(block, name));
    }
  }
  for (Place& place : all_) {
    if (const auto found = processes.find(place.pid); found != processes.end()) place.process = found->second;
  }
}

std::string extents(std::string_view list) {
  std::string made;
  for (const char c : list) {
    if (c >= '0' && c <= '9') {
      made += c;
    } else if (c == ',') {
      made += 'x';
    } else if (c != '[' && c != ']' && c != ' ' && c != '\n' && c != '\r' && c != '\t') {
      return "";
    }
  }
  return made;
}

namespace {

// The value behind "key": in an object without others in it; empty where the key is missing.
std::string_view value_of(std::string_view object, std::string_view key) {
  for (std::size_t at = object.find(key); at != object.npos; at = object.find(key, at + 1)) {
    std::size_t value = at + key.size();
    if (at == 0 || object[at - 1] != '"' || value >= object.size() || object[value] != '"') continue;
    value = object.find_first_not_of(" \n\r\t", value + 1);
    if (value == object.npos || object[value] != ':') continue;
    value = object.find_first_not_of(" \n\r\t", value + 1);
    if (value == object.npos) return {};
    if (object[value] == '"') return object.substr(value + 1, object.find('"', value + 1) - value - 1);
    return object.substr(value, object.find_first_of(",} \n\r\t", value) - value);
  }
  return {};
}

}  // namespace

std::vector<Limit> devices_of(std::string_view properties) {
  std::vector<Limit> devices;
  constexpr std::size_t kMostDevices = 1024, kLongest = 100;
  for (std::size_t open = properties.find('{'); open != properties.npos && devices.size() < kMostDevices;) {
    const std::size_t close = properties.find('}', open);
    const std::string_view object = properties.substr(open, close - open);
    const auto count = [&](std::string_view key) {
      constexpr std::int64_t kMost = 1 << 24;
      std::int64_t value = 0;
      return to_whole(value_of(object, key), 0, &value)
                 ? static_cast<std::int32_t>(std::clamp<std::int64_t>(value, 0, kMost))
                 : 0;
    };
    bool is_clean = true;
    Limit device{.device = count("id"),
                 .name = one_line(unescaped(value_of(object, "name").substr(0, kLongest), &is_clean))};
    device.sms = count("numSms");
    device.threads_of_sm = count("maxThreadsPerMultiprocessor");
    device.registers_of_sm = count("regsPerMultiprocessor");
    device.shared_of_sm = count("sharedMemPerMultiprocessor");
    if (!device.name.empty()) devices.push_back(std::move(device));
    if (close == properties.npos) break;
    open = properties.find('{', close);
  }
  return devices;
}

bool is_step_name(std::string_view name, std::string_view* without_number) {
  constexpr std::string_view kKineto = "ProfilerStep#";
  const bool is_one = name.starts_with(kKineto) && name.size() > kKineto.size() &&
                      name.find_first_not_of("0123456789", kKineto.size()) == name.npos;
  if (is_one) *without_number = kKineto.substr(0, kKineto.size() - 1);
  return is_one;
}

void note_losses(const JsonEvents& events, const TraceFile& file, TraceSink& sink) {
  const Losses& l = events.losses;
  const auto kDropped = Note::Kind::dropped, kTimeless = Note::Kind::timeless;
  if (!file.problem().empty()) {
    sink.lose(fmt::format("the file's rest: {}", file.problem()), 1, Note::Kind::other);
  } else if (events.is_cut) {
    sink.lose("the file's rest: it ends in the middle", 1, Note::Kind::other);
  }
  if (l.broken > 0) {
    sink.lose(fmt::format("events that are no JSON, the first at byte {}", l.first_broken), l.broken, kDropped);
  }
  sink.lose("elements of the list of events that are none", l.no_events, kDropped);
  sink.lose("events without a phase", l.incomplete, kDropped);
  sink.lose("events whose time is no number", l.bad_times, kTimeless);
  sink.lose("keys that an event has twice, of which the last counts", l.doubled_keys);
  sink.lose("numbers of launches beyond 32 bits", l.large_numbers);
  for (const auto& [phase, count] : l.phases) sink.lose(fmt::format("events of the unknown phase '{}'", phase), count);
}

bool recognises_json(const TraceFile& file) { return begins_json_trace(file.head()); }

Trace read_json(TraceFile& file) {
  Trace trace;
  {
    JsonEvents events = read_json_events(file);
    trace = is_kineto(events) ? build_kineto(events, file) : build_chrome(events, file);
  }
#if defined(__GLIBC__)
  malloc_trim(0);  // memory that two threads had for the events is of no use to readers of the trace
#endif
  return trace;
}

}  // namespace paoding::trace
