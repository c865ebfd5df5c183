// SPDX-License-Identifier: Apache-2.0
#include "trace/module_scopes.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

namespace paoding::trace {

using profile::StringId;

namespace {
constexpr std::string_view kModule = "nn.Module: ";
}  // namespace

// Stretches within each other, the outer ones first, become one list of what holds from when on.
std::vector<ModuleScopes::Change> ModuleScopes::changes_of(std::vector<Stretch>& stretches, bool as_paths,
                                                           TraceSink& sink) {
  std::ranges::stable_sort(stretches, [](const Stretch& a, const Stretch& b) {
    return a.start != b.start ? a.start < b.start : a.end > b.end;
  });
  std::vector<Change> changes;
  std::vector<Stretch> open;  // with what is around them
  const auto close_until = [&](std::int64_t ns) {
    while (!open.empty() && open.back().end <= ns) {
      const std::int64_t end = open.back().end;
      open.pop_back();
      changes.push_back({end, open.empty() ? StringId{0} : open.back().scope});
    }
  };
  constexpr std::size_t kDeepest = 256;
  for (Stretch stretch : stretches) {
    close_until(stretch.start);
    if (!open.empty()) stretch.end = std::min(stretch.end, open.back().end);
    if (open.size() >= kDeepest) continue;
    if (as_paths && !open.empty()) {
      const std::string path =
          fmt::format("{}/{}", sink.trace().text(open.back().scope), sink.trace().text(stretch.scope));
      stretch.scope = sink.text(path);
    }
    open.push_back(stretch);
    changes.push_back({stretch.start, stretch.scope});
  }
  close_until(std::numeric_limits<std::int64_t>::max());
  return changes;
}

void ModuleScopes::find(const JsonEvents& events, JsonNames& names, TraceSink& sink) {
  std::vector<std::vector<Stretch>> modules(names.places().size());
  bool has_any = false;
  for (const EventBlock& block : events.blocks) {
    for (const RawEvent& event : block.events) {
      if (event.category != Category::python || event.phase != 'X') continue;
      const std::string_view name = names.raw(block, event.name);
      if (!name.starts_with(kModule)) continue;
      const StringId own = sink.text(sink.trace().text(names.text(block, event.name)).substr(kModule.size()));
      modules[names.place(block, event.place)].push_back({event.start_ns, event.start_ns + event.duration_ns, own});
      has_any = true;
    }
  }
  if (!has_any) return;
  by_place_.resize(modules.size());
  for (std::size_t i = 0; i < modules.size(); ++i) by_place_[i] = changes_of(modules[i], true, sink);

  // Gradients have the number of their op, and the thread of that.
  std::unordered_map<std::int64_t, StringId> of_sequence;
  const auto for_each_numbered = [&](bool of_gradients, auto&& take) {
    for (const EventBlock& block : events.blocks) {
      for (const RawEvent& event : block.events) {
        if (event.category != Category::op || event.phase != 'X') continue;
        const EventArgs args(block, event);
        const auto sequence = args.bits(ArgKey::sequence);
        const bool is_gradient = args.integer(ArgKey::forward_thread, 0) != 0;
        if (sequence && is_gradient == of_gradients) take(block, event, static_cast<std::int64_t>(*sequence));
      }
    }
  };
  for_each_numbered(false, [&](const EventBlock& block, const RawEvent& event, std::int64_t sequence) {
    const StringId scope = at(names.place(block, event.place), event.start_ns);
    if (scope != 0) of_sequence[sequence] = scope;
  });
  std::vector<std::vector<Stretch>> gradients(modules.size());
  for_each_numbered(true, [&](const EventBlock& block, const RawEvent& event, std::int64_t sequence) {
    const auto found = of_sequence.find(sequence);
    if (found == of_sequence.end()) return;
    const StringId scope = sink.text(fmt::format("{} (backward)", sink.trace().text(found->second)));
    gradients[names.place(block, event.place)].push_back({event.start_ns, event.start_ns + event.duration_ns, scope});
  });
  for (std::size_t i = 0; i < gradients.size(); ++i) {
    if (by_place_[i].empty()) by_place_[i] = changes_of(gradients[i], false, sink);
  }
}

StringId ModuleScopes::at(std::uint32_t place, std::int64_t ns) const {
  if (place >= by_place_.size()) return 0;
  const std::vector<Change>& changes = by_place_[place];
  const auto behind = std::ranges::upper_bound(changes, ns, {}, &Change::ns);
  return behind == changes.begin() ? 0 : std::prev(behind)->scope;
}

}  // namespace paoding::trace
