// SPDX-License-Identifier: Apache-2.0
#include "trace/perfetto_survey.h"

#include <cctype>
#include <charconv>
#include <utility>

namespace paoding::trace {
namespace {

using namespace profile;

// The kind that paoding's own traces give as the category.
std::optional<SpanKind> own_kind(std::string_view category) {
  for (int kind = 0; kind < kSpanKinds; ++kind) {
    if (to_string(static_cast<SpanKind>(kind)) == category) return static_cast<SpanKind>(kind);
  }
  return {};
}

class PerfettoSurvey final : public PerfettoTaker {
 public:
  explicit PerfettoSurvey(const PerfettoTexts& texts) : texts_(texts) {}

  void take(const PerfettoTrack& track) override { known_.tracks[track.uuid] = track; }
  void take(const PerfettoGpuStage&) override {}
  void take(const PerfettoEvent& event, std::span<const PerfettoArgument>, std::span<const std::uint64_t>) override {
    const auto [before, is_first] = times_.try_emplace(event.track, event.ns);
    known_.is_in_order = known_.is_in_order && event.ns >= before->second;
    before->second = event.ns;
    if (event.type == PerfettoEvent::Type::end || event.type == PerfettoEvent::Type::counter) return;
    has_begin_ = true;
    const PerfettoCategory& facts =
        categories_.of(event.category, [&] { return PerfettoCategory(texts_[event.category]); });
    known_.is_own = known_.is_own && facts.own;
    if (facts.gpu_kind(texts_[event.name])) known_.gpu_works.insert(event.track);
  }
  bool is_done() const override { return false; }

  PerfettoFacts finish() {
    known_.is_all = true;
    known_.is_own = known_.is_own && has_begin_;
    return std::move(known_);
  }

 private:
  const PerfettoTexts& texts_;
  PerfettoFacts known_;
  PerPerfettoText<PerfettoCategory> categories_;
  std::unordered_map<std::uint64_t, std::int64_t> times_;
  bool has_begin_ = false;
};

}  // namespace

bool contains_lowered(std::string_view text, std::string_view part) {
  return std::ranges::search(text, part, {}, [](char c) {
           return std::tolower(static_cast<unsigned char>(c));
         }).size() == part.size();
}

std::optional<std::int64_t> track_number(std::string_view text, std::string_view word) {
  const std::size_t at = text.find(word);
  if (at == text.npos) return {};
  std::size_t digit = at + word.size();
  while (digit < text.size() && (text[digit] == ' ' || text[digit] == '[' || text[digit] == '#')) ++digit;
  std::int64_t number = 0;
  const auto [end, problem] = std::from_chars(text.data() + digit, text.data() + text.size(), number);
  return problem == std::errc{} && number >= 0 && number < 4096 ? std::optional(number) : std::nullopt;
}

PerfettoCategory::PerfettoCategory(std::string_view category)
    : own(own_kind(category)),
      is_copy(contains_lowered(category, "memory_copy") || contains_lowered(category, "memcpy")),
      is_fill(contains_lowered(category, "memset")),
      is_kernel(contains_lowered(category, "kernel")),
      is_op(contains_lowered(category, "cpu_op")),
      is_frame(contains_lowered(category, "python_function")),
      is_range(contains_lowered(category, "annotation") || contains_lowered(category, "marker")) {}

std::optional<SpanKind> PerfettoCategory::gpu_kind(std::string_view name) const {
  if (is_copy || (is_kernel && name.starts_with("Memcpy"))) return SpanKind::memcpy;
  if (is_fill || (is_kernel && name.starts_with("Memset"))) return SpanKind::memset;
  return is_kernel ? std::optional(SpanKind::kernel) : std::nullopt;
}

PerfettoFacts survey_perfetto(TraceFile& file, PerfettoTexts& texts) {
  PerfettoSurvey survey(texts);
  read_perfetto_packets(file, texts, survey);
  return survey.finish();
}

}  // namespace paoding::trace
