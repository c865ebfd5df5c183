// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cstring>

#include "paoding/autodiff.h"
#include "paoding/checkpoint.h"
#include "paoding/error.h"
#include "paoding/nn.h"
#include "paoding/ops.h"
#include "tests/support/temporary_folder.h"

namespace paoding {
namespace {

/// A little net with dropout and Adam: state of every kind.
struct Net {
  Graph g;
  explicit Net(std::int64_t hidden = 8, bool train = true) {
    const Value x = g.input("x", f32, {4, 3});
    const nn::Linear first(g, "first", 3, hidden), second(g, "second", hidden, 2);
    const Value y = second(dropout(tanh(first(x)), 0.5, train));
    g.fetch("loss", sum(y * y));
    if (train) minimize(sum(y * y), Adam{.learning_rate = 0.05});
  }
};

std::vector<double> losses(Program& program, int runs) {
  std::vector<double> seen;
  const Tensor x = Tensor::from(f32, {4, 3}, std::vector<double>{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 0, -1});
  for (int i = 0; i < runs; ++i) seen.push_back(program.run({{"x", x}}).at("loss").to_doubles()[0]);
  return seen;
}

std::string error_of(Parameters* store, const std::map<std::string, Tensor>& tensors, bool allow_more = false) {
  try {
    restore(store, tensors, allow_more);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::argument);
    return error.what();
  }
  return "no error";
}

TEST(ParameterValues, TrainingGoesOnWithTheSameBitsFromACheckpoint) {
  const TemporaryFolder folder;
  const Net net;
  Parameters whole(net.g, Device::cpu(), {.seed = 5});
  Program straight(net.g, {}, &whole);
  std::vector<double> expected = losses(straight, 10);
  expected.erase(expected.begin(), expected.begin() + 4);

  {
    Parameters store(net.g, Device::cpu(), {.seed = 5});
    Program program(net.g, {}, &store);
    losses(program, 4);
    Checkpoint checkpoint;
    checkpoint.tensors = values_of(store);
    checkpoint.manifest.step = 4;
    CheckpointFolder(folder / "run").save(checkpoint);
  }
  const Net again;
  Parameters store(again.g, Device::cpu(), {.seed = 99});
  restore(&store, load_checkpoint(folder / "run", true).tensors);
  Program program(again.g, {}, &store);
  EXPECT_EQ(losses(program, 6), expected);
  for (const auto& [name, value] : values_of(whole)) {
    EXPECT_EQ(std::memcmp(store.get(name).bytes(), value.bytes(), static_cast<std::size_t>(value.size_bytes())), 0)
        << name;
  }
}

TEST(ParameterValues, AreComparedBeforeAnythingIsAllocated) {
  const Net small;
  const Parameters trained(small.g, Device::cpu(), {.seed = 5});
  // A store of its parameters would take 2^50 bytes.
  Graph huge;
  const nn::Linear first(huge, "first", 3, std::int64_t{1} << 46), second(huge, "second", 8, 2);
  try {
    check_restorable(huge, values_of(trained), true);
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::argument);
    EXPECT_NE(std::string(error.what())
                  .find("2 of the tensors do not fit the model: 'first/bias' is f32[8], must be "
                        "f32[70368744177664]; 'first/weight' is"),
              std::string::npos)
        << error.what();
  }
  check_restorable(small.g, values_of(trained));
}

TEST(ParameterValues, AProgramThatPredictsLeavesTheOptimizersStateOut) {
  const Net training, predicting(8, false);
  Parameters trained(training.g, Device::cpu(), {.seed = 5});
  Parameters store(predicting.g, Device::cpu(), {.seed = 6});
  const std::string text = error_of(&store, values_of(trained));
  EXPECT_NE(text.find("'optimizer/step' i64[] has no place in the model"), std::string::npos) << text;
  EXPECT_EQ(error_of(&store, values_of(trained), true), "no error");
  EXPECT_EQ(store.get("first/weight").to_doubles(), trained.get("first/weight").to_doubles());
}

TEST(ParameterValues, ListsWhatDoesNotFitAndChangesNothing) {
  const Net net(8, false), wider(9, false);
  Parameters store(net.g, Device::cpu(), {.seed = 5}), other(wider.g, Device::cpu(), {.seed = 6});
  const auto before = values_of(store);
  EXPECT_EQ(error_of(&store, values_of(other)),
            "restore: 3 of the tensors do not fit the model: 'first/bias' is f32[9], must be f32[8]; 'first/weight' is "
            "f32[3,9], must be f32[3,8]; 'second/weight' is f32[9,2], must be f32[8,2]");
  auto tensors = before;
  tensors.erase("first/bias");
  tensors["second/weight"] = Tensor(f64, {8, 2});
  tensors["extra"] = Tensor(i64, {});
  EXPECT_EQ(error_of(&store, tensors),
            "restore: 3 of the tensors do not fit the model: 'first/bias' f32[8] is missing; 'second/weight' is "
            "f64[8,2], must be f32[8,2]; 'extra' i64[] has no place in the model");
  EXPECT_NE(error_of(&store, {}, true).find("'second/bias' f32[2] is missing"), std::string::npos);
  for (const auto& [name, value] : values_of(store)) EXPECT_EQ(value.to_doubles(), before.at(name).to_doubles());

  std::map<std::string, Tensor> many = before;
  for (int i = 0; i < 50; ++i) many["extra" + std::to_string(i)] = Tensor(i64, {});
  const std::string text = error_of(&store, many);
  EXPECT_NE(text.find("restore: 50 of the tensors"), std::string::npos) << text;
  EXPECT_NE(text.find("; and 30 more"), std::string::npos) << text;
}

}  // namespace
}  // namespace paoding
