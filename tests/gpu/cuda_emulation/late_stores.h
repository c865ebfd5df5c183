// SPDX-License-Identifier: Apache-2.0
// The delays that CUDA allows between CTAs that wait for each other: a relaxed store is seen by others some time later,
// and stores to different places in any order, until its thread, or one that met it at a barrier since, releases; a
// word that is sent to another CTA of the cluster, and a tile that TMA brings, arrive some time later. So a store that
// is not ordered shows as a wrong result for some seed. A thread that waits for stores of others stops until they
// change.
#pragma once

#include <functional>
#include <unordered_map>

#include "cuda_emulation.h"
#include "memory_order.h"

// For functions on words that are read and written atomically, and so not by plain accesses.
#define PD_ATOMICALLY __attribute__((no_sanitize_thread))

namespace emulation {

class Random {  // xorshift64*
 public:
  void seed(std::uint64_t seed) { state_ = (seed + 1) * 0x9e3779b97f4a7c15; }
  unsigned operator()() {
    state_ ^= state_ >> 12, state_ ^= state_ << 25, state_ ^= state_ >> 27;
    return static_cast<unsigned>(state_ * 0x2545f4914f6cdd1d >> 32);
  }
  bool once_in(unsigned times) { return (*this)() % times == 0; }

 private:
  std::uint64_t state_ = 1;
};

struct LateStore {
  unsigned value;
  int thread;
  std::uint64_t met;  // rounds of barriers of its CTA before it
};
/// Stores to one place, which others see in their order.
struct LatePlace {
  unsigned* at;
  std::deque<LateStore> stores;
};
struct LateWord {
  unsigned* at;
  unsigned value;
  unsigned long long* mbarrier;
  Cta* to;
};
struct LateCopy {
  std::function<void()> bring;
  Cta* from;
};
struct Load {
  const unsigned* at;
  unsigned value;
};
/// Loads of a thread since it last did something else: the same ones again are polling.
struct Polls {
  std::vector<Load> loads;
  const void* last = nullptr;
};
struct Parked {
  int thread;
  std::uint64_t time;  // of its thread
};

struct Together {
  Random random;
  std::vector<LatePlace> places;
  std::unordered_map<const unsigned*, std::size_t> place_of;  // among them
  std::vector<std::vector<unsigned*>> of_ctas;                // places that CTAs have stored to
  std::vector<LateWord> words;
  std::vector<LateCopy> copies;
  PerThread<Polls> polls;
  PerThread<std::uint64_t> parked_times;  // changes when it is parked, and when it is woken
  std::vector<Parked> parked[1024];       // by the address that they wait for
  std::vector<Parked> all_parked;
  unsigned yields_once_in = 1;
  bool is_somebody_gone = false;  // a CTA of the cluster that is sent something, or whose memory a copy is made of

  bool has_late() const { return !places.empty() || !words.empty() || !copies.empty(); }
};
inline Together& together = *new Together;

inline void maybe_yield() {
  if (together.random.once_in(together.yields_once_in)) yield();
}

// ---- threads that wait for a place in memory to change ----

inline std::vector<Parked>& parked_at(const void* at) {
  return together.parked[reinterpret_cast<std::uintptr_t>(at) / 16 % std::size(together.parked)];
}
inline bool is_parked(const Parked& parked) { return together.parked_times.of(parked.thread) == parked.time; }
inline void wake(const Parked& parked) {
  if (!is_parked(parked)) return;
  ++together.parked_times.of(parked.thread);
  wake(*machine.ctas[static_cast<std::size_t>(parked.thread / kMaxThreads)], parked.thread % kMaxThreads / kWarp,
       1u << (parked.thread % kWarp));
}
inline void changed(const void* at) {
  std::vector<Parked>& all = parked_at(at);
  for (const Parked& parked : all) wake(parked);
  all.clear();
}
/// Until `at(i)` of one i < count changes, or nothing else goes on.
template <class At>
void park(std::size_t count, const At& at) {
  const Parked parked{this_thread(), ++together.parked_times.mine()};
  const auto add_to = [&](std::vector<Parked>& all) {
    if (all.size() == all.capacity()) std::erase_if(all, [](const Parked& other) { return !is_parked(other); });
    all.push_back(parked);
  };
  for (std::size_t i = 0; i < count; ++i) {
    if (i == 0 || &parked_at(at(i)) != &parked_at(at(i - 1))) add_to(parked_at(at(i)));
  }
  add_to(together.all_parked);
  while (together.parked_times.mine() == parked.time) stop();
}
inline void wake_parked() {
  for (const Parked& parked : together.all_parked) wake(parked);
  together.all_parked.clear();
  for (std::vector<Parked>& all : together.parked) all.clear();
}

// ---- mbarriers: bit 63 the phase, 48..62 arrivals of a phase, 32..47 those still missing, 0..31 bytes still missing
// ----

inline void complete_phase(unsigned long long* mbarrier, unsigned long long phase, unsigned arrivals, unsigned missing,
                           unsigned bytes) {
  if (missing == 0 && bytes == 0) {
    phase ^= 1, missing = arrivals;
    changed(mbarrier);
  }
  *mbarrier = phase << 63 | (unsigned long long)arrivals << 48 | (unsigned long long)missing << 32 | bytes;
  ++machine.progress;
}
inline void arrive(unsigned long long* mbarrier, unsigned count, unsigned expected) {
  const unsigned long long m = *mbarrier;
  complete_phase(mbarrier, m >> 63, m >> 48 & 0x7fff, (m >> 32 & 0xffff) - count, (unsigned)m + expected);
}

// ---- arrivals ----

PD_ATOMICALLY inline void deliver(std::size_t i) {
  LatePlace& place = together.places[i];
  *place.at = place.stores.front().value;
  place.stores.pop_front();
  changed(place.at);
  ++machine.progress;
  if (!place.stores.empty()) return;
  together.place_of.erase(place.at);
  if (i + 1 < together.places.size()) {
    place = std::move(together.places.back());
    together.place_of[place.at] = i;
  }
  together.places.pop_back();
}
inline void deliver_word(std::size_t i) {
  const LateWord word = std::exchange(together.words[i], together.words.back());
  together.words.pop_back();
  together.is_somebody_gone |= word.to->live == 0;
  *word.at = word.value;
  arrive(word.mbarrier, 0, 0u - 4u);
}
inline void deliver_copy(std::size_t i) {
  std::swap(together.copies[i], together.copies.back());
  const LateCopy copy = std::move(together.copies.back());
  together.copies.pop_back();
  copy.bring();
  ++machine.progress;
}

inline std::vector<unsigned*>& places_of_cta() {
  const auto number = static_cast<std::size_t>(this_cta().number);
  if (together.of_ctas.size() <= number) together.of_ctas.resize(number + 1);
  return together.of_ctas[number];
}
/// Whether this thread's release covers a store: its own, or one that its CTA made before all have met.
inline bool is_covered(const LateStore& store) {
  return store.thread == this_thread() ||
         (store.thread / kMaxThreads == this_cta().number && store.met < this_cta().met);
}
inline void release() {
  std::vector<unsigned*>& stored = places_of_cta();
  std::size_t kept = 0;
  for (unsigned* const at : stored) {
    const auto found = together.place_of.find(at);
    if (found == together.place_of.end()) continue;
    const auto& stores = together.places[found->second].stores;
    const auto last = std::find_if(stores.rbegin(), stores.rend(), is_covered);
    for (auto count = stores.rend() - last; count > 0; --count) deliver(together.place_of.at(at));
    const bool has_left = together.place_of.contains(at);
    if (has_left) stored[kept++] = at;
  }
  stored.resize(kept);
}

// ---- loads and stores ----

inline void does_not_poll() { together.polls.mine().loads.clear(); }
PD_ATOMICALLY inline unsigned seen(const unsigned* at) {
  const auto found = together.place_of.find(at);
  if (found == together.place_of.end()) return *at;
  const auto& stores = together.places[found->second].stores;
  const auto own = std::find_if(stores.rbegin(), stores.rend(), is_covered);
  return own == stores.rend() ? *at : own->value;
}
inline void before_load(const unsigned* at) {
  Polls& polls = together.polls.mine();
  const bool is_polling = !polls.loads.empty() && (polls.last == at || polls.loads[0].at == at);
  if (is_polling) {
    const auto has_changed = [](const Load& load) { return seen(load.at) != load.value; };
    if (std::none_of(polls.loads.begin(), polls.loads.end(), has_changed)) {
      park(polls.loads.size(), [&](std::size_t i) { return polls.loads[i].at; });
    }
  }
  if (is_polling || polls.loads.size() > 160) polls.loads.clear();
  polls.last = at;
  maybe_yield();
}
inline unsigned load_now(const unsigned* at) {
  const unsigned value = seen(at);
  memory_order.looks(at);
  together.polls.mine().loads.push_back({at, value});
  return value;
}
inline unsigned load_relaxed(const unsigned* at) {
  before_load(at);
  return load_now(at);
}
inline unsigned load_acquire(const unsigned* at) {
  const unsigned value = load_relaxed(at);
  memory_order.acquires(at);
  return value;
}
inline uint4 load_relaxed(const uint4* at) {
  const unsigned* const words = reinterpret_cast<const unsigned*>(at);
  before_load(words);
  unsigned values[4];
  for (int i = 0; i < 4; ++i) {
    values[i] = load_now(words + i);
    if (i < 3 && together.random.once_in(16)) yield();
  }
  return {values[0], values[1], values[2], values[3]};
}
inline void store_relaxed(unsigned* at, unsigned value) {
  does_not_poll();
  memory_order.stores_behind_fence(at);
  memory_order.writes(at, sizeof(*at));
  const auto [found, is_new] = together.place_of.try_emplace(at, together.places.size());
  if (is_new) together.places.push_back({at, {}});
  together.places[found->second].stores.push_back({value, this_thread(), this_cta().met});
  places_of_cta().push_back(at);
  ++machine.progress;
}
inline void store_relaxed(uint4* at, uint4 value) {
  const unsigned words[] = {value.x, value.y, value.z, value.w};
  for (int i = 0; i < 4; ++i) store_relaxed(reinterpret_cast<unsigned*>(at) + i, words[i]);
}
inline void fence_stores() {
  release();
  memory_order.fence();
}
PD_ATOMICALLY inline unsigned exchange_now(unsigned* at, unsigned value) {
  does_not_poll();
  memory_order.writes(at, sizeof(*at));
  ++machine.progress;
  changed(at);
  return std::exchange(*at, value);
}
PD_ATOMICALLY inline unsigned add_relaxed(unsigned* at, unsigned value) {
  maybe_yield();
  memory_order.looks(at);
  memory_order.stores_behind_fence(at);
  return exchange_now(at, *at + value);
}
PD_ATOMICALLY inline unsigned add_release(unsigned* at, unsigned value) {
  maybe_yield();
  release();
  memory_order.looks(at);
  memory_order.releases(at);
  return exchange_now(at, *at + value);
}

}  // namespace emulation
