// SPDX-License-Identifier: Apache-2.0
// Kernels that a candidate is about, and how their ops, rates and changes are written.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "findings/candidate.h"
#include "findings/kernel_work.h"
#include "findings/words.h"

namespace paoding::findings {

/// "12 GB/s", "1.36 TB/s" of bytes a ns.
std::string rate_text(double bytes_per_ns);

/// A change in the words of each framework. Where the trace does not say which it was, PyTorch's.
struct ChangeText {
  std::string pytorch, jax, paoding;
};
std::string change_for(profile::Source source, const ChangeText& text);

/// The way to record shapes of ops, for a trace that has none.
std::string how_to_record_shapes(profile::Source source);

/// The name of a kernel among others: its op's where it is known, else its own, cut.
std::string kernel_title(const KernelWorks& works, const KernelWork& kernel);

/// Kernels of a candidate, for its text: where most of the time is, and the worst of them as evidence.
class KernelGroup {
 public:
  explicit KernelGroup(const KernelWorks& works) : works_(works) {}
  /// A kernel that would take so much less.
  void add(const KernelWork& kernel, double saved_ns);
  bool is_empty() const { return kernels_.empty(); }
  std::size_t count() const { return kernels_.size(); }
  double saved_ns() const { return saved_ns_; }
  double ns() const { return ns_; }
  /// The part of a step in a sum over all steps, or, where few steps have such kernels, of one of those.
  double per_step(double value) const { return affected().each(value); }
  /// How its texts begin: "", or "In 4 of 39 steps: ".
  std::string in_steps() const { return affected().in_steps(); }
  /// The place of the kernel that would save most.
  Where where() const;
  Evidence lost() const;
  Examples examples() const { return lost().examples(works_.steps()); }
  /// "aten::mul (145 of 339), aten::add (48)": the first few ops, those first that would save most.
  std::string ops(std::size_t most = 3) const;
  /// "bf16 to f32 (4 calls a step), f32 to bf16 (4 calls a step)" of casts; "" where the trace does not say.
  std::string casts() const;

 private:
  struct Entry {
    const KernelWork* kernel;
    double saved_ns;
  };
  Affected affected() const;
  std::string counts(const std::function<std::string(const KernelWork&)>& name, std::size_t most) const;

  const KernelWorks& works_;
  std::vector<Entry> kernels_;
  std::vector<std::size_t> steps_;  // of those, without repeats beside each other
  double saved_ns_ = 0, ns_ = 0;
};

}  // namespace paoding::findings
