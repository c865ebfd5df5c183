// SPDX-License-Identifier: Apache-2.0
// One thread's part in reading a JSON trace: from a text, that begins and ends between events, to an EventBlock.
#pragma once

#include "trace/json_events.h"
#include "trace/json_scan.h"

namespace paoding::trace {

class EventParser {
 public:
  /// `text` has kScanPadding zeros behind it; `offset`: where it stands in the content.
  EventParser(std::string_view text, std::uint64_t offset, Names& names, EventBlock& block, Losses& losses)
      : scan_(text.data(), text.data() + text.size()), offset_(offset), names_(names), block_(block), losses_(losses) {}

  enum class Ending {
    between,  // events: the text ended there
    behind,   // the array
    inside,   // of an event
    lost,     // behind something that is no JSON
  };
  struct Array {
    const char* at;
    Ending ending;
  };
  /// From inside of the array of events on.
  Array elements(const char* at);

  /// Puts the counts of the way into the losses.
  void finish();
  const JsonScan& scan() const { return scan_; }
  /// A key and the colon behind it: to the value; nullptr where there is none.
  const char* key(const char* at, std::string_view* key) const;
  /// A value's text, without quotes, to behind it.
  const char* text(const char* at, std::string_view* value) const;
  const char* integer(const char* at, std::int64_t* value, bool* is_one) const;

 private:
  static bool is_flow(char phase) { return phase == 's' || phase == 't' || phase == 'f'; }
  const char* time(const char* at, std::int64_t* ns, bool* is_one) const;
  const char* id(const char* at, Id* id);
  const char* parse(const char* at);
  const char* arguments(const char* at, unsigned* seen);
  const char* argument(const char* at, std::string_view name, unsigned* seen);
  const char* counter(const char* at, std::string_view name);
  bool has_wanted_numbers() const;
  void count_category();
  void keep(ArgKey key, std::uint64_t value);
  const char* drop(const char* at);
  const char* failed();
  bool reaches_end(const char* element) const;
  const char* next_element(const char* at) const;

  const JsonScan scan_;
  const std::uint64_t offset_;
  Names& names_;
  EventBlock& block_;
  Losses& losses_;
  RawEvent event_;
  std::string_view category_;
  const char* open_ = nullptr;                                             // where the event at hand begins
  std::vector<std::pair<std::uint32_t, std::uint64_t>> other_categories_;  // their texts, how many
};

}  // namespace paoding::trace
