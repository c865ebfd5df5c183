// SPDX-License-Identifier: Apache-2.0
// A JSON trace in blocks that are cut between events, which two threads take in turns. Where a cut was not between
// events after all, as only files that are no plain lists of events have it, the file is read once more as one block.
#include <algorithm>
#include <exception>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>

#include "base/check.h"
#include "trace/decimal_time.h"
#include "trace/json_parse.h"

namespace paoding::trace {
namespace {

using Ending = EventParser::Ending;

struct Text {
  std::vector<char> bytes;  // with kScanPadding zeros behind
  std::size_t size = 0;
  std::uint64_t offset = 0;  // in the content
  std::size_t number = 0;    // from 0
  bool is_last = false;
  std::string_view view() const { return {bytes.data(), size}; }
};

// The next text, up to where the last event in it begins; what is behind goes to the text after it.
class Texts {
 public:
  Texts(TraceFile& file, bool as_one) : file_(file), as_one_(as_one) {}

  bool next(Text* text) {
    const std::lock_guard lock(mutex_);
    if (is_over_) return false;
    text->offset = offset_;
    text->number = count_++;
    std::size_t size = rest_.size(), wanted = size + kBytes;
    text->bytes.resize(std::max(text->bytes.size(), wanted + kScanPadding));
    std::copy(rest_.begin(), rest_.end(), text->bytes.begin());
    std::size_t cut = 0;
    for (;;) {
      const std::size_t more = file_.read(text->bytes.data() + size, wanted - size);
      size += more;
      is_over_ = size < wanted;
      cut = is_over_ ? size : as_one_ ? 0 : last_element({text->bytes.data(), size});
      if (cut > 0 || is_over_) break;
      if (!as_one_ && size > kMostOfOne) {
        fail(ErrorKind::file, "{}: nothing in {} MB from byte {} on is an event of a trace", file_.name(),
             kMostOfOne >> 20, offset_);
      }
      wanted = 2 * size;
      text->bytes.resize(wanted + kScanPadding);
    }
    rest_.assign(text->bytes.begin() + static_cast<std::ptrdiff_t>(cut),
                 text->bytes.begin() + static_cast<std::ptrdiff_t>(size));
    std::fill_n(text->bytes.begin() + static_cast<std::ptrdiff_t>(cut), kScanPadding, '\0');
    text->size = cut;
    text->is_last = is_over_;
    offset_ += cut;
    return true;
  }
  void stop() {
    const std::lock_guard lock(mutex_);
    is_over_ = true;
  }
  std::uint64_t bytes() const { return offset_; }

 private:
  static constexpr std::size_t kBytes = std::size_t{1} << 21, kMostOfOne = std::size_t{1} << 28;

  static std::size_t last_element(std::string_view text) {
    for (std::size_t at = text.size(); (at = text.rfind('{', at)) != text.npos && at > 0; --at) {
      if (is_element(text.data(), text.data() + at, text.data() + text.size())) return at;
    }
    return 0;
  }

  TraceFile& file_;
  const bool as_one_;
  std::mutex mutex_;
  std::vector<char> rest_;
  std::uint64_t offset_ = 0;
  std::size_t count_ = 0;
  bool is_over_ = false;
};

struct Parsed {
  EventBlock block;
  Losses losses;
  Ending ending = Ending::between;
  bool is_last = false;
};

// What stands around the events, and those in it.
class Whole {
 public:
  Whole(EventParser& parser, JsonHead& head) : parser_(parser), head_(head) {}

  // From the beginning of the file.
  void begin(const char* at, Parsed* parsed) {
    knows_beginning_ = true;
    if (std::string_view(at, 3) == "\xef\xbb\xbf") at += 3;
    at = JsonScan::space(at);
    if (*at == '[') {
      is_array_ = head_.has_events = true;
      return events(at + 1, parsed);
    }
    parsed->ending = Ending::inside;
    if (*at == '{') keys(at + 1, parsed);
  }
  // From inside of the events.
  void events(const char* at, Parsed* parsed) {
    const EventParser::Array array = parser_.elements(at);
    parsed->ending = array.ending;
    if (array.ending != Ending::behind || is_array_) return;
    at = JsonScan::space(array.at);
    keys(*at == ',' ? at + 1 : at, parsed);
  }

 private:
  // The last brace may be missing in a block that does not know whether the file begins with one.
  void keys(const char* at, Parsed* parsed) {
    parsed->ending = Ending::inside;
    for (;;) {
      at = JsonScan::space(at);
      if (*at == '}' || (at >= parser_.scan().end() && !knows_beginning_)) {
        parsed->ending = Ending::behind;
        return;
      }
      std::string_view key, value;
      at = parser_.key(at, &key);
      if (at == nullptr) return;
      if (key == "traceEvents" && *at == '[') {
        head_.has_events = true;
        return events(at + 1, parsed);
      }
      at = parser_.text(at, &value);
      if (at == nullptr) return;
      take(key, value);
      at = JsonScan::space(at);
      if (*at == ',') ++at;
    }
  }

  void take(std::string_view key, std::string_view value) {
    if (key == "schemaVersion") head_.has_schema = true;
    if (key == "distributedInfo") head_.distributed_info = value;
    if (key == "deviceProperties") head_.device_properties = value;
    if (key == "displayTimeUnit") head_.display_time_unit = value;
    if (key == "baseTimeNanoseconds") to_whole(value, 0, &head_.base_time_ns);
    if (key == "metadata" && value.find("highres-ticks") != value.npos) head_.has_jax_metadata = true;
  }

  EventParser& parser_;
  JsonHead& head_;
  bool is_array_ = false, knows_beginning_ = false;
};

class Blocks {
 public:
  Blocks(TraceFile& file, JsonEvents& to, bool as_one) : file_(file), to_(to), texts_(file, as_one) {}

  // False where a cut was none.
  bool read() {
    const std::size_t threads = file_.stored_bytes() > kWorthTwo ? 2 : 1;
    for (std::size_t i = 0; i < threads; ++i) to_.names.push_back(std::make_unique<Names>());
    {
      std::jthread other;
      if (threads == 2) {
        try {
          other = std::jthread([this] { work(1); });
        } catch (const std::system_error&) {  // no more threads are to be had: one does it all
        }
      }
      work(0);
    }
    if (problem_) std::rethrow_exception(problem_);
    return take();
  }

 private:
  static constexpr std::uint64_t kWorthTwo = std::uint64_t{1} << 20;

  void work(std::uint32_t who) {
    try {
      Text text;
      EventBlock scratch;
      while (texts_.next(&text)) {
        scratch.events.clear(), scratch.arg_keys.clear(), scratch.arg_values.clear();
        Parsed parsed;
        parsed.is_last = text.is_last;
        EventParser parser(text.view(), text.offset, *to_.names[who], scratch, parsed.losses);
        JsonHead head;
        Whole whole(parser, head);
        if (text.number == 0) {
          whole.begin(text.bytes.data(), &parsed);
        } else {
          whole.events(text.bytes.data(), &parsed);
        }
        parser.finish();
        if (text.number == 0 && text.is_last && !head.has_events) {
          fail(ErrorKind::file, "{}: it begins as JSON, but has no events of a trace (traceEvents, or an array)",
               file_.name());
        }
        parsed.block.names = who;
        parsed.block.events = {scratch.events.begin(), scratch.events.end()};
        parsed.block.arg_keys = {scratch.arg_keys.begin(), scratch.arg_keys.end()};
        parsed.block.arg_values = {scratch.arg_values.begin(), scratch.arg_values.end()};
        const std::lock_guard lock(mutex_);
        if (blocks_.size() <= text.number) blocks_.resize(text.number + 1);
        if (!text.is_last && parsed.ending != Ending::between && parsed.ending != Ending::lost) texts_.stop();
        blocks_[text.number] = std::move(parsed);
        if (text.number == 0 || text.is_last) add_head(std::move(head), text.number == 0);
      }
    } catch (...) {
      texts_.stop();
      const std::lock_guard lock(mutex_);
      if (!problem_) problem_ = std::current_exception();
    }
  }

  // The last one's keys stand behind the events.
  void add_head(JsonHead head, bool is_first) {
    JsonHead& all = to_.head;
    const auto set = [is_first](std::string& to, std::string& from) {
      if (!from.empty() && (to.empty() || !is_first)) to = std::move(from);
    };
    set(all.distributed_info, head.distributed_info);
    set(all.device_properties, head.device_properties);
    set(all.display_time_unit, head.display_time_unit);
    if (head.base_time_ns != 0 && (all.base_time_ns == 0 || !is_first)) all.base_time_ns = head.base_time_ns;
    all.has_schema = all.has_schema || head.has_schema;
    all.has_jax_metadata = all.has_jax_metadata || head.has_jax_metadata;
    all.has_events = all.has_events || head.has_events;
  }

  bool take() {
    for (std::size_t i = 0; i < blocks_.size(); ++i) {
      const Parsed& parsed = blocks_[i];
      const bool is_clean = parsed.ending == Ending::between || parsed.ending == Ending::lost;
      if (i + 1 < blocks_.size() ? !is_clean : !parsed.is_last) return false;
    }
    for (Parsed& parsed : blocks_) {
      to_.losses.add(parsed.losses);
      to_.blocks.push_back(std::move(parsed.block));
    }
    to_.is_cut = !blocks_.empty() && blocks_.back().ending != Ending::behind;
    return true;
  }

  TraceFile& file_;
  JsonEvents& to_;
  Texts texts_;
  std::mutex mutex_;
  std::vector<Parsed> blocks_;  // by number
  std::exception_ptr problem_;
};

}  // namespace

bool begins_json_trace(std::string_view head) {
  if (head.starts_with("\xef\xbb\xbf")) head.remove_prefix(3);
  const std::size_t at = head.find_first_not_of(" \n\r\t");
  if (at == head.npos) return false;
  if (head[at] == '{') return true;
  const std::size_t next = head.find_first_not_of(" \n\r\t", at + 1);
  return head[at] == '[' && (next == head.npos || head[next] == '{' || head[next] == ']');
}

JsonEvents read_json_events(TraceFile& file) {
  JsonEvents events;
  if (Blocks(file, events, false).read()) return events;
  events = {};
  file.rewind();
  Blocks(file, events, true).read();
  return events;
}

}  // namespace paoding::trace
