// SPDX-License-Identifier: Apache-2.0
#include "paoding/programs.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <future>
#include <optional>
#include <random>
#include <thread>

#include "paoding/nn.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

constexpr std::int64_t kWidth = 6;

// A recurrent model over [T, B, 6] with its gradients; `learns`: and an update.
std::unique_ptr<Graph> model(const Programs::Key& key, bool learns) {
  auto graph = std::make_unique<Graph>();
  const std::int64_t T = key[0], B = key[1];
  const Value x = graph->input("x", f32, {T, B, kWidth}), lengths = graph->input("lengths", i64, {B});
  const nn::Lstm lstm(*graph, "lstm", kWidth, kWidth, {.layers = 2});
  const nn::Linear out(*graph, "out", kWidth, 3);
  const Value y = out(lstm(x, {.lengths = lengths}).outputs);
  const Value loss = mean(y * y);
  graph->fetch("loss", loss);
  graph->fetch("y", y);
  if (learns) {
    minimize(loss, Adam{.learning_rate = 1e-2}, {.clip_norm = 1});
  } else {
    graph->fetch("dw", gradients(loss, {out.weight})[0]);
  }
  return graph;
}

Tensors feeds_of(const Programs::Key& key, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  Dense x(static_cast<std::size_t>(key[0] * key[1] * kWidth)), lengths(static_cast<std::size_t>(key[1]));
  for (double& value : x) value = normal(random);
  for (double& value : lengths) value = static_cast<double>(random() % static_cast<unsigned>(key[0] + 1));
  return {{"x", Tensor::from(f32, {key[0], key[1], kWidth}, x)}, {"lengths", Tensor::from(i64, {key[1]}, lengths)}};
}

const std::vector<Programs::Key> kKeys{{4, 3}, {7, 3},  {4, 3}, {1, 1}, {12, 5}, {7, 3}, {3, 8},
                                       {1, 1}, {12, 5}, {2, 9}, {4, 3}, {9, 2},  {3, 8}, {7, 3}};

TEST(Programs, GiveWhatFreshProgramsGive) {
  const Parameters parameters(*model({1, 1}, false), Device::cpu(), {.seed = 4});
  int built = 0;
  Programs programs(
      [&](const Programs::Key& key) {
        ++built;
        return model(key, false);
      },
      {}, &parameters);
  EXPECT_EQ(programs.size(), 0);
  EXPECT_EQ(programs.arena_bytes(), 0);
  unsigned seed = 0;
  for (const Programs::Key& key : kKeys) {
    SCOPED_TRACE(testing::PrintToString(key));
    const Tensors feeds = feeds_of(key, ++seed);
    Program fresh(*model(key, false), {}, &parameters);
    expect_same_bits(fresh.run(feeds), programs.at(key).run(feeds));
  }
  const std::set<Programs::Key> different(kKeys.begin(), kKeys.end());
  EXPECT_EQ(programs.size(), std::ssize(different));
  EXPECT_EQ(built, std::ssize(different)) << "a key is built once";
  EXPECT_GT(programs.milliseconds(), 0);
  for (const Programs::Key& key : different) {
    EXPECT_TRUE(key == kKeys[0] || programs.at(key).report().kernels_compiled == 0) << "they are those of the first";
  }
}

TEST(Programs, AreFoundAgainAndStayWhereTheyAre) {
  const Parameters parameters(*model({1, 1}, false), Device::cpu());
  Programs programs([](const Programs::Key& key) { return model(key, false); }, {}, &parameters);
  std::map<Programs::Key, Program*> places;
  for (const Programs::Key& key : kKeys) {
    Program* place = &programs.at(key);
    EXPECT_EQ(places.emplace(key, place).first->second, place);
  }
}

// A program keeps its feeds, while others run; its results to fetch are gone then.
TEST(Programs, KeepTheirFeeds) {
  const Parameters parameters(*model({1, 1}, false), Device::cpu(), {.seed = 4});
  Programs programs([](const Programs::Key& key) { return model(key, false); }, {}, &parameters);
  const Programs::Key small{4, 3}, large{12, 5};
  const Tensors expected = programs.at(small).run(feeds_of(small, 1));
  programs.at(large).run(feeds_of(large, 2));
  Program& again = programs.at(small);
  again.run();
  for (const auto& [name, tensor] : expected) {
    EXPECT_EQ(again.fetch(again.fetch_index(name)).to_doubles(), tensor.to_doubles()) << name;
  }
}

TEST(Programs, ShareOneArenaOfTheLargest) {
  const Parameters parameters(*model({1, 1}, false), Device::cpu());
  Programs programs([](const Programs::Key& key) { return model(key, false); }, {}, &parameters);
  std::int64_t most = 0;
  for (const Programs::Key& key : kKeys) {
    most = std::max(most, Program(*model(key, false), {}, &parameters).report().arena_bytes);
    programs.at(key);
    EXPECT_EQ(programs.arena_bytes(), most);
  }
}

// An arena takes addresses for as much as the machine has, so another one would be seen.
TEST(Programs, TakeAddressesForOneArena) {
  const auto addresses = [] {
    std::int64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    return pages;
  };
  const Parameters parameters(*model({1, 1}, false), Device::cpu());
  const std::int64_t before = addresses();
  const Program one(*model({1, 1}, false), {}, &parameters);
  const std::int64_t for_one = addresses() - before;
  if (for_one < sysconf(_SC_PHYS_PAGES) / 2)
    GTEST_SKIP() << "NOT CHECKED: needs addresses for half of the memory, and they are limited";
  Programs programs([](const Programs::Key& key) { return model(key, false); }, {}, &parameters);
  programs.at(kKeys[0]);
  const std::int64_t with_first = addresses();
  for (const Programs::Key& key : kKeys) programs.at(key);
  EXPECT_LT(addresses() - with_first, for_one / 2);
}

// Training in many shapes, which share one optimizer's state.
TEST(Programs, TrainAsFreshProgramsDo) {
  const auto train = [](bool are_fresh) {
    const Parameters parameters(*model({1, 1}, true), Device::cpu(), {.seed = 8});
    Programs programs([](const Programs::Key& key) { return model(key, true); }, {}, &parameters);
    unsigned seed = 0;
    for (const Programs::Key& key : kKeys) {
      const Tensors feeds = feeds_of(key, ++seed);
      if (are_fresh) {
        Program(*model(key, true), {}, &parameters).run(feeds);
      } else {
        programs.at(key).run(feeds);
      }
    }
    Tensors values;
    for (const std::string& name : parameters.names()) values[name] = parameters.get(name);
    EXPECT_EQ(values.at("optimizer/step").to_doubles()[0], static_cast<double>(kKeys.size()));
    return values;
  };
  expect_same_bits(train(true), train(false));
}

TEST(Programs, AreMadeByOneThreadAtATime) {
  std::promise<void> is_inside, may_go_on;
  std::optional<Programs> programs;
  const Parameters parameters(*model({1, 1}, false), Device::cpu());
  programs.emplace(Programs(
      [&](const Programs::Key& key) {
        EXPECT_TRUE(has(message_of([&] { programs->at({9, 9}); }), "on another thread or around this callback"));
        is_inside.set_value();
        may_go_on.get_future().wait();
        return model(key, false);
      },
      {}, &parameters));
  std::thread other([&] { programs->at({4, 3}); });
  is_inside.get_future().wait();
  EXPECT_TRUE(has(message_of([&] { programs->at({4, 3}); }), "threads need Programs of their own"));
  may_go_on.set_value();
  other.join();
  EXPECT_EQ(programs->size(), 1);
  EXPECT_EQ(programs->at({4, 3}).run(feeds_of({4, 3}, 1)).at("y").shape(), (Shape{4, 3, 3}));
}

TEST(Programs, PassOnWhatBuildingThrows) {
  const Parameters parameters(*model({1, 1}, false), Device::cpu());
  Programs programs(
      [](const Programs::Key& key) {
        auto graph = model({4, 3}, false);
        if (key[0] == 0) graph->input("bad", f32, {2}) + graph->input("worse", f32, {3});
        return graph;
      },
      {}, &parameters);
  EXPECT_TRUE(has(message_of([&] { programs.at({0}); }), "[3]"));
  EXPECT_EQ(programs.size(), 0);
  programs.at({1});
  EXPECT_TRUE(has(message_of([&] { programs.at({0}); }), "[3]"));
  EXPECT_EQ(programs.size(), 1) << "a key that failed is not there";
  EXPECT_EQ(programs.at({1}).run(feeds_of({4, 3}, 1)).at("y").shape(), (Shape{4, 3, 3}));
}

}  // namespace
}  // namespace paoding::testing_program
