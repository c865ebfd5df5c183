// SPDX-License-Identifier: Apache-2.0
// NonfiniteTrail: watches a stepwise run, keeps every launch that touched a non-finite value, and afterwards
// follows one back to where it began.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <vector>

#include "paoding/debug.h"
#include "runtime/executor.h"

namespace paoding {

/// The non-finite elements of a tensor. Only floats have such elements.
struct Finiteness {
  std::int64_t nans = 0, infinities = 0;
  std::int64_t first = -1;      // the first non-finite element
  std::int64_t first_nan = -1;  // the first NaN
  double min = 0, max = 0;      // of the finite elements; NaN where there are none
  bool is_finite() const { return first < 0; }
};
Finiteness finiteness_of(const Tensor& tensor);

class NonfiniteTrail : public LaunchWatcher {
 public:
  /// `plan` must outlive it.
  explicit NonfiniteTrail(const Plan& plan);

  /// The value of a slot before the run: an input or parameter (its name), or a constant of the graph (no name).
  void add_start(int slot, NonfiniteValue::Kind kind, const std::string& name, const Tensor& tensor);
  void before(const Launch& launch, const Read& read) override;
  void after(const Launch& launch, const Read& read) override;

  struct Found {
    NonfiniteValue first;
    std::optional<NonfiniteValue> became_nan;
  };
  /// Follows the non-finite elements of a dense value that lies there at the end of the run.
  Found follow(const Operand& dense, const Tensor& value) const;
  /// Follows the operands of this scope's last launch. Nothing when none of them read non-finite values.
  std::optional<Found> follow_last_of(const std::string& scope) const;
  /// Inputs and parameters that are non-finite to begin with.
  std::vector<NonfiniteValue> starts() const;

 private:
  // An operand that is non-finite.
  struct Bad {
    std::size_t operand = 0;
    std::int64_t nans = 0;
    int slot = -1;
    std::int64_t address = 0;  // in the slot, bytes: of the first NaN, else of the first infinity
  };
  // A launch that read or wrote something that is non-finite.
  struct Event {
    const Launch* launch = nullptr;
    std::vector<Bad> reads, writes;
    bool has_constant_infinity = false;
    std::vector<NonfiniteValue> values;  // per write; with `reads` where the operands do not explain it
    bool reads_nan() const;
  };
  // One of the writes of an event.
  struct Written {
    std::size_t event, write;
    friend auto operator<=>(const Written&, const Written&) = default;
  };
  struct Start {
    int slot;
    bool is_constant;
    NonfiniteValue value;
  };
  struct Loop {
    std::int64_t length = 0;
    bool is_reverse = false;
  };

  void add_loops(const std::vector<Step>& steps, const Loop& around);
  static NonfiniteValue described(const Tensor& tensor, const Finiteness& seen);
  static Bad bad_of(const Launch& launch, std::size_t operand, const Finiteness& seen);
  void name(const Launch& launch, std::size_t operand, NonfiniteValue* value) const;
  void add_reads(const Launch& launch, const Read& read, NonfiniteValue* value) const;
  std::optional<Written> writer_of(const Bad& bad, std::size_t before) const;
  const NonfiniteValue& value_of(const Written& written) const { return events_[written.event].values[written.write]; }
  const Start* start_of(int slot) const;
  Found follow(std::vector<Bad> wanted, std::size_t before) const;

  const Plan& plan_;
  std::map<const Step*, Loop> loops_;                // around steps
  std::vector<Start> starts_;                        // that are non-finite
  std::set<int> bad_slots_;                          // that something non-finite was ever in
  std::vector<Event> events_;                        // in their order
  std::map<int, std::vector<std::size_t>> writers_;  // events, by the slots they wrote to
  std::map<int, std::string> last_writer_;           // its op, by slots that results are written over in
  std::vector<Bad> reads_;                           // of the launch under way
  std::map<std::size_t, Tensor> kept_;               // values that it writes over, by its operands
};

}  // namespace paoding
