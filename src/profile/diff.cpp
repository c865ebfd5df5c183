// SPDX-License-Identifier: Apache-2.0
#include "profile/diff.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <set>
#include <tuple>

#include "base/check.h"
#include "base/one_line.h"

namespace paoding::profile {

namespace {

constexpr double kFalseParts = 0.05;  // expected share of parts that are wrongly believed to have changed

double mean(const std::vector<double>& numbers) {
  return numbers.empty() ? 0
                         : std::accumulate(numbers.begin(), numbers.end(), 0.0) / static_cast<double>(numbers.size());
}

// The parts of all processes of a side, and what each process took for each.
struct SideParts {
  std::vector<StepPart> parts;
  std::vector<std::vector<double>> ns;
  std::vector<double> calls;
};

SideParts parts_of_side(const std::vector<ProcessSteps>& processes) {
  SideParts side;
  std::map<std::tuple<bool, std::string, std::string, std::string, std::int64_t, double>, std::size_t> numbers;
  for (std::size_t p = 0; p < processes.size(); ++p) {
    for (const StepPart& part : processes[p].parts) {
      const auto key = std::tuple(part.is_op, part.scope, part.name, part.shape, part.bytes, part.flops);
      const auto [found, is_new] = numbers.try_emplace(key, side.parts.size());
      if (is_new) {
        side.parts.push_back(part);
        side.ns.emplace_back(processes.size(), 0.0);
        side.calls.push_back(0);
      }
      StepPart& known = side.parts[found->second];
      for (const std::string& kernel : part.kernels) {
        if (std::ranges::find(known.kernels, kernel) == known.kernels.end()) known.kernels.push_back(kernel);
      }
      side.ns[found->second][p] += part.ns;
      side.calls[found->second] += part.calls / static_cast<double>(processes.size());
    }
  }
  return side;
}

std::string names_of(const SideParts& side, const std::vector<std::size_t>& numbers) {
  constexpr std::size_t kMostNames = 4;
  std::string names;
  for (std::size_t i = 0; i < numbers.size() && i < kMostNames; ++i) {
    names += (i == 0 ? "" : ", ") + side.parts[numbers[i]].name;
  }
  return names + (numbers.size() > kMostNames ? ", .." : "");
}

std::string size_of(const StepPart& part) {
  if (!part.shape.empty()) return part.shape;
  if (part.bytes > 0 || part.flops <= 0) return fmt::format("{} bytes", part.bytes);
  return fmt::format("{:.4g} operations", part.flops);
}

std::string kernel_note(const SideParts& a, const SideParts& b, const AlignedParts& row) {
  std::set<std::string> of_a, of_b;
  for (const std::size_t i : row.a) of_a.insert(a.parts[i].kernels.begin(), a.parts[i].kernels.end());
  for (const std::size_t i : row.b) of_b.insert(b.parts[i].kernels.begin(), b.parts[i].kernels.end());
  if (of_a.empty() || of_b.empty() || of_a == of_b) return "";
  const auto first_of = [](const std::set<std::string>& own, const std::set<std::string>& other) {
    const auto found = std::ranges::find_if(own, [&](const auto& name) { return !other.contains(name); });
    return found == own.end() ? *own.begin() : *found;
  };
  return fmt::format("kernel {}, was {}", first_of(of_b, of_a), first_of(of_a, of_b));
}

std::string note_of(const SideParts& a, const SideParts& b, const AlignedParts& row) {
  std::string note;
  switch (row.how) {
    case Alignment::same: break;
    case Alignment::resized:
      note = fmt::format("was {}, is {}", size_of(a.parts[row.a[0]]), size_of(b.parts[row.b[0]]));
      break;
    case Alignment::renamed: note = fmt::format("was in '{}'", a.parts[row.a[0]].scope); break;
    case Alignment::fused: note = fmt::format("fused from {}: {}", row.a.size(), names_of(a, row.a)); break;
    case Alignment::split: note = fmt::format("split into {}: {}", row.b.size(), names_of(b, row.b)); break;
    case Alignment::regrouped: note = fmt::format("was {}", names_of(a, row.a)); break;
    case Alignment::vanished: note = "vanished"; break;
    case Alignment::appeared: note = "new"; break;
  }
  const std::string kernels = row.a.empty() || row.b.empty() ? "" : kernel_note(a, b, row);
  return note + (note.empty() || kernels.empty() ? "" : "; ") + kernels;
}

std::vector<double> sum_of(const SideParts& side, const std::vector<std::size_t>& numbers, std::size_t processes) {
  std::vector<double> sums(processes, 0.0);
  for (const std::size_t i : numbers) {
    for (std::size_t p = 0; p < processes; ++p) sums[p] += side.ns[i][p];
  }
  return sums;
}

void add_parts(Diff& diff, const DiffInput& input) {
  const SideParts a = parts_of_side(input.a.steps), b = parts_of_side(input.b.steps);
  std::vector<double> p_values;
  std::vector<DiffedPart> parts;
  for (const AlignedParts& row : align(a.parts, b.parts)) {
    // Of fused ops the name is what they are now, of split ones what they were.
    const bool is_named_by_a = row.b.empty() || row.how == Alignment::split;
    const StepPart& named = is_named_by_a ? a.parts[row.a[0]] : b.parts[row.b[0]];
    const std::vector<double> of_a = sum_of(a, row.a, input.a.steps.size());
    const std::vector<double> of_b = sum_of(b, row.b, input.b.steps.size());
    DiffedPart part{.scope = named.scope,
                    .name = named.name,
                    .is_op = named.is_op,
                    .how = row.how,
                    .note = note_of(a, b, row),
                    .a = mean(of_a),
                    .b = mean(of_b),
                    .a_calls = 0,
                    .b_calls = 0};
    for (const std::size_t i : row.a) part.a_calls += a.calls[i];
    for (const std::size_t i : row.b) part.b_calls += b.calls[i];
    (part.is_op ? diff.by_ops : diff.by_others) += part.change();
    if (part.change() == 0 && part.how == Alignment::same && part.note.empty()) {
      diff.parts_alike += 1;
      continue;
    }
    p_values.push_back(welch_p(of_a, of_b));
    parts.push_back(std::move(part));
  }
  const std::vector<bool> believed = discoveries(p_values, kFalseParts);
  for (std::size_t i = 0; i < parts.size(); ++i) parts[i].is_certain = believed[i];
  std::ranges::stable_sort(
      parts, [](const DiffedPart& x, const DiffedPart& y) { return std::abs(x.change()) > std::abs(y.change()); });
  diff.parts = std::move(parts);
  diff.change = mean(input.rows[0].b) - mean(input.rows[0].a);
  diff.unexplained = diff.change - diff.by_ops - diff.by_others;
}

Verdict worst(const std::vector<DiffRow>& rows) {
  for (const Verdict one : {Verdict::slower, Verdict::inconclusive, Verdict::faster}) {
    if (std::ranges::any_of(rows, [&](const DiffRow& row) { return row.time.verdict == one; })) return one;
  }
  return Verdict::same;
}

// Whether all of one side were measured in front of all of the other.
bool is_one_after_the_other(const std::vector<Measured>& in_order) {
  std::size_t changes = 0;
  for (std::size_t i = 1; i < in_order.size(); ++i) changes += in_order[i].is_b != in_order[i - 1].is_b;
  return in_order.size() > 2 && changes == 1;
}

void add_notes(Diff& diff, const DiffInput& input) {
  const auto note = [&](std::string text) { diff.notes.push_back(std::move(text)); };
  if (std::ranges::any_of(diff.rows, [](const DiffRow& row) { return row.time.is_spread_assumed; })) {
    note(
        fmt::format("one process a side says nothing of the spread between processes: {:.3g}% are assumed; five a side "
                    "would tell",
                    100 * diff.options.rule.assumed_spread));
  }
  if (!input.rows.empty() && is_one_after_the_other(input.rows[0].in_order)) {
    note("all of one side ran before all of the other: what changed on the machine meanwhile is in the difference");
  }
  std::uint64_t lost = 0;
  std::size_t warm_up = 0, processes = 0;
  for (const DiffSide* side : {&input.a, &input.b}) {
    for (const ProcessSteps& steps : side->steps) lost += steps.lost, warm_up += steps.warm_up, processes += 1;
  }
  if (lost > 0) note(fmt::format("{} records are missing: what they were of is in no op", lost));
  if (warm_up > 0)
    note(fmt::format("{} first steps of {} processes were left out: they warmed up", warm_up, processes));
  const auto counts = [](const DiffSide& side) {
    std::set<std::size_t> all;
    for (const ProcessSteps& steps : side.steps) all.insert(steps.ns.size() + steps.warm_up);
    return all;
  };
  const std::set<std::size_t> of_a = counts(input.a), of_b = counts(input.b);
  if (!of_a.empty() && !of_b.empty() && of_a != of_b) {
    note(fmt::format("A has {} steps a process, B {}", fmt::join(of_a, ", "), fmt::join(of_b, ", ")));
  }
}

}  // namespace

DiffInput diff_input(DiffSide a, DiffSide b) {
  DiffInput input;
  MeasuredRow row{.name = "step", .a = {}, .b = {}, .in_order = {}};
  std::vector<std::pair<std::int64_t, Measured>> in_order;
  for (const bool is_b : {false, true}) {
    for (const ProcessSteps& process : (is_b ? b : a).steps) {
      if (process.median_ns <= 0) {
        fail(ErrorKind::argument, "diff: {} has no step: nothing ran while it was recorded", one_line(process.name));
      }
      const auto ns = static_cast<double>(process.median_ns);
      (is_b ? row.b : row.a).push_back(ns);
      in_order.push_back({process.wall_ns, {is_b, ns}});
    }
  }
  const bool is_known = std::ranges::none_of(in_order, [](const auto& one) { return one.first == 0; });
  std::ranges::stable_sort(in_order, {}, [](const auto& one) { return one.first; });
  for (const auto& [when, one] : in_order) {
    if (is_known) row.in_order.push_back(one);
  }
  std::map<std::string, std::size_t> numbers;  // of hosts, whose names are nobody's business where a diff is shown
  for (DiffSide* side : {&a, &b}) {
    side->processes = side->steps.size();
    std::set<std::string> machines;
    for (const ProcessSteps& process : side->steps) {
      const std::size_t number = numbers.try_emplace(process.machine, numbers.size() + 1).first->second;
      machines.insert(fmt::format("machine {}, {}", number, process.target));
    }
    side->machines.assign(machines.begin(), machines.end());
  }
  input.a = std::move(a), input.b = std::move(b);
  input.rows.push_back(std::move(row));
  return input;
}

Diff diff(const DiffInput& input, const DiffOptions& options) {
  if (input.rows.empty()) fail(ErrorKind::argument, "diff: A and B have nothing in common that was measured");
  Diff made;
  made.a = input.a, made.b = input.b, made.options = options, made.notes = input.notes;
  Rule rule = options.rule;
  rule.verdicts = static_cast<int>(input.rows.size() * std::max<std::size_t>(input.looks, 1));
  const bool is_one_machine = input.a.machines == input.b.machines && input.a.machines.size() < 2;
  if (!is_one_machine) {
    made.notes.push_back(fmt::format("the machines differ: {} and {}{}", fmt::join(input.a.machines, "; "),
                                     fmt::join(input.b.machines, "; "),
                                     options.across_machines ? "" : ": no verdict (--across-machines gives one)"));
  }
  for (const MeasuredRow& measured : input.rows) {
    DiffRow row{.name = measured.name,
                .time = compare_samples(measured.a, measured.b, rule),
                .drift = {},
                .a = measured.a,
                .b = measured.b};
    row.drift = find_drift(measured.in_order, rule);
    if (row.drift.is_found) {
      const bool is_drift = std::abs(row.drift.in_difference) > rule.floor;
      made.notes.push_back(
          fmt::format("{}: the machine drifted by {:+.1f}% from the first process to the last, by "
                      "which B and A differ {:+.1f}%{}",
                      measured.name, 100 * row.drift.whole, 100 * row.drift.in_difference,
                      is_drift ? ": no verdict; measure them in turns" : ""));
      if (is_drift) row.time.verdict = Verdict::inconclusive;
    }
    if (!is_one_machine && !options.across_machines) row.time.verdict = Verdict::inconclusive;
    made.rows.push_back(std::move(row));
  }
  made.verdict = worst(made.rows);
  if (!input.a.steps.empty() && !input.b.steps.empty()) add_parts(made, input);
  add_notes(made, input);
  return made;
}

std::size_t shown_parts(const Diff& diff) {
  constexpr double kRest = 0.05, kLeastOfStep = 0.0005;
  double rest = 0;
  for (const DiffedPart& part : diff.parts) rest += std::abs(part.change());
  const double step = diff.rows.empty() ? 0 : diff.rows[0].time.a;
  std::size_t shown = 0;
  for (const DiffedPart& part : diff.parts) {
    if (shown == diff.options.most_ops || rest <= kRest * std::abs(diff.change)) break;
    if (!part.is_certain && std::abs(part.change()) < kLeastOfStep * step) break;
    rest -= std::abs(part.change());
    ++shown;
  }
  return shown;
}

}  // namespace paoding::profile
