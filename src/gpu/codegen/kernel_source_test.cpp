// SPDX-License-Identifier: Apache-2.0
// Sources of kernels: equal ones are one text, which is let go with the last that has it.
#include "gpu/codegen/kernel_source.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace paoding::gpu {
namespace {

TEST(KernelSource, EqualOnesAreOneTextAndOthersAreNot) {
  const KernelSource a(std::string(1000, 'a')), same(std::string(1000, 'a')), other(std::string(1001, 'a'));
  EXPECT_EQ(&a.text(), &same.text());
  EXPECT_TRUE(a == same);
  EXPECT_FALSE(a == other);
  EXPECT_EQ(other.text().size(), 1001u);
  EXPECT_TRUE(KernelSource().empty());
  EXPECT_TRUE(KernelSource() == KernelSource(std::string()));
  EXPECT_EQ(KernelSource().text(), "");
}

TEST(KernelSource, IsLetGoWithTheLastThatHasIt) {
  const std::string text(5000, 'x');
  const char* first = nullptr;
  {
    KernelSource kept(text);
    first = kept.text().data();
    const KernelSource copy = kept;
    kept = {};
    EXPECT_EQ(KernelSource(text).text().data(), first);
    EXPECT_EQ(copy.text(), text);
  }
  KernelSource again(text);  // made anew: the text is right, wherever it lies now
  EXPECT_EQ(again.text(), text);
}

TEST(KernelSource, ThreadsMakeAndDropTheSameOnes) {
  std::vector<std::jthread> threads;
  std::atomic<int> wrong{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&wrong] {
      for (int i = 0; i < 5000; ++i) {
        const std::string text = "kernel " + std::to_string(i % 7);
        const KernelSource a(text), b(text);
        if (&a.text() != &b.text() || a.text() != text) ++wrong;
      }
    });
  }
  threads.clear();
  EXPECT_EQ(wrong, 0);
}

}  // namespace
}  // namespace paoding::gpu
