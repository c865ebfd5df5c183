// SPDX-License-Identifier: Apache-2.0
#include "profile/row_names.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "base/one_line.h"
#include "profile/kernel_name.h"

namespace paoding::profile {
namespace {

constexpr std::string_view kCut = "...";

bool starts_character(char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }

}  // namespace

std::string_view head(std::string_view text, std::size_t count) {
  std::size_t end = 0;
  while (end < text.size() && (count > 0 || !starts_character(text[end]))) count -= starts_character(text[end++]);
  return text.substr(0, end);
}

namespace {

std::string_view tail(std::string_view text, std::size_t count) {
  const std::size_t all = characters(text);
  return text.substr(head(text, all > count ? all - count : 0).size());
}

// A list that was shortened before needs no second row of dots.
std::string begun(std::string_view name, std::size_t count) {
  std::string_view kept = head(name, count);
  kept = kept.substr(0, kept.find("+..."));
  while (kept.ends_with('.') || kept.ends_with('+')) kept.remove_suffix(1);
  return std::string(kept) + std::string(kCut);
}

class Cutter {
 public:
  Cutter(std::vector<std::string> names, std::size_t width) : names_(std::move(names)), width_(width) {}

  std::vector<std::string> cut() {
    shown_.resize(names_.size());
    for (std::size_t i = 0; i < names_.size(); ++i) {
      shown_[i] = characters(names_[i]) <= width_ ? names_[i] : begun(names_[i], width_ - kCut.size());
    }
    const std::size_t room = width_ - kCut.size(), behind = room / 2;
    for (std::size_t i : ambiguous()) {
      shown_[i] =
          std::string(head(names_[i], room - behind)) + std::string(kCut) + std::string(tail(names_[i], behind));
    }
    std::map<std::string, std::string> numbered;  // by the whole name
    for (std::size_t i : ambiguous()) {
      if (!numbered.contains(names_[i])) numbered[names_[i]] = fmt::format(" #{}", numbered.size() + 1);
      const std::string& number = numbered[names_[i]];
      shown_[i] = begun(names_[i], room > number.size() ? room - number.size() : 0) + number;
    }
    return std::move(shown_);
  }

 private:
  // The cut names that are those of several rows of different names.
  std::vector<std::size_t> ambiguous() const {
    std::map<std::string, std::set<std::string>> meant;
    for (std::size_t i = 0; i < names_.size(); ++i) meant[shown_[i]].insert(names_[i]);
    std::vector<std::size_t> found;
    for (std::size_t i = 0; i < names_.size(); ++i) {
      if (shown_[i] != names_[i] && meant[shown_[i]].size() > 1) found.push_back(i);
    }
    return found;
  }

  const std::vector<std::string> names_;
  const std::size_t width_;
  std::vector<std::string> shown_;
};

// Names of C++ kernels as people read them. Where those of rows beside each other become one name, numbers tell them
// apart.
std::vector<std::string> short_names(const Section& section) {
  std::vector<std::string> names;
  std::vector<std::size_t> around;                                                // rows that it is in
  std::map<std::pair<std::size_t, std::string>, std::vector<std::size_t>> alike;  // by the row around, and the name
  for (std::size_t i = 0; i < section.rows.size(); ++i) {
    const Row& row = section.rows[i];
    around.resize(std::min(around.size(), static_cast<std::size_t>(std::max(row.depth, 0))));
    const bool is_kernel = is_kernel_of_cpp(row.name);
    names.push_back(is_kernel ? short_kernel_name(row.name) : row.name);
    if (is_kernel) alike[{around.empty() ? section.rows.size() : around.back(), names.back()}].push_back(i);
    around.push_back(i);
  }
  for (const auto& [place, rows] : alike) {
    for (std::size_t n = 0; rows.size() > 1 && n < rows.size(); ++n) names[rows[n]] += fmt::format(" #{}", n + 1);
  }
  return names;
}

}  // namespace

std::string cut_to(std::string_view text, std::size_t width) {
  if (characters(text) <= width) return std::string(text);
  return begun(text, width > kCut.size() ? width - kCut.size() : 0);
}

std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), starts_character));
}

std::vector<std::string> row_names(const Section& section, int width) {
  std::vector<std::string> names = short_names(section);
  for (std::size_t i = 0; i < names.size(); ++i) {
    const Row& row = section.rows[i];
    std::string name(static_cast<std::size_t>(2 * row.depth), ' ');
    if (row.depth == 0 && !section.thread.empty()) name += one_line(section.thread) + "::";
    names[i] = name + one_line(names[i]);
  }
  constexpr int kWidest = 512;  // a name is what every row is padded to
  if (width <= 0) width = kWidest;
  return Cutter(std::move(names), std::max<std::size_t>(static_cast<std::size_t>(width), kCut.size() + 1)).cut();
}

}  // namespace paoding::profile
