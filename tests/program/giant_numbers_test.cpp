// SPDX-License-Identifier: Apache-2.0
// A graph's text may come from anyone, and a number in it costs nothing to write: an op that is called with a giant
// attribute, or on an input that is said to be giant, is refused or added to the graph, and neither takes memory or
// time.
#include <array>
#include <new>
#include <optional>
#include <set>

#include "tests/support/allocation_count.h"
#include "tests/support/op_case.h"

namespace paoding::testing_program {
namespace {

constexpr std::int64_t kMostBytes = std::int64_t{32} << 20;  // of one call, whatever it says
constexpr std::array<std::int64_t, 6> kGiants = {100'000'000,           10'000'000'000,        std::int64_t{1} << 40,
                                                 std::int64_t{1} << 46, std::int64_t{1} << 62, -10'000'000'000};

// Calls the op of the case; with gradients too.
void build(const OpCase& c, const OpDef& op) {
  try {
    CaseGraph made({&op, "", c, f32}, Around::nothing, true);
  } catch (const Error&) {  // refused
  }
}

void expect_cheap(const OpDef& op, const OpCase& c, const std::string& what) {
  bool is_passed = false;
  {
    const AllocationLimit limit(kMostBytes);
    try {
      build(c, op);
    } catch (const std::bad_alloc&) {
      is_passed = true;
    }
    is_passed |= limit.is_passed();
  }
  EXPECT_FALSE(is_passed) << op.name << " takes more than " << kMostBytes << " bytes: " << what;
}

// Every case of every op that is no error.
template <class Check>
void for_each_case(Check check) {
  for (const OpDef* op : all_ops()) {
    for (const OpCase& c : op->cases) {
      if (c.error.empty()) check(*op, c);
    }
  }
}

TEST(GiantNumbers, InAttributesTakeNoMemory) {
  if (!AllocationCount::works()) GTEST_SKIP() << "NOT CHECKED: this build has an allocator of its own";
  for_each_case([](const OpDef& op, const OpCase& c) {
    Attrs whole = c.attrs;  // with all defaults
    for (const AttrSpec& spec : op.attrs) {
      if (whole.find(spec.name) == nullptr) whole.set(spec.name, spec.example);
    }
    for (const auto& [name, value] : whole.entries()) {
      for (const std::int64_t giant : kGiants) {
        OpCase changed = c;
        if (std::holds_alternative<std::int64_t>(value)) {
          changed.attrs.set(name, giant);
          expect_cheap(op, changed, name + " = " + std::to_string(giant));
        } else if (const auto* ints = std::get_if<std::vector<std::int64_t>>(&value)) {
          for (std::size_t i = 0; i < ints->size(); ++i) {
            std::vector<std::int64_t> more = *ints;
            more[i] = giant;
            changed.attrs.set(name, more);
            expect_cheap(op, changed, name + "[" + std::to_string(i) + "] = " + std::to_string(giant));
          }
        }
      }
    }
  });
}

// Makes the axes of extent `from` giant: of all inputs, for most ops want them alike; or of one.
std::optional<OpCase> widened(OpCase c, std::int64_t from, std::int64_t giant, std::optional<std::size_t> only = {}) {
  try {
    for (std::size_t i = 0; i < c.shapes.size(); ++i) {
      if (only && *only != i) continue;
      for (int axis = 0; axis < c.shapes[i].rank(); ++axis) {
        if (c.shapes[i][axis] == from) c.shapes[i] = c.shapes[i].with_dim(axis, giant);
      }
    }
    return c;
  } catch (const Error&) {
    return std::nullopt;  // no shape
  }
}

TEST(GiantNumbers, InShapesTakeNoMemory) {
  if (!AllocationCount::works()) GTEST_SKIP() << "NOT CHECKED: this build has an allocator of its own";
  for_each_case([](const OpDef& op, const OpCase& c) {
    std::set<std::int64_t> extents;
    for (const Shape& shape : c.shapes) extents.insert(shape.begin(), shape.end());
    for (const std::int64_t extent : extents) {
      for (const std::int64_t giant : kGiants) {
        if (giant < 0) continue;
        const std::string what = "extents of " + std::to_string(extent) + " are " + std::to_string(giant);
        if (const auto all = widened(c, extent, giant)) expect_cheap(op, *all, what);
        for (std::size_t i = 0; i < c.shapes.size(); ++i) {
          if (const auto one = widened(c, extent, giant, i)) {
            expect_cheap(op, *one, what + " in input " + std::to_string(i));
          }
        }
      }
    }
  });
}

}  // namespace
}  // namespace paoding::testing_program
