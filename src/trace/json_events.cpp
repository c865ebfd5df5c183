// SPDX-License-Identifier: Apache-2.0
// One event after the other, key by key; a text is looked at once.
#include <bit>
#include <charconv>

#include "trace/decimal_time.h"
#include "trace/json_parse.h"

namespace paoding::trace {

std::uint32_t Names::place(const RawPlace& place) {
  if (last_place < places.size() && places[last_place] == place) return last_place;
  const auto [found, is_new] = place_numbers.try_emplace(place, static_cast<std::uint32_t>(places.size()));
  if (is_new) places.push_back(place);
  return last_place = found->second;
}

void Losses::add(const Losses& more) {
  if (more.broken > 0 && (broken == 0 || more.first_broken < first_broken)) first_broken = more.first_broken;
  broken += more.broken;
  no_events += more.no_events;
  incomplete += more.incomplete;
  bad_times += more.bad_times;
  doubled_keys += more.doubled_keys;
  flows += more.flows;
  large_numbers += more.large_numbers;
  for (const auto& [phase, count] : more.phases) phases[phase] += count;
  for (const auto& [category, count] : more.categories) categories[category] += count;
}

namespace {

bool is(std::string_view text, std::string_view word) { return text == word; }

Category category_of(std::string_view text) {
  switch (text.size()) {
    case 5:
      if (is(text, "Trace")) return Category::trace;
      break;
    case 6:
      if (is(text, "cpu_op")) return Category::op;
      if (is(text, "kernel") || is(text, "Kernel")) return Category::kernel;
      if (is(text, "Memcpy") || is(text, "memcpy")) return Category::memcpy;
      if (is(text, "Memset") || is(text, "memset")) return Category::memset;
      break;
    case 7:
      if (is(text, "Runtime")) return Category::runtime;
      break;
    case 8:
      if (is(text, "Operator")) return Category::op;
      if (is(text, "overhead")) return Category::overhead;
      break;
    case 9:
      if (is(text, "cuda_sync")) return Category::sync;
      break;
    case 10:
      if (is(text, "gpu_memcpy")) return Category::memcpy;
      if (is(text, "gpu_memset")) return Category::memset;
      break;
    case 11:
      if (is(text, "cuda_driver")) return Category::runtime;
      break;
    case 12:
      if (is(text, "cuda_runtime")) return Category::runtime;
      break;
    case 15:
      if (is(text, "user_annotation")) return Category::annotation;
      if (is(text, "python_function")) return Category::python;
      break;
    case 17:
      if (is(text, "cpu_instant_event")) return Category::memory;
      break;
    case 19:
      if (is(text, "gpu_user_annotation")) return Category::gpu_annotation;
      break;
    default: break;
  }
  return Category::other;
}

enum class ArgKind : std::uint8_t { none, integer, real, text, external, correlation };

struct Wanted {
  ArgKind shape = ArgKind::none;
  ArgKey key = ArgKey::name;
};

// Which of an event's arguments are read.
Wanted wanted(std::string_view key) {
  constexpr auto kInteger = ArgKind::integer, kText = ArgKind::text;
  switch (key.size()) {
    case 2:
      if (is(key, "op")) return {kText, ArgKey::op};
      break;
    case 4:
      if (is(key, "grid")) return {kText, ArgKey::grid};
      if (is(key, "name")) return {kText, ArgKey::name};
      break;
    case 5:
      if (is(key, "block")) return {kText, ArgKey::block};
      if (is(key, "bytes") || is(key, "Bytes")) return {kInteger, ArgKey::bytes};
      if (is(key, "tf_op")) return {kText, ArgKey::tf_op};
      break;
    case 6:
      if (is(key, "device")) return {kInteger, ArgKey::device};
      if (is(key, "stream")) return {kInteger, ArgKey::stream};
      if (is(key, "hlo_op")) return {kText, ArgKey::hlo_op};
      break;
    case 8:
      if (is(key, "step_num")) return {kInteger, ArgKey::step};
      break;
    case 9:
      if (is(key, "Device Id")) return {kInteger, ArgKey::device};
      break;
    case 10:
      if (is(key, "Input Dims") || is(key, "Input dims")) return {kText, ArgKey::shapes};
      if (is(key, "Input type")) return {kText, ArgKey::types};
      if (is(key, "hlo_module")) return {kText, ArgKey::hlo_module};
      break;
    case 11:
      if (is(key, "External id") || is(key, "external id")) return {ArgKind::external, {}};
      if (is(key, "correlation")) return {ArgKind::correlation, {}};
      if (is(key, "Device Type")) return {kInteger, ArgKey::device_type};
      break;
    case 13:
      if (is(key, "Fwd thread id")) return {kInteger, ArgKey::forward_thread};
      if (is(key, "shared memory")) return {kInteger, ArgKey::shared};
      break;
    case 14:
      if (is(key, "cuda_sync_kind")) return {kText, ArgKey::sync_kind};
      if (is(key, "wait_on_stream")) return {kInteger, ArgKey::event_stream};
      if (is(key, "kernel_details") || is(key, "memcpy_details")) return {kText, ArgKey::details};
      if (is(key, "correlation_id")) return {ArgKind::correlation, {}};
      if (is(key, "Total Reserved")) return {kInteger, ArgKey::reserved};
      break;
    case 15:
      if (is(key, "Sequence number")) return {kInteger, ArgKey::sequence};
      if (is(key, "Total Allocated")) return {kInteger, ArgKey::allocated};
      if (is(key, "Collective name")) return {kText, ArgKey::collective};
      if (is(key, "Concrete Inputs")) return {kText, ArgKey::concrete};
      break;
    case 20:
      if (is(key, "registers per thread")) return {kInteger, ArgKey::registers};
      break;
    case 25:
      if (is(key, "est. achieved occupancy %")) return {ArgKind::real, ArgKey::occupancy};
      break;
    case 33:
      if (is(key, "wait_on_cuda_event_record_corr_id")) return {kInteger, ArgKey::event_record};
      break;
    default: break;
  }
  return {};
}

constexpr std::uint64_t kMostNs = std::uint64_t{1} << 61;  // sums of two are times still

// Bits of the keys that an event has had.
enum Seen : unsigned {
  kPhase = 1,
  kCategory = 2,
  kName = 4,
  kPid = 8,
  kTid = 16,
  kStart = 32,
  kDuration = 64,
  kArgs = 128,
  kExternal = 256,
  kCorrelation = 512
};

}  // namespace

const char* EventParser::key(const char* at, std::string_view* key) const {
  if (*at != '"') return nullptr;
  const char* close = scan_.string(at + 1);
  if (close == nullptr) return nullptr;
  *key = {at + 1, static_cast<std::size_t>(close - at - 1)};
  at = JsonScan::space(close + 1);
  return *at == ':' ? JsonScan::space(at + 1) : nullptr;
}

const char* EventParser::text(const char* at, std::string_view* value) const {
  const char* behind = scan_.value(at);
  if (behind == nullptr) return nullptr;
  const bool is_quoted = *at == '"';
  *value = {at + (is_quoted ? 1 : 0), static_cast<std::size_t>(behind - at) - (is_quoted ? 2 : 0)};
  return behind;
}

const char* EventParser::integer(const char* at, std::int64_t* value, bool* is_one) const {
  const char* p = at;
  const bool is_quoted = *p == '"';
  if (is_quoted) ++p;
  const bool is_negative = *p == '-';
  if (is_negative) ++p;
  std::uint64_t number = 0;
  const char* digits = p;
  while (JsonScan::is_digit(*p)) number = number * 10 + static_cast<std::uint64_t>(*p++ - '0');
  const bool ends_well = is_quoted ? *p == '"' : (*p == ',' || *p == '}' || JsonScan::is_space(*p));
  if (p != digits && p - digits < 19 && ends_well) {
    *value = is_negative ? -static_cast<std::int64_t>(number) : static_cast<std::int64_t>(number);
    *is_one = true;
    return is_quoted ? p + 1 : p;
  }
  std::string_view all;
  const char* behind = text(at, &all);
  *is_one = behind != nullptr && to_whole(all, 0, value);
  return behind;
}

const char* EventParser::time(const char* at, std::int64_t* ns, bool* is_one) const {
  const char* p = at;
  std::uint64_t number = 0;
  while (JsonScan::is_digit(*p)) number = number * 10 + static_cast<std::uint64_t>(*p++ - '0');
  const auto digits = p - at;
  int decimals = 0;
  if (*p == '.') {
    for (++p; decimals < 3 && JsonScan::is_digit(*p); ++decimals) {
      number = number * 10 + static_cast<std::uint64_t>(*p++ - '0');
    }
  }
  const bool ends_well = *p == ',' || *p == '}' || JsonScan::is_space(*p);
  if (digits > 0 && digits < 17 && ends_well) {
    static constexpr std::uint64_t kTens[] = {1000, 100, 10, 1};
    number *= kTens[decimals];
    *is_one = number < kMostNs;
    *ns = *is_one ? static_cast<std::int64_t>(number) : 0;
    return p;
  }
  std::string_view all;
  const char* behind = text(at, &all);
  *is_one = behind != nullptr && to_ns(all, ns) && *ns < static_cast<std::int64_t>(kMostNs) &&
            *ns > -static_cast<std::int64_t>(kMostNs);
  return behind;
}

const char* EventParser::id(const char* at, Id* id) {
  bool is_number = false;
  *id = {};  // of a key that comes twice
  if (*at != '"') {
    const char* behind = integer(at, &id->value, &is_number);
    if (behind == nullptr || is_number) return behind;
  }
  std::string_view all;
  const char* behind = text(at, &all);
  if (behind == nullptr) return nullptr;
  if (to_whole(all, 0, &id->value)) return behind;
  *id = {names_.strings.add(all), true};
  return behind;
}

void EventParser::keep(ArgKey key, std::uint64_t value) {
  if (event_.args == 0xff) return;
  ++event_.args;
  block_.arg_keys.push_back(key);
  block_.arg_values.push_back(value);
}

const char* EventParser::arguments(const char* at, unsigned* seen) {
  if (*at != '{') return scan_.value(at);
  at = JsonScan::space(at + 1);
  if (*at == '}') return at + 1;
  for (;;) {
    std::string_view name;
    at = key(at, &name);
    if (at == nullptr) return nullptr;
    at = event_.phase == 'C' ? counter(at, name) : argument(at, name, seen);
    if (at == nullptr) return nullptr;
    at = JsonScan::space(at);
    if (*at == '}') return at + 1;
    if (*at != ',') return nullptr;
    at = JsonScan::space(at + 1);
  }
}

const char* EventParser::counter(const char* at, std::string_view name) {
  std::int64_t value = 0;
  bool is_one = false;
  const char* behind = integer(at, &value, &is_one);
  if (is_one) {
    keep(ArgKey::counter, names_.strings.add(name));
    keep(ArgKey::counter_value, static_cast<std::uint64_t>(value));
  }
  return behind;
}

const char* EventParser::argument(const char* at, std::string_view name, unsigned* seen) {
  const Wanted want = wanted(name);
  if (want.key == ArgKey::concrete && want.shape == ArgKind::text && !has_wanted_numbers()) return scan_.value(at);
  std::string_view all;
  std::int64_t value = 0;
  bool is_one = false;
  const auto see = [&](unsigned bit) {
    if ((*seen & bit) != 0) ++losses_.doubled_keys;
    *seen |= bit;
  };
  switch (want.shape) {
    case ArgKind::none: return scan_.value(at);
    case ArgKind::text:
      at = text(at, &all);
      if (at != nullptr) keep(want.key, names_.strings.add(all));
      return at;
    case ArgKind::integer:
      at = integer(at, &value, &is_one);
      if (is_one) keep(want.key, static_cast<std::uint64_t>(value));
      return at;
    case ArgKind::real: {
      at = text(at, &all);
      double real = 0;
      if (at != nullptr && std::from_chars(all.data(), all.data() + all.size(), real).ec == std::errc{}) {
        keep(want.key, std::bit_cast<std::uint64_t>(real));
      }
      return at;
    }
    case ArgKind::external:
    case ArgKind::correlation: {
      see(want.shape == ArgKind::external ? kExternal : kCorrelation);
      at = integer(at, &value, &is_one);
      if (!is_one) return at;
      if (want.shape == ArgKind::external) return at;  // the op's number, which says no more than where the call stands
      if (value < 0 || value > 0xffffffff) {
        ++losses_.large_numbers;
        value = 0;
      }
      event_.correlation = static_cast<std::uint32_t>(value);
      return at;
    }
  }
  return nullptr;
}

// The strides of a convolution and whether attention is causal are all that is asked for.
bool EventParser::has_wanted_numbers() const {
  if (event_.category != Category::op) return false;
  const std::string_view name = names_.strings[event_.name];
  return name.find("conv") != name.npos || name.find("attention") != name.npos;
}

const char* EventParser::parse(const char* at) {
  event_ = RawEvent{.args_begin = static_cast<std::uint32_t>(block_.arg_keys.size())};
  RawPlace place;
  unsigned seen = 0;
  const char* arguments_at = nullptr;
  bool has_bad_time = false;
  at = JsonScan::space(at + 1);
  while (*at != '}') {
    std::string_view name;
    at = key(at, &name);
    if (at == nullptr) return failed();
    unsigned bit = 0;
    bool is_one = true;
    std::string_view all;
    switch (name.size()) {
      case 2:
        if (is(name, "ph")) {
          bit = kPhase;
          at = text(at, &all);
          event_.phase = all.empty() ? '\0' : all[0];
          if (at != nullptr && is_flow(event_.phase)) {
            ++losses_.flows;
            return drop(scan_.value(open_));
          }
        } else if (is(name, "ts")) {
          bit = kStart;
          at = time(at, &event_.start_ns, &is_one);
          event_.has_start = is_one;
        } else {
          at = scan_.value(at);
        }
        break;
      case 3:
        if (is(name, "cat")) {
          bit = kCategory;
          at = text(at, &all);
          event_.category = category_of(all);
          category_ = all;
        } else if (is(name, "pid")) {
          bit = kPid;
          at = id(at, &place.pid);
        } else if (is(name, "tid")) {
          bit = kTid;
          at = id(at, &place.tid);
        } else if (is(name, "dur")) {
          bit = kDuration;
          at = time(at, &event_.duration_ns, &is_one);
        } else {
          at = scan_.value(at);
        }
        break;
      case 4:
        if (is(name, "name")) {
          bit = kName;
          at = text(at, &all);
          if (at != nullptr) event_.name = names_.strings.add(all);
        } else if (is(name, "args")) {
          bit = kArgs;
          arguments_at = event_.phase == '\0' ? at : nullptr;
          at = event_.phase == '\0' ? scan_.value(at) : arguments(at, &seen);
        } else {
          at = scan_.value(at);
        }
        break;
      default: at = scan_.value(at);
    }
    if (at == nullptr) return failed();
    has_bad_time = has_bad_time || !is_one;
    if ((seen & bit) != 0) ++losses_.doubled_keys;
    seen |= bit;
    at = JsonScan::space(at);
    if (*at == ',') {
      at = JsonScan::space(at + 1);
    } else if (*at != '}') {
      return failed();
    }
  }
  if (arguments_at != nullptr && !is_flow(event_.phase)) arguments(arguments_at, &seen);
  ++at;
  if (event_.phase == '\0') {
    losses_.incomplete += seen != 0 ? 1 : 0;  // XLA ends its list by {}
    return drop(at);
  }
  if (is_flow(event_.phase)) {
    ++losses_.flows;
    return drop(at);
  }
  if (has_bad_time) {
    ++losses_.bad_times;
    return drop(at);
  }
  if (event_.category == Category::other) count_category();
  event_.place = names_.place(place);
  block_.events.push_back(event_);
  return at;
}

// An event that is left out.
const char* EventParser::drop(const char* at) {
  block_.arg_keys.resize(event_.args_begin);
  block_.arg_values.resize(event_.args_begin);
  return at;
}

const char* EventParser::failed() { return drop(nullptr); }

void EventParser::count_category() {
  const std::uint32_t text = names_.strings.add(category_);
  for (auto& [known, count] : other_categories_) {
    if (known == text) return ++count, void();
  }
  other_categories_.emplace_back(text, 1);
}

void EventParser::finish() {
  for (const auto& [text, count] : other_categories_) {
    constexpr std::size_t kLongest = 100;
    losses_.categories[std::string(names_.strings[text].substr(0, kLongest))] += count;
  }
  other_categories_.clear();
}

EventParser::Array EventParser::elements(const char* at) {
  for (;;) {
    at = JsonScan::space(at);
    if (*at == '{') {
      open_ = at;
      const char* behind = parse(at);
      if (behind == nullptr) {
        if (reaches_end(at)) return {scan_.end(), Ending::inside};
        ++losses_.broken;
        if (losses_.broken == 1) losses_.first_broken = offset_ + static_cast<std::uint64_t>(at - scan_.begin());
        at = next_element(at + 1);
        if (at == nullptr) return {scan_.end(), Ending::lost};
        continue;
      }
      at = behind;
    } else if (*at == ']') {
      return {at + 1, Ending::behind};
    } else if (at >= scan_.end()) {
      return {at, Ending::between};
    } else if (*at == ',') {
      ++at;
      continue;
    } else {
      ++losses_.no_events;
      const char* behind = scan_.value(at);
      if (behind == nullptr) behind = next_element(at + 1);
      if (behind == nullptr) return {scan_.end(), Ending::inside};
      at = behind;
    }
  }
}

// Whether the element that failed goes on to the end of the text, as it does where that is cut off.
bool EventParser::reaches_end(const char* element) const {
  return next_element(element + 1) == nullptr && scan_.value(element) == nullptr;
}

const char* EventParser::next_element(const char* at) const {
  for (; at < scan_.end(); ++at) {
    at = static_cast<const char*>(std::memchr(at, '{', static_cast<std::size_t>(scan_.end() - at)));
    if (at == nullptr) return nullptr;
    if (is_element(scan_.begin(), at, scan_.end())) return at;
  }
  return nullptr;
}

}  // namespace paoding::trace
