// SPDX-License-Identifier: Apache-2.0
// The public profiler: start and stop around the recorder, and the words of the command line.
#include "paoding/profile.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <charconv>
#include <chrono>
#include <deque>
#include <iterator>
#include <map>
#include <new>
#include <optional>
#include <vector>

#include "base/check.h"
#include "profile/page.h"
#include "profile/recorder.h"
#include "profile/report.h"
#include "profile/save.h"

namespace paoding {

namespace {

void check_path(const std::string& path) {
  if (path.empty() || profile::is_saved_as(path)) return;
  fail(ErrorKind::argument,
       "stop_profiler: the path is '{}', needs to end in .json, .json.gz or .pftrace (a timeline), in .paoding (the "
       "recording) or in .html (a page), or to be empty",
       path);
}

void check_page(const std::string& path) {
  if (path.empty() || profile::is_page(path)) return;
  fail(ErrorKind::argument, "stop_profiler: the page's path is '{}', needs to end in .html, or to be empty", path);
}

std::string finish_report(const profile::Trace& trace, State state, Detail detail, SortBy sort, const std::string& path,
                          const ReportLayout& layout, const profile::StepsBeside& beside = {}) {
  const profile::ReportOptions options = profile::report_options(state, detail, sort, layout);
  profile::Measures measures = profile::measure(trace, options);
  measures.beside = beside;
  std::vector<profile::Note> elsewhere;
  for (const std::string& file : {path, layout.page}) {
    const std::string where = profile::save(trace, measures, options, file);
    if (!where.empty()) elsewhere.push_back({where, 0});
  }
  measures.notes.insert(measures.notes.end(), elsewhere.begin(), elsewhere.end());
  return profile::report(measures, options);
}

template <class T>
struct Choice {
  std::string_view name;
  T value;
};

template <class T, std::size_t N>
T parse_choice(std::string_view what, std::string_view text, const Choice<T> (&choices)[N]) {
  const auto same = [](char a, char b) {
    return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
  };
  std::string names;
  for (const Choice<T>& choice : choices) {
    if (std::equal(text.begin(), text.end(), choice.name.begin(), choice.name.end(), same)) return choice.value;
    names += (names.empty() ? "" : ", ") + std::string(choice.name);
  }
  fail(ErrorKind::argument, "profiler: {} is '{}', needs to be one of {}", what, text, names);
}

}  // namespace

void start_profiler(State state, Detail detail) { profile::Recorder::start({.state = state, .detail = detail}); }

std::string stop_profiler(SortBy sort, const std::string& path, const ReportLayout& layout) {
  check_path(path);
  check_page(layout.page);
  const profile::Trace trace = profile::Recorder::stop();
  const profile::RecorderOptions options = profile::Recorder::options();
  return finish_report(trace, options.state, options.detail, sort, path, layout);
}

// Steps as long as they took; of those around the recorded ones, the nearest.
struct Profiler::Beside {
  static constexpr std::size_t kMost = 64, kMostRecorded = std::size_t{1} << 16;
  std::deque<std::int64_t> before;
  std::vector<std::int64_t> recorded, after;

  void add(std::int64_t ns, bool is_recorded) {
    if (is_recorded) {
      if (recorded.size() < kMostRecorded) recorded.push_back(ns);
    } else if (!recorded.empty()) {
      if (after.size() < kMost) after.push_back(ns);
    } else {
      before.push_back(ns);
      if (before.size() > kMost) before.pop_front();
    }
  }
  profile::StepsBeside found() const {
    std::vector<std::int64_t> plain(before.begin(), before.end());
    plain.insert(plain.end(), after.begin(), after.end());
    constexpr std::size_t kLeast = 5;
    if (plain.size() < kLeast || recorded.size() < kLeast) return {};
    return {recorded.size(), plain.size(), profile::median(recorded), profile::median(std::move(plain))};
  }
};

Profiler::Profiler(State state, Detail detail) : state_(state), detail_(detail) {
  profile::Recorder::start({.state = state, .detail = detail});
}

Profiler::~Profiler() {
  if (!is_recording_) return;
  try {
    profile::Recorder::end();
  } catch (const std::exception&) {
    // Somebody else stopped it: there is nothing left to end.
  }
}

void Profiler::end() {
  if (!is_recording_) return;
  recorded_ = std::make_unique<profile::Recorded>(profile::Recorder::end());
  is_recording_ = false;
}

std::string Profiler::stop(SortBy sort, const std::string& path, const ReportLayout& layout) {
  check_path(path);
  check_page(layout.page);
  end();
  return finish_report(trace(), state_, detail_, sort, path, layout,
                       beside_ ? beside_->found() : profile::StepsBeside{});
}

std::string Profiler::html(SortBy sort, const ReportLayout& layout) {
  end();
  const profile::ReportOptions options = profile::report_options(state_, detail_, sort, layout);
  profile::Measures measures = profile::measure(trace(), options);
  if (beside_) measures.beside = beside_->found();
  return profile::page_text(trace(), measures, options);
}

const profile::Trace& Profiler::trace() const {
  if (is_recording_) fail(ErrorKind::argument, "Profiler: the trace is still being recorded, needs stop() first");
  if (trace_ == nullptr) trace_ = std::make_unique<profile::Trace>(recorded_->to_trace());
  return *trace_;
}

namespace {

std::int64_t steady_now() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

}  // namespace

CuptiWindow::CuptiWindow() : recording_(profile::Recorder::begin_cupti()) {}

CuptiWindow::~CuptiWindow() { profile::Recorder::end_cupti(recording_); }

ProfiledSteps::ProfiledSteps(StepWindow window, State state, Detail detail, StepWindow by_cupti)
    : window_(window),
      by_cupti_(by_cupti),
      state_(state),
      detail_(detail),
      beside_(std::make_unique<Profiler::Beside>()) {}

ProfiledSteps::~ProfiledSteps() = default;

void ProfiledSteps::before(std::int64_t step) {
  const bool is_by_cupti = cupti_.has_value();  // which takes what it takes
  if (began_ns_ != 0 && !is_by_cupti) {
    (profiler_ ? profiler_->beside_ : beside_)->add(steady_now() - began_ns_, is_recorded_);
  }
  const auto is_in = [step](const StepWindow& window) { return step >= window.first && step < window.end; };
  if (cupti_ && !is_in(by_cupti_)) cupti_.reset();
  if (!profiler_ && is_in(window_)) {
    profiler_.emplace(state_, detail_);
    profiler_->beside_ = std::move(beside_);
  }
  if (profiler_ && step >= window_.end) {
    cupti_.reset();
    profiler_->end();
  } else if (profiler_ && !cupti_ && is_in(by_cupti_)) {
    cupti_.emplace();
  }
  is_recorded_ = is_in(window_);
  began_ns_ = steady_now();
}

namespace {

// Names that users give are few and come again and again: each thread remembers those that it has said.
template <profile::SpanKind kKind>
profile::SiteId named_site(std::string_view name) {
  thread_local std::map<std::string, profile::SiteId, std::less<>> known;
  if (const auto found = known.find(name); found != known.end()) return found->second;
  const profile::SiteId site = profile::Recorder::add_site({.name = std::string(name), .kind = kKind});
  known.emplace(name, site);
  return site;
}

}  // namespace

struct ProfileRange::Arguments {
  struct One {
    profile::ArgumentId id;
    std::string name;
    std::uint64_t bits;
    std::optional<std::string> text;  // in place of bits
  };
  std::vector<One> all;

  void keep(std::string_view name, profile::ArgumentType type, std::uint64_t bits, std::optional<std::string> text) {
    One one{profile::Recorder::add_argument(std::string(name), type), std::string(name), bits, std::move(text)};
    const auto same = std::ranges::find(all, name, &One::name);
    if (same == all.end()) {
      all.push_back(std::move(one));
    } else {
      *same = std::move(one);
    }
  }
  // In front of the span's own record.
  void record(profile::Ticks start) const {
    for (const One& one : all) {
      const auto bits = one.text ? profile::Recorder::argument_text(*one.text) : one.bits;
      if (bits) profile::Recorder::argument(one.id, *bits, start);
    }
  }
};

ProfileRange::ProfileRange(std::string_view name) : on_(profile::Recorder::active()) {
  if (!on_) return;
  site_ = named_site<profile::SpanKind::range>(name);
  start_ = profile::Recorder::now();
  around_ = profile::Recorder::open_spans().push(site_, 0, start_);
}

ProfileRange::~ProfileRange() {
  if (!on_) return;
  const profile::Ticks end = profile::Recorder::now();
  try {
    if (arguments_ != nullptr) arguments_->record(start_);
  } catch (const std::bad_alloc&) {  // the range goes without them
  }
  profile::Recorder::complete(site_, start_, end);
  profile::Recorder::open_spans().pop(around_);
}

void ProfileRange::keep(std::string_view name, std::int64_t value) {
  if (arguments_ == nullptr) arguments_ = std::make_unique<Arguments>();
  arguments_->keep(name, profile::ArgumentType::integer, static_cast<std::uint64_t>(value), {});
}

void ProfileRange::keep(std::string_view name, double value) {
  if (arguments_ == nullptr) arguments_ = std::make_unique<Arguments>();
  arguments_->keep(name, profile::ArgumentType::real, std::bit_cast<std::uint64_t>(value), {});
}

void ProfileRange::keep(std::string_view name, std::string_view value) {
  if (arguments_ == nullptr) arguments_ = std::make_unique<Arguments>();
  arguments_->keep(name, profile::ArgumentType::text, 0, std::string(value));
}

void profile_instant(std::string_view name) {
  if (profile::Recorder::active()) profile::Recorder::instant(named_site<profile::SpanKind::instant>(name));
}

State parse_state(std::string_view text) {
  static constexpr Choice<State> kStates[] = {{"cpu", State::cpu}, {"gpu", State::gpu}, {"all", State::all}};
  return parse_choice("state", text, kStates);
}

Detail parse_detail(std::string_view text) {
  static constexpr Choice<Detail> kDetails[] = {
      {"op", Detail::op},      {"phases", Detail::phases},   {"instances", Detail::instances},
      {"Default", Detail::op}, {"OpDetail", Detail::phases}, {"AllOpDetail", Detail::instances},
  };
  return parse_choice("detail", text, kDetails);
}

SortBy parse_sort(std::string_view text) {
  static constexpr Choice<SortBy> kSorts[] = {
      {"none", SortBy::none}, {"calls", SortBy::calls},     {"total", SortBy::total}, {"max", SortBy::max},
      {"min", SortBy::min},   {"average", SortBy::average}, {"ave", SortBy::average},
  };
  return parse_choice("sort order", text, kSorts);
}

Nesting parse_nesting(std::string_view text) {
  static constexpr Choice<Nesting> kNestings[] = {{"op", Nesting::op}, {"scope", Nesting::scope}};
  return parse_choice("nesting", text, kNestings);
}

ReportFormat parse_format(std::string_view text) {
  static constexpr Choice<ReportFormat> kFormats[] = {
      {"text", ReportFormat::text}, {"json", ReportFormat::json}, {"csv", ReportFormat::csv}};
  return parse_choice("format", text, kFormats);
}

StepWindow parse_steps(std::string_view text) {
  StepWindow window;
  const auto take = [&](std::string_view part, std::int64_t* to) {
    const auto [end, problem] = std::from_chars(part.data(), part.data() + part.size(), *to);
    return problem == std::errc{} && end == part.data() + part.size() && *to >= 0;
  };
  const std::size_t colon = text.find(':');
  bool is_right = take(text.substr(0, colon), &window.first);
  if (colon == text.npos) {
    window.end = window.first + 1;
  } else {
    is_right = is_right && take(text.substr(colon + 1), &window.end);
  }
  if (is_right && window.first < window.end) return window;
  fail(ErrorKind::argument, "profiler: steps are '{}', needs to be as 2:8, which is steps 2 to 7", text);
}

std::string_view to_string(State state) {
  switch (state) {
    case State::cpu: return "CPU";
    case State::gpu: return "GPU";
    case State::all: return "All";
  }
  return "?";
}

std::string_view to_string(Detail detail) {
  switch (detail) {
    case Detail::op: return "op";
    case Detail::phases: return "phases";
    case Detail::instances: return "instances";
  }
  return "?";
}

std::string_view to_string(SortBy sort) {
  switch (sort) {
    case SortBy::none: return "none";
    case SortBy::calls: return "calls";
    case SortBy::total: return "total";
    case SortBy::max: return "max";
    case SortBy::min: return "min";
    case SortBy::average: return "average";
  }
  return "?";
}

}  // namespace paoding
