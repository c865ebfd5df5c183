// SPDX-License-Identifier: Apache-2.0
#include "paoding/extents.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "base/check.h"
#include "base/one_line.h"

namespace paoding {
namespace {

// Words of graph text.
bool is_extent_name(std::string_view name) {
  const auto is_letter = [](char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; };
  return !name.empty() && is_letter(name[0]) &&
         std::ranges::all_of(name, [&](char c) { return is_letter(c) || (c >= '0' && c <= '9') || c == '.'; });
}

std::string bounds_text(const ExtentSpec& spec) {
  return spec.maximum == ExtentSpec::kNoMaximum ? fmt::format("{} or more", spec.minimum)
                                                : fmt::format("{} to {}", spec.minimum, spec.maximum);
}

}  // namespace

Buckets multiples_of(std::int64_t n) {
  if (n < 1 || n > ExtentSpec::kNoMaximum) {
    fail(ErrorKind::argument, "multiples_of: n is {}, must be 1 to {}", n, ExtentSpec::kNoMaximum);
  }
  Buckets buckets;
  buckets.rule_ = Buckets::Rule::multiples;
  buckets.step_ = n;
  return buckets;
}

Buckets powers_of_two() {
  Buckets buckets;
  buckets.rule_ = Buckets::Rule::powers_of_two;
  return buckets;
}

Buckets bucket_sizes(std::vector<std::int64_t> sizes) {
  if (sizes.empty()) fail(ErrorKind::argument, "bucket_sizes: there are no sizes, needed is at least one");
  const auto falls = std::ranges::adjacent_find(sizes, [](std::int64_t a, std::int64_t b) { return a >= b; });
  if (falls != sizes.end()) {
    fail(ErrorKind::argument, "bucket_sizes: {} stands before {}, sizes must ascend", falls[0], falls[1]);
  }
  Buckets buckets;
  buckets.rule_ = Buckets::Rule::sizes;
  buckets.sizes_ = std::move(sizes);
  return buckets;
}

Buckets buckets_by(Buckets::Function function) {
  if (!function) fail(ErrorKind::argument, "buckets_by: there is no function");
  Buckets buckets;
  buckets.rule_ = Buckets::Rule::function;
  buckets.function_ = std::move(function);
  return buckets;
}

Extents::Extents(std::vector<ExtentSpec> specs) : specs_(std::move(specs)) {
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    const ExtentSpec& spec = specs_[i];
    if (!is_extent_name(spec.name)) {
      fail(ErrorKind::argument, "extents: '{}' is no name, needed is a word as batch or time", one_line(spec.name));
    }
    if (index_of(spec.name) != static_cast<int>(i)) {
      fail(ErrorKind::argument, "extents: {} stands twice", spec.name);
    }
    if (spec.minimum < 0 || spec.minimum > spec.maximum || spec.maximum > ExtentSpec::kNoMaximum) {
      fail(ErrorKind::argument, "extents: {} is from {} to {}, needed is 0 <= minimum <= maximum <= {}", spec.name,
           spec.minimum, spec.maximum, ExtentSpec::kNoMaximum);
    }
    for (const std::int64_t size : spec.buckets.sizes_) {
      if (size >= spec.minimum && size <= spec.maximum) continue;
      fail(ErrorKind::argument, "extents: {} has a bucket of {}; this class holds {}", spec.name, size,
           bounds_text(spec));
    }
  }
}

int Extents::index_of(std::string_view name) const {
  const auto found = std::ranges::find(specs_, name, &ExtentSpec::name);
  return found == specs_.end() ? -1 : static_cast<int>(found - specs_.begin());
}

Extents::Key Extents::key_of(const Sizes& sizes) const {
  Key key(specs_.size(), -1);
  std::vector<char> is_given(specs_.size(), 0);
  std::vector<std::string> problems;
  for (const auto& [name, size] : sizes.entries()) {
    const int at = index_of(name);
    if (at < 0) {
      problems.push_back(fmt::format("there is no extent '{}'", one_line(name)));
    } else if (std::exchange(is_given[static_cast<std::size_t>(at)], 1) != 0) {
      problems.push_back(fmt::format("{} is given twice", name));
    } else {
      key[static_cast<std::size_t>(at)] = size;
    }
  }
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    if (is_given[i] == 0) problems.push_back(fmt::format("{} has no size", specs_[i].name));
  }
  if (!problems.empty()) {
    fail(ErrorKind::argument, "{}; the extents are: {}", fmt::join(problems, ", "), specs_.empty() ? "none" : text());
  }
  return key;
}

void Extents::check(const Key& sizes) const {
  if (sizes.size() != specs_.size()) {
    fail(ErrorKind::argument, "{} sizes for {} extents: {}", sizes.size(), specs_.size(), text());
  }
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    const ExtentSpec& spec = specs_[i];
    if (sizes[i] >= spec.minimum && sizes[i] <= spec.maximum) continue;
    fail(ErrorKind::shape, "{} is {}; this class holds {}", spec.name, sizes[i], bounds_text(spec));
  }
}

std::int64_t Extents::bucket_at(std::size_t extent, std::int64_t size) const {
  const auto& [name, minimum, maximum, buckets] = specs_[extent];
  switch (buckets.rule_) {
    case Buckets::Rule::exact: return size;
    case Buckets::Rule::multiples: return std::min(maximum, (size + buckets.step_ - 1) / buckets.step_ * buckets.step_);
    case Buckets::Rule::powers_of_two:
      return size == 0 ? 0
                       : std::min(maximum, static_cast<std::int64_t>(std::bit_ceil(static_cast<std::uint64_t>(size))));
    case Buckets::Rule::sizes: {
      const auto at = std::ranges::lower_bound(buckets.sizes_, size);
      if (at == buckets.sizes_.end()) {
        fail(ErrorKind::shape, "{} is {}; no bucket holds it, they are: {}", name, size,
             fmt::join(buckets.sizes_, ", "));
      }
      return *at;
    }
    default: {
      const std::int64_t bucket = buckets.function_(size);
      if (bucket < size || bucket > maximum) {
        fail(ErrorKind::argument, "{} is {}; its function of buckets gives {}, needed is {} to {}", name, size, bucket,
             size, maximum);
      }
      return bucket;
    }
  }
}

Extents::Key Extents::bucket_of(const Key& sizes) const {
  check(sizes);
  Key key(sizes.size());
  for (std::size_t i = 0; i < sizes.size(); ++i) key[i] = bucket_at(i, sizes[i]);
  return key;
}

Extents::Key Extents::smallest() const {
  Key key;
  for (const ExtentSpec& spec : specs_) key.push_back(spec.minimum);
  return bucket_of(key);
}

std::vector<std::int64_t> Extents::buckets(std::size_t extent) const {
  if (extent >= specs_.size()) {
    fail(ErrorKind::argument, "buckets: there is no extent number {}; there are {}", extent, specs_.size());
  }
  const ExtentSpec& spec = specs_[extent];
  const bool is_listed = spec.buckets.rule_ == Buckets::Rule::sizes;
  if (is_listed) return spec.buckets.sizes_;
  std::vector<std::int64_t> all;
  for (std::int64_t size = spec.minimum; size <= spec.maximum; ++size) {
    size = bucket_at(extent, size);
    all.push_back(size);
    if (all.size() > kMostListed) {
      fail(ErrorKind::argument, "buckets: {} has more than {}", spec.name, kMostListed);
    }
  }
  return all;
}

std::vector<Extents::Key> Extents::every_bucket() const {
  std::vector<Key> all{{}};
  for (std::size_t i = 0; i < specs_.size(); ++i) {
    const std::vector<std::int64_t> sizes = buckets(i);
    if (all.size() > kMostListed / sizes.size()) {
      fail(ErrorKind::argument, "buckets: there are more than {} of {}", kMostListed, text());
    }
    std::vector<Key> longer;
    for (const Key& key : all) {
      for (const std::int64_t size : sizes) {
        longer.push_back(key);
        longer.back().push_back(size);
      }
    }
    all = std::move(longer);
  }
  return all;
}

std::string Extents::text_of(const Key& sizes) const {
  std::string text;
  for (std::size_t i = 0; i < sizes.size() && i < specs_.size(); ++i) {
    text += fmt::format("{}{}={}", i == 0 ? "" : ", ", specs_[i].name, sizes[i]);
  }
  return text;
}

std::string Extents::text() const {
  std::string text;
  for (const ExtentSpec& spec : specs_) {
    text += fmt::format("{}{} ({})", text.empty() ? "" : ", ", spec.name, bounds_text(spec));
  }
  return text;
}

}  // namespace paoding
