// SPDX-License-Identifier: Apache-2.0
// Extents with names: the sizes in which the graphs of one model differ, their bounds, and the sizes that programs are
// made for.
//
//   const pd::Extents extents({{"batch", 1, 256}, {"time", 1, 512, pd::multiples_of(8)}});
//   extents.bucket_of({{"batch", 32}, {"time", 57}});  // {32, 64}
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace paoding {

/// The sizes that programs are made for: a rule from a size to the size of its program, its bucket, which is no
/// smaller. A value: threads may read one at once.
class Buckets {
 public:
  using Function = std::function<std::int64_t(std::int64_t size)>;

  /// Every size is its own bucket.
  Buckets() = default;

 private:
  friend class Extents;
  friend Buckets multiples_of(std::int64_t n);
  friend Buckets powers_of_two();
  friend Buckets bucket_sizes(std::vector<std::int64_t> sizes);
  friend Buckets buckets_by(Function function);
  enum class Rule : std::uint8_t { exact, multiples, powers_of_two, sizes, function };

  Rule rule_ = Rule::exact;
  std::int64_t step_ = 1;            // of multiples
  std::vector<std::int64_t> sizes_;  // ascending
  Function function_;
};

/// The next multiple of n, or the extent's maximum where that is less. Error (argument) unless n is 1 or more.
Buckets multiples_of(std::int64_t n);
/// The next of 0, 1, 2, 4, 8 .., or the extent's maximum where that is less.
Buckets powers_of_two();
/// The next of these. Sizes above the last have no bucket. Error (argument) unless they ascend and there is one.
Buckets bucket_sizes(std::vector<std::int64_t> sizes);
/// function(size), which is called with sizes within the extent's bounds and gives one, no smaller: else at the call
/// Error (argument).
Buckets buckets_by(Buckets::Function function);

/// An extent of a shape class.
struct ExtentSpec {
  static constexpr std::int64_t kNoMaximum = std::int64_t{1} << 48;

  std::string name;
  std::int64_t minimum = 1;
  std::int64_t maximum = kNoMaximum;
  Buckets buckets = {};
};

/// Sizes of extents by name, in any order. A value: threads may read one at once.
class Sizes {
 public:
  struct Entry {
    std::string name;
    std::int64_t size;
  };
  Sizes(std::initializer_list<Entry> entries) : entries_(entries) {}
  explicit Sizes(std::vector<Entry> entries) : entries_(std::move(entries)) {}
  const std::vector<Entry>& entries() const { return entries_; }

 private:
  std::vector<Entry> entries_;
};

/// The extents of a shape class, in an order. A value that does not change: threads may read one at once, where the
/// functions of its buckets may be called at once.
class Extents {
 public:
  /// Sizes in the order of the extents.
  using Key = std::vector<std::int64_t>;

  Extents() = default;
  /// Error (argument) when a name is no word ([A-Za-z_][A-Za-z0-9_.]*) or stands twice, when bounds are not
  /// 0 <= minimum <= maximum <= kNoMaximum, and when a size of bucket_sizes() is outside them.
  explicit Extents(std::vector<ExtentSpec> specs);

  const std::vector<ExtentSpec>& specs() const { return specs_; }
  bool empty() const { return specs_.empty(); }
  /// The position of an extent; -1 when there is none of that name.
  int index_of(std::string_view name) const;

  /// The sizes in order. Error (argument) that lists the names which are unknown, there twice or missing.
  Key key_of(const Sizes& sizes) const;
  /// Errors: (argument) another number of sizes; (shape) one outside its bounds: "time is 300; this class holds 1 to
  /// 256".
  void check(const Key& sizes) const;
  /// The sizes of the program that runs these. Errors: as check() and key_of(); (shape) a size that no bucket holds.
  Key bucket_of(const Key& sizes) const;
  Key bucket_of(const Sizes& sizes) const { return bucket_of(key_of(sizes)); }
  /// The bucket of the minimum of each.
  Key smallest() const;
  /// The buckets of one extent, ascending, and every combination of all, the first extent slowest. Error (argument)
  /// when there are more than kMostListed.
  std::vector<std::int64_t> buckets(std::size_t extent) const;
  std::vector<Key> every_bucket() const;
  static constexpr std::size_t kMostListed = 65536;

  /// "batch=32, time=64".
  std::string text_of(const Key& sizes) const;
  /// "batch (1 to 256), time (1 to 512)".
  std::string text() const;

 private:
  std::int64_t bucket_at(std::size_t extent, std::int64_t size) const;

  std::vector<ExtentSpec> specs_;
};

}  // namespace paoding
