// SPDX-License-Identifier: Apache-2.0
// The order in which CTAs that wait for each other run, and in which their stores and messages arrive: by a seed, which
// chooses a way of each and the random numbers for it. Warps run until all their threads wait or take a step that
// others could see.
#pragma once

#include "late_stores.h"
#include "tensor_map_words.h"

namespace emulation {

/// Who runs next.
enum class Way {
  anyone,
  one_thread,    // of anyone's warp, rather than all that can go on
  ahead,         // a CTA goes on for as long as it can
  starved_cta,   // does not run while another can
  starved_warp,  // of every CTA
  first,         // whose number is lowest
  last,
  count,
};
/// When late stores and messages arrive.
enum class Lateness {
  soon,
  later,
  much_later,
  when_all_wait,
  of_one_cta_when_all_wait,  // others' stores and messages arrive soon
  newest_first,
  count,
};

class Schedule {
 public:
  explicit Schedule(unsigned seed)
      : way_(static_cast<Way>(seed % unsigned(Way::count))),
        lateness_(static_cast<Lateness>(seed / unsigned(Way::count) % unsigned(Lateness::count))) {
    together.random.seed(seed);
    victim_ = together.random();
    together.yields_once_in = together.random.once_in(2) ? 1 : 4;
    const bool is_for_good = together.random.once_in(2);
    starves_ = is_for_good ? ~0u : 256u << together.random() % 6;
  }

  /// Runs some that can go on; false when nobody can.
  bool run() {
    if (std::none_of(machine.ready_warps.begin(), machine.ready_warps.end(), [](auto word) { return word != 0; })) {
      return false;
    }
    const int number = choose();
    ++round_;
    Cta& cta = *machine.ctas[static_cast<std::size_t>(number / kMaxWarps)];
    const int warp = number % kMaxWarps, first = static_cast<int>(together.random() % kWarp);
    if (way_ == Way::one_thread) {
      const unsigned ready = cta.ready[warp];
      const int lane = (std::countr_zero(std::rotr(ready, first)) + first) % kWarp;
      resume(cta, warp * kWarp + lane);
      return true;
    }
    machine.has_let_others = false;
    while (cta.ready[warp] != 0 && !machine.has_let_others) {
      for (unsigned lanes = std::rotr(cta.ready[warp], first); lanes != 0; lanes &= lanes - 1) {
        const int lane = (std::countr_zero(lanes) + first) % kWarp;
        if ((cta.ready[warp] >> lane & 1) != 0) resume(cta, warp * kWarp + lane);
      }
    }
    return true;
  }

  /// Some late stores and messages arrive, or none.
  void let_come() {
    switch (lateness_) {
      case Lateness::soon: deliver_some(4, false); break;
      case Lateness::later: deliver_some(1 + together.random() % 2, !together.random.once_in(8)); break;
      case Lateness::much_later: deliver_some(1, !together.random.once_in(256)); break;
      case Lateness::when_all_wait: break;
      default: deliver_some(2, together.random.once_in(2)); break;
    }
  }
  /// Nobody can go on before something comes.
  void have_come() { deliver_one(true); }

 private:
  int warps() const { return static_cast<int>(machine.ctas.size()) * kMaxWarps; }
  bool is_ready(int number) const {
    return (machine.ready_warps[static_cast<std::size_t>(number / 64)] >> (number % 64) & 1) != 0;
  }
  // The first from `number` on, after the last one from the beginning.
  int ready_from(int number) const {
    const auto& words = machine.ready_warps;
    const std::size_t first = static_cast<std::size_t>(number / 64);
    for (std::size_t i = 0; i <= words.size(); ++i) {
      const std::size_t at = (first + i) % words.size();
      std::uint64_t word = words[at];
      if (i == 0) word &= ~std::uint64_t{0} << (number % 64);
      if (word != 0) return static_cast<int>(at * 64) + std::countr_zero(word);
    }
    return 0;
  }
  int any() const {
    const int ctas = static_cast<int>(machine.ctas.size()), used = (machine.threads + kWarp - 1) / kWarp;
    const unsigned number = together.random() % static_cast<unsigned>(ctas * used);
    return ready_from(static_cast<int>(number) / used * kMaxWarps + static_cast<int>(number) % used);
  }
  int choose() {
    const auto cta_of = [](int number) { return number / kMaxWarps; };
    const bool starves = starves_ == ~0u || round_ % starves_ < starves_ / 4 * 3;
    if (together.random.once_in(256)) return current_ = any();
    switch (way_) {
      case Way::ahead: {
        const int begin = cta_of(current_) * kMaxWarps, from = begin + static_cast<int>(together.random() % kMaxWarps);
        int next = ready_from(from);
        if (cta_of(next) != cta_of(current_)) next = ready_from(begin);
        return current_ = cta_of(next) == cta_of(current_) ? next : any();
      }
      case Way::starved_cta: {
        const int starved = static_cast<int>(victim_ % machine.ctas.size()), next = any();
        if (!starves || cta_of(next) != starved) return next;
        return ready_from((starved + 1) * kMaxWarps % warps());
      }
      case Way::starved_warp: {
        const int used = (machine.threads + kWarp - 1) / kWarp, starved = static_cast<int>(victim_ % unsigned(used));
        int next = any();
        for (int tries = 0; starves && tries < 8 && next % kMaxWarps == starved; ++tries) {
          next = ready_from((next + 1) % warps());
        }
        return next;
      }
      case Way::first: return ready_from(0);
      case Way::last:
        for (std::size_t at = machine.ready_warps.size(); at-- > 0;) {
          const std::uint64_t word = machine.ready_warps[at];
          if (word != 0) return static_cast<int>(at * 64) + 63 - std::countl_zero(word);
        }
        return 0;
      default: return any();
    }
  }

  void deliver_some(unsigned count, bool none) {
    for (unsigned i = 0; i < count && !none && together.has_late(); ++i) deliver_one(false);
  }
  void deliver_one(bool must) {
    Together& t = together;
    const std::size_t stores = t.places.size(), words = t.words.size(), copies = t.copies.size();
    const bool is_newest = lateness_ == Lateness::newest_first && !t.random.once_in(64);
    const auto one_of = [&](std::size_t count) { return is_newest ? count - 1 : t.random() % count; };
    const std::size_t kinds = (stores != 0) + (words != 0) + (copies != 0);
    if (kinds == 0) return;
    std::size_t kind = t.random() % kinds;
    if (!must && lateness_ == Lateness::of_one_cta_when_all_wait) {
      const std::size_t late = victim_ / 7 % machine.ctas.size();
      if (stores != 0 && kind-- == 0) {
        const std::size_t i = one_of(stores);
        if (static_cast<std::size_t>(t.places[i].stores.front().thread / kMaxThreads) != late) deliver(i);
      } else if (words != 0 && kind-- == 0) {
        const std::size_t i = one_of(words);
        if (t.words[i].to != machine.ctas[late].get()) deliver_word(i);
      } else {
        const std::size_t i = one_of(copies);
        if (t.copies[i].from != machine.ctas[late].get()) deliver_copy(i);
      }
      return;
    }
    if (stores != 0 && kind-- == 0)
      deliver(one_of(stores));
    else if (words != 0 && kind-- == 0)
      deliver_word(one_of(words));
    else
      deliver_copy(one_of(copies));
  }

  Way way_;
  Lateness lateness_;
  unsigned victim_, starves_, round_ = 0;
  int current_ = 0;
};

/// Runs a kernel whose CTAs wait for each other; `seed` decides who runs when.
template <class... P>
int launch_together(void (*kernel)(P...), void** arguments, unsigned grid, unsigned block, unsigned cluster,
                    std::size_t shared_bytes, unsigned seed) {
  Machine& m = machine;
  Bound<P...> bound{kernel, arguments};
  bound.prepare(grid, block);
  m.cluster = cluster, m.shared_bytes = shared_bytes;
  if (m.ctas.size() > grid) m.ctas.resize(grid);
  for (unsigned i = 0; i < grid; ++i) start_cta(i, i);
  together.places.clear(), together.place_of.clear(), together.words.clear(), together.copies.clear();
  together.of_ctas.assign(grid, {});
  wake_parked();
  together.is_somebody_gone = false;
#ifdef PD_TELLS_PLAIN_ACCESSES
  memory_order.begin(true);
#else
  memory_order.begin(false);
#endif
  Schedule schedule(seed);
  constexpr int kMostIdle = 1000;  // times that all who wait look again
  std::uint64_t last_progress = m.progress;
  const auto is_alive = [](const auto& cta) { return cta->live > 0; };
  for (int idle = 0; idle < kMostIdle;) {
    if (schedule.run()) {
      schedule.let_come();
    } else if (together.has_late()) {
      schedule.have_come();
    } else if (std::none_of(m.ctas.begin(), m.ctas.end(), is_alive)) {
      return together.is_somebody_gone ? kIsGone : memory_order.ends() ? kIsUnordered : kDone;
    } else {
      idle = m.progress == last_progress ? idle + 1 : 0;
      last_progress = m.progress;
      wake_parked();
    }
  }
  return kDeadlock;
}

}  // namespace emulation
