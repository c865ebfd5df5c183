// SPDX-License-Identifier: Apache-2.0
// How often a verdict is wrong, and how often a change is found, of processes that are drawn from many kinds of
// machines: those of spreads that real ones had, quiet and busy, with tails, drift and more than one speed. Seeds are
// fixed.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <random>
#include <span>
#include <vector>

#include "profile/compare_samples.h"

namespace paoding::profile {
namespace {

// us, of 100 processes of `paoding bench --quick` in the order they ran, while other work kept both cores of their
// machine busy (load 7 to 11): benchmarks/results/diff.json.
constexpr double kLerpCold[] = {
    1589,  848.3, 1191,  798.3, 1175,  1242,  880.1, 920,   1199,  1022,  978.2, 1239,  988.1, 1148,  1202,
    1195,  1196,  884.2, 1263,  810,   793.2, 799.5, 800.3, 808.8, 799.2, 780.6, 800.9, 799.4, 820,   796.5,
    1005,  805.8, 809.6, 799.4, 1199,  1421,  1393,  798.8, 798.7, 1052,  995.7, 801.5, 797.9, 797.5, 795.5,
    794.9, 798,   1014,  801.9, 841,   801.4, 802.4, 794.1, 788.7, 799.1, 800.4, 1003,  1076,  798.8, 976.8,
    799.9, 1189,  953.7, 793.3, 806.5, 870.3, 1195,  1182,  1134,  1234,  1599,  1598,  2535,  2417,  1593,
    1200,  895.1, 801.9, 808.3, 809.4, 800.4, 801.1, 1200,  981.2, 972.9, 920.1, 1153,  983,   829.6, 833.6,
    799.5, 799.7, 797.8, 1393,  1200,  2346,  1672,  1124,  828.2, 1205,
};
constexpr double kLerpHot[] = {
    664.2, 394.4, 459.4, 442.1, 444.6, 447.7, 488.7, 551,   102.3, 403.2, 493.7, 312.6, 609.7, 97.18, 332.2,
    376.9, 334.2, 403.2, 433.8, 372.6, 334.8, 325.6, 334.1, 99.67, 300,   347.7, 383,   399.2, 353.3, 364.5,
    110.8, 435.4, 103.3, 310.6, 101,   454.3, 421.8, 379,   340.6, 368.1, 354,   337.7, 317.3, 357.8, 323.5,
    416.9, 310.2, 99.43, 433.1, 379.9, 356.3, 371.8, 381.7, 409.5, 361.3, 370,   442,   423.3, 380.6, 385,
    402.7, 316.5, 329.3, 354.2, 459.6, 451.8, 490.5, 455.3, 101,   438,   424.8, 372.1, 588.3, 614.9, 344.2,
    397.7, 408.2, 391,   382.1, 344.5, 384.1, 419.3, 301.8, 349.7, 405.5, 385,   359.1, 424.1, 304.6, 279.4,
    351,   333.6, 377,   431.8, 413.9, 392.7, 115.2, 109.8, 388.4, 378.7,
};
constexpr double kLstmHot[] = {
    10220, 11636, 8993,  8832,  118.2, 8665,  10181, 8566, 115.9, 9419,  7823,  9034,  8798,  8359,  115.9,
    11384, 11357, 10626, 116.8, 8839,  9902,  7353,  3761, 5296,  7287,  7699,  8698,  7818,  8134,  7607,
    119.6, 7272,  118.2, 7980,  5696,  6426,  16557, 7226, 5982,  7679,  8891,  7674,  7711,  7731,  8786,
    7675,  116.1, 8571,  6929,  7757,  7673,  7596,  7783, 8464,  7656,  7192,  8323,  8941,  117.9, 8913,
    7849,  116.2, 8475,  7675,  6447,  7725,  7765,  9058, 116.9, 8765,  115.2, 13947, 116.4, 20675, 10874,
    10725, 10016, 7825,  7956,  7757,  7664,  117.2, 6369, 8832,  10172, 8349,  8252,  7763,  8877,  8987,
    7579,  7555,  7977,  7674,  81.6,  72.43, 12723, 6972, 8914,  9959,
};

using Random = std::mt19937_64;
// Times of so many processes in the order they run, without what A and B differ by.
using Machine = std::function<std::vector<double>(Random&, std::size_t count)>;

double normal(Random& random, double spread) { return std::exp(std::normal_distribution<double>(0, spread)(random)); }
bool chance(Random& random, double share) { return std::bernoulli_distribution(share)(random); }

Machine each(const std::function<double(Random&)>& one) {
  return [one](Random& random, std::size_t count) {
    std::vector<double> times;
    for (std::size_t i = 0; i < count; ++i) times.push_back(one(random));
    return times;
  };
}
Machine quiet(double spread) {
  return each([spread](Random& random) { return normal(random, spread); });
}
// One in ten takes up to half as long again.
Machine with_tail(double spread) {
  return each([spread](Random& random) {
    const double tail = chance(random, 0.1) ? std::uniform_real_distribution<double>(1, 1.5)(random) : 1;
    return normal(random, spread) * tail;
  });
}
// The slow speed is 1.4 times the time of the fast one; `stays`: a process has the speed of the one before it.
Machine two_speeds(double stays) {
  return [stays](Random& random, std::size_t count) {
    std::vector<double> times;
    bool is_slow = chance(random, 0.5);
    for (std::size_t i = 0; i < count; ++i) {
      if (!chance(random, stays)) is_slow = chance(random, 0.5);
      times.push_back(normal(random, 0.005) * (is_slow ? 1.4 : 1));
    }
    return times;
  };
}
// A tenth slower at the end than at the start, evenly.
Machine drifting(double spread) {
  return [spread](Random& random, std::size_t count) {
    std::vector<double> times;
    for (std::size_t i = 0; i < count; ++i) {
      times.push_back(normal(random, spread) * (1 + 0.1 * static_cast<double>(i) / static_cast<double>(count)));
    }
    return times;
  };
}
// Slower and faster again, some times in a series, from a random moment on.
Machine in_waves(double height, double processes) {
  return [height, processes](Random& random, std::size_t count) {
    const double phase = std::uniform_real_distribution<double>(0, 6.283185)(random);
    std::vector<double> times;
    for (std::size_t i = 0; i < count; ++i) {
      const double at = phase + 6.283185 * static_cast<double>(i) / processes;
      times.push_back(normal(random, 0.003) * (1 + height * std::sin(at)));
    }
    return times;
  };
}
// A stretch of what was measured, in its order.
Machine measured(std::span<const double> times) {
  return [times](Random& random, std::size_t count) {
    const std::size_t from = std::uniform_int_distribution<std::size_t>(0, times.size() - 1)(random);
    std::vector<double> made;
    for (std::size_t i = 0; i < count; ++i) made.push_back(times[(from + i) % times.size()]);
    return made;
  };
}

constexpr int kPairs = 200;

struct Verdicts {
  int same = 0, faster = 0, slower = 0, inconclusive = 0;
};
// Of pairs of series in turns, B `factor` times as slow as A; a series goes on up to `most` while nothing is told.
Verdicts verdicts_of(const Machine& machine, double factor, std::size_t most = 5) {
  Random random(2026);
  const std::vector<std::size_t> looks = looks_at(5, most);
  Verdicts found;
  for (int pair = 0; pair < kPairs; ++pair) {
    const std::vector<double> times = machine(random, 2 * most);
    Verdict verdict = Verdict::inconclusive;
    for (std::size_t look = 0; look < looks.size() && verdict == Verdict::inconclusive; ++look) {
      std::vector<double> a, b;
      for (std::size_t i = 0; i < 2 * looks[look]; ++i)
        (is_of_b(i) ? b : a).push_back(times[i] * (is_of_b(i) ? factor : 1));
      verdict = compare_samples(a, b, {.verdicts = static_cast<int>(looks.size())}).verdict;
    }
    int* const counts[] = {&found.same, &found.faster, &found.slower, &found.inconclusive};
    *counts[static_cast<int>(verdict)] += 1;
  }
  return found;
}

struct NamedMachine {
  const char* name;
  Machine machine;
};
// Those of 0.2% and 0.7% are what processes of one build differ by on an H200, by its clock and by the wall's.
std::vector<NamedMachine> quiet_machines() {
  return {{"0.2%", quiet(0.002)}, {"0.7%", quiet(0.007)}, {"1%", quiet(0.01)}};
}
std::vector<NamedMachine> restless_machines() {
  return {{"2%", quiet(0.02)},
          {"drift and 0.5%", drifting(0.005)},
          {"drift and 1%", drifting(0.01)},
          {"waves of 20 processes", in_waves(0.05, 20)},
          {"waves of 7 processes", in_waves(0.05, 7)}};
}
std::vector<NamedMachine> wild_machines() {
  return {{"5%", quiet(0.05)},
          {"tail and 0.5%", with_tail(0.005)},
          {"tail and 1%", with_tail(0.01)},
          {"two speeds", two_speeds(0)},
          {"two speeds that stay", two_speeds(0.8)},
          {"two speeds that stay long", two_speeds(0.95)},
          {"measured, lerp_grad/3 cold", measured(kLerpCold)},
          {"measured, lerp_grad/3 hot", measured(kLerpHot)},
          {"measured, lstm", measured(kLstmHot)}};
}
std::vector<NamedMachine> all_machines() {
  std::vector<NamedMachine> all = quiet_machines();
  for (const auto& more : {restless_machines(), wild_machines()}) all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST(DiffPower, IsWrongOfTheSameProgramInAtMostOneOf100Pairs) {
  for (const auto& [name, machine] : all_machines()) {
    for (const std::size_t most : {5u, 40u}) {
      const Verdicts v = verdicts_of(machine, 1, most);
      EXPECT_LE(v.faster + v.slower, kPairs / 100) << name << ", at most " << most;
    }
  }
}

TEST(DiffPower, FindsFivePercentInNineteenOf20PairsWhereProcessesDifferByOne) {
  for (const auto& [name, machine] : quiet_machines()) {
    EXPECT_GE(verdicts_of(machine, 1.05).slower, kPairs * 95 / 100) << name;
    EXPECT_GE(verdicts_of(machine, 1 / 1.05).faster, kPairs * 95 / 100) << name;
  }
}

// Where they differ by more, five a side do not tell, and going on does.
TEST(DiffPower, FindsFivePercentOnRestlessMachinesByGoingOn) {
  for (const auto& [name, machine] : restless_machines()) {
    EXPECT_LT(verdicts_of(machine, 1.05).slower, kPairs * 95 / 100) << name;
    EXPECT_GE(verdicts_of(machine, 1.05, 40).slower, kPairs * 95 / 100) << name;
  }
}

TEST(DiffPower, NeverTellsTheOppositeMoreThanOnceIn100) {
  for (const auto& [name, machine] : all_machines()) EXPECT_LE(verdicts_of(machine, 1.05).faster, kPairs / 100) << name;
}

// What all of this is for: a test at 5% without a floor is wrong far more often.
TEST(DiffPower, IsBetterThanTheUsualTest) {
  Random random(2026);
  int wrong = 0;
  const Machine machine = quiet(0.01);
  for (int pair = 0; pair < kPairs; ++pair) {
    const std::vector<double> times = machine(random, 10);
    std::vector<double> a(times.begin(), times.begin() + 5), b(times.begin() + 5, times.end());
    wrong += welch_p(a, b) < 0.05;
  }
  EXPECT_GT(wrong, kPairs / 100);
}

}  // namespace
}  // namespace paoding::profile
