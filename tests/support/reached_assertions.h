// SPDX-License-Identifier: Apache-2.0
// A test that reaches no assertion cannot fail: it fails here (reached_assertions.cpp). CMake includes this in front of
// every file of tests, so that EXPECT_ and ASSERT_ leave a mark where they are evaluated. A test whose failing is a
// crash or a hang says SUCCEED() at its end.
#pragma once

#include <gtest/gtest.h>

#include <atomic>

namespace paoding {

inline std::atomic<bool> is_assertion_reached = false;

/// 0, always.
inline int mark_assertion() {
  is_assertion_reached.store(true, std::memory_order_relaxed);
  return 0;
}

}  // namespace paoding

// Every assertion of GoogleTest begins with it: `switch (0) case 0: default:`.
#undef GTEST_AMBIGUOUS_ELSE_BLOCKER_
#define GTEST_AMBIGUOUS_ELSE_BLOCKER_  \
  switch (::paoding::mark_assertion()) \
  case 0:                              \
  default:
