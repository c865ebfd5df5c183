// SPDX-License-Identifier: Apache-2.0
#include "cli/bench/table.h"

#include "cpu/parallel.h"
#include "io/json_text.h"
#include "paoding/version.h"

namespace paoding::cli::bench {
namespace {

// Three digits that count.
std::string short_number(double number) {
  if (number <= 0) return "-";
  return fmt::format("{:.{}f}", number, number < 0.1 ? 4 : number < 10 ? 2 : number < 100 ? 1 : 0);
}

std::string share_text(double part, double whole) {
  return part > 0 && whole > 0 ? fmt::format("{:.0f}%", 100 * part / whole) : "-";
}

JsonObject& add_known(JsonObject& object, const Case& work) {
  object.add("case", work.name).add("section", std::string(1, work.section)).add("kind", work.kind);
  // With mixed precision the dtype of the products: peers are asked for that one.
  object.add("what", work.what);
  object.add("dtype", work.precision != DType::f32 ? std::string(to_string(work.precision)) : type_text(work));
  object.add_json("sizes", work.sizes.empty() ? "{}" : work.sizes);
  return object.add("bytes", work.need.bytes()).add("flops", work.need.flops);
}

}  // namespace

std::string heading(const Device& device, const MachineFacts& machine) {
  const bool is_cpu = device.kind == DeviceKind::cpu;
  std::string text = fmt::format("paoding bench on {} ({})\n", to_string(device), machine.name) + load_warning();
  text += fmt::format(
      "cold: buffers used in turn, together more than 3 x {:.0f} MB of cache, or, on a GPU, as much read before every\n"
      "run; hot: one set, again and again\n",
      static_cast<double>(std::max<std::int64_t>(machine.cache_bytes, 60'000'000)) / 1e6);
  text +=
      is_cpu
          ? "wall: one run and its wait. floor: a pass over the same bytes by the same threads, or the operations at "
            "the\nrate of a large product, measured here; of it: floor over median\n"
          : "wall: one run and its wait; gpu: runs started back to back. floor: bytes over 4.6 (read), 4.15 (read "
            "and\nwritten), 10 (in L2) TB/s, or operations over the unit's rate, known for the H200 only; in "
            "brackets with what\none kernel takes whatever it does (gpu 1.3, wall 5.8 us); of it: floor over "
            "median\n";
  text += "us: median [min, max]; err: largest error over the largest expected value, against float64\n\n";
  return text + fmt::format("{:<36} {:<5} {:<4} {:>28} {:>9} {:>9} {:>17} {:>11} {:>8} {:>6}  {}\n", "case", "cache",
                            "time", "us", "MB", "GFLOP", "floor us", "of it", "goal us", "krn", "err");
}

std::string row_text(const Row& row) {
  if (!row.waits_for.empty()) return fmt::format("{:<36} waits for {}\n", row.work.name, row.waits_for);
  const Need& need = row.work.need;
  const double median = row.time.median;
  std::string floor = short_number(row.floor.us), of_it = share_text(row.floor.us, median);
  if (row.floor.with_launch > row.floor.us) {
    floor += fmt::format(" ({})", short_number(row.floor.with_launch));
    of_it += fmt::format(" ({})", share_text(row.floor.with_launch, median));
  }
  const std::string error = row.error ? fmt::format("{:.1e}", *row.error) : "-";
  const std::string slow = row.work.is_served ? fmt::format("  p99 {}", short_number(row.time.p99)) : "";
  return fmt::format("{:<36} {:<5} {:<4} {:>28} {:>9} {:>9} {:>17} {:>11} {:>8} {:>6}  {}{}{}\n", row.work.name,
                     row.is_cold ? "cold" : "hot", row.is_wall ? "wall" : "gpu", to_string(row.time),
                     short_number(need.bytes() / 1e6), short_number(need.flops / 1e9), floor, of_it,
                     short_number(row.goal_us), row.launches > 0 ? fmt::format("{:.4g}", row.launches) : "-", error,
                     slow, row.is_right ? "" : "  WRONG");
}

std::string row_json(const Row& row) {
  JsonObject object;
  add_known(object, row.work);
  object.add("cache", row.is_cold ? "cold" : "hot").add("clock", row.is_wall ? "wall" : "gpu");
  if (!row.waits_for.empty()) {
    return object.add_json("us", "null").add("waits_for", row.waits_for).text();
  }
  object.add("us", row.time.median).add("us_min", row.time.min).add("us_max", row.time.max);
  if (row.work.is_served) object.add("us_p99", row.time.p99);
  object.add("samples", row.time.count).add("sets", row.sets).add("swept", row.is_swept);
  if (row.floor.us > 0) {
    object.add("floor_us", row.floor.us).add("floor_with_launch_us", row.floor.with_launch);
    object.add("floor_by", row.floor.by);
  }
  if (row.goal_us > 0) object.add("goal_us", row.goal_us);
  object.add("launches", row.launches).add("compile_ms", row.compile_ms).add("arena_bytes", row.arena_bytes);
  if (row.error) object.add("error", *row.error);
  if (!row.work.checked_as.empty()) object.add("checked_as", row.work.checked_as);
  return object.add("right", row.is_right).text();
}

std::string case_text(const Case& work) {
  const Goal& goal = work.goal;
  const std::string state = !work.waits_for.empty() ? "waits for " + work.waits_for : work.what;
  const char* const where = work.on_cpu ? (work.on_gpu ? "both" : "cpu") : "gpu";
  return fmt::format("{} {:<40} {:<5} {:<5} {:>9} {:>9} {:>8} {:>8} {:>8}  {}\n", work.section, work.name,
                     type_text(work), where, short_number(work.need.bytes() / 1e6), short_number(work.need.flops / 1e9),
                     short_number(goal.cold), short_number(goal.hot), short_number(goal.wall), state);
}

std::string case_json(const Case& work) {
  JsonObject object;
  add_known(object, work).add("tf32", work.tf32).add("on_cpu", work.on_cpu).add("on_gpu", work.on_gpu);
  JsonObject goal, cpu_goal;
  goal.add("cold", work.goal.cold).add("hot", work.goal.hot).add("wall", work.goal.wall);
  cpu_goal.add("faster_2", work.cpu_goal.faster_2).add("faster_16", work.cpu_goal.faster_16);
  cpu_goal.add("copies", work.cpu_goal.copies);
  object.add_json("goal", goal.text()).add_json("cpu_goal", cpu_goal.text());
  object.add("floor_us", work.need.floor_us).add("rotates", work.rotates);
  return object.add("waits_for", work.waits_for).text();
}

std::string report_json(const Device& device, const MachineFacts& machine, const std::vector<std::string>& rows) {
  JsonObject all("\n");
  all.add("paoding", PAODING_VERSION).add("device", to_string(device)).add("machine", machine.name);
  if (device.kind == DeviceKind::cpu) all.add("threads", max_threads());
  std::string text = "[";
  for (std::size_t i = 0; i < rows.size(); ++i) text += (i == 0 ? "\n" : ",\n") + rows[i];
  return all.add_json("rows", text + "\n]").text();
}

}  // namespace paoding::cli::bench
